"""All that is counted of a run, once, so that the page, the terminal and the index say the same."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from proof.faults.base import MISSING
from proof.histories.records import FENCED, RAISED, History, Injected, Run, Verdict, Violation, entered
from proof.report.latencies import Latency, latencies
from proof.report.leases import BootTimes, Takeover, leases, takeovers
from proof.report.unknowns import Resolved, resolve
from proof.report.updates import Updates, count_updates

OUTCOMES = ("ok", "refused", "unknown")
CALL_KINDS = ("acquire", "try", "reenter", "release", "update", "operate")
COLUMNS = 480  # of the picture, at most


@dataclass(frozen=True, slots=True)
class Rule:
    """What a checker looked for."""

    checker: str
    name: str
    applied: int  # to how many things
    violations: tuple[Violation, ...]


@dataclass(frozen=True, slots=True)
class FaultClass:
    """All injections of one class."""

    name: str
    injected: tuple[Injected, ...]

    @property
    def seconds(self) -> float:
        return sum(one.ended - one.began for one in self.injected)

    @property
    def pairs(self) -> int:
        return sum(one.pair != 0 for one in self.injected)


@dataclass(slots=True)
class Columns:
    """What happened in each stretch of the run, for the picture."""

    width: float  # seconds of each
    ok: list[int]
    refused: list[int]
    unknown: list[int]
    takeovers: list[int]


@dataclass(slots=True)
class Figures:
    """Everything."""

    run: Run
    began: float
    ended: float
    when: float | None  # seconds since the epoch, by the store's clock as it was first looked at
    calls: dict[str, dict[str, int]]  # by kind, by outcome
    keys: dict[str, Counter[str]]  # by kind of key: calls, takeovers
    resolved: dict[str, Resolved]
    rules: list[Rule]
    undecided: dict[str, int]  # by checker
    classes: list[FaultClass]
    pairs: int
    excused: list[Injected]
    updates: list[Updates]
    latencies: list[Latency]
    columns: Columns
    takeovers: list[Takeover]
    takeover_count: int
    entered: int  # hand-overs
    passed_on: int  # calls with a lease that another thread or task of the process had taken
    missed: tuple[str, ...]
    asks: int = 0
    audit: int = 0
    trouble: list[str] = field(default_factory=list)  # why it did not hold; empty: it did

    @property
    def total(self) -> int:
        """How many operations were recorded."""
        return sum(sum(outcomes.values()) for outcomes in self.calls.values())

    @property
    def violations(self) -> list[Violation]:
        return [violation for rule in self.rules for violation in rule.violations]

    @property
    def undecided_total(self) -> int:
        return sum(self.undecided.values())

    @property
    def impossible(self) -> dict[str, str]:
        """Which kinds of faults could not be had, and why."""
        return dict(self.run.settings.get("impossible", {}))

    @property
    def missing(self) -> dict[str, str]:
        """Those of them that could be had on another machine."""
        return {name: why for name, why in self.impossible.items() if why.startswith(MISSING)}

    @property
    def held(self) -> bool:
        return not self.trouble

    def lost(self, *kinds: str) -> int:
        """How many acknowledged updates are not there, of resources of these kinds."""
        return sum(updates.lost for updates in self.updates if updates.kind in kinds)


def count(history: History, verdicts: Sequence[Verdict], missed: Sequence[str] = ()) -> Figures:
    """Count everything. *missed* are the goals of the run that it did not reach, in words."""
    found = list(leases(history))
    taken = takeovers(found)
    began, ended = _extent(history)
    told = {verdict.checker: dict(verdict.figures) for verdict in verdicts}
    # The checker's own count goes before ours: it is what the goals of a run are compared with.
    counted = next((int(figures["takeovers"]) for figures in told.values() if "takeovers" in figures), None)
    figures = Figures(
        run=history.run,
        began=began,
        ended=ended,
        when=min(history.clocks, key=lambda look: look.boot).store / 1e6 if history.clocks else None,
        calls=_calls(history),
        keys=_keys(history, taken),
        resolved=resolve(history, found),
        rules=[rule for verdict in verdicts for rule in _rules(verdict)],
        undecided={verdict.checker: verdict.undecided for verdict in verdicts},
        classes=_classes(history.faults),
        pairs=len({one.pair for one in history.faults} - {0}),
        excused=[one for one in history.faults if one.excuses],
        updates=count_updates(history),
        latencies=latencies(history),
        columns=_columns(history, taken, began, ended),
        takeovers=taken,
        takeover_count=len(taken) if counted is None else counted,
        entered=len(entered(history)),
        passed_on=sum(bool(call.by) for call in history.calls),
        missed=tuple(missed),
        asks=len(history.asks),
        audit=len(history.audit),
    )
    figures.trouble = _trouble(figures)
    return figures


def _trouble(figures: Figures) -> list[str]:
    """Tell why it did not hold. A run in which nothing was looked at has not held either."""
    trouble = []
    if violations := len(figures.violations):
        trouble.append(f"{violations:,} violation{'s' * (violations != 1)}")
    if figures.undecided_total:
        trouble.append(f"{figures.undecided_total:,} undecided")
    if lost := figures.lost(FENCED, RAISED):
        trouble.append(f"{lost:,} acknowledged fenced update{'s' * (lost != 1)} lost")
    if not figures.total or not any(rule.applied for rule in figures.rules):
        trouble.append("nothing was checked")
    trouble += figures.missed
    return trouble


def _extent(history: History) -> tuple[float, float]:
    """Return from when until when there is something to draw."""
    began = history.run.began
    if history.calls:  # servers take a while to start: that is not shown
        began = max(began, min(call.called for call in history.calls))
    seen = [fault.ended for fault in history.faults]
    seen += [call.returned for call in history.calls if call.returned < math.inf]
    return began, max([*seen, began + 1.0])


def _calls(history: History) -> dict[str, dict[str, int]]:
    counted: Counter[tuple[str, str]] = Counter((call.kind, call.outcome) for call in history.calls)
    kinds = sorted({kind for kind, _ in counted}, key=lambda kind: (_place(CALL_KINDS, kind), kind))
    return {kind: {outcome: counted[kind, outcome] for outcome in OUTCOMES} for kind in kinds}


def _place(order: Sequence[str], name: str) -> int:
    return order.index(name) if name in order else len(order)


def _keys(history: History, taken: Iterable[Takeover]) -> dict[str, Counter[str]]:
    counted: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for call in history.calls:
        counted[call.key.partition(":")[0]]["calls"] += 1
    for takeover in taken:
        counted[takeover.after.key.partition(":")[0]]["takeovers"] += 1
    return counted


def _rules(verdict: Verdict) -> list[Rule]:
    by_rule: dict[str, list[Violation]] = {}
    for violation in verdict.violations:
        by_rule.setdefault(violation.rule, []).append(violation)
    # First what is no rule of the checker's: other violations may follow from a run that went wrong itself.
    names = dict.fromkeys([*(name for name in by_rule if name not in verdict.checked), *verdict.checked])
    return [
        Rule(verdict.checker, name, verdict.checked.get(name, 0), tuple(by_rule.get(name, ())))
        for name in names
    ]


def _classes(faults: Iterable[Injected]) -> list[FaultClass]:
    by_name: dict[str, list[Injected]] = {}
    for one in sorted(faults, key=lambda one: one.began):
        by_name.setdefault(one.fault, []).append(one)
    return [FaultClass(name, tuple(injected)) for name, injected in by_name.items()]


def _columns(history: History, taken: Iterable[Takeover], began: float, ended: float) -> Columns:
    width = max(1.0, math.ceil((ended - began) / COLUMNS))
    number = math.ceil((ended - began) / width)
    result = Columns(width, *([0] * number for _ in range(4)))
    by_outcome = {"ok": result.ok, "refused": result.refused, "unknown": result.unknown}

    def column(at: float) -> int:
        return min(max(int((at - began) / width), 0), number - 1)

    for call in history.calls:
        # What was never answered stands where it was asked.
        by_outcome[call.outcome][column(call.returned if call.returned < math.inf else call.called)] += 1
    boot = BootTimes(history)
    for takeover in taken:
        result.takeovers[column(boot(takeover.after.began))] += 1
    return result
