"""Write the page of a full run, docs/benchmarks/README.md."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.picture import draw
from bench.report import Line, table
from bench.servers import KINDS

RIGHT = ("measured", "ratio", "before", "target")
PLACE = Path(__file__).parent.parent / "docs" / "benchmarks"

INTRODUCTION = """\
# Benchmarks

![How far each measurement is from its target, and how a contended lock goes round](benchmarks.svg)

Written by `make bench`; do not edit. Everything on this page comes from one run, on {machine}. {busy}

Absolute figures move from machine to machine and from run to run. So each is measured beside something
else, in turns within the same run, and what counts is the ratio. Figures are medians of the rounds, except
where a line says *worst*. A target that is not met fails nothing: it is a thing to work on.

Servers are private ones on the same machine, each started for one section and removed after it. They commit
to the disk as they do by default. What is set for the measurements is {settings}.
Limits are programs in C that come with the servers (`pgbench`, `mariadb-slap`) and send the stores' own
statements. Floors are programs in C of our own (`bench/floor`): the smallest queue that is as durable.

*before* is what a line came to in the last run before hand-overs, the server and asyncio were made faster:
the figure, and the ratio where it was beside the same thing. It was another run, so compare the ratios.
"""


def write(machine: str, busy: str, results: list[tuple[str, Any, list[Line]]]) -> None:
    """Write the page and the picture."""
    PLACE.mkdir(parents=True, exist_ok=True)
    parts = [INTRODUCTION.format(machine=machine, busy=busy, settings=_settings())]
    for name, section, lines in results:
        parts.append(f"## {section.TITLE}\n")
        parts.append(_table(lines))
        parts.append(_meanings(lines))
        parts.append(f"Again: `python -m bench {name}`\n")
    (PLACE / "README.md").write_text("\n".join(parts), "utf-8")
    draw(PLACE / "benchmarks.svg", [line for _, _, lines in results for line in lines])


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
