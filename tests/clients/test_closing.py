"""Closing a client: what it held is free, who waits is told, and nothing can be asked any more."""

from __future__ import annotations

import asyncio
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast import AsyncHoldfast, Closed, Holdfast, Settings
from holdfast.core.requests import Acquire, Withdraw
from holdfast.server import ServerSettings
from holdfast.testing.server import ServerThread
from tests.clients.support import PATIENCE, Stage, eventually, has_let_go

ONLY_SIGNALS = Settings(heartbeat=1000, claim=2000, patience=3000)


def test_closing_releases_everything_and_wakes_the_next(stage: Stage) -> None:
    one, two = stage.client(settings=ONLY_SIGNALS), stage.client(settings=ONLY_SIGNALS)
    leases = [stage.call(one.acquire, "nightly", owner="me", ttl=1000) for _ in range(3)]
    _lease = stage.call(one.acquire, "another", ttl=1000)
    waiting = stage.actor("waiter").start(two.acquire, "nightly", ttl=1000)
    stage.until_waiting("nightly", 1)
    stage.close(one)
    assert waiting.result(PATIENCE).token > leases[0].token
    assert stage.state("another") == "free"


def test_closing_gives_back_the_tickets_of_those_who_wait_and_tells_them(stage: Stage) -> None:
    lease = stage.call(stage.locks.acquire, "nightly")
    locks = stage.client(settings=ONLY_SIGNALS)
    waiting = [stage.actor(f"waiter-{n}").start(locks.acquire, "nightly") for n in range(3)]
    stage.until_waiting("nightly", 3)
    stage.close(locks)
    for each in waiting:
        assert isinstance(each.exception(PATIENCE), Closed)
    assert stage.waiting("nightly") == 0
    lease.check()
    stage.call(lease.release)


def test_what_is_granted_while_the_client_closes_is_not_left_behind(stage: Stage) -> None:
    """A race: nobody would renew it, and nobody would release it."""
    for turn in range(20):
        locks = stage.client()
        taking = [stage.actor(f"taker-{n}").start(locks.acquire, f"key-{turn}-{n}") for n in range(3)]
        stage.close(locks)
        for each in taking:
            error = each.exception(PATIENCE)
            assert error is None or isinstance(error, Closed), error
        stage.nothing_left()
        eventually(lambda locks=locks: has_let_go(locks))


def test_what_queues_while_the_client_closes_is_not_left_behind(stage: Stage) -> None:
    lease = stage.actor("holder").call(stage.locks.acquire, "nightly")
    for _ in range(20):
        locks = stage.client()
        waiting = [stage.actor(f"waiter-{n}").start(locks.acquire, "nightly") for n in range(3)]
        stage.close(locks)
        for each in waiting:
            assert isinstance(each.exception(PATIENCE), Closed)
        assert stage.waiting("nightly") == 0
    lease.check()


def test_closing_twice_is_harmless(stage: Stage) -> None:
    locks = stage.client()
    _lease = stage.call(locks.acquire, "nightly")
    stage.close(locks)
    stage.close(locks)


def test_closing_lets_go_of_the_store(stage: Stage) -> None:
    locks = stage.client()
    _lease = stage.call(locks.acquire, "nightly")
    stage.close(locks)
    assert has_let_go(locks)


USES: dict[str, Callable[[Any], Any]] = {
    "acquire": lambda locks: locks.acquire("nightly"),
    "try_acquire": lambda locks: locks.try_acquire("nightly"),
    "inspect": lambda locks: locks.inspect("nightly"),
    "history": lambda locks: locks.history("nightly"),
    "break_lock": lambda locks: locks.break_lock("nightly", reason="stuck"),
    "sweep": lambda locks: locks.sweep(),
    "lock": lambda locks: locks.lock("nightly").acquire(),
    "locked": lambda locks: locks.lock("nightly").locked(),
}


@pytest.mark.parametrize("use", USES)
def test_a_closed_client_says_so(stage: Stage, use: str) -> None:
    locks = stage.client()
    stage.close(locks)
    with pytest.raises(Closed, match="is closed; make a new one") as caught:
        stage.call(USES[use], locks)
    assert stage.url in str(caught.value)
    assert isinstance(caught.value, RuntimeError)
    assert has_let_go(locks)


