"""The lock family on every store: an operation that many wait for, a semaphore, and looking for deadlocks."""

from __future__ import annotations

from bench import bare, deadlock, operation, semaphore
from bench.measure import folder
from bench.report import Line
from bench.servers import Place, on_each

TITLE = "The family: operations, semaphores, deadlocks"


def run(quick: bool) -> list[Line]:
    lines = [
        *operation.measure("memory", "memory://bench", quick),
        *semaphore.measure("memory", "memory://bench", quick),
        *deadlock.measure("memory", "memory://", "memory://", quick),
    ]
    with folder() as place:
        first, second, empty, full = (bare.create(place / f"{name}.db") for name in "abcd")
        lines += operation.measure("SQLite", first, quick)
        lines += semaphore.measure("SQLite", second, quick)
        lines += deadlock.measure("SQLite", empty, full, quick)
    return lines + on_each(lambda place: on_server(place, quick))


def on_server(place: Place, quick: bool) -> list[Line]:
    """Measure on a server. It is in a hurry while queues are made."""
    name = place.kind.name
    return [
        *operation.measure(name, place.database(), quick, place.hurry),
        *semaphore.measure(name, place.database(), quick),
        *deadlock.measure(name, place.database(), place.database(), quick, place.hurry),
    ]
