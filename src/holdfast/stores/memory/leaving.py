"""The ways out of a lock: to release it, to withdraw, or to have it broken."""

from __future__ import annotations

from holdfast.core.data import replace
from holdfast.core.requests import (
    Break,
    Broken,
    Holder,
    NotHeld,
    Refused,
    Release,
    Released,
    Signal,
    Withdraw,
    Withdrawn,
    doer,
)
from holdfast.stores.memory.recording import store_time
from holdfast.stores.memory.settling import Settling
from holdfast.stores.memory.state import Ended, Hold, Lock, Post, Shard


class Leaving(Settling):
    """See the module. Each request has the mutex of its shard for the whole of its work."""

    def _release(self, request: Release, post: Post) -> Released | NotHeld | Refused:
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
            operation = hold.terms.operation
            left = 0 if len(lock.holds) == 1 else len(lock.lease(hold.token)) - 1
            if left and operation and request.outcome is not None:
                return Refused("holds")
            if request.retire or len(lock.holds) > 1:
                shard.ended[key, attempt] = Ended("released", now)
            if len(lock.holds) == 1:
                lock.last = attempt
            if operation and not left:
                return self._end_attempt(shard, lock, hold, request, now, post)
            watched = lock.head_watches()
            if not left:
                lock.shut(hold, now)
            self._drop(lock, attempt, now)
            if not left:
                self._record(shard, lock, "released", now, owner=hold.owner, token=hold.token)
            successor = self._serve_sooner(shard, lock, watched, now, post) if lock.tickets else None
            return Released(left, successor)

    def _end_attempt(
        self, shard: Shard, lock: Lock, hold: Hold, request: Release, now: int, post: Post
    ) -> Released:
        """Release the last hold of an operation: that is its success, or one more failure."""
        outcome = request.outcome
        watched = lock.head_watches()
        lock.shut(hold, now)
        if outcome is not None and outcome.succeeded:
            told = self._succeed(shard, lock, hold, outcome, now, post)
            self._drop(lock, request.attempt, now)
            self._record(shard, lock, "completed", now, owner=hold.owner, token=hold.token, operation=True)
            return Released(0, None, told)
        self._drop(lock, request.attempt, now)
        error = "released without an outcome" if outcome is None else outcome.text
        told = self._fail(shard, lock, hold, error, now, post)
        return Released(0, self._serve_sooner(shard, lock, watched, now, post), told)

    def _withdraw(self, request: Withdraw, post: Post) -> Withdrawn | NotHeld:
        now = store_time(request.now)
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
                successor = self._give_back(shard, lock, request, now, post)
            elif lock is not None and attempt in lock.tickets:
                ticket = lock.tickets[attempt]
                operation = ticket.terms.operation
                self._record(shard, lock, "withdrawn", now, owner=ticket.owner, operation=operation)
                self._forget_ticket(shard, lock, attempt, now, post)
            # Last: if an interrupt keeps us from getting here, asking again does the rest.
            shard.ended[key, attempt] = Ended("withdrawn", now)
            return Withdrawn(successor)

    def _give_back(self, shard: Shard, lock: Lock, request: Withdraw, now: int, post: Post) -> str | None:
        """Remove the hold of an attempt that was withdrawn; return who is next."""
        hold, watched = lock.holds[request.attempt], lock.head_watches()
        if request.held and hold.claimed and len(lock.lease(hold.token)) == 1:
            lock.shut(hold, now)
        self._drop(lock, request.attempt, now)
        if not lock.lease(hold.token):
            operation = hold.terms.operation
            self._record(
                shard, lock, "withdrawn", now, owner=hold.owner, token=hold.token, operation=operation
            )
            if operation and hold.claimed:
                self._fail(shard, lock, hold, "withdrawn", now, post)
        return self._serve_sooner(shard, lock, watched, now, post)

    def _break(self, request: Break, post: Post) -> Broken | NotHeld:
        now = store_time(request.now)
        by, reason = request.by, request.reason
        shard = self._world.shard(request.key)
        with shard.mutex:
            lock = shard.locks.get(request.key)
            if lock is not None:
                self._settle(shard, lock, now, post)
            if lock is None:
                return NotHeld("free")
            broken = [holder for holder in lock.holders(now) if request.token in (None, holder.token)]
            watched = lock.head_watches()
            opened = self._open(lock, request.token, now)
            gone = self._forget_result(lock, request.token, now) or opened
            if gone is not None and not broken:
                self._record(
                    shard, lock, "broken", now, owner=gone.owner, token=gone.token, by=by, reason=reason
                )
                return Broken(gone, self._serve_sooner(shard, lock, watched, now, post))
            if not broken:
                return NotHeld("taken over" if lock.holds else "free")
            watched = lock.head_watches()
            for holder in broken:
                lease = {a: hold for a, hold in lock.holds.items() if hold.token == holder.token}
                for attempt, hold in lease.items():
                    shard.ended[lock.key, attempt] = Ended("broken", now, by, reason)
                    post.append((hold.client.instance, Signal("lost", lock.key, attempt)))
                    self._drop(lock, attempt, now)
                self._record(
                    shard, lock, "broken", now, owner=holder.owner, token=holder.token, by=by, reason=reason
                )
                if hold.terms.operation and holder.claimed:
                    self._fail(shard, lock, hold, f"broken by {by}: {reason}", now, post)
            return Broken(broken[0], self._serve_sooner(shard, lock, watched, now, post))

    @staticmethod
    def _open(lock: Lock, token: int | None, now: int) -> Holder | None:
        """Let others in again, if it is shut because of a lease with this token; return whose that was."""
        by = lock.shut_by
        if by is None or lock.shut_until <= now or token not in (None, by.token):
            return None
        lock.shut_until = 0
        return replace(by.holder(now, claimed=True), take=1, gone=True)

    @staticmethod
    def _forget_result(lock: Lock, token: int | None, now: int) -> Holder | None:
        """Keep a result no longer, if it is the one with this token; return whose that was."""
        kept = lock.kept
        if kept is None or token not in (None, kept.token):
            return None
        lock.kept = None
        if not lock.holds and lock.shut_until <= now:
            lock.freed_at = now
        return doer(kept, now)

    def _drop(self, lock: Lock, attempt: str, now: int) -> None:
        del lock.holds[attempt]
        if not lock.holds:
            lock.freed_at = now

    def _serve_sooner(self, shard: Shard, lock: Lock, watched: int, now: int, post: Post) -> str | None:
        """Serve the queue, now that what its head *watched* may end sooner."""
        return self._serve(shard, lock, now, post, changed=lock.head_watches() < watched)
