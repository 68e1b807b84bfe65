"""The queue of a key at the store: nobody is passed, no ticket is lost (P7), and who waits in vain."""

from __future__ import annotations

import math

from proof.checkers.order import rules
from proof.checkers.order.clocks import Clocks
from proof.checkers.order.ledger import Key, Ticket
from proof.checkers.order.requests import STRANGER, Asked
from proof.checkers.order.rules import Findings
from proof.checkers.order.terms import fit
from proof.histories.records import LAST_LOOK, Audit

Times = list[tuple[float, float]]  # since, until


class Line:
    """The queues of all keys."""

    def __init__(self, findings: Findings, asked: Asked, clocks: Clocks, *, one_writer: bool) -> None:
        self._findings = findings
        self._asked = asked
        self._clocks = clocks
        self._one_writer = one_writer  # SQLite: all writers come one after the other
        self.stretches: list[tuple[str, Times]] = []  # all waits for a free lock, between two leases of it

    def refresh(self, ticket: Ticket, row: Audit) -> None:
        """Note a new end of a ticket, and when it was certainly seen by all: once its client was told."""
        if self._one_writer:
            ticket.refresh(row.expires_at, row.at)
        else:
            told = self._asked.attempts.get(row.attempt, STRANGER).told_of(row.at, self._clocks)
            ticket.refresh(row.expires_at, self._clocks.latest(told))

    def check(self, key: Key, new: list[Audit], begun: list[Audit], now: int) -> None:
        """Look at a step: see that nobody was granted past a live ticket, and that none was lost (P7)."""
        places = []
        for each in new:
            ticket = key.left.get(each.attempt)
            if ticket is not None:
                ticket.token = each.token
            number = math.inf if ticket is None else ticket.number
            if ticket is None or ticket.lives_at(
                now
            ):  # who asks when its ticket is dead is behind all others
                places.append(number)
            self._findings.check(rules.NOT_PASSED)
            for other in key.tickets.values():
                if other.number >= number:
                    break
                self._pass(key, other, each, now)
        if places != sorted(places):
            self._findings.violated(
                rules.NOT_PASSED,
                key.name,
                f"tickets {places} were granted in another order at {now}, under {[e.token for e in new]}",
            )
        entered = {each.attempt for each in begun}
        for ticket in key.left.values():
            ticket.gone_at = min(ticket.gone_at, now)  # when that was decided
            if ticket.attempt not in entered:
                self._check_kept(key, ticket, now)
        self._served(key, now)
        if new and key.waits:
            self.stretches.append((key.name, key.waits))
            key.waits = []

    def _pass(self, key: Key, ticket: Ticket, winner: Audit, now: int) -> None:
        if not ticket.lives_at(now):
            self._findings.figures["dead tickets passed"] += 1
            return
        self._findings.violated(
            rules.NOT_PASSED,
            key.name,
            f"at {now} {winner.owner} is granted {winner.token} past ticket {ticket.number} of"
            f" {ticket.owner}, which lives until {ticket.alive_until} (row {winner.id})",
        )

    def _check_kept(self, key: Key, ticket: Ticket, now: int) -> None:
        """See that a ticket that goes and is not granted is dead, or leaves, or is told why.

        What its client hears later is no reason: it must be in the tables, with the step that removed it.
        """
        self._findings.check(rules.KEPT)
        attempt = self._asked.attempts.get(ticket.attempt, STRANGER)
        if ticket.owner == LAST_LOOK:
            return
        if not ticket.lives_at(now):
            self._findings.figures["tickets died"] += 1
        elif self._clocks.may_follow(ticket.gone_at, attempt.let_go):
            self._findings.figures["tickets withdrawn"] += 1
        elif key.told and ticket.terms.operation:
            self._findings.figures["tickets told how it ended"] += 1  # all of an operation are told at once
        else:
            self._findings.violated(
                rules.KEPT,
                key.name,
                f"ticket {ticket.number} of {ticket.owner} was to live until {ticket.alive_until}, and"
                f" was gone at {ticket.gone_at}, neither granted nor told why",
            )

    # Being free with somebody waiting. How long that may last is for `queues` to say.

    def note_free(self, key: Key, at: int, *, changed: bool) -> None:
        """Note from when on the head of the queue can be granted, as far as the tables show."""
        head = next(iter(key.tickets.values()), None)
        if head is None:
            key.free_since = key.head = 0
            return
        if not changed and not key.moved and head.number == key.head:
            return
        held = sorted(key.current().values(), key=lambda each: each.expires_at)
        terms = [key.leases[each.token].terms for each in held]
        # As soon as enough has ended. What is left last ends last.
        over = next(n for n in range(len(held) + 1) if n == len(held) or fit(head.terms, terms[n:]))
        key.free_since = max(at, key.shut_until, held[over - 1].expires_at if over else 0)
        key.head = head.number

    def _served(self, key: Key, now: float) -> None:
        """Note who has waited, alive, for a lock that was free: each as long as it was first."""
        since: float = key.free_since
        if not since or now <= since:
            return
        for ticket in sorted([*key.left.values(), *key.tickets.values()], key=lambda each: each.number):
            ticket.lives_at(now)
            if since < min(now, ticket.alive_until):
                key.waits.append((since, min(now, ticket.alive_until)))
            since = max(since, ticket.last_end)

    def end(self, key: Key) -> None:
        """Take note that there is no more to come of a key."""
        self._served(key, math.inf)
        if key.waits:
            self.stretches.append((key.name, key.waits))
