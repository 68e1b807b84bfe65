"""Requests about one lock: to acquire, release, withdraw, break, change and renew it."""

from __future__ import annotations

from typing import cast

from holdfast.core import requests as r
from holdfast.core.data import replace
from holdfast.stores.base import micros
from holdfast.stores.memory.lock import Hold, Lock, Post, Ticket
from holdfast.stores.memory.settlement import Settlement
from holdfast.stores.memory.state import EndedAttempt, Shard

Granting = r.Granted | r.Queued | r.Busy | r.TooManyHolds | r.NotHeld | r.Refused
Answer = Granting | r.Done | r.Failed | r.Deadlocked


class Locks(Settlement):
    """See the module. A request has the mutex of its shard, but not while it looks for circles."""

    def _acquire(self, request: r.Acquire, now: int, post: Post) -> Answer:
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
                    return r.NotHeld("already")
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
                return r.Granted(lock.token, request.ttl)
            holder = cast("r.Holder", lock.holder(now))
            expires_in = (lock.ask_again_at(terms) - now) / 1e6
            if not request.wait:
                return r.Busy(holder, expires_in)
            if ticket := lock.tickets.get(attempt):
                ticket.end = max(ticket.end, now + micros(request.patience))
                ticket.client = request.client  # where we can be reached now
                queued = r.Queued(list(lock.tickets).index(attempt) + 1, holder, expires_in, now / 1e6)
            else:
                lock.permits = permits
                lock.tickets[attempt] = Ticket(request, now)
                shard.waited_for.add(key)
                self._record(shard, lock, "queued", now, owner=request.owner, operation=terms.operation)
                queued = r.Queued(len(lock.tickets), holder, expires_in, now / 1e6)
        return self._end_circles(request, now, post) or queued

    def _confirm(self, lock: Lock, hold: Hold, request: r.Acquire, now: int, post: Post) -> r.Granted:
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
        self, shard: Shard, lock: Lock, request: r.Acquire, now: int, post: Post
    ) -> r.Granted | r.TooManyHolds | r.Refused | None:
        """Add a hold to the lease that the owner has, if there is one to be entered again."""
        if lock.mode == "permits":
            return None
        mine = [hold for hold in lock.holds.values() if hold.owner == request.owner]
        if not mine:
            return None
        lease = min(mine, key=lambda hold: hold.token)
        if lease.terms.mode == "shared" and request.terms.mode != "shared":
            return r.Refused("upgrade") if request.terms.mode == "exclusive" else None
        if len(mine) >= request.limit:
            return r.TooManyHolds(len(mine))
        if request.terms.at_least > lease.terms.at_least:
            for each in lock.lease(lease.token):  # whichever of them is left last
                each.terms = replace(each.terms, at_least=request.terms.at_least)
        end = now + micros(request.ttl)
        # On the terms of the lease: what is exclusive stays so.
        hold = Hold(request.owner, request.client, lease.terms, lease.token, lease.since, end, claimed=True)
        lock.add(request.attempt, hold)
        self._forget_ticket(shard, lock, request.attempt, now, post)
        return lock.granted(hold, now)

    def _release(self, request: r.Release, now: int, post: Post) -> r.Released | r.NotHeld | r.Refused:
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
                return r.Refused("holds")
            if request.retire or len(lock.holds) > 1:
                shard.ended[key, attempt] = EndedAttempt("released", now)
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
            return r.Released(left, successor)

    def _end_attempt(
        self, shard: Shard, lock: Lock, hold: Hold, request: r.Release, now: int, post: Post
    ) -> r.Released:
        """Release the last hold of an operation: that is its success, or one more failure."""
        outcome = request.outcome
        watched = lock.head_watches()
        lock.shut(hold, now)
        if outcome is not None and outcome.succeeded:
            done = r.Done(outcome.text, hold.token)
            told = self._end_queue(shard, lock, "done", done, now, post)
            lock.forget_failures()
            if outcome.keep:
                lock.keep(hold, outcome.text, outcome.keep, now)
            self._drop(lock, request.attempt, now)
            self._record_of(hold, shard, lock, "completed", now)
            return r.Released(0, None, told)
        self._drop(lock, request.attempt, now)
        error = "released without an outcome" if outcome is None else outcome.text
        told = self._fail(shard, lock, hold, error, now, post)
        return r.Released(0, self._serve_sooner(shard, lock, watched, now, post), told)

    def _withdraw(self, request: r.Withdraw, now: int, post: Post) -> r.Withdrawn | r.NotHeld:
        key, attempt = request.key, request.attempt
        shard = self._world.shard(key)
        with shard.mutex:
            lock = self._settled(shard, key, now, post)
            if ended := shard.find_ended(key, attempt, now):
                return ended.answer()
            if lock is not None and lock.last == attempt:
                return r.NotHeld("already")
            successor = None
            if lock is not None and attempt in lock.holds:
                successor = self._give_back(shard, lock, request, now, post)
            elif lock is not None and attempt in lock.tickets:
                self._record_of(lock.tickets[attempt], shard, lock, "withdrawn", now)
                self._forget_ticket(shard, lock, attempt, now, post)
            # Last: if an interrupt keeps us from getting here, asking again does the rest.
            shard.ended[key, attempt] = EndedAttempt("withdrawn", now)
            return r.Withdrawn(successor)

    def _give_back(self, shard: Shard, lock: Lock, request: r.Withdraw, now: int, post: Post) -> str | None:
        """Remove the hold of an attempt that was withdrawn; return who is next."""
        hold, watched = lock.holds[request.attempt], lock.head_watches()
        if request.held and hold.claimed and len(lock.lease(hold.token)) == 1:
            lock.shut(hold, now)
        self._drop(lock, request.attempt, now)
        if not lock.lease(hold.token):
            self._record_of(hold, shard, lock, "withdrawn", now)
            if hold.terms.operation and hold.claimed:
                self._fail(shard, lock, hold, "withdrawn", now, post)
        return self._serve_sooner(shard, lock, watched, now, post)

    def _break(self, request: r.Break, now: int, post: Post) -> r.Broken | r.NotHeld:
        by, reason = request.by, request.reason
        shard = self._world.shard(request.key)
        with shard.mutex:
            lock = self._settled(shard, request.key, now, post)
            if lock is None:
                return r.NotHeld("free")
            broken = [holder for holder in lock.holders(now) if request.token in (None, holder.token)]
            watched = lock.head_watches()
            opened = self._open(lock, request.token, now)
            gone = self._forget_result(lock, request.token, now) or opened
            if gone is not None and not broken:
                self._record_of(gone, shard, lock, "broken", now, by=by, reason=reason)
                return r.Broken(gone, self._serve_sooner(shard, lock, watched, now, post))
            if not broken:
                return r.NotHeld("taken over" if lock.holds else "free")
            watched = lock.head_watches()
            for holder in broken:
                lease = {a: hold for a, hold in lock.holds.items() if hold.token == holder.token}
                for attempt, hold in lease.items():
                    shard.ended[lock.key, attempt] = EndedAttempt("broken", now, by, reason)
                    post.append((hold.client.instance, r.Signal("lost", lock.key, attempt)))
                    self._drop(lock, attempt, now)
                self._record_of(holder, shard, lock, "broken", now, by=by, reason=reason)
                if hold.terms.operation and holder.claimed:
                    self._fail(shard, lock, hold, f"broken by {by}: {reason}", now, post)
            return r.Broken(broken[0], self._serve_sooner(shard, lock, watched, now, post))

    @staticmethod
    def _open(lock: Lock, token: int | None, now: int) -> r.Holder | None:
        """Let others in again, if it is shut because of a lease with this token; return whose that was."""
        by = lock.shut_by
        if by is None or lock.shut_until <= now or token not in (None, by.token):
            return None
        lock.shut_until = 0
        return replace(by.holder(now, claimed=True), take=1, gone=True)

    @staticmethod
    def _forget_result(lock: Lock, token: int | None, now: int) -> r.Holder | None:
        """Keep a result no longer, if it is the one with this token; return whose that was."""
        kept = lock.kept
        if kept is None or token not in (None, kept.token):
            return None
        lock.kept = None
        if not lock.holds and lock.shut_until <= now:
            lock.freed_at = now
        return r.doer(kept, now)

    def _drop(self, lock: Lock, attempt: str, now: int) -> None:
        lock.remove(attempt)
        if not lock.holds:
            lock.freed_at = now

    def _serve_sooner(self, shard: Shard, lock: Lock, watched: int, now: int, post: Post) -> str | None:
        """Serve the queue, now that what its head *watched* may end sooner."""
        return self._serve(shard, lock, now, post, changed=lock.head_watches() < watched)

    def _downgrade(self, request: r.Downgrade, now: int, post: Post) -> r.Granted | r.NotHeld | r.Refused:
        key, attempt = request.key, request.attempt
        shard = self._world.shard(key)
        with shard.mutex:
            lock = self._settled(shard, key, now, post)
            hold = lock.holds.get(attempt) if lock is not None else None
            if lock is None or hold is None or hold.token != request.token:
                return self._why(shard, lock, key, attempt, request.token, now)
            if hold.terms.mode == "permits":
                return r.NotHeld("unknown")  # there is nothing exclusive about it
            if hold.terms.mode == "exclusive":
                if len(lock.lease(hold.token)) > 1:
                    return r.Refused("holds")
                hold.terms = replace(hold.terms, mode="shared")
                self._record_of(hold, shard, lock, "downgraded", now)
                self._serve(shard, lock, now, post)
            return lock.granted(hold, now)

    def _resize(self, request: r.Resize, now: int, post: Post) -> r.Resized:
        key, permits = request.key, request.permits
        shard = self._world.shard(key)
        with shard.mutex:
            lock = self._settled(shard, key, now, post) or shard.new_lock(key, self._world.floor)
            before, lock.permits = lock.permits, permits
            if not lock.holds:
                lock.freed_at = now  # it was used: its capacity is not to be forgotten yet
            head = next(iter(lock.tickets), None)
            self._record(shard, lock, "resized", now, owner=None, by=request.by, reason=str(permits))
            # Dead ones too: they could be refreshed, and would never be served.
            for attempt, ticket in list(lock.tickets.items()):
                if ticket.terms.mode == "permits" and ticket.terms.take > permits:
                    shard.ended[key, attempt] = EndedAttempt("refused", now, told=r.Refused("take", permits))
                    post.append((ticket.client.instance, r.Signal("granted", key, attempt)))
                    del lock.tickets[attempt]
            self._serve(shard, lock, now, post, changed=next(iter(lock.tickets), None) != head)
            return r.Resized(permits, before)

    def _renew(self, request: r.Renew, now: int, post: Post) -> r.Renewed:
        # First all that are alive, then what became of the others: settling their keys depends on the first.
        alive = [self._renew_alive(lease, now) for lease in request.leases]
        return r.Renewed(
            leases=tuple(
                answer or self._explain_loss(lease, now, post)
                for answer, lease in zip(alive, request.leases, strict=True)
            ),
            tickets=tuple(self._refresh_ticket(ticket, now, post) for ticket in request.tickets),
        )

    def _renew_alive(self, lease: r.RenewLease, now: int) -> r.LeaseAnswer | None:
        shard = self._world.shard(lease.key)
        with shard.mutex:
            lock = shard.locks.get(lease.key)
            hold = lock.holds.get(lease.attempt) if lock is not None else None
            if hold is None or hold.token != lease.token or hold.end <= now:
                return None
            end = now + micros(lease.ttl)
            if hold.end > end:
                return r.LeaseAnswer("held", (hold.end - now) / 1e6)
            hold.end, hold.claimed = end, True
            return r.LeaseAnswer("renewed", (end - now) / 1e6)

    def _explain_loss(self, lease: r.RenewLease, now: int, post: Post) -> r.LeaseAnswer:
        shard = self._world.shard(lease.key)
        with shard.mutex:
            lock = self._settled(shard, lease.key, now, post)
            lost = self._why(shard, lock, lease.key, lease.attempt, lease.token, now)
            return r.LeaseAnswer("lost", why=lost.why, by=lost.by, reason=lost.reason)

    def _refresh_ticket(self, refresh: r.RefreshTicket, now: int, post: Post) -> r.TicketAnswer:
        shard = self._world.shard(refresh.key)
        with shard.mutex:
            lock = self._settled(shard, refresh.key, now, post)
            if lock is None:
                return r.TicketAnswer("gone")
            if refresh.attempt in lock.holds:
                return r.TicketAnswer("handed")
            ticket = lock.tickets.get(refresh.attempt)
            if ticket is None:
                return r.TicketAnswer("gone")
            ticket.end = max(ticket.end, now + micros(refresh.patience))
            head = next(iter(lock.tickets)) == refresh.attempt
            expires_in = (lock.ask_again_at(ticket.terms) - now) / 1e6
            return r.TicketAnswer("waiting", head, expires_in, now / 1e6)


def _refusal(lock: Lock | None, request: r.Acquire) -> r.Refused | None:
    """Refuse who believes in another number of permits than there are, or wants more."""
    if lock is not None and request.attempt in lock.tickets:
        return None  # it was right when it came; if it wants too much now, resizing has refused it
    known, believed = lock.permits if lock is not None else 0, request.terms.permits
    permits = known or believed
    if not permits or believed not in (0, permits):
        return r.Refused("capacity", known)
    return r.Refused("take", permits) if request.terms.take > permits else None
