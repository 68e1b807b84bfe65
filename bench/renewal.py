"""One client holds 10,000 leases: what does keeping them alive cost, and is any of them renewed late?"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Protocol

from bench import bare, wire
from bench.measure import folder
from bench.report import Line, milliseconds
from bench.servers import Place, on_each
from holdfast import Holdfast
from holdfast.clock import boot_time
from holdfast.core.requests import Renew

TITLE = "Renewal of 10,000 leases"
LEASES = 10_000


class Counter(Protocol):
    """Counts what a store asks its database while it answers a request."""

    statements: int
    note: str  # what else there is to tell

    def counting(self) -> AbstractContextManager[None]: ...


def run(quick: bool) -> list[Line]:
    ttl = 6.0 if quick else 20.0
    with folder() as place, Holdfast(bare.create(place / "locks.db")) as locks:
        lines = measure("SQLite", locks, SQLiteCounter(locks), ttl, LEASES)
    return lines + on_each(lambda place: on_server(place, quick))


def on_server(place: Place, quick: bool) -> list[Line]:
    """Measure on a server. It is in a hurry until all leases are there: else the first are due before."""
    ttl, leases = (10.0, LEASES // 5) if quick else (20.0, LEASES)
    with wire.counted(place.kind, place.database()) as (url, count), Holdfast(url) as locks:
        return measure(place.kind.name, locks, ServerCounter(count), ttl, leases, place.hurry())


def measure(
    store: str,
    locks: Holdfast,
    counter: Counter,
    ttl: float,
    count: int,
    preparing: AbstractContextManager[None] | None = None,
) -> list[Line]:
    """Take so many leases, and watch until each was renewed once."""
    with locks.hold("first"):
        time.sleep(0.5)  # a keeper that has just started asks about what it has, once: not that round
    with preparing or nullcontext():
        leases = [locks.acquire(f"key-{number}", ttl=ttl) for number in range(count)]
    seen = Watch(locks, counter, [lease._holding.kept for lease in leases])
    patience = time.monotonic() + ttl
    while not seen.complete and time.monotonic() < patience:
        time.sleep(0.05)
    lost = sum(not lease.held for lease in leases)
    assert seen.complete, f"{len(seen.planned)} leases were not renewed in time"
    beside = f"{seen.requests} requests"
    return [
        Line(
            f"{store}: statements of a round",
            f"{counter.statements}",
            f"{beside}, {counter.note}",
            float(counter.statements),
            20.0 if count == LEASES else None,
            least=False,
            unit="",
            means=f"Until each of {count:,} leases was renewed once; BEGIN and COMMIT count too. A statement"
            " that is given many rows in one call counts once; how often it ran is told beside.",
            label=f"{store} renewal: statements of a round",
        ),
        Line(
            f"{store}: database time of a round",
            milliseconds(seen.took),
            beside,
            seen.took,
            1.0 if count == LEASES else None,
            least=False,
            unit="s",
            means="What the requests took, one after the other.",
            label=f"{store} renewal: database time of a round",
        ),
        Line(
            f"{store}: longest delay, of the slack",
            milliseconds(seen.latest[0]),
            f"slack {milliseconds(seen.latest[1])}",
            seen.latest[0] / seen.latest[1],
            0.5,
            least=False,
            means="How long after its time a lease was renewed, at worst, beside the time from then to the"
            " end of its trust.",
            label=f"{store} renewal: longest delay, of the slack",
        ),
        Line(f"{store}: leases lost", f"{lost}", f"of {count:,}", means="There should be none."),
    ]


class SQLiteCounter:
    """Sees what SQLite is asked."""

    def __init__(self, locks: Holdfast) -> None:
        self._locks: Any = locks
        self.statements = self._executions = 0
        self._last = ""

    @property
    def note(self) -> str:
        return f"{self._executions:,} executions"

    @contextmanager
    def counting(self) -> Iterator[None]:
        connection = self._locks._engine.store.sessions.database._connection
        connection.set_trace_callback(self._count)
        yield
        connection.set_trace_callback(None)

    def _count(self, statement: str) -> None:
        self._executions += 1
        start = statement[:30]
        if start != self._last:  # executemany is one call, however many rows it is given
            self.statements += 1
        self._last = start


class ServerCounter:
    """Sees what is sent to the server."""

    def __init__(self, count: wire.Counter) -> None:
        self._count = count
        self._trips = self.statements = 0

    @property
    def note(self) -> str:
        return f"{self._trips} round trips"

    @contextmanager
    def counting(self) -> Iterator[None]:
        started = time.monotonic_ns()
        yield
        trips, statements = self._count(started, time.monotonic_ns())
        self._trips += trips
        self.statements += statements


class Watch:
    """Looks over the shoulder of a client's keeper, until each lease was renewed once."""

    def __init__(self, locks: Holdfast, counter: Counter, kept: list[Any]) -> None:
        # attempt: when it is due, and the slack after
        self.planned: dict[str, tuple[float, float]] = {
            each.grant.attempt: (each.renew_at, each.trusted_until - each.renew_at) for each in kept
        }
        self.complete = False
        self.requests = 0
        self.took = 0.0
        self.latest = (0.0, 1.0)  # delay and slack of the lease that was worst off
        self._counter = counter
        self._store: Any = locks._engine.store
        self._execute = self._store.execute
        self._store.execute = self._watched

    def _watched(self, request: Any) -> Any:
        if not isinstance(request, Renew) or self.complete:
            return self._execute(request)
        with self._counter.counting():
            asked = boot_time()
            answer = self._execute(request)
            done = boot_time()
        self.requests += 1
        self.took += done - asked
        for lease in request.leases:
            due, slack = self.planned.pop(lease.attempt, (done, 1.0))
            self.latest = max(self.latest, (max(done - due, 0.0), slack), key=lambda each: each[0] / each[1])
        self.complete = not self.planned
        return answer
