"""The rules that requests share: what is over ends, the queue is served, circles end, history is written."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.core.deadlocks import Deadlock, Held, KeyState, Waiting, find
from holdfast.core.events import Event, EventKind, HistoryLevel, is_kept
from holdfast.core.family import LARGEST_ERROR, MOST_FAILURES, Failure
from holdfast.core.requests import Acquire, Deadlocked, Done, Failed, Holder, NotHeld, Signal, Sweep, Swept
from holdfast.stores.base import micros
from holdfast.stores.memory.lock import Hold, Lock, Post, Ticket
from holdfast.stores.memory.state import EndedAttempt, Shard, World, has_ended


class Settlement:
    """See the module. What is about one lock is called with the mutex of its shard held."""

    _world: World
    _level: HistoryLevel

    def _record(
        self,
        shard: Shard,
        lock: Lock,
        kind: EventKind,
        now: int,
        *,
        owner: str | None,
        token: int | None = None,  # None: the highest there is
        by: str | None = None,
        reason: str | None = None,
        operation: bool = False,
    ) -> None:
        if is_kept(kind, self._level, operation=operation):
            if token is None:
                token = lock.token
            events = shard.history.setdefault(lock.key, [])
            lock.events += 1
            events.append(Event(lock.key, lock.events, kind, now / 1e6, token, owner, by, reason))
            shard.unplaced.add(lock.key)
            self._world.stirred = True

    def _record_of(
        self, whose: Hold | Ticket | Holder, shard: Shard, lock: Lock, kind: EventKind, now: int, **why: str
    ) -> None:
        """Write down what happened to somebody's lease or ticket; *why* is by whom, and the reason."""
        token = None if isinstance(whose, Ticket) else whose.token
        operation = not isinstance(whose, Holder) and whose.terms.operation
        self._record(shard, lock, kind, now, owner=whose.owner, token=token, operation=operation, **why)

    def _fail(self, shard: Shard, lock: Lock, hold: Hold, error: str, now: int, post: Post) -> int:
        """Note a failure, and give up if it was the last allowed; return how many are told that."""
        error = error[:LARGEST_ERROR]
        self._record_of(hold, shard, lock, "failed", now, reason=error)
        failure = Failure(hold.owner, hold.client.host, hold.client.pid, hold.token, error)
        lock.failed += 1
        lock.failures = (*lock.failures, failure)[-MOST_FAILURES:]
        told = 0
        if 0 < hold.terms.max_attempts <= lock.failed:
            told = self._end_queue(shard, lock, "failed", Failed(lock.failures), now, post)
            lock.forget_failures()
        elif all(ticket.end <= now for ticket in lock.tickets.values()):
            lock.forget_failures()  # nobody waits: the next one begins again
        return told

    def _end_queue(
        self, shard: Shard, lock: Lock, why: str, answer: Done | Failed, now: int, post: Post
    ) -> int:
        """Empty the queue. Those who were alive in it are answered *answer* when they ask again."""
        told = 0
        instances: dict[str, None] = {}
        for attempt, ticket in list(lock.tickets.items()):
            if ticket.end > now:
                shard.ended[lock.key, attempt] = EndedAttempt(why, now, told=answer)
                instances[ticket.client.instance] = None
                told += 1
            del lock.tickets[attempt]
        post += [(instance, Signal("over", lock.key, "")) for instance in instances]
        return told

    def _settled(self, shard: Shard, key: str, now: int, post: Post) -> Lock | None:
        """Return the lock of a key, brought up to *now*."""
        lock = shard.locks.get(key)
        if lock is not None:
            self._settle(shard, lock, now, post)
        return lock

    def _settle(self, shard: Shard, lock: Lock, now: int, post: Post) -> None:
        """Bring the lock up to *now*: end what is over, then serve those who wait."""
        if lock.holds:
            over = {attempt: hold for attempt, hold in lock.holds.items() if hold.end <= now}
            if over:
                self._expire(shard, lock, over, now, post)
        if lock.shut_until and lock.shut_until <= now:
            lock.shut_until = 0
        if lock.kept is not None and lock.kept.until <= now:
            if lock.shut_until <= now:
                lock.freed_at = lock.used_at()
            lock.kept = None
        if lock.tickets:
            self._serve(shard, lock, now, post)

    def _expire(self, shard: Shard, lock: Lock, over: dict[str, Hold], now: int, post: Post) -> None:
        """Remove holds whose end has come, and end the leases that have no other."""
        alive = {hold.token for attempt, hold in lock.holds.items() if attempt not in over}
        # The last hold of each lease that is over.
        last: dict[int, Hold] = {}
        for hold in sorted(over.values(), key=lambda hold: (hold.token, hold.end, hold.claimed)):
            if hold.token not in alive:
                last[hold.token] = hold
        for hold in last.values():  # before they are gone: an interrupt in between must not leave it open
            if hold.claimed:
                lock.shut(hold, now, expired=True)
        for attempt, hold in over.items():
            lock.remove(attempt)
            if hold.claimed or hold.terms.enters:
                shard.ended[lock.key, attempt] = EndedAttempt("expired", hold.end)
        if not lock.holds:
            lock.freed_at = now
        for hold in last.values():
            self._record_of(hold, shard, lock, "expired", now)
            if hold.terms.operation and hold.claimed:
                self._fail(shard, lock, hold, "the lease expired", now, post)

    def _serve(self, shard: Shard, lock: Lock, now: int, post: Post, *, changed: bool = False) -> str | None:
        """Give the lock to the head of the queue as long as it fits; return the owner who was first.

        If somebody else is head then, or if what the head waits for has *changed*, it may have to know.
        """
        first = None
        changed |= lock.prune_head(now)
        while lock.tickets and lock.shut_until <= now:
            attempt, ticket = next(iter(lock.tickets.items()))
            if not lock.fits(ticket.terms, lock.permits):
                break
            end = now + ticket.claim
            lock.give(attempt, ticket.owner, ticket.client, ticket.terms, now, end, claimed=False)
            del lock.tickets[attempt]  # after giving: an interrupt in between must not cost it its place
            self._record_of(ticket, shard, lock, "handed_over", now)
            if ticket.terms.enters:
                lasts = ticket.claim / 1e6
                handed = Signal("granted", lock.key, attempt, lasts, token=lock.token, at=now / 1e6)
            else:
                handed = Signal("granted", lock.key, attempt)
            post.append((ticket.client.instance, handed))
            lock.prune_head(now)
            first, changed = first or ticket.owner, True
        if changed:
            lock.tell_head(now, post)
        return first

    def _forget_ticket(self, shard: Shard, lock: Lock, attempt: str, now: int, post: Post) -> None:
        """Remove a ticket, if there is one; the next one may be served now."""
        if attempt in lock.tickets:
            was_head = next(iter(lock.tickets)) == attempt
            del lock.tickets[attempt]
            if was_head:
                self._serve(shard, lock, now, post, changed=True)

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

    def _end_circles(self, request: Acquire, now: int, post: Post) -> Deadlocked | None:
        """End the circles that a ticket has closed; answer it if it is the one that has to go."""
        while found := find(request.owner, WaitView(self._world, now)):
            self._end_circle(found, now, post)
            if found.victim == (request.key, request.attempt):
                return Deadlocked(found.cycle)
        return None

    def _end_circle(self, found: Deadlock, now: int, post: Post) -> None:
        key, attempt = found.victim
        shard = self._world.shard(key)
        with shard.mutex:
            lock = shard.locks.get(key)
            ticket = lock.tickets.get(attempt) if lock is not None else None
            if lock is None or ticket is None:
                return  # somebody else has seen the circle too
            shard.ended[key, attempt] = EndedAttempt("deadlocked", now, told=Deadlocked(found.cycle))
            reason = "; ".join(map(str, found.cycle))[:LARGEST_ERROR]
            self._record_of(ticket, shard, lock, "deadlocked", now, reason=reason)
            post.append((ticket.client.instance, Signal("granted", key, attempt)))
            self._forget_ticket(shard, lock, attempt, now, post)

    def _sweep(self, request: Sweep, now: int, post: Post) -> Swept:
        limit = request.limit
        idle_since = now - micros(request.idle)
        expired = tickets = locks = ended = 0
        for shard in self._world.shards:
            with shard.mutex:
                for lock in shard.locks.values():
                    if expired < limit and lock.state(now) == "expired":
                        self._settle(shard, lock, now, post)
                        expired += 1
                    elif not lock.holds and 0 < lock.shut_until <= now:
                        self._settle(shard, lock, now, post)  # it opens, and whoever waits comes in
                for name in [name for name, each in shard.ended.items() if each.until <= now]:
                    if ended < limit:
                        del shard.ended[name]
                        ended += 1
        self._forget_access(now, limit)
        gone = self._forget_cluster(now, micros(request.keep_history), micros(request.idle), limit)
        history = self._forget_events(now - micros(request.keep_history), limit)
        walk = sorted(k for shard in self._world.shards for k in list(shard.locks) if k > request.after)
        after: str | None = request.after
        for key in walk[:limit]:
            shard = self._world.shard(key)
            with shard.mutex:
                visited = shard.locks.get(key)
                if visited is not None and visited.tickets:
                    dead = [attempt for attempt, ticket in visited.tickets.items() if ticket.end <= now]
                    for attempt in dead[: limit - tickets]:
                        self._forget_ticket(shard, visited, attempt, now, post)
                        tickets += 1
                    if tickets == limit:
                        break  # there may be more of them: come back to this key
                elif visited is not None and _is_idle(visited, idle_since, now):
                    self._world.floor = max(self._world.floor, visited.token)
                    del shard.locks[key]
                    locks += 1
            after = key
        else:
            # Even if all keys were seen, there may be more of what is over.
            after = after if len(walk) > limit or limit in (expired, ended, history, *gone) else None
        return Swept(expired, tickets, locks, ended, history, after)

    def _forget_access(self, now: int, limit: int) -> None:
        """Forget access tokens that have ended."""
        access = self._world.access
        with self._world.access_mutex:
            for number in [number for number, token in access.items() if has_ended(token, now)][:limit]:
                del access[number]

    def _forget_cluster(self, now: int, keep: int, idle: int, limit: int) -> tuple[int, int]:
        """Forget work that has ended, and instances that are gone; return how many of each."""
        works, instances = self._world.works, self._world.instances
        with self._world.cluster_mutex:
            over = [work for work in works.values() if work.state in ("completed", "failed")]
            ended = [work.key for work in over if work.due <= now - keep][:limit]
            for key in ended:
                del works[key]
            left = [each for each in instances.values() if each.seen_at(now) in ("left", "dead")]
            gone = [each.request.id for each in left if each.end <= now - idle][:limit]
            for id in gone:
                del instances[id]
            return len(ended), len(gone)

    def _forget_events(self, before: int, limit: int) -> int:
        """Forget events from *before* or earlier, also in the feed; return how many."""
        forgotten = 0
        places = set()
        with self._world.feed_mutex:
            for shard in self._world.shards:
                with shard.mutex:
                    for events in shard.history.values():
                        # By time, not by number: time may have gone back between two events.
                        for event in [event for event in events if micros(event.at) <= before]:
                            if forgotten < limit:
                                events.remove(event)
                                places.add(event.id)
                                forgotten += 1
                    for key in [key for key, events in shard.history.items() if not events]:
                        del shard.history[key]
            if places:
                self._world.feed = [event for event in self._world.feed if event.id not in places]
        return forgotten


