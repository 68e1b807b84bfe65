"""Write the pages of a full run into docs/benchmarks: of the stores, of the lock server, of the cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.picture import draw
from bench.report import Line, table
from bench.servers import KINDS

PLACE = Path(__file__).parent.parent / "docs" / "benchmarks"
RIGHT = ("measured", "ratio", "before", "target")

INTRODUCTION = """\
# Benchmarks

![How far each measurement is from its target, and how a contended lock goes round](benchmarks.svg)

Written by `make bench`; do not edit. Everything on this page, on that of the [lock server](server.md) and on
that of the [cluster](cluster.md) comes from one run, on {machine}. {busy}

Absolute figures move from machine to machine and from run to run. So each is measured beside something
else, in turns within the same run, and what counts is the ratio. Figures are medians of the rounds, except
where a line says *worst*. A target that is not met fails nothing: it is a thing to work on.

*before* is what a line came to before hand-overs, the server and asyncio were made faster: the figure, and
the ratio where it was beside the same thing. That was another run, so compare the ratios.

Servers are private ones on the same machine, each started for one section and removed after it. They commit
to the disk as they do by default. What is set for the measurements is {settings}.
Limits are programs in C that come with the servers (`pgbench`, `mariadb-slap`) and send the stores' own
statements. Floors are programs in C of our own (`bench/floor`): the smallest queue that is as durable.
"""
OTHERS = {
    "server": "# Benchmarks of the lock server\n",
    "cluster": "# Benchmarks of the cluster\n",
}
SAME = "Written by `make bench`; do not edit. Same run and same rules as for [everything else](README.md).\n"

Results = list[tuple[str, Any, list[Line]]]  # name of a section, the section, its lines


def write(machine: str, busy: str, results: Results) -> None:
    """Write the pages and the picture."""
    PLACE.mkdir(parents=True, exist_ok=True)
    stores = [each for each in results if _page(each[0]) == "README"]
    introduction = INTRODUCTION.format(machine=machine, busy=busy, settings=_settings())
    (PLACE / "README.md").write_text("\n".join([introduction, *_sections(stores)]), "utf-8")
    for page, title in OTHERS.items():
        here = [each for each in results if _page(each[0]) == page]
        (PLACE / f"{page}.md").write_text("\n".join([title, SAME, *_sections(here)]), "utf-8")
    draw(PLACE / "benchmarks.svg", [line for _, _, lines in results for line in lines])


def _page(section: str) -> str:
    """Tell on which page a section is."""
    return (
        "server" if section.startswith("http") else "cluster" if section in ("claims", "fleet") else "README"
    )


def _sections(results: Results) -> list[str]:
    return [
        part
        for name, section, lines in results
        for part in (
            f"## {section.TITLE}\n",
            _table(lines),
            _meanings(lines),
            f"Again: `python -m bench {name}`\n",
        )
    ]


def _settings() -> str:
    """Tell how the servers differ from what their packages install."""
    return "; ".join(
        f"{kind.name}: " + ", ".join(f"`{name} = {value}`" for name, value in kind.settings.items())
        for kind in KINDS
    )


def _table(lines: list[Line]) -> str:
    head, *rows = table(lines)
    sides = ["---:" if name in RIGHT else "---" for name in head]
    cells = [head, sides, *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(row)} |" for row in cells) + "\n"


def _meanings(lines: list[Line]) -> str:
    """Explain each line once: neighbours that mean the same share the words."""
    seen: dict[str, list[str]] = {}
    for line in lines:
        if line.means:
            seen.setdefault(line.means, []).append(line.what.removeprefix("… "))
    return (
        "\n".join(f"- *{'; '.join(dict.fromkeys(names))}*: {means}" for means, names in seen.items()) + "\n"
    )
