"""Renewing leases and refreshing tickets, a batch at a time."""

from __future__ import annotations

from holdfast.core.requests import LeaseAnswer, RefreshTicket, Renew, Renewed, RenewLease, TicketAnswer
from holdfast.stores.base import micros
from holdfast.stores.memory.recording import store_time
from holdfast.stores.memory.settling import Settling
from holdfast.stores.memory.state import Post


class Renewing(Settling):
    """See the module. Each entry of a batch has the mutex of its shard for itself."""

    def _renew(self, request: Renew, post: Post) -> Renewed:
        now = store_time(request.now)
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
            hold = lock.holds.get(lease.attempt) if lock is not None else None
            if hold is None or hold.token != lease.token or hold.end <= now:
                return None
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
            return TicketAnswer("waiting", head, (lock.ask_again_at(ticket.terms) - now) / 1e6)
