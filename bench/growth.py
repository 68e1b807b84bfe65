"""Does a pair cost more when there is a lot in the store? Other locks and waiters must not matter."""

from __future__ import annotations

import time
from itertools import cycle
from pathlib import Path
from statistics import median
from typing import Any

from bench import bare, server_growth
from bench.growing import KEY, Queue, compare, idle_key, row_key
from bench.measure import costs, folder
from bench.report import Line, count, microseconds
from bench.servers import on_each
from bench.sqlite_pair import CLIENT, store_loop
from holdfast.core.requests import List, Sweep
from holdfast.stores import open_store
from holdfast.stores.base import StoreOptions

TITLE = "Growth: the cost of a pair when there are many locks and waiters"

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
        insert_tickets(place / "short.db", keys=1, each=10, first=KEY)
        insert_tickets(place / "long.db", keys=1, each=waiters, first=KEY)
        queues = {"few": Queue(short, 10), "many": Queue(long, waiters)}
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
    lines = compare("SQLite", pairs | handed, rows, waiters)
    return lines + looks + on_each(lambda place: server_growth.measure(place, rows, waiters, measure))


def _create(file: Path) -> Any:
    store = open_store(bare.create(file), StoreOptions(CLIENT))
    store.open()
    return store


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
        Line(
            f"SQLite: {what}",
            microseconds(_time(store, request, times)),
            means=f"Among {count(rows)} locks. {means}",
        )
        for what, request, means in asked
    ]


def _time(store: Any, request: Any, times: int) -> float:
    took = []
    for _ in range(times):
        started = time.perf_counter()
        store.execute(request)
        took.append(time.perf_counter() - started)
    return median(took)
