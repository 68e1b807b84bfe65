"""Run the sections that are named, or all of them; print tables, and write the page of a full run."""

from __future__ import annotations

import argparse
import sys
import time
from importlib import import_module

from bench.measure import Others, machine
from bench.report import show
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
ON_REQUEST = {"queueing": "bench.queueing"}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument(
        "sections", nargs="*", metavar="section", help=f"{', '.join(SECTIONS)}; and {', '.join(ON_REQUEST)}"
    )
    parser.add_argument("--quick", action="store_true", help="shorter and rougher; writes nothing")
    given = parser.parse_args()
    known = SECTIONS | ON_REQUEST
    if unknown := [name for name in given.sections if name not in known]:
        parser.error(f"no section is named {', '.join(unknown)}; there are {', '.join(known)}")
    about, others = machine(*versions()), Others()
    sys.stdout.write(f"{about}\n")
    results = []
    for name in given.sections or SECTIONS:
        section = import_module(known[name])
        started = time.perf_counter()
        lines = section.run(given.quick)
        show(f"{section.TITLE}  [{name}, {time.perf_counter() - started:.0f} s]", lines)
        results.append((name, section, lines))
    scored = [line for _, _, lines in results for line in lines if line.met is not None]
    sys.stdout.write(f"\n{sum(line.met for line in scored)} of {len(scored)} targets met\n")
    busy = others.share()
    busy_text = "" if busy is None else f"Other work used {busy:.0%} of the machine meanwhile."
    sys.stdout.write(f"{busy_text}\n")
    if not given.sections and not given.quick:
        from bench.page import write  # draws, which takes a while to import

        write(about, busy_text, results)


if __name__ == "__main__":
    main()
