"""Instances and their work: what a store can be asked about them, and what it answers.

An *instance* is a client that has joined: it heartbeats, and can be given work. *Work* is a key with
something to be done for it, by one instance at a time: whoever has it assigned has the lease of that key. See
Cluster in the protocol.
"""

from __future__ import annotations

import json
from typing import Any, Literal, get_args

from holdfast.core.data import data
from holdfast.core.requests import Busy, Client, NotHeld, Request  # noqa: F401 - some are answered with these

InstanceState = Literal["alive", "draining", "left", "dead"]
WorkState = Literal["offered", "assigned", "completed", "failed"]
Ending = Literal["completed", "failed", "returned"]

INSTANCE_STATES: tuple[InstanceState, ...] = get_args(InstanceState)
WORK_STATES: tuple[WorkState, ...] = get_args(WorkState)

LARGEST_DATA = 64 * 1024  # bytes of a work's data or result, as JSON
MOST_OFFERED = 1000  # in one request
MOST_CLAIMED = 1000  # in one request
MOST_LOOKED_AT = 100  # in one claim, of each type
PUT_OFF = 1.0  # seconds: how long work whose lock is not to be had is left alone, at least


@data
class Join(Request["Beat"]):
    """Become an instance. Asked twice with the same id, the second is a heartbeat."""

    id: str
    name: str
    client: Client
    capacity: int  # how much work it can have at a time
    ttl: float  # how long it counts as alive without a heartbeat
    version: str = ""
    now: float | None = None


@data
class Heartbeat(Request["Beat"]):
    """Go on being an instance; with *drain*, one that takes no more work.

    Whoever finds, by the way, that others have not been heard of for too long declares them dead.
    """

    id: str
    client: Client
    ttl: float
    drain: bool = False
    now: float | None = None


@data
class Leave(Request["Beat"]):
    """Stop being an instance. What is still assigned to it goes back to be offered."""

    id: str
    now: float | None = None


@data
class Beat:
    """How the store sees an instance, and how many there are that take work. *at* is the store's time."""

    state: InstanceState
    expires_in: float = 0.0
    living: int = 0
    at: float = 0.0


@data
class OfferedWork:
    """One piece of an `Offer`. *data* is JSON."""

    key: str
    data: str = "null"
    max_tries: int = 0  # after so many it has failed for good; 0: no limit
    delay: float = 0.0  # from now, until it may be claimed
    at: float | None = None  # or by the store's clock


@data
class Offer(Request["Offered"]):
    """Have work done by whichever instance claims it. What is known already stays as it is.

    *again*: what has completed or failed is offered anew.
    """

    works: tuple[OfferedWork, ...]
    again: bool = False
    now: float | None = None


@data
class Offered:
    """Of each piece of work, in their order, the state it is in, and whether that is news."""

    states: tuple[WorkState, ...]
    new: tuple[bool, ...]


@data
class Claim(Request["Claimed | Beat"]):
    """Take work that is offered, with its locks, in one step.

    The claims of an instance are *numbered*: a copy that comes late, after a later one, takes nothing. The
    attempts are ``{attempt}.0``, ``{attempt}.1`` and so on.
    """

    id: str
    number: int
    attempt: str
    types: tuple[str, ...]  # of keys
    limit: int
    ttl: float
    client: Client
    spread: float = 0.0  # how long whoever has its hands full leaves fresh work to others
    now: float | None = None


@data
class Assigned:
    """Work that is ours, from now for *expires_in*."""

    key: str
    attempt: str
    token: int
    data: str
    tries: int  # how often it was begun, with this one
    expires_in: float
    at: float = 0.0  # the store's time


@data
class Claimed:
    """What was claimed, and when it is worth asking again if that is less than was wanted; None: not soon."""

    works: tuple[Assigned, ...] = ()
    again_in: float | None = None


@data
class Assign(Request["Assigned | Busy | NotHeld | Full | NotDue | Ended | Beat"]):
    """Take one piece of work, whether it was offered or not.

    With *id* it goes to that instance; without, only the lease says who has it. *due*: not before its time.
    *again*: also if it has completed or failed.
    """

    key: str
    attempt: str
    owner: str
    ttl: float
    client: Client
    id: str = ""
    data: str | None = None  # None: as it was offered
    due: bool = False
    again: bool = False
    now: float | None = None


@data
class Full:
    """The instance has as much work as it can."""

    capacity: int


@data
class NotDue:
    """Its time has not come."""

    due_in: float


