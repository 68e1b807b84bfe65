"""A hundred instances with a hundred leases each: what do their heartbeats and renewals cost the database?

And what, while there is nothing to do? In one process, with short times, so that a minute of the defaults
(a heartbeat every 30 s, leases of 90 s) passes in a few seconds.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from bench import bare
from bench.measure import folder
from bench.report import Line, milliseconds
from bench.servers import Place, on_each
from holdfast import Holdfast

TITLE = "A fleet of instances"
INSTANCES, LEASES = 100, 100
FASTER = 5.0  # than the defaults
HEARTBEAT, TTL = 30.0 / FASTER, 90.0 / FASTER
MINUTE = 60.0


class Watch:
    """Counts the requests of many clients, and how long the store was at them."""

    def __init__(self, fleet: list[Holdfast]) -> None:
        self.requests: dict[str, int] = {}
        self.seconds = 0.0
        self._mutex = threading.Lock()
        for locks in fleet:
            self._watch(locks)

    def _watch(self, locks: Any) -> None:
        execute = locks._engine.store.execute

        def watched(request: Any) -> Any:
            started = time.perf_counter()
            answer = execute(request)
            with self._mutex:
                name = type(request).__name__
                self.requests[name] = self.requests.get(name, 0) + 1
                self.seconds += time.perf_counter() - started
            return answer

        locks._engine.store.execute = watched

    def during(self, seconds: float) -> tuple[float, float, dict[str, int]]:
        """Return requests and store time a second, and what was asked, from now on for a while."""
        with self._mutex:
            self.requests.clear()
            self.seconds = 0.0
        time.sleep(seconds)
        with self._mutex:
            return sum(self.requests.values()) / seconds, self.seconds / seconds, dict(self.requests)


def run(quick: bool) -> list[Line]:
    with folder() as place:
        lines = _measure("SQLite", bare.create(place / "locks.db"), quick)
    return lines + on_each(lambda place: _on_server(place, quick))


def _on_server(place: Place, quick: bool) -> list[Line]:
    return _measure(place.kind.name, f"{place.database()}?pool_size=1", quick)


def _measure(store: str, url: str, quick: bool) -> list[Line]:
    instances, leases = (10, 20) if quick else (INSTANCES, LEASES)
    seconds = TTL * 0.6 * (1 if quick else 2)  # as long as it takes to renew everything, twice
    with _fleet(url, instances, leases) as fleet:
        with Holdfast(url) as locks:
            locks.offer([f"job:{number:06d}" for number in range(instances * leases)])
        watch = Watch([locks for locks, _ in fleet])
        waiting = [instance for _, instance in fleet]
        for _, instance in fleet:
            while len(instance.assignments) < leases:
                instance.claim("job", limit=leases - len(instance.assignments))
        busy, busy_time, asked = watch.during(seconds)
        for _, instance in fleet:
            for assignment in instance.assignments:
                assignment.complete()
        threads = [threading.Thread(target=_wait, args=(instance,), daemon=True) for instance in waiting]
        for thread in threads:
            thread.start()
        time.sleep(2.0)
        idle, idle_time, asked_idle = watch.during(seconds)
    about = f"{instances} instances, {FASTER:g} times as fast as by default"
    return [
        Line(
            f"{store}: requests with {leases} leases each",
            f"{busy / FASTER:.1f} /s by default",
            f"{about}: {busy:.1f} /s, {_told(asked)}",
            means="Heartbeats, and renewals in batches: what is asked of the store while everybody works.",
        ),
        Line(
            f"{store}: time the store is at them",
            f"{milliseconds(busy_time / FASTER)} a second by default",
            f"{busy:.1f} /s take {milliseconds(busy_time)} a second",
            means="Of all clients together, as they see it; on one machine with them.",
        ),
        Line(
            f"{store}: requests while there is no work",
            f"{idle:.1f} /s",
            f"{about}: {_told(asked_idle)}, {milliseconds(idle_time)} a second",
            means="Heartbeats at five times their rate, and a look for work every five seconds, in case a"
            " signal was lost.",
        ),
    ]


@contextmanager
def _fleet(url: str, instances: int, leases: int) -> Iterator[list[tuple[Holdfast, Any]]]:
    with ExitStack() as stack:
        fleet = []
        for number in range(instances):
            locks = stack.enter_context(Holdfast(url, ttl=TTL))
            instance = stack.enter_context(
                locks.join(f"bench-{number}", capacity=leases, heartbeat=HEARTBEAT, ttl=TTL)
            )
            fleet.append((locks, instance))
        yield fleet


def _wait(instance: Any) -> None:
    for _ in instance.claims("nothing"):
        raise AssertionError("there is nothing to claim")


def _told(asked: dict[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(asked.items()))
