"""Tell of a run: a page that a person can look at, a few lines for the terminal, an index of several runs.

    records ──► leases, unknowns, latencies ──► figures ──► page (picture, tables), terminal, index

Pages need nothing but themselves: one file each, no script that has to run, no address that has to answer.
``python -m proof.report.example`` writes the page of a made-up history, for work on how it looks.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from proof.histories.records import History, Verdict
from proof.report.index import Told, index_page
from proof.report.page import run_page
from proof.report.terminal import run_summary


def write_report(
    history: History, verdicts: Sequence[Verdict], path: Path, *, missed: Sequence[str] = ()
) -> None:
    """Write the page of one run. *missed* says which goals it did not reach: then it has not held."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(run_page(history, verdicts, missed), "utf-8")


def summary(history: History, verdicts: Sequence[Verdict], *, missed: Sequence[str] = ()) -> str:
    """Return the same in at most 25 lines."""
    return run_summary(history, verdicts, missed)


def write_index(runs: Sequence[Told], path: Path, *, missed: Sequence[Sequence[str]] = ()) -> None:
    """Write a page with a row for each run: its history, what the checkers said, and where its page is.

    *missed* are the goals each of them did not reach, in the order of the runs.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(index_page(runs, path, missed), "utf-8")