@data
class Finish(Request["Finished | NotHeld"]):
    """End an assignment, and release its lock.

    Work that *failed* is offered again after *retry* seconds, unless that is None or it was tried as often as
    it may. Work that is *returned* is offered again at once, or *at* that time, and was not tried. Work that
    *completed* with *at* is offered again at that time, as new: it recurs.
    """

    key: str
    attempt: str
    token: int
    ending: Ending
    text: str = ""  # the result as JSON, or what went wrong
    retry: float | None = None
    at: float | None = None
    data: str | None = None  # None: as it is
    retire: bool = False
    now: float | None = None


@data
class Finished:
    """The state the work is in now. *next* is the owner that the lock was handed to, if it was."""

    state: WorkState
    next: str | None = None


@data
class Forget(Request["Ended | Busy | None"]):
    """Forget a piece of work, unless it is assigned. None if there is none. For operators.

    The history of its key says that it was there, and who forgot it.
    """

    key: str
    by: str | None = None
    now: float | None = None


@data
class WorkView:
    """One piece of work as it stands."""

    key: str
    state: WorkState
    data: str
    text: str  # the result as JSON if it has completed, else what went wrong last; empty: nothing yet
    tries: int
    max_tries: int
    instance: str  # that has it, or had it last; empty: none
    token: int  # of its lease, or of the last; 0: never assigned
    offered_at: float  # the store's clock
    assigned_at: float | None  # last
    due_at: float  # offered: to be claimed from then on; assigned: to be looked at; else: when it ended

    @property
    def value(self) -> Any:
        """What it was offered with."""
        return json.loads(self.data)

    @property
    def result(self) -> Any:
        """What it came to, if it has completed; None also if nobody has said."""
        return json.loads(self.text) if self.state == "completed" and self.text else None


@data
class Ended:
    """The work has completed or failed already; or was forgotten as it stands here."""

    work: WorkView


@data
class InspectWork(Request["WorkView | None"]):
    """Look at one piece of work."""

    key: str
    now: float | None = None


@data
class ListWork(Request["WorkPage"]):
    """Look at work in the order of its keys, a page at a time."""

    prefix: str = ""
    state: WorkState | None = None
    instance: str | None = None
    after: str = ""
    limit: int = 100
    now: float | None = None


@data
class WorkPage:
    """Some work, and the key to go on after, if there is more."""

    works: tuple[WorkView, ...]
    after: str | None = None


@data
class CountWork(Request["tuple[WorkCount, ...]"]):
    """Count the work that is not completed, by type, in the order of the types."""

    now: float | None = None


@data
class WorkCount:
    """How much work of a type there is, and for how long the oldest that is offered has been due."""

    type: str
    offered: int
    assigned: int
    failed: int
    waiting: float = 0.0


@data
class InstanceView:
    """One instance as it stands."""

    id: str
    name: str
    host: str
    pid: int
    version: str
    state: InstanceState
    capacity: int
    assigned: int
    joined_at: float  # the store's clock
    beat_at: float
    expires_in: float


@data
class ListInstances(Request["InstancePage"]):
    """Look at all instances in the order of their ids, also at those that have left or died of late."""

    after: str = ""
    limit: int = 100
    now: float | None = None


@data
class InstancePage:
    """Some instances, and the id to go on after, if there are more."""

    instances: tuple[InstanceView, ...]
    after: str | None = None


def work_type(key: str) -> str:
    """Return the type that work is claimed by: its key up to the first colon; empty if it has none."""
    type, colon, _ = key.partition(":")
    return type if colon else ""


def instance_key(id: str) -> str:
    """Return the key under which events of an instance are kept, and rights on it are given."""
    return f"instance:{id}"


def abandoned_for_good(tries: int) -> str:
    """Return what is said of work that was abandoned as often as it may be tried."""
    times = "once" if tries == 1 else f"{tries} times"
    return f"abandoned: its lease ended unfinished, and it was tried {times}, which is as often as it may"


def may_take(place: int, waited: int, *, assigned: int, capacity: int, spread: int) -> bool:
    """Tell whether an instance with so much *assigned* may take one more, the *place*-th of its claim.

    The fuller it is, the longer it leaves fresh work to others: at half its capacity, for half of *spread*.
    So work comes to where there is room, and nobody has to know about anybody else. Times are microseconds.
    """
    return waited >= held_back(place, assigned=assigned, capacity=capacity, spread=spread)


def held_back(place: int, *, assigned: int, capacity: int, spread: int) -> int:
    """Return for how long, in microseconds, work is left to others: see `may_take`."""
    return spread * (assigned + place) // capacity
