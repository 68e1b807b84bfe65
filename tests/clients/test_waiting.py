"""Waiting: in order, woken and not polling, across threads, tasks and clients of both kinds."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from holdfast import Holdfast, LockTimeout, OutcomeUnknown, Settings, StoreUnavailable
from holdfast.core.requests import Acquire, Renew
from tests.clients.support import PATIENCE, Spy, Stage, eventually

# Heartbeats too slow to help: whoever is served soon was woken by a signal.
ONLY_SIGNALS = Settings(heartbeat=1000, claim=2000, patience=3000)


def test_twenty_waiters_are_served_in_the_order_of_their_coming(stage: Stage) -> None:
    served: list[int] = []
    holder = stage.actor("holder")
    lease = holder.call(stage.locks.acquire, "nightly")

    def take_threaded(n: int) -> None:
        with stage.locks.hold("nightly"):
            served.append(n)

    async def take_async(n: int) -> None:
        async with stage.locks.hold("nightly"):
            served.append(n)
            await asyncio.sleep(0)

    waiting: list[Future[Any]] = []
    for n in range(20):
        waiting.append(stage.actor(f"waiter-{n}").start(take_async if stage.is_async else take_threaded, n))
        stage.until_waiting("nightly", n + 1)
    holder.call(lease.release)
    for each in waiting:
        each.result(PATIENCE)
    assert served == list(range(20))
    stage.nothing_left()


def test_nobody_barges_past_a_waiter(stage: Stage) -> None:
    """Even if it asks at the very moment in which the lock is free and not claimed yet."""
    holder, waiter = stage.actor("holder"), stage.actor("waiter")
    for _ in range(10):
        lease = holder.call(stage.locks.acquire, "nightly")
        waiting = waiter.start(stage.locks.acquire, "nightly")
        stage.until_waiting("nightly", 1)
        release = holder.start(lease.release)
        barging = stage.actor("barger").start(stage.locks.try_acquire, "nightly")
        release.result(PATIENCE)
        assert barging.result(PATIENCE) is None
        waiter.call(waiting.result(PATIENCE).release)


def test_clients_of_one_store_wake_each_other(stage: Stage) -> None:
    one, two = stage.client(settings=ONLY_SIGNALS), stage.client(settings=ONLY_SIGNALS)
    ann, bob = stage.actor("ann"), stage.actor("bob")
    for _ in range(10):
        lease = ann.call(one.acquire, "nightly", ttl=1000)
        waiting = bob.start(two.acquire, "nightly", ttl=1000)
        stage.until_waiting("nightly", 1)
        ann.call(lease.release)
        bob.call(waiting.result(PATIENCE).release)


@pytest.fixture
def both(url: str) -> Iterator[tuple[Stage, Stage]]:
    """Threads and tasks on the same store."""
    threads, tasks = Stage("sync", url), Stage("async", url)
    yield threads, tasks
    threads.end()
    tasks.end()


def test_threads_and_tasks_wake_each_other(both: tuple[Stage, Stage]) -> None:
    clients = [stage.client(settings=ONLY_SIGNALS) for stage in both]
    actors = [stage.actor("actor") for stage in both]
    for turn in range(10):
        first, second = turn % 2, 1 - turn % 2
        lease = actors[first].call(clients[first].acquire, "nightly", ttl=1000)
        waiting = actors[second].start(clients[second].acquire, "nightly", ttl=1000)
        both[0].until_waiting("nightly", 1)
        actors[first].call(lease.release)
        after = waiting.result(PATIENCE)
        assert after.token > lease.token
        actors[second].call(after.release)


def test_threads_and_tasks_queue_in_one_order(both: tuple[Stage, Stage]) -> None:
    served: list[int] = []
    threads, tasks = both
    lease = threads.call(threads.locks.acquire, "nightly")

    def take(n: int) -> None:
        with threads.locks.hold("nightly"):
            served.append(n)

    async def take_async(n: int) -> None:
        async with tasks.locks.hold("nightly"):
            served.append(n)

    waiting: list[Future[Any]] = []
    for n in range(10):
        stage, function = (tasks, take_async) if n % 2 else (threads, take)
        waiting.append(stage.actor(f"waiter-{n}").start(function, n))
        threads.until_waiting("nightly", n + 1)
    threads.call(lease.release)
    for each in waiting:
        each.result(PATIENCE)
    assert served == list(range(10))


def test_breaking_a_lock_wakes_the_next(stage: Stage) -> None:
    locks = stage.client(settings=ONLY_SIGNALS)
    lease = stage.actor("holder").call(locks.acquire, "nightly", ttl=1000)
    waiting = stage.actor("waiter").start(locks.acquire, "nightly", ttl=1000)
    stage.until_waiting("nightly", 1)
    broken = stage.call(locks.break_lock, "nightly", reason="stuck")
    assert broken.holder.token == lease.token
    assert broken.next is not None
    assert waiting.result(PATIENCE).owner == broken.next


def test_a_waiter_that_gives_up_at_the_head_makes_the_next_one_watch(stage: Stage) -> None:
    """The new head is told that it is head, and asks when the holder's lease ends. Its ticket outlives it."""
    locks = stage.client(settings=ONLY_SIGNALS)
    _lease = stage.actor("holder").call(locks.acquire, "nightly", ttl=0.6, renew=False)
    head = stage.actor("head").start(locks.acquire, "nightly", timeout=0.2)
    stage.until_waiting("nightly", 1)
    second = stage.actor("second").start(locks.acquire, "nightly")
    assert isinstance(head.exception(PATIENCE), TimeoutError)
    second.result(PATIENCE).check()


