"""What could not be given back, because the store failed just then, is given back as soon as it can be.

Everything here would else last for ten minutes.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy

from holdfast import (
    AsyncHoldfast,
    Holdfast,
    LockTimeout,
    LockView,
    NotHeld,
    Settings,
    SettingsError,
    StoreUnavailable,
)
from holdfast.core.requests import Withdraw
from holdfast.stores.sql.options import split_url
from tests.clients.support import PATIENCE, Stage, eventually, until_renewed

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


def test_a_release_that_is_made_up_for_keeps_the_lock_taken(
    stage: Stage, others: Holdfast, tmp_path: Path
) -> None:
    """It was held, and work was done."""
    lease = stage.call(stage.client(settings=SETTINGS).acquire, "nightly", at_least=3600)
    with nobody_can_write(tmp_path), pytest.raises(StoreUnavailable):
        stage.call(lease.release)
    eventually(lambda: look(others).holds == 0)
    assert look(others).state == "held"


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


# What is in the way may be a transaction of the caller's.


def is_free(locks: Holdfast, key: str) -> bool:
    view = locks.inspect(key)
    return view is None or view.state == "free"


def test_one_that_is_locked_does_not_keep_the_others(postgres_locks: str) -> None:
    """A transaction that is still open has the row of one of them."""
    with (
        Holdfast(postgres_locks, settings=SETTINGS) as locks,
        psycopg.connect(split_url(postgres_locks)[0]) as theirs,
    ):
        lease = locks.acquire("locked", within=theirs)
        del lease
        eventually(locks._engine.keeper.pursued)
        lease = locks.acquire("other")
        del lease
        eventually(lambda: is_free(locks, "other"))
        eventually(lambda: [request.key for request in locks._engine.keeper.pursued()] == ["locked"])
        theirs.commit()
        eventually(lambda: not locks._engine.keeper.pursued())
        assert is_free(locks, "locked")


def test_closing_gives_back_what_it_can_besides_what_is_locked(postgres_locks: str) -> None:
    keys = ["p1", "p2", "p3"]
    settings = Settings(ttl=600.0, release_timeout=PATIENCE, sweep_every=None)
    with (
        Holdfast(postgres_locks) as others,
        psycopg.connect(split_url(postgres_locks)[0]) as theirs,
        psycopg.connect(split_url(postgres_locks)[0]) as another,
    ):
        locks = Holdfast(postgres_locks, settings=settings)
        leases = {key: locks.acquire(key) for key in keys}
        leases["p1"].release(within=theirs)
        another.execute("SELECT 1 FROM holdfast_locks WHERE lock_key = 'p2' FOR UPDATE")
        locks.close()
        assert [is_free(others, key) for key in keys] == [False, False, True]
        theirs.commit()
        assert is_free(others, "p1")


def withdrawn_here(locks: Holdfast, monkeypatch: pytest.MonkeyPatch) -> list[Withdraw]:
    """Return a list of what is withdrawn by this thread, which may have a transaction in the way."""
    found: list[Withdraw] = []
    me, execute = threading.current_thread(), locks._engine.store.execute

    def watched(request: Any) -> Any:
        if isinstance(request, Withdraw) and threading.current_thread() is me:
            found.append(request)
        return execute(request)

    monkeypatch.setattr(locks._engine.store, "execute", watched)
    return found


def test_who_is_refused_in_a_transaction_does_not_wait_for_it(
    url: str, others: Holdfast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = sqlalchemy.create_engine(f"sqlite:///{tmp_path}/locks.db")
    with Holdfast(url, settings=SETTINGS) as locks, engine.connect() as theirs:
        waited_for = withdrawn_here(locks, monkeypatch)
        theirs.exec_driver_sql("CREATE TABLE account (balance INTEGER)")
        theirs.exec_driver_sql("INSERT INTO account VALUES (1)")
        with theirs.begin_nested(), pytest.raises(SettingsError):
            locks.acquire("nightly", within=theirs)
        assert waited_for == []
        theirs.commit()
        eventually(lambda: not locks._engine.keeper.pursued())
    engine.dispose()
    assert others.inspect("nightly") is None


@pytest.mark.parametrize("ends", ["commit", "rollback"])
def test_who_is_interrupted_in_a_transaction_does_not_wait_for_it(
    url: str,
    others: Holdfast,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    ends: str,
) -> None:
    def interrupted(*_: Any) -> Any:
        raise KeyboardInterrupt

    with Holdfast(url, settings=SETTINGS) as locks, closing(sqlite3.connect(tmp_path / "locks.db")) as theirs:
        waited_for = withdrawn_here(locks, monkeypatch)
        monkeypatch.setattr(locks._engine, "keep", interrupted)
        with pytest.raises(KeyboardInterrupt):
            locks.acquire("nightly", within=theirs)
        assert waited_for == []
        getattr(theirs, ends)()
        eventually(lambda: not locks._engine.keeper.pursued())
        assert is_free(others, "nightly")


def test_who_is_interrupted_while_the_store_fails_leaves_nothing(
    url: str, others: Holdfast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Holdfast(url, settings=SETTINGS) as locks, ExitStack() as until_later:

        def interrupted(*_: Any) -> Any:
            until_later.enter_context(nobody_can_write(tmp_path))
            raise KeyboardInterrupt

        monkeypatch.setattr(locks._engine, "keep", interrupted)
        with pytest.raises(KeyboardInterrupt):
            locks.acquire("nightly")
        assert look(others).state == "held"
        until_later.close()
        eventually(lambda: look(others).state == "free")


def test_logging_that_fails_does_not_end_the_keeper() -> None:
    class Faulty(logging.Filter):
        def filter(self, record: logging.LogRecord) -> bool:
            raise ValueError(record)

    faulty = Faulty()
    with Holdfast("memory://", settings=Settings(sweep_every=None, renew_at=0.1)) as locks:
        logging.getLogger("holdfast").addFilter(faulty)
        try:
            dropped = locks.acquire("nightly")
            del dropped  # of which it warns
            eventually(lambda: is_free(locks, "nightly"))
            until_renewed(locks.acquire("other", ttl=5.0))
        finally:
            logging.getLogger("holdfast").removeFilter(faulty)


@pytest.mark.parametrize("ends", ["commit", "rollback"])
def test_a_lease_that_a_transaction_was_to_release_may_be_dropped_without_a_word(
    url: str, others: Holdfast, tmp_path: Path, caplog: pytest.LogCaptureFixture, ends: str
) -> None:
    with Holdfast(url, settings=SETTINGS) as locks, closing(sqlite3.connect(tmp_path / "locks.db")) as theirs:
        lease = locks.acquire("nightly")
        lease.release(within=theirs)
        getattr(theirs, ends)()
        with caplog.at_level(logging.WARNING, "holdfast"):
            del lease
            eventually(lambda: not locks._engine.keeper.kept())
            eventually(lambda: not locks._engine.keeper.pursued())
        assert caplog.messages == []
        assert is_free(others, "nightly")