def test_a_closed_client_lists_nothing(stage: Stage) -> None:
    async def collect(locks: Any) -> list[Any]:
        return [view async for view in locks.list()]

    locks = stage.client()
    stage.close(locks)
    with pytest.raises(Closed):
        stage.call(collect if stage.is_async else lambda locks: list(locks.list()), locks)


def test_holding_with_a_closed_client_says_so(url: str) -> None:
    locks = Holdfast(url)
    locks.close()
    hold = locks.hold("nightly")
    with pytest.raises(Closed), hold:
        pass


def test_leaving_the_blocks_of_clients_closes_them(url: str) -> None:
    with Holdfast(url) as locks:
        _lease = locks.acquire("nightly")
    assert "closed" in repr(locks)

    async def tasks() -> AsyncHoldfast:
        async with AsyncHoldfast(url) as locks:
            await locks.acquire("nightly", timeout=0)
            return locks

    assert "closed" in repr(asyncio.run(tasks()))


def test_a_client_may_be_closed_from_on_lost(url: str) -> None:
    """It runs in the keeper's own thread, which cannot wait for itself."""
    closed = threading.Event()
    locks = Holdfast(url)

    def on_lost(_: Any) -> None:
        locks.close()
        closed.set()

    _lease = locks.acquire("nightly", ttl=600, on_lost=on_lost)
    locks.break_lock("nightly", reason="stuck")
    assert closed.wait(PATIENCE)


def test_closing_ends_the_doorbell_even_if_somebody_removed_it(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    locks = Holdfast(f"sqlite:///{tmp_path}/locks.db")
    _lease = locks.acquire("nightly")
    eventually(lambda: locks._engine.store.signals._bell)  # type: ignore[attr-defined]
    shutil.rmtree(tmp_path / "locks.db-bells")
    locks.close()
    eventually(lambda: set(threading.enumerate()) <= before)


def test_an_async_client_serves_several_loops_one_after_the_other(url: str) -> None:
    locks = AsyncHoldfast(url)

    async def use() -> int:
        async with locks.hold("nightly", timeout=5) as lease:
            return lease.token

    tokens = [asyncio.run(use()) for _ in range(3)]
    assert tokens == sorted(set(tokens))
    asyncio.run(locks.close())


def test_an_async_client_works_without_its_block(url: str) -> None:
    async def use() -> None:
        locks = AsyncHoldfast(url)
        lease = await locks.acquire("nightly")
        await lease.release()
        await locks.close()

    asyncio.run(use())


def test_a_loop_that_ends_waits_for_what_is_withdrawn_after_closing() -> None:
    """A race: the answer to one that joins comes after all tickets were given back, and before it is told.

    So it hears that the client is closed, and withdraws. Then the loop ends, which cancels it once more.
    """
    settings = ServerSettings(
        url="memory://closing", port=0, insecure_no_authentication=True, log_level="error"
    )
    with ServerThread(settings) as serving, Holdfast(serving.server.url) as other, other.hold("nightly"):
        asyncio.run(_close_while_one_joins(serving.server.url))
        assert other.inspect("nightly").waiting == 0  # type: ignore[union-attr]


async def _close_while_one_joins(url: str) -> None:
    has_joined, is_given_back = threading.Event(), threading.Event()
    locks = AsyncHoldfast(url)
    engine: Any = locks._engine
    execute, close = engine.store.execute, engine.store.close

    def answer_late(request: Any) -> Any:
        if type(request) is Withdraw:
            time.sleep(0.3)  # longer than a loop takes to end that waits for nothing
        answer = execute(request)
        if type(request) is Acquire:
            has_joined.set()
            assert is_given_back.wait(PATIENCE)
        return answer

    def close_late() -> None:
        if not is_given_back.is_set():  # it is closed again after the withdrawal
            is_given_back.set()
            eventually(engine.keeper.tickets)
        close()

    engine.store.execute, engine.store.close = answer_late, close_late
    waiting = asyncio.create_task(locks.acquire("nightly"))
    await asyncio.to_thread(has_joined.wait, PATIENCE)
    await locks.close()
    assert not waiting.done()
