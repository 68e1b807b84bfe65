"""What a store answers to the requests about locks: see `requests`, from which all this can be had too."""

from __future__ import annotations

from typing import Literal

from holdfast.core.data import data, replace
from holdfast.core.events import Event
from holdfast.core.family import Failure, KeptResult, Link, Mode, whereabouts

Why = Literal["already", "expired", "taken over", "broken", "unknown", "free"]
LockState = Literal["held", "expired", "free"]
Refusal = Literal["upgrade", "capacity", "take", "holds", "free"]

MOST_SHOWN = 100  # holders, or waiters, when one lock is inspected


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
        if not self.token:  # nobody was granted it yet, and an open transaction is about to take it
            return self.owner
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
    at: float = 0.0  # the store's time when it answered; 0: it does not say


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
    """Events in their order, and the place to go on after. *tells*: who asked is told when there is more."""

    events: tuple[Event, ...]
    after: int
    tells: bool = False


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
    at: float = 0.0  # the store's time when it found the ticket waiting; 0: it does not say


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
        counted = ("expired", "tickets", "locks", "ended", "history")
        return replace(more, **{what: getattr(self, what) + getattr(more, what) for what in counted})
