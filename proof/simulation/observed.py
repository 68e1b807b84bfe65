"""Real stores that can be looked into between two requests, and whose signals are caught."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

from holdfast.core.events import HistoryLevel
from holdfast.core.family import PLAIN, Terms, load_terms
from holdfast.core.requests import Client, Request, Signal
from holdfast.stores.base import Listener, StoreOptions
from holdfast.stores.memory import MemoryStore
from holdfast.stores.sql.rules.notes import read_notes
from holdfast.stores.sqlite.signals import Doorbells
from holdfast.stores.sqlite.store import SQLiteStore

StoreName = Literal["memory", "sqlite"]
Post = list[tuple[str, Signal]]

OBSERVER = Client(instance="world", host="nowhere", pid=1)
NOT_THERE = 0

TABLES = (
    "locks",
    "holds",
    "tickets",
    "ended",
    "outcomes",
    "history",
    "access",
    "instances",
    "work",
)


class Hold(NamedTuple):
    """One entry into a lock. All that have one token are one lease."""

    end: int  # microseconds of the store's clock, as everywhere here
    claimed: bool
    owner: str
    token: int
    terms: Terms = PLAIN


class Ticket(NamedTuple):
    """A place in a queue."""

    owner: str
    instance: str
    claim: int
    end: int
    terms: Terms = PLAIN


class State(NamedTuple):
    """A key as it is in the store, settled or not."""

    token: int  # 0: there is no row
    holds: dict[str, Hold]
    tickets: dict[str, Ticket]  # in the order of the queue
    waiters: int  # the number that the row has
    counted: int  # how many holds the row says there are
    permits: int = 0
    shut_until: int = 0

    def first(self) -> str | None:
        """Return the attempt at the head of the queue, dead or alive."""
        return next(iter(self.tickets), None)

    def live(self, now: int) -> dict[str, Hold]:
        """Return the holds whose end has not come."""
        return {attempt: hold for attempt, hold in self.holds.items() if hold.end > now}

    def leases(self, now: int) -> dict[int, Hold]:
        """Return a hold of each live lease, by its token."""
        return {hold.token: hold for hold in self.live(now).values()}

    def ask_again_at(self, terms: Terms) -> int:
        """Return when it may be worth asking again for a lease on these terms."""
        ends = [hold.end for hold in self.holds.values()] or [0]
        counted = terms.mode == "permits" and all(
            hold.terms.mode == "permits" for hold in self.holds.values()
        )
        return max(min(ends) if counted else max(ends), self.shut_until)


NOTHING = State(NOT_THERE, {}, {}, 0, 0)


class ObservedStore(Protocol):
    """What the simulation needs of a store."""

    def execute(self, request: Request[Any], /) -> Any: ...

    def caught(self) -> Post:
        """Return the signals sent since the last call, and to which instance."""

    def state(self, key: str) -> State:
        """Look at a key."""

    def close(self) -> None: ...


class ObservedMemory(MemoryStore):
    """The reference store, with open insides."""

    def __init__(self, history: HistoryLevel) -> None:
        super().__init__(StoreOptions(OBSERVER, history))
        self._post: Post = []
        # Whoever is told something: the simulation decides whether it arrives.
        self._world.listeners = _Everybody(self._post)

    def caught(self) -> Post:
        """Return the signals sent since the last call, and to which instance."""
        post = self._post[:]
        self._post.clear()
        return post

    def state(self, key: str) -> State:
        """Look at a key."""
        lock = self._world.shard(key).locks.get(key)
        if lock is None:
            return NOTHING
        return State(
            lock.token,
            {a: Hold(h.end, h.claimed, h.owner, h.token, h.terms) for a, h in lock.holds.items()},
            {a: Ticket(t.owner, t.client.instance, t.claim, t.end, t.terms) for a, t in lock.tickets.items()},
            len(lock.tickets),
            len(lock.holds),
            lock.permits,
            lock.shut_until,
        )


class _Everybody(dict[str, Listener]):
    """Listens for every instance, whether it lives or not."""

    def __init__(self, post: Post) -> None:
        super().__init__()
        self._caught = post

    def get(self, instance: str, default: Any = None) -> Any:
        return lambda signal: self._caught.append((instance, signal))


class ObservedSQLite(SQLiteStore):
    """The real SQL on a real file, which is emptied for each run."""

    def __init__(self, history: HistoryLevel, folder: Path) -> None:
        path = folder / "simulation.db"
        self._post: Post = []
        wiretap = _Wiretap(path, self._post)
        super().__init__(path, StoreOptions(OBSERVER, history), synchronous="off", signals=wiretap)
        self.open()
        for table in TABLES:
            self.sessions.database.fetch(f"DELETE FROM holdfast_{table}", {})  # noqa: S608 - no input
        self.sessions.database.fetch("UPDATE holdfast_meta SET token_floor = 0", {})

    def caught(self) -> Post:
        """Return the signals sent since the last call, and to which instance."""
        post = self._post[:]
        self._post.clear()
        return post

    def state(self, key: str) -> State:
        """Look at a key."""
        fetch = self.sessions.database.fetch
        tickets = {
            attempt: Ticket(owner, instance, claim, end, load_terms(terms))
            for attempt, owner, instance, claim, end, terms in fetch(_TICKETS, {"key": key})
        }
        holds = {
            attempt: Hold(end, bool(claimed), owner, token, load_terms(terms))
            for attempt, end, claimed, owner, token, terms in fetch(_HOLDS, {"key": key})
        }
        for token, owner, attempt, end, claimed, waiters, counted, text in fetch(_LOCK, {"key": key}):
            if owner is not None and attempt is not None:
                holds[attempt] = Hold(end, bool(claimed), owner, token)
                counted += 1
            notes, _ = read_notes(text)
            return State(token, holds, tickets, waiters, counted, notes.permits, notes.shut_until)
        return State(NOT_THERE, holds, tickets, 0, 0)


_LOCK = """SELECT token, owner, attempt, expires_at, claimed, waiters, holds, notes
             FROM holdfast_locks WHERE lock_key = :key"""
_HOLDS = """SELECT attempt, expires_at, claimed, owner, token, terms
              FROM holdfast_holds WHERE lock_key = :key ORDER BY token, attempt"""
_TICKETS = """SELECT attempt, owner, instance, claim, expires_at, terms
                FROM holdfast_tickets WHERE lock_key = :key ORDER BY number"""


class _Wiretap(Doorbells):
    """Catches every ring, without sockets."""

    def __init__(self, path: Path, post: Post) -> None:
        super().__init__(path, OBSERVER.instance)
        self._caught = post

    def be_reachable(self) -> None:
        """There is no bell."""

    def ring(self, instance: str, signal: Signal) -> None:
        """Note who would have been told what."""
        self._caught.append((instance, signal))

    def sweep(self, limit: int) -> None:
        """There are no bells to sweep."""


def open_observed(store: StoreName, history: HistoryLevel, folder: Path) -> ObservedStore:
    """Return an empty store. What it keeps in files is kept, and found again, in *folder*."""
    return ObservedMemory(history) if store == "memory" else ObservedSQLite(history, folder)
