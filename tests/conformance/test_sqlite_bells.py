"""Doorbells that cannot be hung up: locking goes on without them."""

import gc
import socket
from pathlib import Path

import pytest

from holdfast import OutcomeUnknown, StoreError
from holdfast.core.requests import Queued
from holdfast.stores.base import StoreOptions
from holdfast.stores.sqlite import SQLiteStore
from holdfast.testing.conformance import CLIENT, OTHER_CLIENT, Asker


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "locks.db"


def opened(file: Path, client=CLIENT) -> SQLiteStore:
    store = SQLiteStore(file, StoreOptions(client))
    store.open()
    return store


def test_without_a_place_for_bells_there_is_still_a_queue_and_nothing_leaks(file):
    """A socket left open for every request that waits would use up the process's files."""
    file.with_name("locks.db-bells").write_text("in the way")
    store = opened(file)
    ask = Asker(store)
    token = ask.take("a-1", now=100.0).token
    for _ in range(3):
        assert isinstance(ask.acquire("b-1", now=101.0, wait=True), Queued)
    gc.collect()  # an unclosed socket would warn here, and warnings are errors
    ask.release("a-1", token, now=102.0)
    assert ask.signals() == [("granted", "b-1")]
    store.close()


def test_the_bells_of_dead_processes_are_swept_away_and_those_of_live_ones_are_not(file, monkeypatch):
    mine, other = opened(file), opened(file, OTHER_CLIENT)
    Asker(mine).take("a-1", now=100.0)
    Asker(other, OTHER_CLIENT).queue("b-1", now=101.0)
    bells = file.with_name("locks.db-bells")
    monkeypatch.chdir(bells)  # a socket's address must be short
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as killed:
        killed.bind("i-dead")
    Asker(mine).sweep(now=102.0)
    assert [bell.name for bell in bells.iterdir()] == [OTHER_CLIENT.instance]
    mine.close()
    other.close()
    assert list(bells.iterdir()) == []


def test_what_was_committed_is_told_even_if_the_request_fails_afterwards(file, monkeypatch):
    """A newcomer finds the lease over, and so its predecessor is handed the lock; then the search for circles
    fails."""

    def fail(*_: object) -> None:
        raise StoreError("a flaw")

    store = opened(file)
    ask = Asker(store)
    ask.take("a-1", now=100.0, ttl=10.0)
    ask.queue("b-1", now=101.0)
    ask.take("c-1", owner="carl", now=101.0, key="other")
    ask.queue("d-1", now=101.0, key="other")  # somebody waits for what the newcomer has
    monkeypatch.setattr("holdfast.stores.sql.rules.circles.WaitTables.states", fail)
    with pytest.raises(OutcomeUnknown):
        ask.acquire("c-2", owner="carl", now=112.0, wait=True)
    assert ask.signals() == [("granted", "b-1")]
    store.close()
