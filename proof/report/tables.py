"""The tables of the page."""

from __future__ import annotations

from proof.histories.records import BARE, FENCED, RAISED
from proof.report.figures import OUTCOMES, Figures
from proof.report.markup import Inside, Markup, element, spot, table
from proof.report.picture import in_order
from proof.report.spelling import counted, number, share
from proof.report.words import MEANINGS

FULL_TEXTS, FULL_LENGTH = 8, 6_000  # violations of a rule that are shown, and how much of each
FULL_TEXTS_OF_ALL = 40
ALL = "all"


def calls_table(figures: Figures) -> Markup:
    """Return recorded calls by kind and outcome."""
    rows: list[list[Inside]] = [
        [kind, *(outcomes[outcome] for outcome in OUTCOMES), sum(outcomes.values())]
        for kind, outcomes in figures.calls.items()
    ]
    totals = [sum(outcomes[outcome] for outcomes in figures.calls.values()) for outcome in OUTCOMES]
    rows.append([element("b", ALL), *totals, figures.total])
    kinds = ", ".join(f"{kind} {number(counts['calls'])}" for kind, counts in sorted(figures.keys.items()))
    caption = f"Recorded calls. By kind of key: {kinds or 'none'}"
    return table(["call", *OUTCOMES, ALL], rows, caption=caption, numbers=range(1, 5))


def unknowns_table(figures: Figures) -> Markup:
    """Return what became of the unknown ones."""
    rows: list[list[Inside]] = [
        [kind, each.applied, each.not_applied, each.open]
        for kind, outcomes in figures.calls.items()
        if (each := figures.resolved.get(kind)) is not None and outcomes["unknown"]
    ]
    head = ["unknown call", "was applied", "was not", "left to the checkers"]
    caption = "Unknown calls, as the audit and the resources resolve them"
    return (
        table(head, rows, caption=caption, numbers=range(1, 4))
        if rows
        else element("p", "No call was unknown.")
    )


def checks_table(figures: Figures) -> Markup:
    """Return the rules, by checker."""
    rows: list[list[Inside]] = []
    for checker, undecided in figures.undecided.items():
        rules = [rule for rule in figures.rules if rule.checker == checker]
        heading = f"{checker}: {counted(len(rules), 'rule')}"
        rows.append([element("th", heading, class_="group", colspan=3, scope="rowgroup")])
        for rule in rules:
            meaning = MEANINGS.get(rule.name)
            named = [element("span", rule.name), element("small", meaning) if meaning else None]
            mark = _mark(len(rule.violations), idle=not rule.applied)
            rows.append([element("span", named, class_="rule"), rule.applied, mark])
        rows.append([element("i", "undecided"), "", _mark(undecided)])
    caption = f"Against {figures.asks:,} requests to the store and {figures.audit:,} rows of its audit"
    return table(["rule", "applied to", "violations"], rows, caption=caption, numbers=(1, 2))


def _mark(wrong: int, *, idle: bool = False) -> Markup:
    """Return a number that has to be 0, as a cell."""
    text = f"✕ {wrong:,}" if wrong else "– not exercised" if idle else "✓ 0"
    return element("td", text, class_=f"number {'bad' if wrong else 'idle' if idle else 'good'}")


def violations_told(figures: Figures) -> Markup:
    """Return the first violations of each rule in full."""
    parts, room = [], FULL_TEXTS_OF_ALL
    for rule in figures.rules:
        if not rule.violations:
            continue
        parts.append(element("h3", f"✕ {rule.name}: {counted(len(rule.violations), 'violation')}"))
        shown = rule.violations[: min(FULL_TEXTS, room)]
        room -= len(shown)
        for violation in shown:
            text = violation.text
            if len(text) > FULL_LENGTH:
                text = f"{text[:FULL_LENGTH]} … and {len(text) - FULL_LENGTH:,} characters more"
            parts.append(
                element("pre", element("b", violation.key), "\n", text, class_="violation", tabindex="0")
            )
        if more := len(rule.violations) - len(shown):
            parts.append(element("p", f"… and {more:,} more of this rule."))
    return element("div", parts, class_="violations") if parts else Markup()


def updates_table(figures: Figures) -> Markup:
    """Return acknowledged updates lost, with a fence and without."""
    names = {
        FENCED: "fence in the transaction",
        RAISED: "token raised at the resource",
        BARE: "the lock alone (control)",
    }
    rows: list[list[Inside]] = []
    most = max((each.lost / each.acknowledged for each in figures.updates if each.acknowledged), default=0.0)
    scale = next(top for top in (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0) if most <= top)
    for each in figures.updates:
        bad = bool(each.lost) and each.kind != BARE
        part = each.lost / each.acknowledged if each.acknowledged else 0.0
        said = f"{each.lost:,} ({share(each.lost, each.acknowledged)})"
        bar = element(
            "td",
            element(
                "div", spot("i", 0.0, part / scale), class_="part", role="img", aria_label=f"{said} lost"
            ),
            class_="wide",
        )
        mark = element("td", "✕ " if bad else None, said, class_="number bad" if bad else "number")
        by_guard = each.fenced_off if each.kind != BARE else "–"
        rows.append([names[each.kind], each.acknowledged, each.refused, by_guard, mark, bar])
    head = [
        "what protects the data",
        "acknowledged",
        "refused",
        "of them by the guard itself",
        "lost",
        f"share of the acknowledged ones, up to {scale:.0%}",
    ]
    caption = "Acknowledged updates that are not there in the end"
    bare = next(each for each in figures.updates if each.kind == BARE)
    if bare.lost:
        caption += (
            f". Of the control's, {bare.planned:,} by a planned sleep, {bare.by_fault:,} by faults alone"
        )
    return table(head, rows, caption=caption, numbers=(1, 2, 3, 4))


def faults_table(figures: Figures) -> Markup:
    """Return the classes of faults."""
    rows: list[list[Inside]] = [
        [each.name, len(each.injected), f"{each.seconds:,.1f}", each.pairs]
        for each in in_order(figures.classes)
    ]
    times, seconds = (sum(len(c.injected) for c in figures.classes), sum(c.seconds for c in figures.classes))
    rows.append([element("b", ALL), times, f"{seconds:,.1f}", sum(c.pairs for c in figures.classes)])
    head = ["fault", "injections", "seconds", "of them in pairs"]
    caption = f"{counted(len(figures.classes), 'kind')} of faults, {counted(figures.pairs, 'pair')}"
    return table(head, rows, caption=caption, numbers=range(1, 4))


def impossible(figures: Figures) -> Markup:
    """Return which kinds of faults could not be had, and why; on another machine some could be."""
    if not figures.impossible:
        return Markup()
    rows: list[list[Inside]] = [
        [name, element("b", why) if name in figures.missing else why]
        for name, why in sorted(figures.impossible.items(), key=lambda each: each[0] not in figures.missing)
    ]
    return table(["fault", "why not"], rows, caption="What could not be had here")
