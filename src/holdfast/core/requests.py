"""What a store can be asked, and what it answers. One request is one round trip.

Requests and answers are plain frozen data, so that plans can be tested by hand, simulated, and sent
over a wire. Times are the store's (`now`, `*_at`, seconds since the epoch); durations are seconds.
"""

from __future__ import annotations

from typing import Generic, Literal, TypeVar

from holdfast.core.data import data, replace
from holdfast.core.events import Event
from holdfast.core.family import PLAIN, Failure, KeptResult, Link, Mode, Outcome, Terms, whereabouts

A_co = TypeVar("A_co", covariant=True)

Why = Literal["already", "expired", "taken over", "broken", "unknown", "free"]
LockState = Literal["held", "expired", "free"]
Refusal = Literal["upgrade", "capacity", "take", "holds", "free"]
SignalKind = Literal["granted", "head", "lost", "over", "work"]

DEFAULT_LIMIT = 64
MOST_SHOWN = 100  # holders, or waiters, when one lock is inspected


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
    """Read what happened to a key, or to all keys with a prefix, behind the event *after*.

    Every event has its place in one order of all, which it is given when it is first read.
    """

    key: str  # a prefix, unless *exact*
    exact: bool = False
    after: int | None = None  # None: nothing yet, only where the order ends now
    limit: int = 100


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
class Health:
    """It was written."""

    status: str = "ready"


@data
class Holder:
    """Who has a lock, as others are told."""

    owner: str
    host: str
    pid: int
    token: int
    held_for: float
    claimed: bool = True
    take: int = 1  # how many permits
    gone: bool = False  # its lease is over, and the lock is shut because of it, or its result kept

    def __str__(self) -> str:
        if self.gone:
            where = whereabouts(self.host, self.pid)
            return f"{self.owner} ({where}), who was granted it {self.held_for:.1f} s ago"
        text = f"{self.owner} ({whereabouts(self.host, self.pid)}) for {self.held_for:.1f} s"
        return text if self.claimed else f"{text}, handed over and not claimed yet"


def doer(kept: KeptResult, now: int) -> Holder:
    """Return who has done the operation whose result is kept, as others are told."""
    held_for = (now - kept.granted_at) / 1e6
    return Holder(kept.owner, kept.host, kept.pid, kept.token, held_for, gone=True)


@data
class Waiter:
    """Somebody in the queue, as others are told."""

    owner: str
    host: str
    pid: int
    waiting_for: float


@data
class Granted:
    """It is ours, from now for *expires_in*."""

    token: int
    expires_in: float
    holds: int = 1
    failures: tuple[Failure, ...] = ()  # of those who had the operation before us


@data
class Queued:
    """We have a ticket. *position* 1 is the head."""

    position: int
    holder: Holder
    expires_in: float


@data
class Busy:
    """Somebody else has it, and we did not want to wait."""

    holder: Holder
    expires_in: float


@data
class TooManyHolds:
    """The owner holds it *holds* times already, and that is its limit."""

    holds: int


@data
class Refused:
    """It cannot be had like this: see the protocol for each reason. *permits* is what the store says."""

    why: Refusal
    permits: int = 0


@data
class Done:
    """The operation has succeeded while we waited, or before, and its result is *kept*. *result* is JSON."""

    result: str
    token: int
    kept: bool = False  # then our attempt is not over by that: it only is not needed


@data
class Failed:
    """The operation has failed as often as it may; everybody who waited is told."""

    failures: tuple[Failure, ...]


@data
class Deadlocked:
    """Everybody here waits for the next one, and the last for the first; our ticket is gone."""

    cycle: tuple[Link, ...]


@data
class NotHeld:
    """Nothing was done, because the attempt holds nothing here."""

    why: Why
    by: str | None = None
    reason: str | None = None


@data
class Released:
    """One hold less. *next* is the owner it was handed to, if it was; *told*, how many learn the outcome."""

    holds: int = 0
    next: str | None = None
    told: int = 0


@data
class Withdrawn:
    """The attempt is over. *next* is the owner its grant was handed to, if it had one."""

    next: str | None = None


@data
class Broken:
    """It was taken from *holder*. *next* is the owner it was handed to, if it was."""

    holder: Holder
    next: str | None = None


@data
class Resized:
    """How many permits there are now, and were before; 0: nobody had said."""

    permits: int
    before: int


@data
class Feed:
    """Events in their order, and the place to go on behind."""

    events: tuple[Event, ...]
    after: int


@data
class Fenced:
    """Nobody else is granted the lock before the caller's transaction has ended."""

    token: int


@data
class LeaseAnswer:
    """What became of one lease of a batch: see Renew in the protocol."""

    outcome: Literal["renewed", "held", "lost", "unknown"]
    expires_in: float = 0.0
    why: Why | None = None
    by: str | None = None
    reason: str | None = None


@data
class TicketAnswer:
    """What became of one ticket of a batch: still waiting, handed the lock, or gone."""

    outcome: Literal["waiting", "handed", "gone"]
    head: bool = False
    expires_in: float = 0.0  # of the lease that is waited for


@data
class Renewed:
    """The answers to a batch, in its order."""

    leases: tuple[LeaseAnswer, ...] = ()
    tickets: tuple[TicketAnswer, ...] = ()


@data
class LockView:
    """One lock as it stands."""

    key: str
    state: LockState
    token: int
    holder: Holder | None
    expires_in: float
    holds: int
    waiting: int
    waiters: tuple[Waiter, ...] = ()  # the first hundred; only when one lock is inspected
    mode: Mode = "exclusive"
    permits: int = 0  # of a semaphore
    holders: tuple[Holder, ...] = ()  # the first hundred; only when one lock is inspected
    taken: int = 0  # of the permits, by all who have some
    operation: bool = False  # whoever has it does an operation
    kept: Holder | None = None  # who has done it, while the result is kept
    kept_for: float = 0.0  # how much longer


@data
class Page:
    """Some locks, and the key to go on after, if there are more."""

    locks: tuple[LockView, ...]
    after: str | None = None


@data
class Swept:
    """What a sweep did, and the key to go on after; None when there is nothing left to do."""

    expired: int = 0
    tickets: int = 0
    locks: int = 0
    ended: int = 0
    history: int = 0
    after: str | None = None

    def plus(self, more: Swept) -> Swept:
        """Return the sum of two sweeps, to go on where the later one stopped."""
        return Swept(
            self.expired + more.expired,
            self.tickets + more.tickets,
            self.locks + more.locks,
            self.ended + more.ended,
            self.history + more.history,
            more.after,
        )


@data
class Signal:
    """A hint to the client that has *attempt*: asking again, or looking at the clock, is worth it."""

    kind: SignalKind
    key: str
    attempt: str
    expires_in: float = 0.0
    to: str = ""  # for whom behind the client, if its address says so


def addressed(address: str, signal: Signal) -> tuple[str, Signal]:
    """Return the instance of the client that a signal for *address* goes to, and what it is told there."""
    home, slash, to = address.partition("/")
    return (home, replace(signal, to=to)) if slash else (address, signal)
