"""Run the sections that are named, or all of them; print tables, and write the page of a full run."""

from __future__ import annotations

import argparse
import json
import sys
import time
import traceback
from importlib import import_module
from pathlib import Path
from typing import Any

from bench import before
from bench.measure import Others, machine
from bench.reasons import REASONS
from bench.report import Line, show
from bench.servers import versions

SECTIONS = {
    "sqlite": "bench.sqlite_pair",
    "memory": "bench.memory_pair",
    "postgres": "bench.postgres_pair",
    "mariadb": "bench.mariadb_pair",
    "handover": "bench.handover",
    "contended": "bench.contended",
    "writers": "bench.writers",
    "family": "bench.family",
    "growth": "bench.growth",
    "renewal": "bench.renewal",
    "import": "bench.importing",
    "crash": "bench.crash",
    "claims": "bench.claims",
    "fleet": "bench.fleet",
    "http": "bench.http_pairs",
    "http-handover": "bench.http_handover",
    "http-client": "bench.http_client",
    "http-streams": "bench.http_streams",
}
FAILED = "failed"


def main() -> None:
    given = _arguments()
    about, others = machine(*versions()), Others()
    sys.stdout.write(f"{about}\n")
    results = [(name, *_run(name, given.quick)) for name in given.sections or SECTIONS]
    lines = [line for _, _, lines in results for line in lines]
    scored = [line.met for line in lines if line.met is not None]
    sys.stdout.write(f"\n{sum(scored)} of {len(scored)} targets met\n")
    busy = others.share()
    busy_text = "" if busy is None else f"Other work used {busy:.0%} of the machine meanwhile."
    sys.stdout.write(f"{busy_text}\n")
    if given.keep:
        found = {line.title: [line.value, line.told_ratio] for line in lines if line.value != FAILED}
        rows = ",\n".join(f"  {_json(title)}: {_json(figures)}" for title, figures in found.items())
        given.keep.write_text(f"{{\n{rows}\n}}\n", "utf-8")
    if not given.sections and not given.quick:
        from bench.page import write  # draws, which takes a while to import

        write(about, busy_text, results)
        titles = {line.title for line in lines}
        if stale := [title for title in (*before.TITLES, *REASONS) if title not in titles]:
            sys.stdout.write(f"kept, but there is no such line: {'; '.join(stale)}\n")
    if any(line.value == FAILED for line in lines):
        sys.exit("a section failed")


def _run(name: str, quick: bool) -> tuple[Any, list[Line]]:
    """Run a section. One that fails does not take the others with it."""
    section = import_module(SECTIONS[name])
    started = time.perf_counter()
    try:
        lines = section.run(quick)
    except Exception as error:
        traceback.print_exc()
        lines = [Line(name, FAILED, f"{type(error).__name__}: {error}")]
    show(f"{section.TITLE}  [{name}, {time.perf_counter() - started:.0f} s]", lines)
    return section, lines


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("sections", nargs="*", metavar="section", help=", ".join(SECTIONS))
    parser.add_argument("--quick", action="store_true", help="shorter and rougher; writes nothing")
    parser.add_argument(
        "--keep", type=Path, metavar="FILE", help="write figures and ratios as in before.json"
    )
    given = parser.parse_args()
    if unknown := [name for name in given.sections if name not in SECTIONS]:
        parser.error(f"no section is named {', '.join(unknown)}; there are {', '.join(SECTIONS)}")
    return given


if __name__ == "__main__":
    main()
