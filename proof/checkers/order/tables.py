"""The tables of a store in a story: a short reading of the protocol that writes the rows of the real ones.

The only hold on plain terms is in the lock's row, all others are in their table.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from proof.checkers.order.requests import micros
from proof.checkers.order.terms import fit, read_terms
from proof.histories.records import Audit, Call

CLAIM, PATIENCE = 0.5, 1.5


@dataclass
class Hold:
    attempt: str
    owner: str
    token: int
    end: int
    granted_at: int
    claimed: bool = True
    terms: str = ""


@dataclass
class Ticket:
    number: int
    attempt: str
    owner: str
    end: int
    terms: str


@dataclass
class Lock:
    """What the store has of a key."""

    token: int = 0
    freed_at: int = 0
    holds: dict[str, Hold] = field(default_factory=dict)
    tickets: dict[int, Ticket] = field(default_factory=dict)
    numbers: int = 0
    row: Audit | None = None  # as written last
    table: dict[str, Hold] = field(default_factory=dict)  # as written last


class Tables:
    """All locks, and what triggers write down of them."""

    def __init__(self, audit: list[Audit], clock: Callable[[], int]) -> None:
        self.audit = audit
        self.locks: dict[str, Lock] = {}
        self._clock = clock

    @property
    def now(self) -> int:
        return self._clock()

    def acquire(self, call: Call, attempt: str, ttl: int, terms: str) -> tuple[str, int]:
        key, now = call.key, self.now
        lock = self._settle(key)
        hold = lock.holds.get(attempt)
        ours = next((each for each in lock.holds.values() if each.owner == call.owner), None)
        mine = next((each for each in lock.tickets.values() if each.attempt == attempt), None)
        answer = "Granted"
        if hold is not None:
            hold.end = max(hold.end, now + ttl) if hold.claimed else now + ttl
            hold.claimed = True
        elif ours is not None and "permits" not in ours.terms:
            lock.holds[attempt] = replace(ours, attempt=attempt, end=now + ttl, claimed=True)
        elif not lock.tickets and self._fits(lock, terms):
            self._grant(lock, attempt, call.owner, now + ttl, terms)
        elif mine is not None:
            self.refresh(key, attempt)
            answer = "Queued"
        elif call.wait:
            lock.numbers += 1
            mine = Ticket(lock.numbers, attempt, call.owner, now + micros(PATIENCE), terms)
            lock.tickets[mine.number] = mine
            self._note("ticket", key, mine)
            answer = "Queued"
        else:
            answer = "Busy"
        self._write(key)
        held = lock.holds.get(attempt)
        return answer, held.token if held else 0

    def renew(self, key: str, attempt: str, ttl: int) -> bool:
        hold = self._settle(key).holds.get(attempt)
        if hold is not None:
            hold.end, hold.claimed = max(hold.end, self.now + ttl), True
        self._write(key)
        return hold is not None

    def settle(self, key: str) -> None:
        """See whether a lease has ended, and who is next."""
        self._settle(key)
        self._write(key)

    def refresh(self, key: str, attempt: str) -> bool:
        for ticket in self.locks[key].tickets.values():
            if ticket.attempt == attempt:
                ticket.end = self.now + micros(PATIENCE)
                self._note("ticket", key, ticket)
                return True
        return False

    def remove(self, key: str, attempt: str) -> bool:
        """Release a hold, or remove a ticket."""
        lock = self._settle(key)
        hold = lock.holds.pop(attempt, None)
        for ticket in [each for each in lock.tickets.values() if each.attempt == attempt]:
            del lock.tickets[ticket.number]
            self._note("unticket", key, ticket)
        lock.freed_at = self.now
        self._hand_over(key, lock)
        self._write(key)
        return hold is not None

    def outcome(self, key: str, token: int, result: str) -> None:
        """Tell those who wait for an operation that it is done."""
        lock = self.locks[key]
        self._row("outcome", key, token=token, terms=json.dumps(result))
        for ticket in list(lock.tickets.values()):
            del lock.tickets[ticket.number]
            self._note("unticket", key, ticket)

    def _fits(self, lock: Lock, terms: str) -> bool:
        return fit(read_terms(terms), [read_terms(each.terms) for each in lock.holds.values()])

    def _settle(self, key: str) -> Lock:
        lock, now = self.locks.setdefault(key, Lock()), self.now
        for attempt in [each.attempt for each in lock.holds.values() if each.end <= now]:
            del lock.holds[attempt]
            lock.freed_at = now
        self._hand_over(key, lock)
        return lock

    def _hand_over(self, key: str, lock: Lock) -> None:
        while lock.tickets:
            head = next(iter(lock.tickets.values()))
            alive = head.end > self.now
            if alive and not self._fits(lock, head.terms):
                return
            del lock.tickets[head.number]
            self._note("unticket", key, head)
            if alive:
                hold = self._grant(lock, head.attempt, head.owner, self.now + micros(CLAIM), head.terms)
                hold.claimed = False

    def _grant(self, lock: Lock, attempt: str, owner: str, end: int, terms: str) -> Hold:
        lock.token = max(lock.token + 1, self.now)
        hold = lock.holds[attempt] = Hold(attempt, owner, lock.token, end, self.now, terms=terms)
        return hold

    # What its triggers write down.

    def _write(self, key: str) -> None:
        lock = self.locks[key]
        holds = list(lock.holds.values())
        alone = holds[0] if len(holds) == 1 and not holds[0].terms else None
        table = {} if alone else {each.attempt: replace(each) for each in holds}
        first = holds[0] if holds else None
        row = Audit(
            0,
            0,
            "lock",
            key,
            lock.token,
            first.owner if first else "",
            alone.attempt if alone else "",
            claimed=first.claimed if first else True,
            expires_at=max((each.end for each in holds), default=lock.freed_at),
            granted_at=first.granted_at if first else 0,
            holds=len(table),
            waiters=len(lock.tickets),
        )
        if row != lock.row:
            lock.row = row
            self.audit.append(replace(row, id=len(self.audit) + 1, at=self.now))
        for attempt, hold in lock.table.items():
            if attempt not in table:
                self._hold("unhold", key, hold)
        for attempt, hold in table.items():
            if hold != lock.table.get(attempt):
                self._hold("hold", key, hold)
        lock.table = table

    def _hold(self, what: str, key: str, hold: Hold) -> None:
        self._row(
            what,
            key,
            token=hold.token,
            owner=hold.owner,
            attempt=hold.attempt,
            claimed=hold.claimed,
            expires_at=hold.end,
            granted_at=hold.granted_at,
            terms=hold.terms,
        )

    def _note(self, what: str, key: str, ticket: Ticket) -> None:
        self._row(
            what,
            key,
            owner=ticket.owner,
            attempt=ticket.attempt,
            expires_at=ticket.end,
            number=ticket.number,
            terms=ticket.terms,
        )

    def _row(self, what: str, key: str, **fields: Any) -> None:
        self.audit.append(Audit(len(self.audit) + 1, self.now, what, key, **fields))
