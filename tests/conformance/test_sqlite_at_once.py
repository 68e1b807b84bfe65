"""What SQLite answers at once, for event loops: one statement on a free lock, never a wait."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from holdfast import AsyncHoldfast, StoreMisconfigured
from holdfast.client.aio.engine import MOST_AT_ONCE
from holdfast.core.events import HistoryLevel
from holdfast.core.family import Terms
from holdfast.core.requests import Acquire, Granted, Probe, Release, Released
from holdfast.stores.base import StoreOptions
from holdfast.stores.sqlite import SQLiteStore, at_once
from holdfast.testing.conformance import CLIENT, Asker
from holdfast.testing.conformance.asker import SHARED


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SQLiteStore]:
    store = make(tmp_path)
    yield store
    store.close()


def make(folder: Path, level: HistoryLevel = "notable") -> SQLiteStore:
    """Return a store that is ready to answer at once."""
    store = SQLiteStore(folder / "locks.db", StoreOptions(CLIENT, level))
    store.open()
    assert store.execute_at_once(wants("warm", "w-1")) is None  # not connected yet
    store.execute(Probe())
    return store


def wants(key: str = "nightly", attempt: str = "a-1", **options: Any) -> Acquire:
    return Acquire(key, attempt, attempt, 60.0, CLIENT, **options)


def take(store: SQLiteStore, key: str = "nightly", attempt: str = "a-1") -> int:
    answer = store.execute_at_once(wants(key, attempt))
    assert isinstance(answer, Granted)
    return answer.token


def connection_of(store: SQLiteStore) -> sqlite3.Connection:
    connection = store.sessions.at_once.database._connection
    assert connection is not None
    return connection


def test_a_free_lock_is_taken_and_released(store: SQLiteStore) -> None:
    token = take(store)
    assert Asker(store).look(now=None).token == token
    assert store.execute_at_once(Release("nightly", "a-1", token)) == Released()
    assert Asker(store).look(now=None).state == "free"


def test_whoever_has_a_lock_is_told_the_same_again(store: SQLiteStore) -> None:
    assert take(store) == take(store)


@pytest.mark.parametrize(
    "request_", [wants(attempt="b-1"), wants(terms=SHARED), wants(terms=Terms(delay=1.0)), Probe()], ids=str
)
def test_what_takes_more_than_a_statement_is_left_to_others(store: SQLiteStore, request_: Any) -> None:
    take(store)
    before = Asker(store).page(now=100.0)
    assert store.execute_at_once(request_) is None
    assert Asker(store).page(now=100.0) == before


@pytest.mark.parametrize("token", [0, 1])
def test_a_release_that_frees_nothing_is_left_to_others(store: SQLiteStore, token: int) -> None:
    held = take(store)
    assert store.execute_at_once(Release("nightly", "a-1", held + 1 - token, retire=bool(token))) is None
    assert Asker(store).look(now=None).state == "held"


def test_a_lock_that_is_waited_for_is_left_to_others(store: SQLiteStore) -> None:
    token = take(store)
    store.execute(wants(attempt="b-1", wait=True))
    assert store.execute_at_once(Release("nightly", "a-1", token)) is None
    assert store.execute_at_once(wants(attempt="c-1")) is None
    assert Asker(store).look(now=None).waiting == 1


def test_nothing_is_answered_at_once_that_the_history_is_to_have(tmp_path: Path) -> None:
    with closing(make(tmp_path, "all")) as store:
        assert store.execute_at_once(wants()) is None


def test_nothing_is_answered_at_once_where_commits_wait_for_the_disk(tmp_path: Path) -> None:
    for synchronous, can in (("normal", True), ("full", False), ("extra", False)):
        store = SQLiteStore(tmp_path / "locks.db", StoreOptions(CLIENT), synchronous=synchronous)
        assert store.traits.at_once is can


def test_who_writes_is_not_waited_for(store: SQLiteStore, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "locks.db", isolation_level=None)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        assert store.execute_at_once(wants()) is None
        writer.execute("COMMIT")
    take(store)


def test_no_request_under_way_is_waited_for(store: SQLiteStore) -> None:
    with store.sessions.mutex, store.sessions.reader.mutex:
        take(store)


def test_another_event_loop_is_not_waited_for(store: SQLiteStore) -> None:
    with store.sessions.at_once.mutex:
        assert store.execute_at_once(wants()) is None


def test_no_checkpoint_is_made(store: SQLiteStore) -> None:
    assert connection_of(store).execute("PRAGMA wal_autocheckpoint").fetchone() == (0,)


def test_a_request_is_left_to_others_now_and_then_who_see_to_the_log(
    store: SQLiteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They checkpoint it, and begin it again: whoever writes first after that waits for the disk."""
    monkeypatch.setattr(at_once, "MOST_ANSWERS", 3)
    store.sessions.at_once.open()
    for number in range(3):
        take(store, f"k{number}")
    assert store.execute_at_once(wants("k3")) is None
    said: list[str] = []
    connection = store.sessions.database._connection
    assert connection is not None
    connection.set_trace_callback(said.append)
    store.execute(wants("k3"))
    assert sum(text == "COMMIT" for text in said) == 2
    take(store, "k4")


