"""One page over several runs: a row for each, with its figures, and the way to its own page."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

from proof.histories.records import BARE, FENCED, RAISED, History, Verdict
from proof.report.figures import Figures, count
from proof.report.markup import Inside, Markup, element, table
from proof.report.page import document
from proof.report.spelling import counted, duration, share
from proof.report.words import INDEX, flowing

Told = tuple[History, Sequence[Verdict], Path]


def index_page(runs: Sequence[Told], path: Path, missed: Sequence[Sequence[str]] = ()) -> str:
    """Return the page that is to be at *path*; its links are relative to that."""
    goals = [*missed, *([()] * (len(runs) - len(missed)))]
    counted_runs = [
        (count(history, verdicts, goal), os.path.relpath(page, path.parent))
        for (history, verdicts, page), goal in zip(runs, goals, strict=True)
    ]
    broken = [figures for figures, _ in counted_runs if not figures.held]
    if not counted_runs:
        state, rest = "✕ FAILED", "nothing was run"
    elif broken:
        state, rest = "✕ FAILED", f"on {len(broken)} of {counted(len(counted_runs), 'store')}"
    else:
        total = sum(figures.total for figures, _ in counted_runs)
        state = "✓ held"
        rest = f"on {counted(len(counted_runs), 'store')}: {total:,} operations, 0 violations, 0 undecided"
    bad = broken or not counted_runs
    body = [
        element(
            "header",
            element("p", "holdfast · proof", class_="over"),
            element("h1", element("strong", state), f" {rest}"),
            [_failed(figures) for figures in broken],
            class_="failed" if bad else "held",
        ),
        element("section", element("h2", "Runs"), _runs(counted_runs)),
        element(
            "section", element("h2", "To run them again"), [_again(figures) for figures, _ in counted_runs]
        ),
        element("section", element("h2", "How to read it"), element("p", flowing(INDEX))),
    ]
    return document(f"{'FAILED' if bad else 'held'}: proof", body)


def _failed(figures: Figures) -> Markup:
    why = f"{figures.run.store} FAILED with seed {figures.run.seed}: {', '.join(figures.trouble)}."
    return Markup(element("p", why, " Run it again:", class_="again") + _command(figures))


def _runs(runs: Sequence[tuple[Figures, str]]) -> Markup:
    rows: list[list[Inside]] = []
    for figures, link in runs:
        bare = next(each for each in figures.updates if each.kind == BARE)
        state = "✓ held" if figures.held else "✕ FAILED: " + ", ".join(figures.trouble)
        fenced = figures.lost(FENCED, RAISED)
        rows.append(
            [
                element("a", figures.run.store, href=quote(link)),
                element("td", state, class_="verdict good" if figures.held else "verdict bad"),
                figures.total,
                figures.takeover_count,
                len(figures.classes),
                _zero(len(figures.violations)),
                _zero(figures.undecided_total),
                _zero(fenced),
                f"{bare.lost:,} ({share(bare.lost, bare.acknowledged)})",
                duration(figures.ended - figures.began),
            ]
        )
    head = ["store", "verdict", "operations", "takeovers", "kinds of faults", "violations", "undecided"]
    head += ["fenced updates lost", "lost by the control", "traffic and faults"]
    return table(head, rows, caption="One line for each store", numbers=range(2, 10))


def _zero(value: int) -> Markup:
    """Return a number that has to be 0."""
    return element("td", f"✕ {value:,}" if value else "0", class_="number bad" if value else "number")


def _again(figures: Figures) -> Markup:
    return Markup(element("p", f"{figures.run.store}, seed {figures.run.seed}") + _command(figures))


def _command(figures: Figures) -> Markup:
    return element("pre", figures.run.replay or "no command was recorded", class_="replay", tabindex="0")
