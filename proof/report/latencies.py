"""How long answers took."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from proof.histories.records import History

AT_ONCE, WAITED, RELEASE, UPDATE = "granted at once", "granted after a wait", "release", "update"
SHOWN = (AT_ONCE, WAITED, RELEASE, UPDATE)


@dataclass(frozen=True, slots=True)
class Latency:
    """Of one kind of answer, in seconds."""

    name: str
    count: int
    median: float
    p99: float
    longest: float


def latencies(history: History) -> list[Latency]:
    """Return what acknowledged calls took. A turn has waited if its client was ever told «queued»."""
    queued = {ask.owner for ask in history.asks if ask.answer == "Queued"}
    took: dict[str, list[float]] = {name: [] for name in SHOWN}
    for call in history.calls:
        if call.outcome != "ok" or call.returned == math.inf:
            continue
        if call.kind in ("acquire", "try"):
            took[WAITED if call.owner in queued else AT_ONCE].append(call.returned - call.called)
        elif call.kind in took:
            took[call.kind].append(call.returned - call.called)
    return [measure(name, times) for name, times in took.items() if times]


def measure(name: str, times: Iterable[float]) -> Latency:
    """Return median, p99 (the smallest that 99 % do not exceed), and the longest."""
    ordered = sorted(times)
    return Latency(
        name,
        len(ordered),
        ordered[(len(ordered) - 1) // 2],
        ordered[math.ceil(len(ordered) * 0.99) - 1],
        ordered[-1],
    )
