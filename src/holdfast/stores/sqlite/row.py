"""One lock's row inside a transaction: read, changed by the rules of the protocol, written back."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.core.events import EventKind, HistoryLevel, is_kept
from holdfast.core.requests import Acquire, Holder, NotHeld, Signal
from holdfast.stores.base import REMEMBER, micros
from holdfast.stores.sqlite.database import SQL, Row

Post = list[tuple[str, Signal]]  # signals to send after the commit: (instance, signal)


class LockRow:
    """The state of one key. Holds and tickets are looked up only when a rule asks for them."""

    def __init__(
        self, run: Callable[..., list[Row]], key: str, now: int | None, level: HistoryLevel, post: Post
    ) -> None:
        self._run = run
        self._level: HistoryLevel = level
        self._post = post
        self.key = key
        self._read = (
            self.now,
            token,
            self.owner,
            self.attempt,
            self.claimed,
            self.expires_at,
            self.granted_at,
            self.instance,
            self.host,
            self.pid,
            self.last_attempt,
            self.holds,
            self.waiters,
            self.next_ticket,
        ) = run(SQL.read_lock, key=key, now=now)[0]
        self.exists = token is not None
        self.token: int = token or 0
        self.holds = self.holds or 0
        self.waiters = self.waiters or 0

    def write(self) -> None:
        """Write the row back, if it changed."""
        now = (
            self.now,
            self.token if self.exists else None,
            self.owner,
            self.attempt,
            self.claimed,
            self.expires_at,
            self.granted_at,
            self.instance,
            self.host,
            self.pid,
            self.last_attempt,
            self.holds if self.exists else None,
            self.waiters if self.exists else None,
            self.next_ticket,
        )
        if self.exists and now != self._read:
            self._run(
                SQL.write_lock,
                key=self.key,
                token=self.token,
                owner=self.owner,
                attempt=self.attempt,
                claimed=self.claimed,
                expires_at=self.expires_at,
                granted_at=self.granted_at,
                instance=self.instance,
                host=self.host,
                pid=self.pid,
                last_attempt=self.last_attempt,
                holds=self.holds,
                waiters=self.waiters,
                next_ticket=self.next_ticket,
            )

    # What it says.

    def expires_in(self) -> float:
        return float(self.expires_at - self.now) / 1e6

    def holder(self) -> Holder:
        held_for = (self.now - self.granted_at) / 1e6
        return Holder(self.owner, self.host, self.pid, self.token, held_for, bool(self.claimed))

    def ended(self, attempt: str) -> NotHeld | None:
        """Return how an attempt ended, if it is remembered to have ended."""
        for why, by, reason in self._run(SQL.read_ended, key=self.key, attempt=attempt, now=self.now):
            if why == "broken":
                return NotHeld("broken", by, reason)
            return NotHeld("expired" if why == "expired" else "already")
        return NotHeld("already") if self.exists and self.last_attempt == attempt else None

    def why_not_held(self, attempt: str, token: int) -> NotHeld:
        """Say why an attempt does not hold the lock under *token*."""
        taken_over = self.exists and self.token > token
        if ended := self.ended(attempt):
            return NotHeld("taken over") if ended.why == "expired" and taken_over else ended
        if taken_over:
            return NotHeld("taken over")
        return NotHeld("expired" if self.exists and self.token == token else "unknown")

    # Holds. With one, it is in the row; with more, all are in their table.

    def count_holds(self) -> int:
        return int(self.holds) or (1 if self.owner is not None else 0)

    def find_hold(self, attempt: str) -> tuple[int, bool] | None:
        """Return the end of a hold and whether it is claimed, or None if there is none alive."""
        if self.holds:
            found = next(
                ((end, claimed) for name, end, claimed in self._read_holds() if name == attempt), None
            )
        elif self.owner is not None and self.attempt == attempt:
            found = self.expires_at, self.claimed
        else:
            found = None
        return (found[0], bool(found[1])) if found is not None and found[0] > self.now else None

    def confirm_hold(self, request: Acquire) -> int | None:
        """Claim a hold, or ask for it again; return its new end, or None if there is none alive."""
        if (found := self.find_hold(request.attempt)) is None:
            return None
        old, claimed = found
        end: int = self.now + micros(request.ttl)
        if claimed:
            end = max(old, end)
        self.move_hold(request.attempt, end, claimed=True)
        if not claimed and self.waiters and request.ttl < request.claim:
            self._tell_head(self._run(SQL.queue_head, key=self.key))  # sooner than it was told, or will be
        return end

    def move_hold(self, attempt: str, end: int, *, claimed: bool) -> None:
        """Set the end of a hold."""
        if self.holds:
            self._run(SQL.write_hold, key=self.key, attempt=attempt, claimed=int(claimed), expires_at=end)
            self._sum_up_holds()
        else:
            self.expires_at = end
            self.claimed = int(claimed)

    def add_hold(self, attempt: str, end: int) -> None:
        """Add a hold of the same owner."""
        if not self.holds:
            self._run(
                SQL.write_hold,
                key=self.key,
                attempt=self.attempt,
                claimed=self.claimed,
                expires_at=self.expires_at,
            )
            self.attempt = None
        self._run(SQL.write_hold, key=self.key, attempt=attempt, claimed=1, expires_at=end)
        self._sum_up_holds()

    def remove_hold(self, attempt: str) -> int:
        """Remove a hold; return how many are left."""
        if not self.holds:
            return 0
        end = self.expires_at
        self._run(SQL.delete_hold, key=self.key, attempt=attempt)
        self._sum_up_holds()
        if self.holds and self.waiters and self.expires_at < end:
            self._tell_head(self._run(SQL.queue_head, key=self.key))  # the lease ends sooner than it knows
        return int(self.holds)

    def break_holds(self, by: str, reason: str) -> None:
        """End all holds as broken, and tell their holder."""
        attempts = [name for name, _, _ in self._read_holds()] if self.holds else [self.attempt]
        for attempt in attempts:
            self.end_attempt(attempt, "broken", by, reason)
            self._post.append((self.instance, Signal("lost", self.key, attempt)))

    def _read_holds(self) -> list[Row]:
        return self._run(SQL.read_holds, key=self.key)

    def _sum_up_holds(self) -> None:
        """Bring the row up to its holds."""
        rows = self._read_holds()
        self.holds = len(rows)
        if rows:
            self.expires_at = max(end for _, end, _ in rows)
            self.claimed = max(claimed for _, _, claimed in rows)

    def end_attempt(self, attempt: str, why: str, by: str | None = None, reason: str | None = None) -> None:
        """Remember that an attempt is over, from now on."""
        self._remember(attempt, why, self.now + REMEMBER[why], by, reason)

    def _remember(
        self, attempt: str, why: str, until_at: int, by: str | None = None, reason: str | None = None
    ) -> None:
        self._run(
            SQL.write_ended, key=self.key, attempt=attempt, why=why, by=by, reason=reason, until_at=until_at
        )

    # Becoming free, and whom it goes to.

    def settle(self) -> None:
        """Bring the lock up to now: end what is over, then give it to the first live ticket."""
        if self.owner is None:
            return
        if self.holds:
            for attempt, end, claimed in self._read_holds():
                if end <= self.now:
                    self._run(SQL.delete_hold, key=self.key, attempt=attempt)
                    self._expire(attempt, end, claimed)
            self._sum_up_holds()
            over = not self.holds
        else:
            over = self.expires_at <= self.now
            if over:
                self._expire(self.attempt, self.expires_at, self.claimed)
        if over:
            self.record("expired")
            self.free_and_hand_over()
        elif self.waiters:
            tickets, pruned = self._prune_head()
            if pruned:
                self._tell_head(tickets)

    def _expire(self, attempt: str, end: int, claimed: int) -> None:
        # An unclaimed hold is not remembered: its attempt may ask again, and joins at the tail.
        if claimed:
            self._remember(attempt, "expired", end + REMEMBER["expired"])

    def grant(self, request: Acquire, end: int) -> None:
        """Give a free lock to a request."""
        client = request.client
        if self.exists:
            self._give(request.owner, client.instance, client.host, client.pid, request.attempt, end, 1)
        else:
            self.token = self._run(
                SQL.insert_lock,
                key=self.key,
                now=self.now,
                owner=request.owner,
                attempt=request.attempt,
                expires_at=end,
                instance=client.instance,
                host=client.host,
                pid=client.pid,
            )[0][0]
        self.record("granted", owner=request.owner)

    def free_and_hand_over(self) -> str | None:
        """Free the lock, and give it to the first live ticket; return its owner."""
        if self.holds:
            self._run(SQL.delete_holds, key=self.key)
        self.owner = self.attempt = None
        self.claimed, self.holds = 1, 0
        self.expires_at = self.now
        if not self.waiters:
            return None
        tickets, _ = self._prune_head()
        if not tickets:
            return None
        number, attempt, owner, instance, host, pid, claim, _ = tickets[0]
        self._delete_ticket(number)
        self._give(owner, instance, host, pid, attempt, self.now + claim, 0)
        self.record("handed_over")
        self._post.append((instance, Signal("granted", self.key, attempt)))
        if self.waiters:
            self._tell_head(self._prune_head(tickets[1:])[0])
        return str(owner)

    def _give(
        self, owner: str, instance: str, host: str, pid: int, attempt: str, end: int, claimed: int
    ) -> None:
        self.token = max(self.token + 1, self.now)
        self.owner, self.instance, self.host, self.pid = owner, instance, host, pid
        self.attempt, self.claimed, self.granted_at, self.expires_at = attempt, claimed, self.now, end

    # Tickets.

    def queue(self, request: Acquire) -> int:
        """Give a request a ticket, or refresh the one it has; return its position."""
        number = self._run(
            SQL.queue,
            key=self.key,
            number=self.next_ticket,
            attempt=request.attempt,
            owner=request.owner,
            instance=request.client.instance,
            host=request.client.host,
            pid=request.client.pid,
            claim=micros(request.claim),
            queued_at=self.now,
            expires_at=self.now + micros(request.patience),
        )[0][0]
        if number != self.next_ticket:
            return 1 + int(self._run(SQL.tickets_before, key=self.key, number=number)[0][0])
        self.next_ticket += 1
        self.waiters += 1
        self.record("queued", owner=request.owner)
        return int(self.waiters)

    def remove_ticket(self, attempt: str) -> str | None:
        """Remove a ticket and return its owner, if there is one."""
        if self.waiters:
            for number, owner in self._run(SQL.find_ticket, key=self.key, attempt=attempt):
                head = self._run(SQL.queue_head, key=self.key)[0]
                self._delete_ticket(number)
                if head[0] == number:
                    self._tell_head(self._prune_head()[0])
                return str(owner)
        return None

    def drop_dead_tickets(self, limit: int) -> int:
        """Remove at most *limit* dead tickets, wherever in the queue; return how many there were."""
        head = self._run(SQL.queue_head, key=self.key)[0]
        dead = [number for (number,) in self._run(SQL.dead_tickets, key=self.key, now=self.now, limit=limit)]
        for number in dead:
            self._delete_ticket(number)
        if head[0] in dead:
            self._tell_head(self._prune_head()[0])
        return len(dead)

    def _prune_head(self, known: list[Row] | None = None) -> tuple[list[Row], bool]:
        """Remove dead tickets from the head of the queue. Return the first that are left, if any, and
        whether any were removed. *known*: the head, where it has just been read.
        """
        pruned = False
        while True:
            tickets = known or self._run(SQL.queue_head, key=self.key)
            known = None
            if not tickets or tickets[0][7] > self.now:
                return tickets, pruned
            self._delete_ticket(tickets[0][0])
            pruned = True

    def _tell_head(self, tickets: list[Row]) -> None:
        """Tell the new head to watch this lease, if it ends before the head's next heartbeat can tell it."""
        if tickets:
            _, attempt, _, instance, _, _, claim, _ = tickets[0]
            if self.expires_at - self.now < claim:  # heartbeats come more often than that
                self._post.append((instance, Signal("head", self.key, attempt, self.expires_in())))

    def _delete_ticket(self, number: int) -> None:
        self._run(SQL.delete_ticket, key=self.key, number=number)
        self.waiters -= 1

    # The history.

    def record(
        self,
        kind: EventKind,
        *,
        owner: str | None = None,
        by: str | None = None,
        reason: str | None = None,
    ) -> None:
        """Write an event, if the history is to have it. Without *owner* it is the holder's."""
        if is_kept(kind, self._level):
            self._run(
                SQL.write_event,
                key=self.key,
                kind=kind,
                at=self.now,
                token=self.token,
                owner=owner or self.owner,
                by=by,
                reason=reason,
            )
