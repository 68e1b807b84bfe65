"""What a run has to show, beside that nothing is violated: a calm run proves nothing."""

from __future__ import annotations

import os
from dataclasses import dataclass

from proof.checkers import order
from proof.faults.base import MISSING
from proof.histories.records import FENCED, RAISED, History, Verdict
from proof.report.updates import count_updates

LONG = 300.0  # seconds; from there on a full run has to show some of everything
# Under CI=true nothing may be missing, as in tests/conftest.py.
CI = os.environ.get("CI", "").lower() in ("1", "true")


@dataclass(frozen=True)
class Goals:
    """The goals of a run of so many *seconds*."""

    seconds: float
    calls: int  # recorded. Of one that is refused or lost the checkers learn as much as of any other
    ok: int  # of a hundred calls: not all of them may be refused or lost
    takeovers: int
    classes: int
    entered: int = 0  # hand-overs, without another request
    bare_lost: int = 0
    passed_on: int = 0  # calls by another thread or task than the one that has taken the lease
    refusals: int = 0  # of those who came too late: by the fence, and as many by the resource itself
    every_rule: bool = False  # whether each must have been applied to something

    def of(self, seconds: float) -> dict[str, int]:
        """Return what a run of so many *seconds* has to show: a shorter one less, of what can be counted."""
        part = min(seconds / self.seconds, 1.0)
        wanted = {"calls": int(part * self.calls), "% ok calls": self.ok}
        wanted["takeovers"] = int(part * self.takeovers)
        wanted["hand-overs entered"] = int(part * self.entered)
        if self.is_long(seconds):
            wanted |= {"kinds of faults": self.classes, "updates lost without a fence": self.bare_lost}
            wanted["calls that were passed on"] = self.passed_on
            wanted |= {"refusals by the fence": self.refusals, "refusals by the resource": self.refusals}
        return wanted

    def is_long(self, seconds: float) -> bool:
        """Tell whether a run is long enough to show some of everything."""
        return seconds >= min(self.seconds, LONG)


FULL = Goals(
    seconds=840.0,
    calls=100_000,
    ok=60,
    takeovers=1_000,
    classes=12,
    entered=50,
    bare_lost=1,
    passed_on=1_000,
    refusals=1,
    every_rule=True,
)
QUICK = Goals(seconds=40.0, calls=400, ok=40, takeovers=10, classes=8)


def missed(goals: Goals, history: History, verdict: Verdict) -> list[str]:
    """Return what a run did not show, in words. *verdict* is that of `order`."""
    have = _shown(history, verdict)
    seconds = history.run.seconds
    said = [
        f"not enough {name}: {have[name]:,} of {wanted:,}"
        for name, wanted in goals.of(seconds).items()
        if have[name] < wanted
    ]
    if goals.every_rule and goals.is_long(seconds):
        said += [f"never applied: {name}" for name in order.idle(verdict)]
    if CI:
        impossible = history.run.settings.get("impossible", {})
        said += [f"{name}: {why}" for name, why in impossible.items() if why.startswith(MISSING)]
    return said


def _shown(history: History, verdict: Verdict) -> dict[str, int]:
    updates = {each.kind: each for each in count_updates(history)}
    ok = sum(call.outcome == "ok" for call in history.calls)
    return {
        "calls": len(history.calls),
        "% ok calls": 100 * ok // max(len(history.calls), 1),
        "takeovers": int(verdict.figures.get("takeovers", 0)),
        "hand-overs entered": int(verdict.figures.get("entered by the hand-over", 0)),
        "kinds of faults": len({fault.fault for fault in history.faults}),
        "updates lost without a fence": int(verdict.figures.get("bare_lost", 0)),
        "calls that were passed on": sum(bool(call.by) for call in history.calls),
        "refusals by the fence": updates[FENCED].fenced_off,
        "refusals by the resource": updates[RAISED].fenced_off,
    }