def test_the_log_does_not_grow_for_ever(store: SQLiteStore, tmp_path: Path) -> None:
    """It may get as long as SQLite lets it, and as what is answered until somebody sees to it."""
    size = 0
    for number in range(3 * at_once.MOST_ANSWERS):
        request = wants(f"k{number % 5}", f"a-{number}")
        answer = store.execute_at_once(request) or store.execute(request)
        assert isinstance(answer, Granted)
        release = Release(request.key, request.attempt, answer.token)
        assert store.execute_at_once(release) or store.execute(release)
        size = max(size, (tmp_path / "locks.db-wal").stat().st_size)
    assert size < 12_000_000


def test_a_file_that_was_replaced_is_noticed(store: SQLiteStore, tmp_path: Path) -> None:
    for name in os.listdir(tmp_path):
        if name.startswith("locks.db") and (tmp_path / name).is_file():
            (tmp_path / name).rename(tmp_path / f"old-{name}")
    store.sessions.at_once.database._look_at = 0.0
    with pytest.raises(StoreMisconfigured, match="moved away"):
        store.execute_at_once(wants())
    assert store.execute_at_once(wants()) is None  # and then it is for others to refuse it


def test_a_fork_leaves_no_connection_open(store: SQLiteStore) -> None:
    take(store)
    store.before_fork()
    try:
        assert store.execute_at_once(wants("other")) is None
        assert not store.sessions.at_once.database.is_open
    finally:
        store.after_fork_in_parent()
    assert store.execute_at_once(wants("other")) is None
    store.execute(Probe())
    take(store, "other")


def test_whoever_comes_after_closing_finds_it_closed(store: SQLiteStore) -> None:
    take(store)
    store.close()
    assert store.execute_at_once(wants("other")) is None
    assert not store.sessions.at_once.database.is_open


def test_tasks_take_free_locks_in_the_thread_of_their_loop(tmp_path: Path) -> None:
    async def play() -> set[str]:
        async with AsyncHoldfast(f"sqlite:///{tmp_path}/locks.db") as locks:
            async with locks.hold("first"):  # connects
                pass
            store: Any = locks._engine.store
            threads: set[str] = set()
            at_once, execute = store.execute_at_once, store.execute

            def answer(request: Any) -> Any:
                threads.add(threading.current_thread().name)
                return at_once(request)

            def slowly(request: Any) -> Any:
                threads.add(threading.current_thread().name)
                return execute(request)

            store.execute_at_once, store.execute = answer, slowly
            async with locks.hold("nightly") as lease:
                assert lease.token > 0
            return threads

    assert asyncio.run(play()) == {threading.current_thread().name}


def test_other_tasks_have_their_turn_among_what_is_answered_at_once(tmp_path: Path):
    """Nothing of it suspends the task that asks: without that, its loop would serve nobody else."""
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def run() -> None:
        async with AsyncHoldfast(f"sqlite:///{tmp_path}/locks.db") as locks:
            async with locks.hold("warm"):
                pass
            ticking = asyncio.create_task(other())
            for number in range(100):
                async with locks.hold(f"job:{number}"):
                    pass
            ticking.cancel()

    asyncio.run(run())
    assert turns >= 200 // MOST_AT_ONCE
