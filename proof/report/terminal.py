"""The run in a few lines, for the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from proof.histories.records import BARE, FENCED, RAISED, History, Verdict
from proof.report.figures import OUTCOMES, Figures, count
from proof.report.markup import visible
from proof.report.spelling import counted, duration, share
from proof.report.verdict import sentence

LINES, WIDTH = 25, 150


def run_summary(history: History, verdicts: Sequence[Verdict], missed: Sequence[str] = ()) -> str:
    """Return at most 25 lines."""
    figures = count(history, verdicts, missed)
    run = figures.run
    lines = [
        sentence(figures),
        _fact("run", f"{run.store}, seed {run.seed}, {duration(figures.ended - figures.began)}"),
    ]
    if not figures.held:
        lines.append(_fact("FAILED", f"seed {run.seed}. Again: {run.replay}"))
    lines += _calls(figures) + _checks(figures) + _rest(figures)
    if figures.held:
        lines.append(_fact("again", run.replay))
    return "\n".join(_clipped(line) for line in lines[:LINES])


def _fact(name: str, text: str) -> str:
    return f"  {name:<10} {text}"


def _clipped(line: str) -> str:
    line = visible(line.replace("\n", " "))
    # The command that replays it is never cut.
    return (
        line
        if len(line) <= WIDTH or "gain: " in line or line.startswith("  again")
        else line[: WIDTH - 1] + "…"
    )


def _calls(figures: Figures) -> list[str]:
    totals = {outcome: sum(o[outcome] for o in figures.calls.values()) for outcome in OUTCOMES}
    said = ", ".join(f"{totals[outcome]:,} {outcome}" for outcome in OUTCOMES)
    applied = sum(each.applied for each in figures.resolved.values())
    not_applied = sum(each.not_applied for each in figures.resolved.values())
    unknown = f" ({applied:,} applied, {not_applied:,} not)" if totals["unknown"] else ""
    kinds = ", ".join(f"{kind} {sum(outcomes.values()):,}" for kind, outcomes in figures.calls.items())
    passed = [_fact("passed on", f"{figures.passed_on:,} calls, to another thread or task of the process")]
    entered = [_fact("entered", f"{figures.entered:,} hand-overs, without another request")]
    return [
        _fact("answers", said + unknown),
        _fact("calls", kinds),
        *(entered if figures.entered else []),
        *(passed if figures.passed_on else []),
    ]


def _checks(figures: Figures) -> list[str]:
    """Return a line for each checker, and one for each of the first rules that were violated."""
    lines = []
    for checker, undecided in figures.undecided.items():
        rules = [rule for rule in figures.rules if rule.checker == checker]
        wrong = sum(len(rule.violations) for rule in rules)
        idle = [rule.name for rule in rules if not rule.applied and not rule.violations]
        said = f"{counted(len(rules), 'rule')}, {counted(sum(r.applied for r in rules), 'check')}, "
        said += f"{counted(wrong, 'violation')}, {undecided:,} undecided"
        lines.append(_fact(checker, said + (f"; not exercised: {', '.join(idle)}" if idle else "")))
    broken = [rule for rule in figures.rules if rule.violations]
    for rule in broken[:4]:
        first = rule.violations[0]
        lines.append(_fact("VIOLATED", f"{rule.name} ({len(rule.violations):,}×) {first.key}: {first.text}"))
    if len(broken) > 4:
        lines.append(_fact("VIOLATED", ", ".join(rule.name for rule in broken[4:])))
    return lines


def _rest(figures: Figures) -> list[str]:
    by_kind = {each.kind: each for each in figures.updates}
    said = [
        f"{name} {by_kind[kind].lost:,} of {by_kind[kind].acknowledged:,}"
        for kind, name in ((FENCED, "fenced"), (RAISED, "raised"), (BARE, "without a fence"))
    ]
    bare = by_kind[BARE]
    why = f": {bare.planned:,} by a planned sleep, {bare.by_fault:,} by faults alone" if bare.lost else ""
    lines = [_fact("lost", ", ".join(said) + f" ({share(bare.lost, bare.acknowledged)}){why}")]
    refused = [
        f"fenced {by_kind[FENCED].refused:,} ({by_kind[FENCED].fenced_off:,} by the fence itself)",
        f"raised {by_kind[RAISED].refused:,} ({by_kind[RAISED].fenced_off:,} by the resource itself)",
        f"without a fence {bare.refused:,}",
    ]
    lines.append(_fact("refused", ", ".join(refused)))
    for each in figures.latencies:
        times = {"median": each.median, "99 %": each.p99, "longest": each.longest}
        said_times = "   ".join(f"{name} {duration(seconds):>7}" for name, seconds in times.items())
        lines.append(_fact("took", f"{each.name:<21} {said_times}"))
    injected = sum(len(each.injected) for each in figures.classes)
    lines.append(_fact("faults", f"{counted(injected, 'injection')}, {counted(figures.pairs, 'pair')}"))
    names = [f"{each.name} {len(each.injected)}" for each in figures.classes]
    lines += _filled("", names, rows=4)
    lines += [_fact("MISSING", f"{name}: {why}") for name, why in figures.missing.items()]
    reasons: dict[str, list[str]] = {}
    for name, why in figures.impossible.items():
        if name not in figures.missing:
            reasons.setdefault(why, []).append(name)
    return lines + [_fact("not here", f"{', '.join(names)}: {why}") for why, names in reasons.items()]


def _filled(title: str, words: list[str], rows: int) -> list[str]:
    """Return words with commas between them, in lines that are not too long."""
    lines, line = [], ""
    for place, word in enumerate(words):
        more = word + (", " if place < len(words) - 1 else "")
        if line and len(line) + len(more) > WIDTH - 20:
            lines.append(line)
            line = ""
        line += more
    return [_fact(title, each.rstrip()) for each in [*lines, line] if each][:rows]
