"""The same on a server: does a pair cost more when its tables are full?"""

from __future__ import annotations

from contextlib import ExitStack
from itertools import cycle
from typing import Any

from bench import bare, growing
from bench.measure import costs
from bench.report import Line, microseconds
from bench.servers import POSTGRES, Place
from bench.sqlite_pair import CLIENT, store_loop
from holdfast.stores import open_store
from holdfast.stores.base import StoreOptions

STEP = 100_000  # rows in one statement
_NOW = {
    "PostgreSQL": "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint",
    "MariaDB": "CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED)",
}
_TEXT = {"PostgreSQL": "text", "MariaDB": "char"}
_AFTERWARDS = {
    "PostgreSQL": ("VACUUM ANALYZE holdfast_locks", "VACUUM ANALYZE holdfast_tickets"),
    "MariaDB": ("ANALYZE TABLE holdfast_locks, holdfast_tickets",),
}
_WHO = "'{instance}', '{host}', {pid}".format(**bare.WHO)


def measure(place: Place, rows: int, waiters: int, how: dict[str, Any]) -> list[Line]:
    """Fill databases of one server, and let pairs on all of them take turns."""
    with ExitStack() as closing:
        empty, full, waited, short, long = (place.database() for _ in range(5))
        with place.hurry():
            insert_rows(place, full, rows)
            insert_tickets(place, waited, keys=100, each=waiters // 100)
            insert_tickets(place, short, keys=1, each=10, first=growing.KEY)
            insert_tickets(place, long, keys=1, each=waiters, first=growing.KEY)
            for url in (full, waited, short, long):
                place.run(url, *_AFTERWARDS[place.kind.name])
        stores = {}
        for url in (empty, full, waited, short, long):
            stores[url] = open_store(url, StoreOptions(CLIENT))
            stores[url].open()
            closing.callback(stores[url].close)
        known = cycle([growing.row_key(number) for number in range(1000)]).__next__
        pairs = {
            "empty": store_loop(stores[empty], known),
            "full": store_loop(stores[full], lambda: growing.idle_key(rows)),
            "waited": store_loop(stores[waited], known),
        }
        for name in ("empty", "waited"):
            pairs[name](1000)  # every key has its row
        queues = {
            "few": growing.Queue(stores[short], 10).pass_on,
            "many": growing.Queue(stores[long], waiters).pass_on,
        }
        # Fewer rounds than with a file: a pair takes longer.
        how = {"rounds": 9, "seconds": how["seconds"] * 1.5}
        seen = costs(pairs, **how) | costs(queues, **how)
        lines = growing.compare(place.kind.name, seen, rows, waiters)
        if place.kind is POSTGRES:
            place.run(full, "CHECKPOINT")
            after = costs({name: pairs[name] for name in ("empty", "full")}, **how)
            lines.insert(
                1,
                Line(
                    "… after a checkpoint",
                    microseconds(1 / after["full"].rate),
                    f"empty {microseconds(1 / after['empty'].rate)}",
                    after["empty"].rate / after["full"].rate,
                    means="A page that is changed for the first time since is logged as a whole. Among so"
                    " many locks that is nearly each page at first, and hardly any a minute later.",
                ),
            )
        return lines


def insert_rows(place: Place, url: str, rows: int) -> None:
    """Put idle locks into the table; one in a thousand is held by one owner."""
    now, text = _NOW[place.kind.name], _TEXT[place.kind.name]
    for start in range(0, rows, STEP):
        place.run(
            url,
            f"""INSERT INTO holdfast_locks
                       (lock_key, token, owner, attempt, expires_at, granted_at, instance, host, pid)
                SELECT concat('workflow:', lpad(CAST(n.seq AS {text}), 7, '0')), 1,
                       CASE WHEN n.seq % 1000 = 999 THEN 'somebody' END,
                       CASE WHEN n.seq % 1000 = 999 THEN concat('a', n.seq) END,
                       {now} + CASE WHEN n.seq % 1000 = 999 THEN 86400000000 ELSE -60000000 END, 1, {_WHO}
                  FROM {_series(place, start, min(start + STEP, rows))} AS n""",
        )


def insert_tickets(place: Place, url: str, *, keys: int, each: int, first: str = "waited-for") -> None:
    """Put held locks into the table, and tickets that wait for them."""
    now = _NOW[place.kind.name]
    all_keys, all_tickets = _series(place, 0, keys), _series(place, 1, each + 1)
    place.run(
        url,
        f"""INSERT INTO holdfast_locks
                   (lock_key, token, owner, attempt, expires_at, granted_at, instance, host, pid, waiters,
                    next_ticket)
            SELECT concat('{first}-', k.seq), 1, 'somebody', 'holder', {now} + 86400000000, 1, {_WHO},
                   {each}, {each} + 1
              FROM {all_keys} AS k""",
        f"""INSERT INTO holdfast_tickets
                   (lock_key, number, attempt, owner, instance, host, pid, claim, queued_at, expires_at)
            SELECT concat('{first}-', k.seq), t.seq, concat('t', t.seq), concat('owner-', k.seq, '-', t.seq),
                   {_WHO}, 86400000000, {now}, {now} + 86400000000
              FROM {all_keys} AS k CROSS JOIN {all_tickets} AS t""",
    )


def _series(place: Place, start: int, end: int) -> str:
    """Return a table of numbers, in a column named seq."""
    if place.kind is POSTGRES:
        return f"(SELECT generate_series({start}, {end - 1}) AS seq)"
    return f"(SELECT seq FROM seq_{start}_to_{end - 1})"
