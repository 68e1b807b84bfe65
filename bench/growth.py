"""Does a pair cost more when there is a lot in the file? Other locks and waiters must not matter."""

from __future__ import annotations

import random
import secrets
import time
from collections.abc import Callable
from itertools import count as numbers
from itertools import cycle
from pathlib import Path
from statistics import median
from typing import Any

from bench import bare
from bench.measure import costs, folder
from bench.report import Line, count, microseconds
from bench.sqlite_pair import CLIENT, store_loop
from holdfast.core.requests import Acquire, Granted, List, Queued, Release, Released, Sweep
from holdfast.stores import open_store
from holdfast.stores.base import StoreOptions

TITLE = "Growth: the cost of a pair when the file is full"
KEY = "one"
LONG = 86400.0

_NOW = "CAST((julianday('now') - 2440587.5) * 86400000000.0 AS INTEGER)"
_NUMBERS = "WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < :count)"


def run(quick: bool) -> list[Line]:
    rows = 100_000 if quick else 1_000_000
    waiters = 1_000 if quick else 10_000
    measure = {"rounds": 15 if quick else 25, "seconds": 0.3 if quick else 1.5}
    with folder() as place:
        empty, full, waited, short, long = (
            _create(place / f"{name}.db") for name in ("empty", "full", "waited", "short", "long")
        )
        insert_rows(place / "full.db", rows)
        insert_tickets(place / "waited.db", keys=100, each=waiters // 100)
        queues = {
            "few": Queue(short, place / "short.db", 10),
            "many": Queue(long, place / "long.db", waiters),
        }
        known = [row_key(number) for number in range(1000)]
        pairs = costs(
            {
                "empty": store_loop(empty, cycle(known).__next__),
                "full": store_loop(full, lambda: idle_key(rows)),
                "waited": store_loop(waited, cycle(known).__next__),
            },
            **measure,
        )
        handed = costs({name: queue.pass_on for name, queue in queues.items()}, **measure)
        looks = look(full, rows, quick)
        for store in (empty, full, waited, short, long):
            store.close()
    cost = {name: 1 / each.rate for name, each in (pairs | handed).items()}
    cases = [
        (f"a pair, {count(rows)} idle locks", "full", "empty", "empty file", "Any lock of them, at random."),
        (
            f"a pair, {count(waiters)} waiters elsewhere",
            "waited",
            "empty",
            "empty file",
            "For a hundred other locks.",
        ),
        (
            f"a hand-over, {count(waiters)} waiters",
            "many",
            "few",
            "10 waiters",
            "All on this key: release, claim by the winner, and a new waiter at the tail.",
        ),
    ]
    return [
        Line(
            what,
            microseconds(cost[name]),
            f"{words} {microseconds(cost[other])}",
            cost[name] / cost[other],
            1.5,
            least=False,
            means=f"At the store. {means}",
        )
        for what, name, other, words, means in cases
    ] + looks


def _create(file: Path) -> Any:
    store = open_store(bare.create(file), StoreOptions(CLIENT))
    store.open()
    return store


def row_key(number: int) -> str:
    return f"workflow:{number:07d}"


def idle_key(rows: int) -> str:
    """Return the key of any lock that nobody holds."""
    return row_key(random.randrange(rows // 1000) * 1000 + random.randrange(999))


def insert_rows(file: Path, rows: int) -> None:
    """Put idle locks into the file; one in a thousand is held by one owner, half are old enough to forget."""
    connection = bare.connect(file)
    connection.execute(
        f"""{_NUMBERS}
        INSERT INTO holdfast_locks
               (lock_key, token, owner, attempt, expires_at, granted_at, instance, host, pid)
        SELECT printf('workflow:%07d', i), 1,
               iif(i % 1000 = 999, 'somebody', NULL), iif(i % 1000 = 999, printf('a%d', i), NULL),
               {_NOW} + iif(i % 1000 = 999, 86400, iif(i < :count / 2, -60, -7200)) * 1000000, 1,
               :instance, :host, :pid
          FROM n""",
        {"count": rows, **bare.WHO},
    )
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()


def insert_tickets(file: Path, *, keys: int, each: int, first: str = "waited-for") -> None:
    """Put held locks into the file, and tickets that wait for them."""
    connection = bare.connect(file)
    connection.execute("BEGIN")
    connection.execute(
        f"""{_NUMBERS}
        INSERT INTO holdfast_locks
               (lock_key, token, owner, attempt, expires_at, granted_at, instance, host, pid, waiters,
                next_ticket)
        SELECT :first || '-' || i, 1, 'somebody', 'holder', {_NOW} + 86400000000, 1, :instance, :host, :pid,
               :each, :each + 1
          FROM n""",
        {"count": keys, "each": each, "first": first, **bare.WHO},
    )
    connection.execute(
        f"""{_NUMBERS}
        INSERT INTO holdfast_tickets (lock_key, number, attempt, owner, instance, host, pid, claim, queued_at,
                                      expires_at)
        SELECT :first || '-' || (i / :each), i % :each + 1, 't' || (i % :each + 1), 'owner-' || i,
               :instance, :host, :pid, 86400000000, {_NOW}, {_NOW} + 86400000000
          FROM n""",
        {"count": keys * each, "each": each, "first": first, **bare.WHO},
    )
    connection.execute("COMMIT")
    connection.close()


class Queue:
    """A key with so many waiters, and hand-overs down its queue that leave it as long as it was."""

    def __init__(self, store: Any, file: Path, waiters: int) -> None:
        insert_tickets(file, keys=1, each=waiters, first=KEY)
        self._key = f"{KEY}-0"
        self._execute: Callable[[Any], Any] = store.execute
        self._tickets = numbers(waiters + 1)
        self._holder, self._token = "holder", 1
        self._next = (f"t{number}" for number in numbers(1))

    def pass_on(self, times: int) -> None:
        for _ in range(times):
            released = self._execute(Release(self._key, self._holder, self._token))
            assert isinstance(released, Released), released
            self._holder = next(self._next)
            granted = self._execute(self._acquire(self._holder, released.next))
            assert isinstance(granted, Granted), granted
            self._token = granted.token
            queued = self._execute(self._acquire(f"t{next(self._tickets)}", secrets.token_hex(6)))
            assert isinstance(queued, Queued), queued

    def _acquire(self, attempt: str, owner: str) -> Acquire:
        return Acquire(self._key, attempt, owner, LONG, CLIENT, wait=True, patience=LONG, claim=LONG)


def look(store: Any, rows: int, quick: bool) -> list[Line]:
    """Time what looks at many locks. Everything here should cost what it returns, and not what there is."""
    middle = row_key(rows // 4)
    old = row_key(rows * 3 // 4)
    asked = [
        ("list by owner, a page of 100", List(owner="somebody"), "The owner of one in a thousand."),
        ("list by prefix, a page of 100", List(prefix=middle[:-3]), "A prefix in the middle of the keys."),
        ("list by prefix, one lock", List(prefix=middle), "There is one, so the page is not full."),
        (
            "list held locks, a page of 100",
            List(state="held"),
            "One in a thousand; free ones are passed.",
        ),
        ("sweep step of 500, nothing to forget", Sweep(limit=500, after=middle), "Walks 500 locks in use."),
        ("sweep step of 500, all forgotten", Sweep(limit=500, after=old), "Walks and deletes 500 old locks."),
    ]
    times = 3 if quick else 9
    return [
        Line(what, microseconds(_time(store, request, times)), means=f"Among {count(rows)} locks. {means}")
        for what, request, means in asked
    ]


def _time(store: Any, request: Any, times: int) -> float:
    took = []
    for _ in range(times):
        started = time.perf_counter()
        store.execute(request)
        took.append(time.perf_counter() - started)
    return median(took)