class WaitView:
    """Who holds and who waits at an instant, as `holdfast.core.deadlocks` looks at it."""

    def __init__(self, world: World, now: int) -> None:
        self._world = world
        self._now = now

    def is_waited_for(self, owner: str) -> bool:
        """Tell whether *owner* holds anything that somebody waits for."""
        for shard in self._world.shards:
            if owner in shard.held_by:
                with shard.mutex:
                    for key, attempt in shard.held_by.get(owner, ()):
                        lock = shard.locks.get(key)
                        if lock is not None and lock.tickets and attempt in lock.holds:
                            return True
        return False

    def keys_wanted_by(self, owners: Iterable[str]) -> Iterable[str]:
        """Return the keys that these owners have tickets for."""
        wanted_by = set(owners)
        keys = []
        for shard in self._world.shards:
            if shard.waited_for:
                with shard.mutex:
                    keys += [
                        lock.key
                        for lock in shard.queues()
                        if any(ticket.owner in wanted_by for ticket in lock.tickets.values())
                    ]
        return keys

    def states(self, keys: Iterable[str]) -> dict[str, KeyState]:
        """Return what there is at these keys."""
        found = {}
        for key in keys:
            shard = self._world.shard(key)
            with shard.mutex:
                lock = shard.locks.get(key)
                if lock is not None:
                    found[key] = self._state(lock)
        return found

    def _state(self, lock: Lock) -> KeyState:
        return KeyState(
            tuple(
                Held(hold.owner, attempt, hold.terms)
                for attempt, hold in sorted(lock.holds.items(), key=lambda item: (item[1].token, item[0]))
                if hold.end > self._now
            ),
            tuple(
                Waiting(t.owner, attempt, t.terms, t.queued_at, t.client.host, t.client.pid)
                for attempt, t in lock.tickets.items()
                if t.end > self._now
            ),
            lock.permits,
        )


def _is_idle(lock: Lock, since: int, now: int) -> bool:
    return not lock.holds and lock.shut_until <= now and lock.used_at() <= since
