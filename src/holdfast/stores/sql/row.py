"""One lock's row inside a transaction: read, changed by the rules of the protocol, written back."""

from __future__ import annotations

from holdfast.core.data import data
from holdfast.core.events import EventKind, HistoryLevel, is_kept
from holdfast.core.requests import Acquire, Holder, NotHeld, Signal
from holdfast.stores.base import REMEMBER, micros
from holdfast.stores.sql.run import Row, Run

Post = list[tuple[str, Signal]]  # signals to send after the commit: (instance, signal)

# When to ask again for a lock that is free but pinned by a transaction of its last holder, in microseconds.
PINNED_FOR = 250_000
PINNED = "a transaction that is still open"


@data
class Ticket:
    """A place in the queue, as far as a hand-over needs it."""

    number: int
    attempt: str
    owner: str
    instance: str
    host: str
    pid: int
    claim: int
    expires_at: int


class LockRow:
    """The state of one key, for decisions about one attempt. Holds are read only when they are asked for."""

    def __init__(
        self, run: Run, key: str, now: int | None, level: HistoryLevel, post: Post, attempt: str = ""
    ) -> None:
        row = run.lock(key, attempt, now)
        self._run = run
        self._level: HistoryLevel = level
        self._post = post
        self._attempt = attempt
        self.key = key
        self.now: int
        self.now, self.pinned, self._floor = row[:3]
        (
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
            holds,
            waiters,
            next_ticket,
            self.events,
        ) = row[3:17]
        self._is_row = token is not None
        self.token: int = token or 0  # 0: never granted yet, so there is no such lock
        self.holds: int = holds or 0
        self.waiters: int = waiters or 0
        self.next_ticket: int = next_ticket or 1
        self._read = self._values()
        self._ended, self._touched = row[17:20], False
        self._mine: tuple[int | None, str] = row[20:22]
        # The first tickets, as many as are known.
        self._heads = [Ticket(*row[at : at + 8]) for at in (22, 30) if row[at] is not None]

    @property
    def exists(self) -> bool:
        """Whether the key was ever granted."""
        return self.token > 0

    def write(self) -> None:
        """Write the row back, if anything about the key changed."""
        values = self._values()
        if values == self._read and not (self._touched and self._is_row):
            return
        self._run.later("write_lock" if self._is_row else "insert_lock", key=self.key, **values)

    def _values(self) -> dict[str, object]:
        return {
            "token": self.token,
            "owner": self.owner,
            "attempt": self.attempt,
            "claimed": self.claimed,
            "expires_at": self.expires_at,
            "granted_at": self.granted_at,
            "instance": self.instance,
            "host": self.host,
            "pid": self.pid,
            "last_attempt": self.last_attempt,
            "holds": self.holds,
            "waiters": self.waiters,
            "next_ticket": self.next_ticket,
            "events": self.events,
        }

    # What it says.

    @property
    def grantable(self) -> bool:
        """Whether nobody has it, nor a transaction that could still write under its last token."""
        return self.owner is None and not self.pinned

    def expires_in(self) -> float:
        return float(PINNED_FOR if self.owner is None else self.expires_at - self.now) / 1e6

    def holder(self) -> Holder:
        if not self._is_row:  # somebody is about to make it, or keeps us from it
            return Holder(PINNED, "", 0, 0, 0.0)
        held_for = (self.now - self.granted_at) / 1e6
        owner = PINNED if self.owner is None else self.owner
        return Holder(owner, self.host, self.pid, self.token, held_for, bool(self.claimed))

    def ended(self) -> NotHeld | None:
        """Return how our attempt ended, if it is remembered to have ended."""
        why, by, reason = self._ended
        if why is None:
            return NotHeld("already") if self.exists and self.last_attempt == self._attempt else None
        if why == "broken":
            return NotHeld("broken", by, reason)
        return NotHeld("expired" if why == "expired" else "already")

    def why_not_held(self, token: int) -> NotHeld:
        """Say why our attempt does not hold the lock under *token*."""
        taken_over = self.exists and self.token > token
        if ended := self.ended():
            return NotHeld("taken over") if ended.why == "expired" and taken_over else ended
        if taken_over:
            return NotHeld("taken over")
        return NotHeld("expired" if self.exists and self.token == token else "unknown")

    # Holds. With one, it is in the row; with more, all are in their table.

    def count_holds(self) -> int:
        return self.holds or (1 if self.owner is not None else 0)

    def find_hold(self) -> tuple[int, bool] | None:
        """Return the end of our hold and whether it is claimed, or None if there is none alive."""
        if self.holds:
            found = next((rest for name, *rest in self._read_holds() if name == self._attempt), None)
        elif self.owner is not None and self.attempt == self._attempt:
            found = [self.expires_at, self.claimed]
        else:
            found = None
        return (found[0], bool(found[1])) if found is not None and found[0] > self.now else None

    def confirm_hold(self, request: Acquire) -> int | None:
        """Claim our hold, or ask for it again; return its new end, or None if there is none alive."""
        if (found := self.find_hold()) is None:
            return None
        old, claimed = found
        end = self.now + micros(request.ttl)
        if claimed:
            end = max(old, end)
        self.move_hold(end, claimed=True)
        if not claimed and request.ttl < request.claim:
            self._tell_head()  # it ends sooner than the head was told, or will be
        return end

    def move_hold(self, end: int, *, claimed: bool) -> None:
        """Set the end of our hold."""
        if self.holds:
            self._write_hold(self._attempt, end, claimed)
            self._sum_up_holds()
        else:
            self.expires_at = end
            self.claimed = int(claimed)

    def add_hold(self, end: int) -> None:
        """Add a hold of the same owner for our attempt."""
        if not self.holds:
            self._write_hold(self.attempt, self.expires_at, self.claimed)
            self.attempt = None
        self._write_hold(self._attempt, end, claimed=True)
        self._sum_up_holds()

    def remove_hold(self) -> int:
        """Remove our hold; return how many are left."""
        if not self.holds:
            return 0
        end = self.expires_at
        self._run.later("delete_hold", key=self.key, attempt=self._attempt)
        self._sum_up_holds()
        if self.holds and self.expires_at < end:
            self._tell_head()  # the lease ends sooner than it knows
        return self.holds

    def break_holds(self, by: str, reason: str) -> None:
        """End all holds as broken, and tell their holder."""
        attempts = [name for name, _, _ in self._read_holds()] if self.holds else [self.attempt]
        for attempt in attempts:
            self._remember(attempt, "broken", self.now, by, reason)
            self._post.append((self.instance, Signal("lost", self.key, attempt)))

    def _read_holds(self) -> list[Row]:
        return self._run("read_holds", key=self.key)

    def _write_hold(self, attempt: str, end: int, claimed: bool | int) -> None:
        self._run.later("write_hold", key=self.key, attempt=attempt, claimed=int(claimed), expires_at=end)

    def _sum_up_holds(self) -> None:
        """Bring the row up to its holds."""
        rows = self._read_holds()
        self.holds = len(rows)
        if rows:
            self.expires_at = max(end for _, end, _ in rows)
            self.claimed = max(claimed for _, _, claimed in rows)

    def end_attempt(self, why: str) -> None:
        """Remember that our attempt is over, from now on."""
        self._remember(self._attempt, why, self.now)

    def _remember(
        self, attempt: str, why: str, since: int, by: str | None = None, reason: str | None = None
    ) -> None:
        # The row is written as well, even if nothing else about it changes: whoever waits for it in a fast
        # path has looked at the ended attempts before, and sees by the row that it has to look again.
        self._touched = True
        until_at = since + REMEMBER[why]
        if attempt == self._attempt and until_at > self.now:
            self._ended = (why, by, reason)
        self._run.later(
            "write_ended", key=self.key, attempt=attempt, why=why, by=by, reason=reason, until_at=until_at
        )

    # Becoming free, and whom it goes to.

    def settle(self) -> None:
        """Bring the lock up to now: end what is over, then give it to the first live ticket."""
        if self.owner is None:
            if self.waiters:  # it was freed inside somebody's transaction, or pinned by one
                self._hand_over()
            return
        if self.holds:
            for attempt, end, claimed in self._read_holds():
                if end <= self.now:
                    self._run.later("delete_hold", key=self.key, attempt=attempt)
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
            before = self.waiters
            self._prune_head()
            if self.waiters < before:
                self._tell_head()

    def _expire(self, attempt: str, end: int, claimed: int) -> None:
        # An unclaimed hold is not remembered: its attempt may ask again, and joins at the tail.
        if claimed:
            self._remember(attempt, "expired", end)

    def grant(self, request: Acquire, end: int) -> None:
        """Give a free lock to a request."""
        client = request.client
        self._give(request.owner, client.instance, client.host, client.pid, request.attempt, end, 1)
        self.record("granted", owner=request.owner)

    def free_and_hand_over(self) -> str | None:
        """Free the lock, and give it to the first live ticket; return its owner."""
        if self.holds:
            self._run.later("delete_holds", key=self.key)
        self.owner = self.attempt = None
        self.claimed, self.holds = 1, 0
        self.expires_at = self.now
        return self._hand_over() if self.waiters else None

    def _hand_over(self) -> str | None:
        """Give a free lock to the first live ticket. A pinned one stays free until the pin is gone."""
        winner = None if self.pinned else self._prune_head()
        if winner is None:
            return None
        self._delete_ticket(winner.number)
        self._give(
            winner.owner,
            winner.instance,
            winner.host,
            winner.pid,
            winner.attempt,
            self.now + winner.claim,
            0,
        )
        self.record("handed_over")
        self._post.append((winner.instance, Signal("granted", self.key, winner.attempt)))
        self._prune_head()
        self._tell_head()
        return winner.owner

    def _give(
        self, owner: str, instance: str, host: str, pid: int, attempt: str, end: int, claimed: int
    ) -> None:
        self.token = max((self.token or self._floor) + 1, self.now)
        self.owner, self.instance, self.host, self.pid = owner, instance, host, pid
        self.attempt, self.claimed, self.granted_at, self.expires_at = attempt, claimed, self.now, end

    def call_head(self) -> None:
        """Have the head ask, where the lock was freed but cannot be handed over yet."""
        for head in self._head(1)[:1]:
            if self.owner is None:
                self._post.append((head.instance, Signal("granted", self.key, head.attempt)))

    # Tickets.

    def queue(self, request: Acquire) -> int:
        """Give a request a ticket, or refresh the one it has; return its position."""
        end = self.now + micros(request.patience)
        number = self._mine[0]
        if number is not None:
            self._run.later("refresh_ticket", key=self.key, attempt=request.attempt, expires_at=end)
            return 1 + int(self._run("tickets_before", key=self.key, number=number)[0][0])
        self._run.later(
            "queue",
            key=self.key,
            number=self.next_ticket,
            attempt=request.attempt,
            owner=request.owner,
            instance=request.client.instance,
            host=request.client.host,
            pid=request.client.pid,
            claim=micros(request.claim),
            queued_at=self.now,
            expires_at=end,
        )
        self.next_ticket += 1
        self.waiters += 1
        self.record("queued", owner=request.owner)
        return self.waiters

    def remove_ticket(self) -> str | None:
        """Remove our ticket and return its owner, if there is one."""
        number, owner = self._mine
        if number is None:
            return None
        was_head = self._head(1)[0].number == number
        self._delete_ticket(number)
        if was_head:
            self._prune_head()
            self._tell_head()
        return owner

    def drop_dead_tickets(self, limit: int) -> int:
        """Remove at most *limit* dead tickets, wherever in the queue; return how many there were."""
        if not self.waiters:  # they have left since somebody looked
            return 0
        head = self._head(1)[0].number
        dead = [number for (number,) in self._run("dead_tickets", key=self.key, now=self.now, limit=limit)]
        for number in dead:
            self._delete_ticket(number)
        if head in dead:
            self._prune_head()
            self._tell_head()
        return len(dead)

    def _head(self, count: int) -> list[Ticket]:
        """Return the first tickets, as many of *count* as there are."""
        if len(self._heads) < min(count, self.waiters):
            self._heads = [Ticket(*row) for row in self._run("queue_head", key=self.key)]
        return self._heads

    def _prune_head(self) -> Ticket | None:
        """Remove dead tickets from the head of the queue, and return the first live one."""
        while self.waiters:
            head = self._head(1)[0]
            if head.expires_at > self.now:
                return head
            self._delete_ticket(head.number)
        return None

    def _tell_head(self) -> None:
        """Tell the new head to watch this lease, if it ends before the head's next heartbeat can tell it."""
        for head in self._head(1)[:1]:
            if self.expires_at - self.now < head.claim:  # heartbeats come more often than that
                self._post.append((head.instance, Signal("head", self.key, head.attempt, self.expires_in())))

    def _delete_ticket(self, number: int) -> None:
        self._run.later("delete_ticket", key=self.key, number=number)
        self.waiters -= 1
        self._heads = [ticket for ticket in self._heads if ticket.number != number]
        if self._mine[0] == number:
            self._mine = (None, "")

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
            self.events += 1
            self._run.later(
                "write_event",
                key=self.key,
                number=self.events,
                kind=kind,
                at=self.now,
                token=self.token,
                owner=owner or self.owner,
                by=by,
                reason=reason,
            )
