"""Updates of the resources: how many were refused, by whom, how many are lost, and who came too late.

The control may lose updates in two ways. A turn of the traffic sleeps past its lease and does not renew it,
as a program does that is stopped; or a fault keeps a turn from renewing it, or comes between its look and
its write. The second needs no help of the traffic's, so it is counted by itself.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from proof.histories.records import BARE, FENCED, RAISED, Call, History
from proof.traffic.resources import FencedOff

LATE = 10.0  # seconds after which an update of which nothing was heard does nothing any more


@dataclass(frozen=True, slots=True)
class Updates:
    """Updates of one kind of resource."""

    kind: str
    acknowledged: int
    refused: int
    fenced_off: int  # of the refused: by the guard itself, not by the library's look at its own clock
    lost: int  # of the acknowledged: not there in the end
    planned: int  # of the lost: by somebody who slept on purpose

    @property
    def by_fault(self) -> int:
        """How many were lost by a fault alone."""
        return self.lost - self.planned


def count_updates(history: History) -> list[Updates]:
    """Count those of each kind of resource."""
    stored = {key: set(values) for key, values in history.resources.items()}
    by_key: dict[str, list[Call]] = {}
    for call in history.calls:
        if call.kind == "update":
            by_key.setdefault(call.key, []).append(call)
    return [
        _count(kind, {key: calls for key, calls in by_key.items() if key.partition(":")[0] == kind}, stored)
        for kind in (FENCED, RAISED, BARE)
    ]


def _count(kind: str, by_key: dict[str, list[Call]], stored: dict[str, set[str]]) -> Updates:
    calls = [call for each in by_key.values() for call in each]
    acknowledged = [call for call in calls if call.outcome == "ok"]
    refused = [call for call in calls if call.outcome == "refused"]
    lost = [call for call in acknowledged if call.value not in stored.get(call.key, ())]
    return Updates(
        kind,
        len(acknowledged),
        len(refused),
        sum(call.error.startswith(FencedOff.__name__) for call in refused),
        len(lost),
        sum(_slept_on_purpose(call, by_key[call.key]) for call in lost),
    )


def _slept_on_purpose(lost: Call, updates: Iterable[Call]) -> bool:
    """Tell whether somebody came too late who was not renewed on purpose.

    Whoever takes an update away has read before it and written after it, or the other way round. So both were
    at it at the same time, and the one with the older lease came too late.
    """
    for other in updates:
        if other is not lost and other.called < _end(lost) and lost.called < _end(other):
            late = min(lost, other, key=lambda call: call.token)
            if late.wait:
                return True
    return False


def _end(call: Call) -> float:
    return call.returned if call.returned < math.inf else call.called + call.wait + LATE
