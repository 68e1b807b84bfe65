"""What could not be given back, because the store failed just then, is given back as soon as it can be.

Everything here would else last for ten minutes.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from holdfast import AsyncHoldfast, Holdfast, LockTimeout, LockView, NotHeld, Settings, StoreUnavailable
from tests.clients.support import Stage, eventually

SETTINGS = Settings(ttl=600.0, patience=600.0, release_timeout=0.1, sweep_every=None)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/locks.db?busy_timeout=0.05"


@pytest.fixture
def others(url: str) -> Iterator[Holdfast]:
    with Holdfast(url) as others:
        yield others


@contextmanager
def nobody_can_write(folder: Path) -> Iterator[None]:
    with closing(sqlite3.connect(folder / "locks.db", isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield
        connection.execute("ROLLBACK")


def look(locks: Holdfast) -> LockView:
    view = locks.inspect("nightly")
    assert view is not None
    return view


def test_a_release_that_fails_is_pursued(stage: Stage, others: Holdfast, tmp_path: Path) -> None:
    locks = stage.client(settings=SETTINGS)
    lease = stage.call(locks.acquire, "nightly")
    with nobody_can_write(tmp_path):
        with pytest.raises(StoreUnavailable):
            stage.call(lease.release)
        # It may be somebody else's at any moment, so it must not be trusted any more.
        assert not lease.held
        assert lease.remaining == 0.0
        assert "being released" in repr(lease)
        with pytest.raises(NotHeld, match="being released"):
            lease.check()
        assert look(others).state == "held"
    eventually(lambda: look(others).state == "free")
    stage.call(lease.release)  # whoever tries again finds it done


def test_a_ticket_that_cannot_be_withdrawn_is_pursued(stage: Stage, others: Holdfast, tmp_path: Path) -> None:
    locks = stage.client(settings=SETTINGS)
    holder = others.acquire("nightly", owner="holder")
    waiting = stage.actor("waiter").start(locks.acquire, "nightly", timeout=0.3)
    eventually(lambda: look(others).waiting == 1)
    with nobody_can_write(tmp_path):
        with pytest.raises(LockTimeout):
            waiting.result(30.0)
        assert look(others).waiting == 1
    eventually(lambda: look(others).waiting == 0)
    holder.release()


def test_a_cancelled_acquire_and_a_cancelled_release_are_pursued(
    url: str, others: Holdfast, tmp_path: Path
) -> None:
    async def play() -> None:
        async with AsyncHoldfast(url, settings=SETTINGS) as locks:
            lease = await locks.acquire("nightly", owner="holder")
            waiting = asyncio.create_task(locks.acquire("nightly", owner="waiter"))
            await asyncio.to_thread(eventually, lambda: look(others).waiting == 1)
            with nobody_can_write(tmp_path):
                releasing = asyncio.create_task(lease.release())
                await asyncio.sleep(0)
                waiting.cancel()
                releasing.cancel()
                await asyncio.wait([waiting, releasing])
                assert waiting.cancelled()
                assert releasing.cancelled()
                assert (look(others).state, look(others).waiting) == ("held", 1)
            await asyncio.to_thread(eventually, lambda: look(others).state == "free")
            await asyncio.to_thread(eventually, lambda: look(others).waiting == 0)

    asyncio.run(play())


def test_closing_tries_once_more_and_does_not_wait(url: str, others: Holdfast, tmp_path: Path) -> None:
    locks = Holdfast(url, settings=SETTINGS)
    lease = locks.acquire("nightly")
    with nobody_can_write(tmp_path), pytest.raises(StoreUnavailable):
        lease.release()
    locks.close()
    assert look(others).state == "free"
