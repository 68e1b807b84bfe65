"""The rules that requests share: settling a key, serving its queue, and saying why somebody has nothing."""

from __future__ import annotations

from holdfast.core.requests import NotHeld, Signal
from holdfast.stores.memory.operations import Operations
from holdfast.stores.memory.state import Ended, Hold, Lock, Post, Shard


class Settling(Operations):
    """See the module. All is called with the shard's mutex held."""

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
        for hold in last.values():
            if hold.claimed:
                lock.shut(
                    hold, now, expired=True
                )  # before it is gone: an interrupt in between must not leave it open
        for attempt, hold in over.items():
            del lock.holds[attempt]
            if hold.claimed:
                shard.ended[lock.key, attempt] = Ended("expired", hold.end)
        if not lock.holds:
            lock.freed_at = now
        for token, hold in last.items():
            operation = hold.terms.operation
            self._record(shard, lock, "expired", now, owner=hold.owner, token=token, operation=operation)
            if operation and hold.claimed:
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
            operation = ticket.terms.operation
            self._record(shard, lock, "handed_over", now, owner=ticket.owner, operation=operation)
            post.append((ticket.client.instance, Signal("granted", lock.key, attempt)))
            lock.prune_head(now)
            first, changed = first or ticket.owner, True
        if changed:
            lock.tell_head(now, post)
        return first

    def _forget_ticket(self, shard: Shard, lock: Lock, attempt: str, now: int, post: Post) -> None:
        """Remove a ticket, if there is one; whoever was behind it may be served now."""
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
