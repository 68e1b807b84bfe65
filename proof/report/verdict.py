"""The verdict in a line, and the figures that carry it."""

from __future__ import annotations

from proof.histories.records import BARE, FENCED, RAISED
from proof.report.figures import Figures
from proof.report.markup import Markup, element
from proof.report.spelling import counted


def sentence(figures: Figures) -> str:
    """Return "held: 112,408 operations, …", or "FAILED: …" with the reasons first."""
    figures_said = (
        f"{counted(figures.total, 'operation')}, "
        f"{counted(figures.takeover_count, 'takeover')} by expiry, "
        f"{counted(len(figures.classes), 'kind')} of faults"
    )
    if figures.held:
        return f"held: {figures_said}, 0 violations, 0 undecided"
    return f"FAILED: {', '.join(figures.trouble)}; {figures_said}"


def headline(figures: Figures) -> Markup:
    """Return the verdict, big; when it failed, with the seed and how to see it again."""
    state, _, rest = sentence(figures).partition(": ")
    again = (
        "Again, with the same seed:"
        if figures.held
        else f"FAILED with seed {figures.run.seed}. Run it again:"
    )
    return Markup(
        element("p", f"holdfast · proof on {figures.run.store}", class_="over")
        + element("h1", element("strong", "✓ " if figures.held else "✕ ", f"{state}:"), f" {rest}")
        + element("p", again, class_="again")
    )


def tiles(figures: Figures) -> Markup:
    """Return the figures that one looks for first."""
    shown = [
        (figures.total, "operations recorded", False),
        (figures.takeover_count, "takeovers by expiry", False),
        (figures.entered, "hand-overs entered without another request", False),
        (figures.passed_on, "calls by another thread or task than the turn's", False),
        (
            len(figures.classes),
            f"kinds of faults, {sum(len(c.injected) for c in figures.classes):,} injections",
            False,
        ),
        (len(figures.violations), "violations", True),
        (figures.undecided_total, "undecided", True),
        (figures.lost(FENCED, RAISED), "fenced updates lost", True),
        (figures.lost(BARE), "lost by the control, without a fence", False),
    ]
    return element(
        "ul",
        [
            element(
                "li", element("b", value), element("span", name), class_="bad" if wrong and value else None
            )
            for value, name, wrong in shown
        ],
        class_="tiles",
    )
