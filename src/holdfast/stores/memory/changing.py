"""Changing a lock while it is held: from exclusive to shared, or how many permits it has."""

from __future__ import annotations

from holdfast.core.data import replace
from holdfast.core.requests import Downgrade, Granted, NotHeld, Refused, Resize, Resized, Signal
from holdfast.stores.memory.recording import store_time
from holdfast.stores.memory.settling import Settling
from holdfast.stores.memory.state import Ended, Post


class Changing(Settling):
    """See the module. Each request has the mutex of its shard for the whole of its work."""

    def _downgrade(self, request: Downgrade, post: Post) -> Granted | NotHeld | Refused:
        now = store_time(request.now)
        key, attempt = request.key, request.attempt
        shard = self._world.shard(key)
        with shard.mutex:
            lock = shard.locks.get(key)
            if lock is not None:
                self._settle(shard, lock, now, post)
            hold = lock.holds.get(attempt) if lock is not None else None
            if lock is None or hold is None or hold.token != request.token:
                return self._why(shard, lock, key, attempt, request.token, now)
            if hold.terms.mode == "permits":
                return NotHeld("unknown")  # there is nothing exclusive about it
            if hold.terms.mode == "exclusive":
                if len(lock.lease(hold.token)) > 1:
                    return Refused("holds")
                hold.terms = replace(hold.terms, mode="shared")
                operation = hold.terms.operation
                self._record(
                    shard, lock, "downgraded", now, owner=hold.owner, token=hold.token, operation=operation
                )
                self._serve(shard, lock, now, post)
            return lock.granted(hold, now)

    def _resize(self, request: Resize, post: Post) -> Resized:
        now = store_time(request.now)
        key, permits = request.key, request.permits
        shard = self._world.shard(key)
        with shard.mutex:
            lock = shard.locks.get(key)
            if lock is None:
                lock = shard.new_lock(key, self._world.floor)
            else:
                self._settle(shard, lock, now, post)
            before, lock.permits = lock.permits, permits
            if not lock.holds:
                lock.freed_at = now  # it was used: its capacity is not to be forgotten yet
            head = next(iter(lock.tickets), None)
            self._record(shard, lock, "resized", now, owner=None, by=request.by, reason=str(permits))
            # Dead ones too: they could be refreshed, and would never be served.
            for attempt, ticket in list(lock.tickets.items()):
                if ticket.terms.mode == "permits" and ticket.terms.take > permits:
                    shard.ended[key, attempt] = Ended("refused", now, told=Refused("take", permits))
                    post.append((ticket.client.instance, Signal("granted", key, attempt)))
                    del lock.tickets[attempt]
            self._serve(shard, lock, now, post, changed=next(iter(lock.tickets), None) != head)
            return Resized(permits, before)
