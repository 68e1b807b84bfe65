"""How many instances there are and how much work: asked for when somebody looks, and not too often."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from holdfast.core.cluster import Heartbeat, Join, Leave, Offer, OfferedWork
from holdfast.core.requests import Client
from holdfast.server.backend import Backend
from holdfast.server.system.census import FRESH, LONGEST_TYPE, MOST_TYPES, PAGE, Census
from holdfast.server.system.metrics import Metrics
from tests.server.test_metrics import values

CLIENT = Client("", "alpha", 101)


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@asynccontextmanager
async def counted(url: str) -> AsyncIterator[tuple[Backend, Metrics, Census, Clock]]:
    metrics, clock = Metrics(), Clock()
    backend = Backend(url, observer=metrics)
    await backend.open()
    try:
        yield backend, metrics, Census(backend, metrics, clock=clock), clock
    finally:
        await backend.close()


async def offer(backend: Backend, *keys: str) -> None:
    for start in range(0, len(keys), 1000):
        await backend.ask(Offer(tuple(OfferedWork(key) for key in keys[start : start + 1000])))


def asked(metrics: Metrics) -> int:
    """Return how often the store was asked to count."""
    return sum(sum(metrics.store_seconds.counts.get((name,), ())) for name in ("countwork", "listinstances"))


async def test_instances_are_counted_by_their_state_and_work_by_type_too(url: str) -> None:
    async with counted(url) as (backend, metrics, census, _):
        for id in ("e-1", "e-2", "e-3"):
            await backend.ask(Join(id, "engine", CLIENT, 8, 90.0))
        await backend.ask(Heartbeat("e-2", CLIENT, 90.0, drain=True))
        await backend.ask(Leave("e-3"))
        await offer(backend, "job:1", "job:2", "bare")
        await census.take()
        states = values(metrics, "instances")
        assert states == {("alive",): 1, ("draining",): 1, ("left",): 1, ("dead",): 0}
        work = values(metrics, "work")
        assert (work["job", "offered"], work["job", "failed"], work["", "offered"]) == (2, 0, 1)
        assert set(values(metrics, "work_waiting_seconds")) == {("job",), ("",)}


async def test_all_instances_are_counted_however_many_there_are(memory: str) -> None:
    async with counted(memory) as (backend, metrics, census, _):
        for number in range(PAGE + 1):
            await backend.ask(Join(f"e-{number}", "engine", CLIENT, 8, 90.0))
        await census.take()
        assert values(metrics, "instances")["alive",] == PAGE + 1


async def test_they_are_not_counted_again_within_a_moment(memory: str) -> None:
    async with counted(memory) as (backend, metrics, census, clock):
        await offer(backend, "job:1")
        for _ in range(10):
            await census.take()
        assert asked(metrics) == 2
        await offer(backend, "task:1")
        clock.now += FRESH
        await census.take()
        assert asked(metrics) == 4
        assert values(metrics, "work")["task", "offered"] == 1


async def test_a_store_that_fails_costs_only_its_own_figures(tmp_path: Path) -> None:
    async with counted(f"sqlite:///{tmp_path}/locks.db") as (backend, metrics, census, clock):
        await offer(backend, "job:1")
        await census.take()
        assert values(metrics, "work")["job", "offered"] == 1
        await backend.close()
        clock.now += FRESH
        await census.take()
        assert values(metrics, "work") == {}  # what was true then is not told as if it were now
        assert values(metrics, "instances") == {}
        assert b"holdfast_requests_total" in metrics.render()


async def test_types_of_work_are_told_apart_up_to_a_number(memory: str) -> None:
    """They are somebody's choice. Those with the most work are told."""
    async with counted(memory) as (backend, metrics, census, _):
        many = [f"type-{number}:{n}" for number in range(MOST_TYPES + 10) for n in range(number + 1)]
        long = [f"{'x' * (LONGEST_TYPE + 1)}:{n}" for n in range(5)]
        await offer(backend, *many, *long)
        await census.take()
        work = values(metrics, "work")
        assert len(work) == 3 * (MOST_TYPES + 1)  # one is for all others
        assert work[f"type-{MOST_TYPES + 9}", "offered"] == MOST_TYPES + 10
        assert sum(work.values()) == len(many) + len(long)
        assert ("type-0", "offered") not in work
        assert work["other", "offered"] > len(long)
