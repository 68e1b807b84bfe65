"""Groups on SQLite: one transaction and one commit, and each request in it fails alone."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from holdfast import errors
from holdfast.core.family import Terms
from holdfast.core.requests import Acquire, Granted, Inspect, Queued, Release, Released, Request
from holdfast.stores.base import StoreOptions, one_by_one
from holdfast.stores.memory import MemoryStore
from holdfast.stores.sqlite import SQLiteStore
from holdfast.testing.conformance import CLIENT, OTHER_CLIENT, Asker

# A request is refused by the file itself: before anything of it was written, or after most of it.
REFUSES = """
CREATE TRIGGER refuses BEFORE INSERT ON holdfast_locks WHEN NEW.lock_key GLOB 'bad*'
BEGIN SELECT RAISE({}, 'not this one'); END
"""
REFUSES_TICKETS = """
CREATE TRIGGER refuses BEFORE INSERT ON holdfast_tickets WHEN NEW.lock_key GLOB 'bad*'
BEGIN SELECT RAISE({}, 'not this one'); END
"""
# What is missing is noticed when it is committed.
FAILS_TO_COMMIT = """
CREATE TABLE others (id INTEGER PRIMARY KEY);
CREATE TABLE promises (id INTEGER REFERENCES others (id) DEFERRABLE INITIALLY DEFERRED);
CREATE TRIGGER promises AFTER INSERT ON holdfast_locks WHEN NEW.lock_key GLOB 'bad*'
BEGIN INSERT INTO promises VALUES (7); END
"""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SQLiteStore]:
    store = SQLiteStore(tmp_path / "locks.db", StoreOptions(CLIENT), busy_timeout=0.1)
    store.open()
    yield store
    store.close()


@pytest.fixture
def change(tmp_path: Path) -> Callable[[str], None]:
    """Return a function that changes the file's schema, as an operator with a console could."""

    def run(script: str) -> None:
        with closing(sqlite3.connect(tmp_path / "locks.db")) as connection:
            connection.executescript(script)

    return run


def wants(key: str, attempt: str = "a-1", *, wait: bool = False, terms: Terms = Terms()) -> Acquire:  # noqa: B008
    return Acquire(key, attempt, attempt, 60.0, CLIENT, wait=wait, terms=terms)


def keys(store: SQLiteStore) -> list[str]:
    return [view.key for view in Asker(store).page(now=0.0).locks]


def test_a_group_is_committed_once(store: SQLiteStore) -> None:
    said: list[str] = []
    connection = store.sessions.database._connection
    assert connection is not None
    group: list[Request[object]] = [wants("k1"), wants("k2"), wants("k1", "b-1", wait=True), Inspect("k1")]
    connection.set_trace_callback(said.append)
    answers = store.execute_many(group)
    connection.set_trace_callback(None)
    assert [type(answer).__name__ for answer in answers] == ["Granted", "Granted", "Queued", "LockView"]
    assert [line for line in said if line.split()[0] in ("BEGIN", "COMMIT")] == ["BEGIN IMMEDIATE", "COMMIT"]
    assert (said[0], said[-1]) == ("BEGIN IMMEDIATE", "COMMIT"), "something is by itself"


def test_what_is_one_statement_by_itself_is_one_in_a_group(store: SQLiteStore) -> None:
    """Or else a group would not be as fast as it can be."""
    said: list[str] = []
    connection = store.sessions.database._connection
    assert connection is not None
    connection.set_trace_callback(said.append)
    answers = store.execute_many([wants("k1"), wants("k2")])
    store.execute_many([Release(f"k{n}", "a-1", answer.token) for n, answer in enumerate(answers, 1)])
    connection.set_trace_callback(None)
    assert [line.split()[0] for line in said] == [
        "BEGIN",
        "INSERT",
        "INSERT",
        "COMMIT",
        "BEGIN",
        "UPDATE",
        "UPDATE",
        "COMMIT",
    ]


@pytest.mark.parametrize("terms", [Terms(), Terms(mode="shared")], ids=["fast", "slow"])
def test_a_request_that_fails_fails_alone(store: SQLiteStore, change, terms: Terms) -> None:
    change(REFUSES.format("ABORT"))
    first, bad, last = store.execute_many(
        [wants("k1", terms=terms), wants("bad", terms=terms), wants("k2", terms=terms)]
    )
    assert isinstance(first, Granted)
    assert isinstance(bad, errors.StoreError)
    assert "not this one" in str(bad)
    assert isinstance(last, Granted)
    assert keys(store) == ["k1", "k2"]


def test_of_a_request_that_fails_nothing_is_left(store: SQLiteStore, change) -> None:
    """Its lock was written before its ticket was refused; and the ticket of the one before stays."""
    store.execute_many([wants("bad"), wants("k1")])
    change(REFUSES_TICKETS.format("ABORT"))
    kept, bad = store.execute_many([wants("k1", "b-1", wait=True), wants("bad", "b-1", wait=True)])
    assert isinstance(kept, Queued)
    assert isinstance(bad, errors.StoreError)
    change("DROP TRIGGER refuses")
    ask = Asker(store)
    assert [ask.look(now=None, key=key).waiting for key in ("k1", "bad")] == [1, 0]
    assert store.sessions.fetch("queue_head", key="bad") == []


