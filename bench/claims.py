"""Instances that claim work, beside a bare loop of SELECT … FOR UPDATE SKIP LOCKED on a table of its own."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any, Protocol

from bench import bare, servers
from bench.measure import folder
from bench.processes import Ready, together
from bench.report import Line, per_second
from bench.servers import POSTGRES, Place, on_each
from holdfast import identity
from holdfast.core.cluster import Claim, Claimed, Join, Offer, OfferedWork
from holdfast.stores import open_store
from holdfast.stores.base import Store, StoreOptions

TITLE = "Claiming work"
INSTANCES = (1, 4, 16)
BATCHES = (1, 10)
LEAST = 0.6
TTL = 90.0
CREATE = (
    "CREATE TABLE work (id {id} PRIMARY KEY, state smallint NOT NULL, due bigint NOT NULL,"
    " data text NOT NULL, taken_by bigint)"
)
INDEX = "CREATE INDEX work_by_due ON work (state, due, id)"
PICK = "SELECT id, data FROM work WHERE state = 0 AND due <= {now} ORDER BY due, id LIMIT {batch}"
TAKE = "UPDATE work SET state = 1, taken_by = {by}, due = {due} WHERE id IN ({ids})"


class Claimer(Protocol):
    """Takes up to a batch at a time; returns how much it got."""

    def take(self) -> int: ...

    def close(self) -> None: ...


class Ours:
    """An instance."""

    def __init__(self, url: str, index: int, batch: int) -> None:
        self._client = identity.new_client()
        self._store = _open(url, self._client)
        self._id = f"bench-{index}-{self._client.instance}"
        self._batch = batch
        self._numbers = count(1)
        self._store.execute(Join(self._id, "bench", self._client, 1_000_000, TTL))

    def take(self) -> int:
        number = next(self._numbers)
        attempt = f"{self._client.instance}-{number}"
        answer = self._store.execute(
            Claim(self._id, number, attempt, ("job",), self._batch, TTL, self._client)
        )
        assert isinstance(answer, Claimed), answer
        return len(answer.works)

    def close(self) -> None:
        self._store.close()


class BareServer:
    """What a program does that has only a driver: BEGIN, SELECT … FOR UPDATE SKIP LOCKED, UPDATE, COMMIT."""

    def __init__(self, connect: Callable[[str], Any], url: str, index: int, batch: int) -> None:
        self._connection = connect(url)
        self._cursor = self._connection.cursor()
        self._pick = f"{PICK.format(now=time.time_ns() // 1000, batch=batch)} FOR UPDATE SKIP LOCKED"
        self._index = index

    def take(self) -> int:
        cursor = self._cursor
        cursor.execute("BEGIN")
        cursor.execute(self._pick)
        ids = [str(row[0]) for row in cursor.fetchall()]
        if ids:
            due = time.time_ns() // 1000 + int(TTL * 1e6)
            cursor.execute(TAKE.format(by=self._index, due=due, ids=",".join(ids)))
        cursor.execute("COMMIT")
        return len(ids)

    def close(self) -> None:
        self._connection.close()


class BareSQLite:
    """The same on a file: there is one writer, so nothing has to be passed over."""

    def __init__(self, file: Path, index: int, batch: int) -> None:
        self._connection = bare.connect(file, timeout=60.0)
        self._pick = PICK.format(now=time.time_ns() // 1000, batch=batch)
        self._index = index

    def take(self) -> int:
        execute = self._connection.execute
        execute("BEGIN IMMEDIATE")
        ids = [str(row[0]) for row in execute(self._pick).fetchall()]
        if ids:
            due = time.time_ns() // 1000 + int(TTL * 1e6)
            execute(TAKE.format(by=self._index, due=due, ids=",".join(ids)))
        execute("COMMIT")
        return len(ids)

    def close(self) -> None:
        self._connection.close()


def run(quick: bool) -> list[Line]:
    with folder() as place:
        lines = _on_sqlite(place, quick)
    return lines + on_each(lambda place: _on_server(place, quick))


def _on_sqlite(place: Path, quick: bool) -> list[Line]:
    names = count()

    @contextmanager
    def ours(items: int) -> Iterator[Callable[[int, int], Claimer]]:
        url = bare.create(place / f"ours-{next(names)}.db")
        _offer(url, items)
        yield lambda index, batch: Ours(url, index, batch)

    @contextmanager
    def theirs(items: int) -> Iterator[Callable[[int, int], Claimer]]:
        file = place / f"bare-{next(names)}.db"
        connection = bare.connect(file)
        connection.execute(CREATE.format(id="integer"))
        connection.execute(INDEX)
        connection.execute("BEGIN")
        connection.executemany(
            "INSERT INTO work VALUES (?, 0, ?, 'null', NULL)", [(n, n) for n in range(items)]
        )
        connection.execute("COMMIT")
        connection.close()
        yield lambda index, batch: BareSQLite(file, index, batch)

    return _compare("SQLite", "bare sqlite3 loop", ours, theirs, quick)


def _on_server(place: Place, quick: bool) -> list[Line]:
    connect = servers.postgres if place.kind is POSTGRES else servers.mariadb

    @contextmanager
    def ours(items: int) -> Iterator[Callable[[int, int], Claimer]]:
        with place.hurry():
            url = place.database()
            _offer(url, items)
        yield lambda index, batch: Ours(url, index, batch)

    @contextmanager
    def theirs(items: int) -> Iterator[Callable[[int, int], Claimer]]:
        with place.hurry():
            url = place.database()
            place.run(url, CREATE.format(id="bigint"), INDEX)
            if place.kind is POSTGRES:
                place.run(url, "GRANT ALL ON work TO PUBLIC")  # an administrator has made it
            for start in range(0, items, 1000):
                rows = ",".join(
                    f"({n}, 0, {n}, 'null', NULL)" for n in range(start, min(start + 1000, items))
                )
                place.run(url, f"INSERT INTO work VALUES {rows}")
        yield lambda index, batch: BareServer(connect, url, index, batch)

    return _compare(place.kind.name, f"bare {place.kind.driver} loop", ours, theirs, quick)


Contest = Callable[[int], Any]


def _compare(name: str, beside: str, ours: Contest, theirs: Contest, quick: bool) -> list[Line]:
    rounds = 1 if quick else 3
    lines = []
    for batch in BATCHES:
        for instances in INSTANCES:
            items = (600 if quick else 3000) * (1 if batch == 1 else 4)
            rates: dict[str, list[float]] = {"ours": [], "theirs": []}
            for _ in range(rounds):
                for who, prepare in (("ours", ours), ("theirs", theirs)):
                    with prepare(items) as make:
                        rates[who].append(_rate(make, instances, batch, items))
            mine, other = median(rates["ours"]), median(rates["theirs"])
            lines.append(
                Line(
                    f"{name}: {instances} claim {batch} at a time",
                    per_second(mine),
                    f"{beside} {per_second(other)}",
                    mine / other,
                    LEAST,
                    means="Pieces of work claimed a second, each with its lock, by so many processes, until"
                    " nothing is left; beside a loop that takes rows of a table and no locks.",
                    label=f"{name}: {instances} instances claim {batch} at a time",
                )
            )
    return lines


def _rate(make: Callable[[int, int], Claimer], instances: int, batch: int, items: int) -> float:
    results = together(_work, instances, 60.0, make, batch)
    taken = sum(got for got, _, _ in results)
    assert taken == items, f"{taken} of {items} were claimed"
    return items / (max(end for _, _, end in results) - min(start for _, start, _ in results))


def _work(
    index: int, ready: Ready, make: Callable[[int, int], Claimer], batch: int
) -> tuple[int, float, float]:
    claimer = make(index, batch)
    ready()
    start = end = time.monotonic()
    taken = 0
    while got := claimer.take():
        taken += got
        end = time.monotonic()
    claimer.close()
    return taken, start, end


def _offer(url: str, items: int) -> None:
    store = _open(url, identity.new_client())
    for start in range(0, items, 1000):
        works = tuple(OfferedWork(f"job:{n:07d}") for n in range(start, min(start + 1000, items)))
        store.execute(Offer(works))
    store.close()


def _open(url: str, client: Any) -> Store:
    store = open_store(url, StoreOptions(client))
    store.open()
    return store
