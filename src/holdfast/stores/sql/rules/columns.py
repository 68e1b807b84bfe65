"""What statements return about a key, by name. Only `read_key` knows in which order ``read_lock`` has it."""

from __future__ import annotations

from typing import Any, NamedTuple

from holdfast.core.family import Terms, load_terms

Row = tuple[Any, ...]


class LockColumns(NamedTuple):
    """A row of locks; without a row all are None."""

    token: int
    owner: Any  # a name, or None
    attempt: str | None
    claimed: int
    expires_at: int
    granted_at: int
    instance: str
    host: str
    pid: int
    last_attempt: str | None
    holds: int  # how many are in their table
    waiters: int
    next_ticket: int
    events: int
    notes: str | None


class EndedColumns(NamedTuple):
    """How an attempt ended; all are None if that is not remembered."""

    why: Any = None
    by: str | None = None
    reason: Any = None


class Ticket(NamedTuple):
    """A place in the queue."""

    number: int
    attempt: str
    owner: str
    instance: str
    host: str
    pid: int
    claim: int
    expires_at: int
    terms: Terms


class KeyRead(NamedTuple):
    """A key, as a decision about one attempt needs it."""

    now: int
    pinned: bool  # by somebody's open transaction
    floor: int  # of tokens
    lock: LockColumns
    ended: EndedColumns  # how the attempt ended
    ticket: int | None  # the number of the attempt's ticket
    ticket_owner: str | None
    heads: tuple[Ticket, ...]  # the first two of the queue

    @property
    def is_row(self) -> bool:
        """Whether the key has a row."""
        return self.lock.token is not None

    def is_as(self, other: KeyRead) -> bool:
        """Tell whether the key has not changed since, whatever the time."""
        return self[3:] == other[3:]


_LOCK = 2
_ENDED = _LOCK + len(LockColumns._fields)
_TICKET = _ENDED + len(EndedColumns._fields)
_HEAD = _TICKET + 2
_SECOND = _HEAD + len(Ticket._fields)


def read_ticket(row: Row) -> Ticket:
    """Return a row of tickets by names."""
    return Ticket._make((*row[:-1], load_terms(row[-1])))


def read_key(row: Row) -> KeyRead:
    """Return the one row of ``read_lock`` by names. Whether the lease is pinned, ``probe_pin`` tells."""
    heads: tuple[Ticket, ...] = ()
    if row[_HEAD] is not None:
        heads = (read_ticket(row[_HEAD:_SECOND]),)
        if row[_SECOND] is not None:
            heads += (read_ticket(row[_SECOND:]),)
    now, floor = row[:_LOCK]
    ticket, owner = row[_TICKET:_HEAD]
    lock = LockColumns._make(row[_LOCK:_ENDED])
    return KeyRead(now, False, floor, lock, EndedColumns._make(row[_ENDED:_TICKET]), ticket, owner, heads)
