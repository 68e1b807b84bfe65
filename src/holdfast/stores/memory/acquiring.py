"""Asking for a lock: to get it, to claim it, to enter it again, or to wait for it."""

from __future__ import annotations

from typing import cast

from holdfast.core.data import replace
from holdfast.core.requests import (
    Acquire,
    Busy,
    Deadlocked,
    Done,
    Failed,
    Granted,
    Holder,
    NotHeld,
    Queued,
    Refused,
    TooManyHolds,
)
from holdfast.stores.base import micros
from holdfast.stores.memory.circles import Circles
from holdfast.stores.memory.recording import store_time
from holdfast.stores.memory.state import Hold, Lock, Post, Shard, Ticket

Answer = Granted | Queued | Busy | TooManyHolds | NotHeld | Refused | Done | Failed | Deadlocked


class Acquiring(Circles):
    """See the module. The mutex of the shard is held for all but the search for circles."""

    def _acquire(self, request: Acquire, post: Post) -> Answer:
        now = store_time(request.now)
        key, attempt, terms = request.key, request.attempt, request.terms
        shard = self._world.shard(key)
        with shard.mutex:
            lock = shard.locks.get(key)
            if lock is not None and not lock.has_hold(attempt, now):
                self._settle(shard, lock, now, post)
            if ended := shard.find_ended(key, attempt, now):
                return cast("Answer", ended.told or ended.answer())
            if lock is not None:
                if lock.last == attempt:
                    return NotHeld("already")
                if hold := lock.holds.get(attempt):
                    return self._confirm(lock, hold, request, now, post)
                if terms.operation and (done := lock.kept_result(request.seen)):
                    self._forget_ticket(shard, lock, attempt, now, post)
                    return done
                if lock.holds and (entered := self._enter_again(shard, lock, request, now, post)):
                    return entered
            permits = lock.permits if lock is not None else 0
            if terms.mode == "permits":
                if refused := _refusal(lock, request):
                    return refused
                permits = permits or terms.permits
            if lock is None:
                lock = shard.new_lock(key, self._world.floor)
            if not lock.tickets and lock.shut_until <= now and (not lock.holds or lock.fits(terms, permits)):
                end, lock.permits = now + micros(request.ttl), permits
                lock.forget_failures()  # who was waiting when an operation failed has left since
                lock.give(attempt, request.owner, request.client, terms, now, end, claimed=True)
                self._record(shard, lock, "granted", now, owner=request.owner, operation=terms.operation)
                return Granted(lock.token, request.ttl)
            holder = cast("Holder", lock.holder(now))
            expires_in = (lock.ask_again_at(terms) - now) / 1e6
            if not request.wait:
                return Busy(holder, expires_in)
            if ticket := lock.tickets.get(attempt):
                ticket.end = max(ticket.end, now + micros(request.patience))
                ticket.client = request.client  # where we can be reached now
                queued = Queued(list(lock.tickets).index(attempt) + 1, holder, expires_in)
            else:
                lock.permits = permits
                lock.tickets[attempt] = Ticket(request, now)
                shard.waited_for.add(key)
                self._record(shard, lock, "queued", now, owner=request.owner, operation=terms.operation)
                queued = Queued(len(lock.tickets), holder, expires_in)
        return self._end_circles(request, now, post) or queued

    def _confirm(self, lock: Lock, hold: Hold, request: Acquire, now: int, post: Post) -> Granted:
        """Answer an attempt that has a hold; if it was handed over, it is claimed now."""
        end = now + micros(request.ttl)
        hold.client = request.client
        if hold.claimed:
            hold.end = max(hold.end, end)
        else:
            hold.end, hold.claimed = end, True
            if request.ttl < request.claim:  # sooner than the head was told, or will be
                lock.tell_head(now, post)
        return lock.granted(hold, now)

    def _enter_again(
        self, shard: Shard, lock: Lock, request: Acquire, now: int, post: Post
    ) -> Granted | TooManyHolds | Refused | None:
        """Add a hold to the lease that the owner has, if there is one to be entered again."""
        if lock.mode == "permits":
            return None
        mine = [hold for hold in lock.holds.values() if hold.owner == request.owner]
        if not mine:
            return None
        lease = min(mine, key=lambda hold: hold.token)
        if lease.terms.mode == "shared" and request.terms.mode != "shared":
            return Refused("upgrade") if request.terms.mode == "exclusive" else None
        if len(mine) >= request.limit:
            return TooManyHolds(len(mine))
        if request.terms.at_least > lease.terms.at_least:
            for each in lock.lease(lease.token):  # whichever of them is left last
                each.terms = replace(each.terms, at_least=request.terms.at_least)
        # On the terms of the lease: what is exclusive stays so.
        hold = lock.holds[request.attempt] = Hold(
            request.owner,
            request.client,
            lease.terms,
            lease.token,
            lease.since,
            now + micros(request.ttl),
            claimed=True,
        )
        self._forget_ticket(shard, lock, request.attempt, now, post)
        return lock.granted(hold, now)


def _refusal(lock: Lock | None, request: Acquire) -> Refused | None:
    """Refuse who believes in another number of permits than there are, or wants more."""
    if lock is not None and request.attempt in lock.tickets:
        return None  # it was right when it came; if it wants too much now, resizing has refused it
    known, believed = lock.permits if lock is not None else 0, request.terms.permits
    permits = known or believed
    if not permits or believed not in (0, permits):
        return Refused("capacity", known)
    return Refused("take", permits) if request.terms.take > permits else None
