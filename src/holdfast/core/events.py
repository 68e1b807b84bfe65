"""What happened to a lock, in the past tense, and how much of it is kept."""

from __future__ import annotations

from typing import Literal, get_args

from holdfast.core.data import data

LeaseEvent = Literal["granted", "queued", "handed_over", "released", "withdrawn", "expired", "broken"]
OtherLockEvent = Literal["completed", "failed", "downgraded", "resized", "deadlocked"]
WorkEvent = Literal["assigned", "returned", "abandoned", "forgotten"]
InstanceEvent = Literal["joined", "draining", "left", "died"]
EventKind = Literal[LeaseEvent, OtherLockEvent, WorkEvent, InstanceEvent]
HistoryLevel = Literal["none", "notable", "all"]

NOTABLE: frozenset[EventKind] = frozenset(get_args(InstanceEvent)).union(
    ("expired", "broken", "completed", "failed", "resized", "deadlocked", "abandoned", "forgotten")
)
ALWAYS: frozenset[EventKind] = frozenset({"broken", "forgotten"})
HISTORY_LEVELS: tuple[HistoryLevel, ...] = ("none", "notable", "all")


@data
class Event:
    """One thing that happened. Events of one key are numbered without gaps, in their order."""

    key: str
    number: int
    kind: EventKind
    at: float  # the store's clock
    token: int
    owner: str | None = None
    by: str | None = None
    reason: str | None = None
    id: int = 0  # its place in the order of all events; 0: it was not watched yet


def is_kept(kind: EventKind, level: HistoryLevel, *, operation: bool = False) -> bool:
    """Tell whether an event of this kind belongs into a history of this level.

    What an operator does is always kept: somebody took a lock away from somebody, or has deleted work, and
    that must be found again. Of an operation everything is, unless nothing is to be kept: it is rare, and
    others want to watch it.
    """
    if level == "all" or kind in ALWAYS:
        return True
    return level == "notable" and (operation or kind in NOTABLE)