def test_whoever_a_failed_request_would_have_told_is_not_told(store: SQLiteStore, change) -> None:
    ask = Asker(store)
    tokens = {key: ask.take("a-1", now=None, key=key).token for key in ("k1", "bad")}
    for key in tokens:
        store.execute(wants(key, "b-1", wait=True))
    change(
        "CREATE TRIGGER refuses BEFORE UPDATE ON holdfast_locks WHEN NEW.lock_key = 'bad'"
        " BEGIN SELECT RAISE(ABORT, 'not this one'); END"
    )
    released, bad = store.execute_many([Release(key, "a-1", token) for key, token in tokens.items()])
    assert released == Released(0, "b-1")
    assert isinstance(bad, errors.StoreError)
    assert [(signal.kind, signal.key) for signal in ask.full_signals()] == [("granted", "k1")]


def test_if_everything_is_rolled_back_everything_has_failed(store: SQLiteStore, change) -> None:
    """SQLite itself ends a transaction when it runs out of memory, say."""
    store.execute(wants("k1"))
    ask = Asker(store)
    change(REFUSES.format("ROLLBACK"))
    answers = store.execute_many([wants("k1", "b-1", wait=True), wants("bad"), wants("k2")])
    assert [type(answer) for answer in answers] == [errors.StoreError] * 3
    assert keys(store) == ["k1"]
    assert ask.look(now=None, key="k1").waiting == 0
    assert isinstance(store.execute(wants("k2")), Granted)


def test_if_the_commit_fails_everything_has_failed_and_nobody_is_told(store: SQLiteStore, change) -> None:
    ask = Asker(store)
    token = ask.take("a-1", now=None, key="k1").token
    store.execute(wants("k1", "b-1", wait=True))
    change(FAILS_TO_COMMIT)
    connection = store.sessions.database._connection
    assert connection is not None
    connection.execute("PRAGMA foreign_keys = on")
    answers = store.execute_many([Release("k1", "a-1", token), wants("bad"), wants("k2")])
    assert [type(answer) for answer in answers] == [errors.StoreError] * 3
    assert len({id(answer) for answer in answers}) == 3, "each is raised by itself"
    assert ask.full_signals() == ()
    assert keys(store) == ["k1"]
    assert store.execute_many([Release("k1", "a-1", token), wants("k2")])[0] == Released(0, "b-1")


def test_without_a_turn_to_write_everything_has_failed(store: SQLiteStore, tmp_path: Path) -> None:
    store.execute(wants("k1"))
    with closing(sqlite3.connect(tmp_path / "locks.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        answers = store.execute_many([wants("k2"), wants("k3")])
        assert [type(answer) for answer in answers] == [errors.StoreUnavailable] * 2
    assert keys(store) == ["k1"]


def test_what_no_database_can_keep_fails_alone(store: SQLiteStore) -> None:
    """Also where the error is the driver's own, and no error of SQLite."""
    good, bad, last = store.execute_many([wants("k1"), Release("k1", "a-1", 1 << 70), wants("k2")])
    assert isinstance(good, Granted)
    assert isinstance(last, Granted)
    assert isinstance(bad, errors.StoreError)
    assert isinstance(bad.__cause__, OverflowError)


def test_an_interrupt_leaves_nothing_of_a_group(store: SQLiteStore, tmp_path: Path) -> None:
    """And nobody is kept from writing by a transaction that is still open."""

    class Interrupting(dict):  # type: ignore[type-arg]
        def __missing__(self, kind: type) -> object:
            def interrupt(*_: object) -> None:
                raise KeyboardInterrupt

            return interrupt

        get = dict.__getitem__

    store._answers = Interrupting({Acquire: store._answers[Acquire]})
    with pytest.raises(KeyboardInterrupt):
        store.execute_many([wants("k1"), wants("k1", "b-1", wait=True), Inspect("k1"), wants("k2")])
    other = SQLiteStore(tmp_path / "locks.db", StoreOptions(OTHER_CLIENT), busy_timeout=0.1)
    other.open()
    assert keys(other) == []
    assert isinstance(other.execute(wants("k1")), Granted)
    other.close()
    assert not isinstance(store.execute(wants("k1", "b-1")), Granted)


class Choosy(MemoryStore):
    """Answers for some keys only."""

    def execute(self, request):
        if request.key == "bad":
            raise errors.StoreUnavailable("not this one")
        if request.key == "worse":
            raise ZeroDivisionError
        return super().execute(request)


def test_without_groups_a_request_fails_alone_as_well() -> None:
    store = Choosy(StoreOptions(CLIENT))
    first, bad, worse, last = one_by_one(store, [wants(key) for key in ("k1", "bad", "worse", "k2")])
    assert isinstance(first, Granted)
    assert isinstance(bad, errors.StoreUnavailable)
    assert isinstance(worse, errors.StoreError)
    assert isinstance(worse.__cause__, ZeroDivisionError)
    assert isinstance(last, Granted)


def test_what_does_not_wait_does_nothing_while_somebody_writes(store: SQLiteStore, tmp_path: Path) -> None:
    asked = [wants("one"), wants("two")]
    with closing(sqlite3.connect(tmp_path / "locks.db", isolation_level=None)) as somebody:
        somebody.execute("BEGIN IMMEDIATE")
        assert store.try_many(asked) is None
        somebody.execute("ROLLBACK")
        with store.sessions.mutex:  # another thread of ours asks
            assert store.try_many(asked) is None
        assert store.execute(Inspect("one")) is None
        first, second = store.try_many(asked) or ()
        assert isinstance(first, Granted)
        assert isinstance(second, Granted)
        assert second.token > 0
