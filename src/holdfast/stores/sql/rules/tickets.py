"""The queue of a key inside a transaction: who is next, who has left, and who joins."""

from __future__ import annotations

from holdfast.core.family import Terms, load_terms
from holdfast.core.requests import Acquire
from holdfast.errors import StoreCorrupt
from holdfast.stores.base import REMEMBER, micros, place_of
from holdfast.stores.sql.rules.columns import KeyRead, Ticket, read_ticket
from holdfast.stores.sql.rules.holds import write_terms
from holdfast.stores.sql.rules.runner import Runner


class Tickets:
    """The tickets of one key, for decisions about one attempt. The first two come with the lock's row."""

    def __init__(self, run: Runner, now: int, attempt: str, row: KeyRead, key: str) -> None:
        self._run = run
        self._key = key
        self._now = now
        self._attempt = attempt
        self.count = row.lock.waiters or 0
        self.mine = row.ticket  # the number of our attempt's
        self.my_owner = row.ticket_owner
        self._heads = list(row.heads)  # the first ones, as many as are known

    def head(self) -> Ticket | None:
        """Return the first ticket, alive or not."""
        if not self.count:
            return None
        if not self._heads:
            self._heads = [read_ticket(row) for row in self._run("queue_head", key=self._key)]
            if not self._heads:
                raise StoreCorrupt(f"{self._key!r} counts {self.count} waiters, and has the tickets of none")
        return self._heads[0]

    def prune(self) -> Ticket | None:
        """Remove dead tickets from the head of the queue, and return the first live one."""
        while head := self.head():
            if head.expires_at > self._now:
                return head
            self.remove(head.number)
        return None

    def remove(self, number: int) -> None:
        """Remove a ticket."""
        self._run.later("delete_ticket", key=self._key, number=number)
        self.count -= 1
        self._heads = [ticket for ticket in self._heads if ticket.number != number]
        if self.mine == number:
            self.mine = None

    def add(self, number: int, request: Acquire) -> None:
        """Write a ticket at the tail."""
        named = {"key": self._key, "attempt": request.attempt, "owner": request.owner}
        terms = {"claim": micros(request.claim), "terms": write_terms(request.terms)}
        times = {"queued_at": self._now, "expires_at": self._now + micros(request.patience)}
        self._run.later("queue", number=number, **named, **terms, **times, **place_of(request.client))
        self.count += 1

    def refresh(self, request: Acquire) -> int:
        """Have our ticket live on, with where we can be reached now, and return its position."""
        named = {"key": self._key, "attempt": request.attempt, **place_of(request.client)}
        self._run.later("refresh_ticket", expires_at=self._now + micros(request.patience), **named)
        return 1 + int(self._run("tickets_before", key=self._key, number=self.mine)[0][0])

    def find_mine(self) -> tuple[str, Terms]:
        """Return the instance and the terms of our ticket, which must be there."""
        ((instance, terms),) = self._run("find_ticket", key=self._key, attempt=self._attempt)
        return instance, load_terms(terms)

    def find_dead(self, limit: int) -> list[int]:
        """Return the numbers of tickets that are dead, wherever in the queue."""
        rows = self._run("dead_tickets", key=self._key, now=self._now, limit=limit)
        return [number for (number,) in rows]

    def read_all(self) -> list[tuple[int, str, str, Terms]]:
        """Return the number, attempt, instance and terms of each ticket."""
        return [
            (number, attempt, instance, load_terms(terms))
            for number, attempt, instance, terms in self._run("all_tickets", key=self._key)
        ]

    def count_live(self) -> dict[str, int]:
        """Return how many live tickets each instance has."""
        if not self.count:
            return {}
        return dict(self._run("live_instances", key=self._key, now=self._now))

    def end_all(self, why: str, reason: str) -> None:
        """Remove all tickets, and remember the live ones as ended."""
        ended = {"why": why, "reason": reason, "until_at": self._now + REMEMBER[why]}
        self._run.later("end_tickets", key=self._key, now=self._now, **ended)
        self._run.later("delete_tickets", key=self._key)
        self.count, self._heads, self.mine = 0, [], None
