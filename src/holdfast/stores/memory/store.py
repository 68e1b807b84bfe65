"""Locks in this process only: the reference store, the shortest honest reading of the protocol.

`memory://` is private to its client; `memory://name` is shared by all clients of the process that say
that name. Keys live in shards, each with its own mutex, held for dictionary work only: different keys
do not wait for one another, and nothing is ever awaited inside.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, cast

from holdfast.clock import boot_time
from holdfast.core import keys
from holdfast.core.events import Event, EventKind, HistoryLevel, is_kept
from holdfast.core.requests import (
    Acquire,
    Break,
    Broken,
    Busy,
    Client,
    Granted,
    History,
    Holder,
    Inspect,
    LeaseAnswer,
    List,
    LockView,
    NotHeld,
    Page,
    Queued,
    RefreshTicket,
    Release,
    Released,
    Renew,
    Renewed,
    RenewLease,
    Request,
    Signal,
    Sweep,
    Swept,
    TicketAnswer,
    TooManyHolds,
    Waiter,
    Withdraw,
    Withdrawn,
)
from holdfast.errors import SettingsError
from holdfast.stores.base import (
    WAITERS_SHOWN,
    Listener,
    StoreOptions,
    Traits,
    micros,
)
from holdfast.stores.memory.state import Ended, Hold, Lock, Post, Shard, Ticket, World

if TYPE_CHECKING:
    import asyncio

A = TypeVar("A")

_shared: weakref.WeakValueDictionary[tuple[int, str], World] = weakref.WeakValueDictionary()
_shared_mutex = threading.Lock()

# Epoch time that neither steps nor stands still in suspend: tokens and leases need no more than that.
_EPOCH = micros(time.time() - boot_time())


def from_url(url: str, options: StoreOptions) -> MemoryStore:
    """Return the store for ``memory://`` or ``memory://name``."""
    name = url.removeprefix("memory://")
    if any(sign in name for sign in "/?#"):
        raise SettingsError(f"{url!r} has more than a name: use memory:// or memory://name")
    return MemoryStore(options, name)


def _world_of(name: str) -> World:
    if not name:
        return World()
    with _shared_mutex:
        return _shared.setdefault((os.getpid(), name), World())


