"""What the memory store keeps: locks with their holds and tickets, in shards."""

from __future__ import annotations

import threading

from holdfast.core.events import Event
from holdfast.core.requests import Acquire, Client, Holder, LockState, LockView, NotHeld, Signal, Waiter
from holdfast.stores.base import REMEMBER, Listener, micros

Post = list[tuple[str, Signal]]  # signals to send once the mutex is free: (instance, signal)

SHARDS = 64


class Hold:
    """One entry into a lock, with its own end."""

    __slots__ = ("claimed", "end")

    def __init__(self, end: int, claimed: bool) -> None:
        self.end = end
        self.claimed = claimed


class Ticket:
    """A place in a queue."""

    __slots__ = ("claim", "client", "end", "owner", "queued_at")

    def __init__(self, request: Acquire, now: int) -> None:
        self.owner = request.owner
        self.client = request.client
        self.claim = micros(request.claim)
        self.end = now + micros(request.patience)
        self.queued_at = now


class Lock:
    """One key: who holds it, and who waits."""

    __slots__ = ("client", "events", "freed_at", "holds", "key", "last", "owner", "since", "tickets", "token")

    client: Client  # of the holder; meaningless while free

    def __init__(self, key: str, token: int, events: int) -> None:
        self.key = key
        self.token = token
        self.events = events  # how many there were; history forgets some, and goes on counting
        self.owner: str | None = None
        self.holds: dict[str, Hold] = {}
        self.tickets: dict[str, Ticket] = {}  # by attempt, in the order of arrival
        self.last: str | None = None
        self.since = self.freed_at = 0

    @property
    def end(self) -> int:
        return max((hold.end for hold in self.holds.values()), default=0)

    def has_hold(self, attempt: str, now: int) -> bool:
        hold = self.holds.get(attempt)
        return hold is not None and hold.end > now

    def give(self, owner: str, client: Client, attempt: str, hold: Hold, now: int) -> None:
        self.token = max(self.token + 1, now)
        self.owner, self.client, self.since = owner, client, now
        self.holds[attempt] = hold

    def drop_hold(self, attempt: str, now: int, post: Post) -> None:
        """Remove a hold. If the lease ends sooner without it, the head may have to know."""
        end = self.end
        del self.holds[attempt]
        if self.holds and self.end < end:
            self.tell_head(now, post)

    def free(self, now: int) -> None:
        self.holds.clear()
        self.owner = None
        self.freed_at = now

    def state(self, now: int) -> LockState:
        if self.owner is None:
            return "free"
        return "held" if self.end > now else "expired"

    def prune_head(self, now: int) -> bool:
        """Remove dead tickets from the head of the queue; tell whether there were any."""
        pruned = False
        while self.tickets:
            attempt, ticket = next(iter(self.tickets.items()))
            if ticket.end > now:
                break
            del self.tickets[attempt]
            pruned = True
        return pruned

    def tell_head(self, now: int, post: Post) -> None:
        """Tell the new head to watch this lease, if it ends before the head's next heartbeat can tell it."""
        if self.tickets:
            attempt, ticket = next(iter(self.tickets.items()))
            if self.end - now < ticket.claim:  # heartbeats come more often than that
                signal = Signal("head", self.key, attempt, (self.end - now) / 1e6)
                post.append((ticket.client.instance, signal))

    def view(self, now: int, waiters: tuple[Waiter, ...] = ()) -> LockView:
        """Return the lock as others may see it."""
        holder = self.holder(now)
        return LockView(
            key=self.key,
            state=self.state(now),
            token=self.token,
            holder=holder,
            expires_in=max(self.end - now, 0) / 1e6 if holder else 0.0,
            holds=len(self.holds),
            waiting=len(self.tickets),
            waiters=waiters,
        )

    def holder(self, now: int) -> Holder | None:
        if self.owner is None:
            return None
        claimed = any(hold.claimed for hold in self.holds.values())
        held_for = (now - self.since) / 1e6
        return Holder(self.owner, self.client.host, self.client.pid, self.token, held_for, claimed)


class Ended:
    """How an attempt ended, and until when that is remembered."""

    __slots__ = ("by", "reason", "until", "why")

    def __init__(self, why: str, now: int, by: str | None = None, reason: str | None = None) -> None:
        self.why = why
        self.by = by
        self.reason = reason
        self.until = now + REMEMBER[why]

    def answer(self) -> NotHeld:
        """Say how it ended."""
        if self.why == "broken":
            return NotHeld("broken", self.by, self.reason)
        return NotHeld("expired" if self.why == "expired" else "already")


class Shard:
    """Some of the keys, with a mutex of their own."""

    __slots__ = ("ended", "history", "locks", "mutex")

    def __init__(self) -> None:
        self.mutex = threading.Lock()
        self.locks: dict[str, Lock] = {}
        self.ended: dict[tuple[str, str], Ended] = {}
        self.history: dict[str, list[Event]] = {}

    def new_lock(self, key: str, token: int) -> Lock:
        """Add a key that was not there; its events go on behind those that are remembered."""
        events = self.history.get(key)
        lock = self.locks[key] = Lock(key, token, events[-1].number if events else 0)
        return lock

    def find_ended(self, key: str, attempt: str, now: int) -> Ended | None:
        """Return how an attempt ended, if it is remembered to have ended."""
        ended = self.ended.get((key, attempt))
        return ended if ended is not None and ended.until > now else None


class World:
    """What the clients of one ``memory://name`` share."""

    def __init__(self) -> None:
        self.shards = tuple(Shard() for _ in range(SHARDS))
        self.listeners: dict[str, Listener] = {}
        self.floor = 0

    def shard(self, key: str) -> Shard:
        return self.shards[hash(key) % SHARDS]


# By process as well: a forked child must not join a world whose mutexes may be held by the parent's threads.
