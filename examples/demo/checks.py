"""The claims of the demo, checked against what the processes told and what the store's history says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from examples.demo.record import Record, Turn
from examples.demo.script import KILLED, PAUSED
from examples.demo.worker import TTL
from holdfast.core.events import Event

LATE = 3.0  # how much later than the lease's end a take-over may come, on a busy machine
GRANTS = ("granted", "handed_over")
ENDS = ("released", "expired", "broken")


@dataclass(frozen=True, slots=True)
class Evidence:
    """All there is to judge by."""

    record: Record
    history: Sequence[Event]
    counter: int


@dataclass(frozen=True, slots=True)
class Verdict:
    """One claim, whether it held, and the numbers."""

    claim: str
    holds: bool
    numbers: str


def judge(evidence: Evidence) -> list[Verdict]:
    """Check everything that the demo claims."""
    return [check(evidence) for check in CHECKS]


def _complete(evidence: Evidence) -> Verdict:
    granted, planned = evidence.record.granted(), evidence.record.planned
    ends = Counter(turn.how for turn in granted)
    return Verdict(
        "every turn was granted",
        len(granted) == planned,
        f"{len(granted)} of {planned}; {ends['left']} completed, {ends['killed']} killed,"
        f" {ends['paused']} paused",
    )


def _tokens(evidence: Evidence) -> Verdict:
    told = [turn.token or 0 for turn in evidence.record.granted()]
    stored = [event.token for event in evidence.history if event.kind in GRANTS]
    grow = all(a < b for a, b in pairwise(told))
    return Verdict(
        "tokens only grow",
        grow and told == stored,
        f"{len(told)} grants, {len(stored)} in the store's history",
    )


def _one_holder(evidence: Evidence) -> Verdict:
    most = holders = 0
    for event in evidence.history:
        holders += (event.kind in GRANTS) - (event.kind in ENDS)
        most = max(most, holders)
    return Verdict(
        "never two holders in the store",
        most == 1 and holders == 0,
        f"at most {most} at once in {len(evidence.history)} events",
    )


def _no_overlap(evidence: Evidence) -> Verdict:
    spans = sorted((turn.granted or 0.0, turn.ended or 0.0) for turn in evidence.record.granted())
    gaps = [b[0] - a[1] for a, b in pairwise(spans)]
    least = min(gaps, default=0.0)
    return Verdict(
        "never two at work at once",
        bool(gaps) and least >= 0,
        f"{len(spans)} spans of time, closest {least * 1000:.1f} ms apart",
    )


def _counter(evidence: Evidence) -> Verdict:
    done = len(evidence.record.completed())
    return Verdict(
        "no update was lost",
        evidence.counter == done,
        f"the file counts {evidence.counter}, {done} turns were completed",
    )


def _fifo(evidence: Evidence) -> Verdict:
    queued = [event.owner for event in evidence.history if event.kind == "queued"]
    handed = [event.owner for event in evidence.history if event.kind == "handed_over"]
    return Verdict(
        "first come, first served",
        queued == handed and bool(queued),
        f"{len(queued)} queued, {len(handed)} handed over"
        f" in {'the same' if queued == handed else 'another'} order",
    )


def _take_over(evidence: Evidence) -> Verdict:
    claim = "killed: taken over in time"
    turn = _struck(evidence.record, KILLED, "killed")
    heir = evidence.record.successor(turn) if turn else None
    if turn is None or turn.ended is None or heir is None or heir.granted is None:
        return Verdict(claim, False, "it was not taken over")
    took = heir.granted - turn.ended
    return Verdict(claim, took <= TTL + LATE, f"{took:.2f} s after the kill, with a ttl of {TTL:g} s")


def _refused(evidence: Evidence) -> Verdict:
    turn = _struck(evidence.record, PAUSED, "paused")
    refused = [what for worker, what, _ in evidence.record.refusals if worker == PAUSED]
    ends = [event.kind for event in evidence.history if turn and event.token == turn.token]
    return Verdict(
        "paused: refused when back",
        refused == ["check", "release"] and "expired" in ends and "released" not in ends,
        f"{' and '.join(f'{what}()' for what in refused) or 'nothing'} raised LeaseLost",
    )


def _struck(record: Record, worker: str, how: str) -> Turn | None:
    return next((turn for turn in record.turns if turn.worker == worker and turn.how == how), None)


CHECKS: tuple[Callable[[Evidence], Verdict], ...] = (
    _complete,
    _tokens,
    _one_holder,
    _no_overlap,
    _counter,
    _fifo,
    _take_over,
    _refused,
)