def test_waiting_asks_for_nothing_between_heartbeats(stage: Stage) -> None:
    """Twenty waiters make a handful of requests in three heartbeats: one refreshes them all."""
    locks = stage.client(settings=Settings(heartbeat=0.3, claim=10, patience=30))
    spy = Spy(locks)
    _lease = stage.call(locks.acquire, "nightly", ttl=60)
    for n in range(20):
        stage.actor(f"waiter-{n}").start(locks.acquire, "nightly")
    stage.until_waiting("nightly", 20)
    spy.seen.clear()
    eventually(lambda: spy.count(Renew) >= 3)
    assert spy.count(Acquire) <= 2  # of the head, at most
    assert spy.count(Renew) <= 6
    assert max(len(request.tickets) for request in spy.seen if isinstance(request, Renew)) == 20
    stage.close(locks)


def test_without_signals_a_waiter_is_served_at_its_next_heartbeat(stage: Stage) -> None:
    """P8: signals make it fast; it is true without them."""
    one, two = stage.client(), stage.client()
    for client in (one, two):
        client._engine.store.listen(lambda _: None)
    lease = stage.call(one.acquire, "nightly", ttl=1000)
    waiting = stage.actor("waiter").start(two.acquire, "nightly", ttl=1000)
    stage.until_waiting("nightly", 1)
    stage.call(lease.release)
    waiting.result(PATIENCE).check()


def test_who_gives_up_after_trouble_leaves_no_ticket(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """The ticket is written before circles are looked for: failing then does not mean that it was not."""

    def fail(*_: Any) -> None:
        raise StoreUnavailable("away")

    behind, holder = stage.actor("behind"), stage.actor("holder")
    lease = stage.call(stage.locks.acquire, "mine", owner="ann")
    waiting = behind.start(stage.locks.acquire, "mine")
    stage.until_waiting("mine", 1)
    _lease = holder.call(stage.locks.acquire, "theirs")
    with monkeypatch.context() as patch:
        patch.setattr("holdfast.stores.sql.rules.circles.WaitTables.states", fail)
        with pytest.raises((LockTimeout, OutcomeUnknown)):
            stage.call(stage.locks.acquire, "theirs", timeout=0.3, owner="ann")
    assert stage.waiting("theirs") == 0
    stage.call(lease.release)
    waiting.result(PATIENCE)


def test_a_waiter_outlives_its_patience_as_long_as_it_lives(stage: Stage) -> None:
    """Heartbeats keep the ticket alive; the place in the queue is kept for as long as it takes."""
    locks = stage.client(settings=Settings(heartbeat=0.1, claim=0.4, patience=0.5))
    lease = stage.call(locks.acquire, "nightly", ttl=60)
    first = stage.actor("first").start(locks.acquire, "nightly")
    stage.until_waiting("nightly", 1)
    threading.Event().wait(0.8)
    second = stage.actor("second").start(locks.acquire, "nightly")
    stage.until_waiting("nightly", 2)
    stage.call(lease.release)
    first.result(PATIENCE).check()
    assert not second.done()
    stage.call(stage.locks.break_lock, "nightly", reason="the test is over")
    second.result(PATIENCE)


def test_threads_on_one_counter_never_meet(url: str) -> None:
    """P2, in one process: 8 threads, two clients, a counter that is read and written back."""
    count = 0

    def work(locks: Holdfast) -> None:
        nonlocal count
        for _ in range(40):
            with locks.hold("counter"):
                read = count
                threading.Event().wait(0)
                count = read + 1

    with Holdfast(url) as one, Holdfast(url) as two:
        threads = [threading.Thread(target=work, args=((one, two)[n % 2],)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
    assert count == 320


def test_a_shared_memory_store_is_forgotten_with_its_last_client() -> None:
    with Holdfast("memory://forgotten") as one:
        _lease = one.acquire("nightly")
        with Holdfast("memory://forgotten") as two:
            assert two.try_acquire("nightly", owner="other") is None
        with Holdfast("memory://") as private:
            assert private.try_acquire("nightly") is not None


def test_two_names_of_one_file_are_one_store(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "alias").symlink_to(tmp_path / "real")
    with (
        Holdfast(f"sqlite:///{tmp_path}/real/locks.db", settings=ONLY_SIGNALS) as one,
        Holdfast(f"sqlite:///{tmp_path}/alias/locks.db", settings=ONLY_SIGNALS) as two,
    ):
        lease = one.acquire("nightly", ttl=1000)
        waiter = threading.Thread(target=lambda: two.acquire("nightly", ttl=1000))
        waiter.start()
        eventually(lambda: (one.inspect("nightly") or lease).waiting == 1)  # type: ignore[union-attr]
        lease.release()
        waiter.join(PATIENCE)
        assert not waiter.is_alive()
