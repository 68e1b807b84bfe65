"""What a store can be asked, and what it answers. One request is one round trip.

Requests and answers are plain frozen data, so that plans can be tested by hand, simulated, and sent
over a wire. Times are the store's (`now`, `*_at`, seconds since the epoch); durations are seconds. The
answers are in `answers`; everything can be had from here.
"""

from __future__ import annotations

from typing import Generic, Literal, TypeVar

from holdfast.core.answers import *  # noqa: F403 - whoever asks wants both
from holdfast.core.answers import LockState
from holdfast.core.data import data, replace
from holdfast.core.events import Event
from holdfast.core.family import PLAIN, Outcome, Terms

A_co = TypeVar("A_co", covariant=True)

SignalKind = Literal["granted", "head", "lost", "over", "work", "events"]

DEFAULT_LIMIT = 64


class Request(Generic[A_co]):
    """Something to ask a store, with the type of its answer."""

    __slots__ = ()


@data
class Client:
    """Where a request comes from: told to whoever has to wait, and where signals are sent."""

    instance: str  # an address: of a client, or ``home/to`` for somebody behind one; empty: nowhere
    host: str
    pid: int


@data
class Acquire(
    Request["Granted | Queued | Busy | TooManyHolds | NotHeld | Refused | Done | Failed | Deadlocked"]
):
    """Take *key*, or join its queue when *wait* is set.

    Asking twice is harmless: the attempt id says that it is the same try. So a lost answer is simply
    asked for again; and asking again is how a waiter claims a lock that was handed to it.
    """

    key: str
    attempt: str
    owner: str
    ttl: float
    client: Client
    wait: bool = False
    limit: int = DEFAULT_LIMIT  # of holds by one owner; 1: not reentrant
    patience: float = 15.0  # how long our ticket lives without a sign of life
    claim: float = 5.0  # how long a grant handed to our ticket waits for us
    terms: Terms = PLAIN
    seen: int = 0  # a kept result with this token, or an older one, is not what is wanted
    now: float | None = None  # None: the store's own clock decides (always, outside tests)

    @property
    def lasts(self) -> float:
        """How long what this leaves in the store may be there, if nobody sees to it any more."""
        return max(self.ttl, self.patience + self.claim)


@data
class RenewLease:
    """One lease of a `Renew` batch."""

    key: str
    attempt: str
    token: int
    ttl: float


@data
class RefreshTicket:
    """One ticket of a `Renew` batch."""

    key: str
    attempt: str
    patience: float


@data
class Renew(Request["Renewed"]):
    """Move the ends of all these leases and tickets; never of a lease whose end has come."""

    leases: tuple[RenewLease, ...] = ()
    tickets: tuple[RefreshTicket, ...] = ()
    now: float | None = None


@data
class Release(Request["Released | NotHeld | Refused"]):
    """Give up one hold. The last one frees the lock or hands it to the next ticket.

    *retire* remembers the attempt, so that a copy of its Acquire that is still under way cannot take
    the lock later. *outcome* is for operations: success answers all who wait, and hands over to nobody.
    """

    key: str
    attempt: str
    token: int
    retire: bool = False
    outcome: Outcome | None = None
    now: float | None = None


@data
class Withdraw(Request["Withdrawn | NotHeld"]):
    """Leave the queue, or give back whatever the attempt was granted; the attempt is over.

    *held* says that the caller has had the lease, and may have worked: then its *at_least* counts as with a
    release. Without it nobody knows of the grant, and nothing was done.
    """

    key: str
    attempt: str
    held: bool = False
    now: float | None = None


@data
class Downgrade(Request["Granted | NotHeld | Refused"]):
    """Make an exclusive lease a shared one, under the same token, with no writer in between."""

    key: str
    attempt: str
    token: int
    now: float | None = None


@data
class Resize(Request["Resized"]):
    """Set how many permits a semaphore has. Nobody who has some loses them. For operators."""

    key: str
    permits: int
    by: str
    now: float | None = None


@data
class Break(Request["Broken | NotHeld"]):
    """Take the lock away from whoever holds it. For operators.

    With *token* only that lease is broken: what an operator saw a moment ago, and nobody after it.
    """

    key: str
    by: str
    reason: str
    token: int | None = None
    now: float | None = None


@data
class Fence(Request["Fenced | NotHeld"]):
    """Pin a lease to the end of the caller's own transaction, which is open: see Fencing in the protocol."""

    key: str
    attempt: str
    token: int
    now: float | None = None


@data
class Inspect(Request["LockView | None"]):
    """Look at one lock; None if the key was never used, or long ago."""

    key: str
    now: float | None = None


@data
class List(Request["Page"]):
    """Look at many locks in the order of their keys, a page at a time."""

    prefix: str = ""
    owner: str | None = None
    type: str | None = None
    state: LockState | None = None
    after: str = ""  # the last key of the page before
    limit: int = 100
    now: float | None = None


@data
class History(Request[tuple[Event, ...]]):
    """Read the newest *limit* events of a key, oldest first."""

    key: str
    limit: int = 100


@data
class Watch(Request["Feed"]):
    """Read what happened to a key, or to all keys with a prefix, after the event *after*.

    Every event has its place in one order of all, which it is given when it is first read. The client at
    *address* is told of the next one that is written, once; if the answer says so.
    """

    key: str  # a prefix, unless *exact*
    exact: bool = False
    after: int | None = None  # None: nothing yet, only where the order ends now
    limit: int = 100
    address: str = ""  # where to tell that there is more; empty: nowhere


@data
class Sweep(Request["Swept"]):
    """Settle and forget what is over, at most *limit* of each kind, walking the keys from *after*."""

    limit: int = 1000
    after: str = ""
    idle: float = 3600.0  # forget free locks that nobody used for this long
    keep_history: float = 30 * 86400.0
    now: float | None = None


@data
class Probe(Request["Health"]):
    """Write something that means nothing, as durably as a grant: an answer says that a write works."""

    now: float | None = None


@data
class Signal:
    """Wake the client that has *attempt*: asking again, or looking at the clock, is worth it."""

    kind: SignalKind
    key: str
    attempt: str
    expires_in: float = 0.0
    to: str = ""  # for whom behind the client, if its address says so
    # Of a grant that can be entered: see Entering by the hand-over in the protocol. It lasts *expires_in*.
    token: int = 0
    at: float = 0.0  # when it was granted, by the store's clock


# The address of all who are to be told of the next event, and what they are told.
WATCHERS = "*"
EVENTS = Signal("events", "", "")


def addressed(address: str, signal: Signal) -> tuple[str, Signal]:
    """Return the instance of the client that a signal for *address* goes to, and what it is told there."""
    home, slash, to = address.partition("/")
    return (home, replace(signal, to=to)) if slash else (address, signal)
