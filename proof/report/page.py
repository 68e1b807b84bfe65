"""One page for one run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from proof.histories.records import History, Verdict
from proof.report import words
from proof.report.figures import Figures, count
from proof.report.markup import Markup, element
from proof.report.picture import picture
from proof.report.spelling import date, duration
from proof.report.tables import (
    calls_table,
    checks_table,
    faults_table,
    impossible,
    unknowns_table,
    updates_table,
    violations_told,
)
from proof.report.verdict import headline, tiles

HERE = Path(__file__).parent
# Nothing is fetched from anywhere, and the browser is told so.
POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def run_page(history: History, verdicts: Sequence[Verdict], missed: Sequence[str] = ()) -> str:
    """Return the page as text."""
    figures = count(history, verdicts, missed)
    body = [
        _head(figures),
        _section("What went wrong", violations_told(figures)) if figures.violations else None,
        _section("The run", picture(figures), words.explained(words.PICTURE)),
        _section("The control: what a fence is for", updates_table(figures), words.explained(words.UPDATES)),
        _section("What was checked", checks_table(figures), words.explained(words.CHECKS)),
        _section(
            "What was asked, and answered",
            calls_table(figures),
            unknowns_table(figures),
            words.explained(words.CALLS),
        ),
        _section(
            "What was done to it",
            faults_table(figures),
            impossible(figures),
            words.explained(words.FAULTS),
        ),
        _section(
            "What this does not show",
            element("ul", [element("li", text) for text in words.not_shown(figures)]),
        ),
    ]
    state = "held" if figures.held else "FAILED"
    return document(f"{state}: proof on {figures.run.store}, seed {figures.run.seed}", body)


def document(title: str, body: Sequence[Markup | None]) -> str:
    """Return a whole page around *body*."""
    style = "".join((HERE / name).read_text("utf-8") for name in ("base.css", "picture.css"))
    parts = [
        Markup("<!doctype html>\n"),
        Markup('<html lang="en">'),
        element(
            "head",
            element("meta", charset="utf-8"),
            element("meta", http_equiv="Content-Security-Policy", content=POLICY),
            element("meta", name="viewport", content="width=device-width, initial-scale=1"),
            element("meta", name="color-scheme", content="light dark"),
            element("title", title),
            Markup(f"<style>\n{style}</style>"),
        ),
        element("body", element("main", [part for part in body if part is not None])),
        Markup("</html>\n"),
    ]
    return "".join(parts)


def _section(title: str, *inside: Markup) -> Markup:
    return element("section", element("h2", title), *inside)


def _head(figures: Figures) -> Markup:
    run = figures.run
    facts = [
        ("store", run.store),
        ("seed", str(run.seed)),
        ("when", date(figures.when) if figures.when else "not known"),
        ("traffic and faults", duration(figures.ended - figures.began)),
        ("versions", ", ".join(f"{name} {version}" for name, version in run.versions.items()) or "not known"),
        *((name, str(value)) for name, value in sorted(run.settings.items()) if name != "impossible"),
    ]
    return element(
        "header",
        headline(figures),
        element("pre", run.replay or "no command was recorded", class_="replay", tabindex="0"),
        tiles(figures),
        element("dl", [[element("dt", name), element("dd", value)] for name, value in facts], class_="facts"),
        class_="held" if figures.held else "failed",
    )