class MemoryStore:
    """See the module. One object a client; they may share a world."""

    traits = Traits(durable=False, signals=True, blocking=False, repeats=False)

    def __init__(self, options: StoreOptions, name: str = "") -> None:
        self._name = name
        self._world = _world_of(name)
        self._client = options.client
        self._level: HistoryLevel = options.history
        self._answer: dict[type, Callable[..., Any]] = {
            Acquire: self._acquire,
            Release: self._release,
            Withdraw: self._withdraw,
            Break: self._break,
            Renew: self._renew,
            Inspect: self._inspect,
            History: self._history,
            List: self._list,
            Sweep: self._sweep,
        }

    def open(self) -> None:
        """Nothing to do."""

    def execute(self, request: Request[A]) -> A:
        """Answer *request*, then signal whoever is concerned."""
        post: Post = []
        answer = self._answer[type(request)](request, post)
        for instance, signal in post:
            if listener := self._world.listeners.get(instance):
                listener(signal)
        return cast("A", answer)

    def execute_within(
        self, connection: Any, request: Request[A], loop: asyncio.AbstractEventLoop | None = None
    ) -> A:
        """Refuse: there are no transactions in memory."""
        raise SettingsError(
            "memory:// has no transactions to be part of; use a database, or the token itself"
        )

    def listen(self, listener: Listener) -> None:
        """Call *listener* with the signals for this client."""
        self._world.listeners[self._client.instance] = listener

    def be_reachable(self) -> None:
        """Nothing to do."""

    def before_fork(self) -> None:
        """Nothing to do: the child starts with an empty world, whatever state it finds this one in."""

    def after_fork_in_parent(self) -> None:
        """Nothing to do."""

    def after_fork(self, client: Client) -> None:
        """Start with an empty world: the parent's locks are in the parent's memory."""
        global _shared_mutex
        _shared_mutex = threading.Lock()  # another thread may have had it, and is not here to give it back
        self._client = client
        self._world = _world_of(self._name)

    def close(self) -> None:
        """Stop listening."""
        self._world.listeners.pop(self._client.instance, None)

    # Requests on one key. Each takes the mutex of its shard for the whole of its work.

    def _acquire(self, request: Acquire, post: Post) -> Granted | Queued | Busy | TooManyHolds | NotHeld:
        now = _now(request.now)
        key, attempt, owner = request.key, request.attempt, request.owner
        shard = self._world.shard(key)
        with shard.mutex:
            lock = shard.locks.get(key)
            if lock is not None and not lock.has_hold(attempt, now):
                self._settle(shard, lock, now, post)
            if ended := shard.find_ended(key, attempt, now):
                return ended.answer()
            if lock is None:
                lock = shard.new_lock(key, self._world.floor)
            elif lock.last == attempt:
                return NotHeld("already")
            end = now + micros(request.ttl)
            if hold := lock.holds.get(attempt):
                if hold.claimed:
                    hold.end = max(hold.end, end)
                else:
                    hold.end, hold.claimed = end, True
                    if request.ttl < request.claim:  # sooner than the head was told, or will be
                        lock.tell_head(now, post)
                return Granted(lock.token, (hold.end - now) / 1e6, len(lock.holds))
            if lock.owner == owner:
                if len(lock.holds) >= request.limit:
                    return TooManyHolds(len(lock.holds))
                lock.holds[attempt] = Hold(end, True)
                self._forget_ticket(lock, attempt, now, post)
                return Granted(lock.token, request.ttl, len(lock.holds))
            if lock.owner is None:
                lock.give(owner, request.client, attempt, Hold(end, True), now)
                self._record(shard, lock, "granted", now, owner=owner)
                return Granted(lock.token, request.ttl)
            holder, expires_in = cast("Holder", lock.holder(now)), (lock.end - now) / 1e6
            if not request.wait:
                return Busy(holder, expires_in)
            if ticket := lock.tickets.get(attempt):
                ticket.end = max(ticket.end, now + micros(request.patience))
                return Queued(list(lock.tickets).index(attempt) + 1, holder, expires_in)
            lock.tickets[attempt] = Ticket(request, now)
            self._record(shard, lock, "queued", now, owner=owner)
            return Queued(len(lock.tickets), holder, expires_in)

    def _release(self, request: Release, post: Post) -> Released | NotHeld:
        now = _now(request.now)
        shard = self._world.shard(request.key)
        with shard.mutex:
            lock = shard.locks.get(request.key)
            if lock is not None:
                self._settle(shard, lock, now, post)
            if lock is None or request.attempt not in lock.holds or lock.token != request.token:
                return self._why(shard, lock, request.key, request.attempt, request.token, now)
            return self._let_go(shard, lock, request, now, post)

    def _let_go(self, shard: Shard, lock: Lock, request: Release, now: int, post: Post) -> Released:
        lock.drop_hold(request.attempt, now, post)
        if request.retire or lock.holds:
            shard.ended[request.key, request.attempt] = Ended("released", now)
        if lock.holds:
            return Released(len(lock.holds))
        self._record(shard, lock, "released", now, owner=lock.owner)
        lock.last = request.attempt
        lock.free(now)
        return Released(0, self._hand_over(shard, lock, now, post) if lock.tickets else None)

    def _withdraw(self, request: Withdraw, post: Post) -> Withdrawn | NotHeld:
        now = _now(request.now)
        key, attempt = request.key, request.attempt
        shard = self._world.shard(key)
        with shard.mutex:
            lock = shard.locks.get(key)
            if lock is not None:
                self._settle(shard, lock, now, post)
            if ended := shard.find_ended(key, attempt, now):
                return ended.answer()
            if lock is not None and lock.last == attempt:
                return NotHeld("already")
            successor = None
            if lock is not None and attempt in lock.holds:
                lock.drop_hold(attempt, now, post)
                if not lock.holds:
                    self._record(shard, lock, "withdrawn", now, owner=lock.owner)
                    lock.free(now)
                    successor = self._hand_over(shard, lock, now, post)
            elif lock is not None and attempt in lock.tickets:
                self._record(shard, lock, "withdrawn", now, owner=lock.tickets[attempt].owner)
                self._forget_ticket(lock, attempt, now, post)
            # Last: if an interrupt keeps us from getting here, asking again does the rest.
            shard.ended[key, attempt] = Ended("withdrawn", now)
            return Withdrawn(successor)

    def _break(self, request: Break, post: Post) -> Broken | NotHeld:
        now = _now(request.now)
        shard = self._world.shard(request.key)
        with shard.mutex:
            lock = shard.locks.get(request.key)
            if lock is not None:
                self._settle(shard, lock, now, post)
            if lock is None or lock.owner is None:
                return NotHeld("free")
            if request.token is not None and request.token != lock.token:
                return NotHeld("taken over")
            holder = cast("Holder", lock.holder(now))
            for attempt in lock.holds:
                shard.ended[request.key, attempt] = Ended("broken", now, request.by, request.reason)
                post.append((lock.client.instance, Signal("lost", request.key, attempt)))
            self._record(shard, lock, "broken", now, owner=lock.owner, by=request.by, reason=request.reason)
            lock.free(now)
            return Broken(holder, self._hand_over(shard, lock, now, post))

    def _renew(self, request: Renew, post: Post) -> Renewed:
        now = _now(request.now)
        # First all that are alive, then what became of the others: settling their keys depends on the first.
        alive = [self._renew_alive(lease, now) for lease in request.leases]
        return Renewed(
            leases=tuple(
                answer or self._explain_loss(lease, now, post)
                for answer, lease in zip(alive, request.leases, strict=True)
            ),
            tickets=tuple(self._refresh_ticket(ticket, now, post) for ticket in request.tickets),
        )

    def _renew_alive(self, lease: RenewLease, now: int) -> LeaseAnswer | None:
        shard = self._world.shard(lease.key)
        with shard.mutex:
            lock = shard.locks.get(lease.key)
            if lock is None or lock.token != lease.token or not lock.has_hold(lease.attempt, now):
                return None
            hold = lock.holds[lease.attempt]
            end = now + micros(lease.ttl)
            if hold.end > end:
                return LeaseAnswer("held", (hold.end - now) / 1e6)
            hold.end = end
            return LeaseAnswer("renewed", (end - now) / 1e6)

    def _explain_loss(self, lease: RenewLease, now: int, post: Post) -> LeaseAnswer:
        shard = self._world.shard(lease.key)
        with shard.mutex:
            lock = shard.locks.get(lease.key)
            if lock is not None:
                self._settle(shard, lock, now, post)
            lost = self._why(shard, lock, lease.key, lease.attempt, lease.token, now)
            return LeaseAnswer("lost", why=lost.why, by=lost.by, reason=lost.reason)

    def _refresh_ticket(self, refresh: RefreshTicket, now: int, post: Post) -> TicketAnswer:
        shard = self._world.shard(refresh.key)
        with shard.mutex:
            lock = shard.locks.get(refresh.key)
            if lock is None:
                return TicketAnswer("gone")
            self._settle(shard, lock, now, post)
            if refresh.attempt in lock.holds:
                return TicketAnswer("handed")
            ticket = lock.tickets.get(refresh.attempt)
            if ticket is None:
                return TicketAnswer("gone")
            ticket.end = max(ticket.end, now + micros(refresh.patience))
            head = next(iter(lock.tickets)) == refresh.attempt
            return TicketAnswer("waiting", head, (lock.end - now) / 1e6)

    # The rules those requests share. All are called with the shard's mutex held.

    def _settle(self, shard: Shard, lock: Lock, now: int, post: Post) -> None:
        """Bring the lock up to *now*: end what is over, then give it to the first live ticket."""
        for attempt, hold in list(lock.holds.items()):
            if hold.end <= now:
                del lock.holds[attempt]
                if hold.claimed:
                    shard.ended[lock.key, attempt] = Ended("expired", hold.end)
        if lock.owner is not None and not lock.holds:
            self._record(shard, lock, "expired", now, owner=lock.owner)
            lock.free(now)
        if lock.tickets:
            if lock.owner is None:
                self._hand_over(shard, lock, now, post)
            elif lock.prune_head(now):
                lock.tell_head(now, post)

    def _hand_over(self, shard: Shard, lock: Lock, now: int, post: Post) -> str | None:
        """Give a free lock to the first live ticket; return its owner."""
        lock.prune_head(now)
        attempt = next(iter(lock.tickets), None)
        if attempt is None:
            return None
        ticket = lock.tickets[attempt]
        hold = Hold(now + ticket.claim, claimed=False)
        lock.give(ticket.owner, ticket.client, attempt, hold, now)
        del lock.tickets[attempt]  # after giving: an interrupt in between must not cost it its place
        self._record(shard, lock, "handed_over", now, owner=ticket.owner)
        post.append((ticket.client.instance, Signal("granted", lock.key, attempt)))
        lock.prune_head(now)
        lock.tell_head(now, post)
        return ticket.owner

    def _forget_ticket(self, lock: Lock, attempt: str, now: int, post: Post) -> None:
        if attempt in lock.tickets:
            was_head = next(iter(lock.tickets)) == attempt
            del lock.tickets[attempt]
            if was_head:
                lock.prune_head(now)
                lock.tell_head(now, post)

    def _why(self, shard: Shard, lock: Lock | None, key: str, attempt: str, token: int, now: int) -> NotHeld:
        """Say why an attempt does not hold the lock under *token*."""
        if ended := shard.find_ended(key, attempt, now):
            if ended.why == "expired" and lock is not None and lock.token > token:
                return NotHeld("taken over")
            return ended.answer()
        if lock is None:
            return NotHeld("unknown")
        if lock.last == attempt:
            return NotHeld("already")
        if lock.token > token:
            return NotHeld("taken over")
        return NotHeld("expired" if lock.token == token else "unknown")

    def _record(
        self,
        shard: Shard,
        lock: Lock,
        kind: EventKind,
        now: int,
        *,
        owner: str | None,
        by: str | None = None,
        reason: str | None = None,
    ) -> None:
        if is_kept(kind, self._level):
            events = shard.history.setdefault(lock.key, [])
            lock.events += 1
            events.append(Event(lock.key, lock.events, kind, now / 1e6, lock.token, owner, by, reason))

    # Looking, and tidying up.

    def _inspect(self, request: Inspect, post: Post) -> LockView | None:
        now = _now(request.now)
        shard = self._world.shard(request.key)
        with shard.mutex:
            lock = shard.locks.get(request.key)
            if lock is None:
                return None
            waiters = tuple(
                Waiter(t.owner, t.client.host, t.client.pid, (now - t.queued_at) / 1e6)
                for t in list(lock.tickets.values())[:WAITERS_SHOWN]
            )
            return lock.view(now, waiters)

    def _history(self, request: History, post: Post) -> tuple[Event, ...]:
        shard = self._world.shard(request.key)
        with shard.mutex:
            events = shard.history.get(request.key, [])
            return tuple(events[max(len(events) - request.limit, 0) :])

    def _list(self, request: List, post: Post) -> Page:
        now = _now(request.now)
        type_prefix = keys.type_prefix(request.type) if request.type is not None else ""
        found: list[LockView] = []
        for shard in self._world.shards:
            with shard.mutex:
                found += [
                    lock.view(now)
                    for key, lock in shard.locks.items()
                    if key > request.after
                    and key.startswith(request.prefix)
                    and key.startswith(type_prefix)
                    and (request.owner is None or lock.owner == request.owner)
                    and (request.state is None or lock.state(now) == request.state)
                ]
        found.sort(key=lambda view: view.key)
        page = found[: request.limit]
        return Page(tuple(page), page[-1].key if len(found) > len(page) and page else None)

    def _sweep(self, request: Sweep, post: Post) -> Swept:
        now = _now(request.now)
        limit = request.limit
        idle_since = now - micros(request.idle)
        forget_before = now - micros(request.keep_history)
        expired = tickets = locks = ended = history = 0
        for shard in self._world.shards:
            with shard.mutex:
                for lock in shard.locks.values():
                    if expired < limit and lock.state(now) == "expired":
                        self._settle(shard, lock, now, post)
                        expired += 1
                for name in [name for name, each in shard.ended.items() if each.until <= now]:
                    if ended < limit:
                        del shard.ended[name]
                        ended += 1
                for events in shard.history.values():
                    # By time, not by number: time may have gone back between two events.
                    for event in [event for event in events if micros(event.at) <= forget_before]:
                        if history < limit:
                            events.remove(event)
                            history += 1
                for key in [key for key, events in shard.history.items() if not events]:
                    del shard.history[key]
        walk = sorted(k for shard in self._world.shards for k in list(shard.locks) if k > request.after)
        after: str | None = request.after
        for key in walk[:limit]:
            shard = self._world.shard(key)
            with shard.mutex:
                visited = shard.locks.get(key)
                if visited is not None and visited.tickets:
                    tickets += self._drop_dead_tickets(visited, limit - tickets, now, post)
                    if tickets == limit:
                        break  # there may be more of them: come back to this key
                elif visited is not None and visited.owner is None and visited.freed_at <= idle_since:
                    self._world.floor = max(self._world.floor, visited.token)
                    del shard.locks[key]
                    locks += 1
            after = key
        else:
            after = after if len(walk) > limit else None
        return Swept(expired, tickets, locks, ended, history, after)

    def _drop_dead_tickets(self, lock: Lock, limit: int, now: int, post: Post) -> int:
        dead = [attempt for attempt, ticket in lock.tickets.items() if ticket.end <= now][:limit]
        for attempt in dead:
            self._forget_ticket(lock, attempt, now, post)
        return len(dead)


def _now(given: float | None) -> int:
    return micros(boot_time()) + _EPOCH if given is None else micros(given)
