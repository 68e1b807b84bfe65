"""What a caller's own transaction may do to the locks, and what it may not: savepoints, two phases, levels.

Whatever is refused leaves nothing locked. Whatever is granted lasts until the transaction ends.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pymysql
import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from holdfast import AsyncHoldfast
from holdfast.core.requests import (
    Acquire,
    Break,
    Busy,
    Fence,
    Fenced,
    Granted,
    NotHeld,
    Queued,
    Release,
    Released,
    Renew,
    RenewLease,
)
from holdfast.errors import SettingsError, StoreUnavailable
from holdfast.stores import _BUILT_IN, open_store
from holdfast.stores.base import Store, StoreOptions
from holdfast.stores.sql.options import split_url
from holdfast.stores.sql.rules import holds
from holdfast.stores.sqlite import glance
from holdfast.testing.conformance import CLIENT, OTHER_CLIENT

KEY = "nightly"
LEVELS = ["REPEATABLE READ", "READ COMMITTED", "SERIALIZABLE"] if "mysql" in _BUILT_IN else []
MARIADB = [f"mariadb {level}" for level in LEVELS]


class Theirs:
    """A database with locks, and what a caller does with it by a driver."""

    def __init__(self, name: str, url: str, connect: Callable[[], Any], engine_url: str) -> None:
        self.name = name
        self.url = url
        self.connect = connect
        self.engine_url = engine_url

    def run(self, connection: Any, statement: str) -> Any:
        with closing(connection.cursor()) as cursor:
            cursor.execute(statement)
            return cursor.fetchall() if cursor.description else None


def theirs_at(name: str, level: str, url: str, folder: Path) -> Theirs:
    if name == "sqlite":
        file = folder / "locks.db"

        def connect_file() -> Any:
            if level == "by itself":  # as sqlite3 does it: before the first statement that writes
                return sqlite3.connect(file, timeout=0.3)
            connection = sqlite3.connect(file, timeout=0.3, isolation_level=None)
            connection.execute("BEGIN")
            return connection

        return Theirs(name, f"sqlite:///{file}?busy_timeout=0.3", connect_file, f"sqlite:///{file}")
    plain = split_url(url)[0]
    if name == "postgres":
        engine = plain.replace("postgresql://", "postgresql+psycopg://")
        return Theirs(name, url, lambda: psycopg.connect(plain), engine)
    parts = sqlalchemy.make_url(plain)

    def connect() -> Any:
        return pymysql.connect(
            host=parts.host,
            port=parts.port or 0,
            user=parts.username,
            database=parts.database,
            ssl_disabled=True,
            init_command=f"SET SESSION TRANSACTION ISOLATION LEVEL {level}",
        )

    return Theirs(name, url, connect, f"{plain.replace('mysql://', 'mysql+pymysql://')}?ssl_disabled=true")


@pytest.fixture(params=["sqlite", "postgres", *MARIADB[:1]])
def theirs(request: pytest.FixtureRequest, tmp_path: Path) -> Theirs:
    return theirs_by(request, tmp_path)


@pytest.fixture(params=["sqlite", "postgres", *MARIADB])
def at_all_levels(request: pytest.FixtureRequest, tmp_path: Path) -> Theirs:
    return theirs_by(request, tmp_path)


@pytest.fixture(params=["postgres", *MARIADB])
def servers(request: pytest.FixtureRequest, tmp_path: Path) -> Theirs:
    """Where there is more than one writer."""
    return theirs_by(request, tmp_path)


def theirs_by(request: pytest.FixtureRequest, tmp_path: Path) -> Theirs:
    name, _, level = request.param.partition(" ")
    url = "" if name == "sqlite" else request.getfixturevalue(f"{name}_locks")
    return theirs_at(name, level, url, tmp_path)


@pytest.fixture
def postgres(postgres_locks: str, tmp_path: Path) -> Theirs:
    return theirs_at("postgres", "", postgres_locks, tmp_path)


@pytest.fixture
def mariadb(mariadb_locks: str, tmp_path: Path) -> Theirs:
    return theirs_at("mariadb", "REPEATABLE READ", mariadb_locks, tmp_path)


@pytest.fixture
def database(request: pytest.FixtureRequest) -> Theirs:
    """The one that a test is about, by whatever name it goes there."""
    names = ("theirs", "at_all_levels", "servers", "postgres", "mariadb")
    (name,) = (name for name in names if name in request.fixturenames)
    found: Theirs = request.getfixturevalue(name)
    return found


@pytest.fixture
def store(database: Theirs) -> Iterator[Store]:
    store = open_store(database.url, StoreOptions(CLIENT))
    store.open()
    yield store
    store.close()


@pytest.fixture
def connection(database: Theirs, store: Store) -> Iterator[Any]:
    with closing(database.connect()) as connection:
        yield connection
        connection.rollback()


def take(store: Store, attempt: str, key: str = KEY, *, owner: str = "", wait: bool = False) -> Any:
    return store.execute(Acquire(key, attempt, owner or attempt, 60.0, CLIENT, wait=wait))


def take_within(store: Store, connection: Any, attempt: str, key: str = KEY, *, owner: str = "") -> Any:
    return store.execute_within(connection, Acquire(key, attempt, owner or attempt, 60.0, CLIENT))


def renew(store: Store, attempt: str, token: int, key: str = KEY) -> str:
    (answer,) = store.execute(Renew(leases=(RenewLease(key, attempt, token, 90.0),))).leases
    return answer.outcome


def is_kept_out(store: Store, attempt: str) -> bool:
    """Tell whether nobody else is granted the lock once its lease is over."""
    try:
        return isinstance(take(store, attempt), Busy)
    except StoreUnavailable:  # nobody else can write at all
        return not store.traits.pins


# What is refused leaves nothing locked.


def test_a_refused_try_leaves_the_holder_free_to_renew(at_all_levels, store, connection):
    """A living holder lost its lease because somebody else had asked for it, and stayed in a transaction."""
    token = take(store, "a-1").token
    assert isinstance(take_within(store, connection, "b-1"), Busy)
    assert renew(store, "a-1", token) == "renewed"


def test_a_refused_try_leaves_those_who_wait_and_the_holder_free(theirs, store, connection):
    token = take(store, "a-1").token
    assert isinstance(take(store, "b-1", wait=True), Queued)
    assert isinstance(take_within(store, connection, "c-1"), Busy)
    assert isinstance(take(store, "d-1", wait=True), Queued)
    assert store.execute(Release(KEY, "a-1", token)) == Released(0, next="b-1")
    assert isinstance(take(store, "b-1", wait=True), Granted)


def test_a_refused_release_leaves_the_holder_free_to_renew(at_all_levels, store, connection):
    old = take(store, "a-1").token
    store.execute(Break(KEY, reason="stuck", by="olga"))
    token = take(store, "b-1").token
    refused = store.execute_within(connection, Release(KEY, "a-1", old))
    assert refused == NotHeld("broken", "olga", "stuck")
    assert renew(store, "b-1", token) == "renewed"


def test_a_refused_fence_leaves_the_lock_free(at_all_levels, store, connection):
    old = take(store, "a-1").token
    store.execute(Break(KEY, reason="stuck", by="olga"))
    refused = store.execute_within(connection, Fence(KEY, "a-1", old))
    assert refused == NotHeld("broken", "olga", "stuck")
    token = take(store, "b-1").token
    assert store.execute_within(connection, Fence(KEY, "a-1", old)) == refused
    assert renew(store, "b-1", token) == "renewed"
    assert store.execute(Release(KEY, "b-1", token)) == Released()
    assert isinstance(take(store, "c-1"), Granted)


def test_a_try_that_is_too_late_by_a_moment_leaves_nothing_locked(postgres, store, connection, monkeypatch):
    """Between the look and the lock somebody else has taken it."""
    first = take(store, "x-1").token
    store.execute(Release(KEY, "x-1", first))
    foresee = type(store.dialect).foresee
    tokens: list[int] = []

    def slow(*arguments: Any) -> Any:
        seen = foresee(*arguments)
        tokens.append(take(store, "a-1").token)
        return seen

    monkeypatch.setattr(type(store.dialect), "foresee", slow)
    assert isinstance(take_within(store, connection, "b-1"), Busy)
    assert renew(store, "a-1", tokens[0]) == "renewed"


@pytest.mark.parametrize("at_all_levels", ["sqlite", "sqlite by itself", *MARIADB], indirect=True)
@pytest.mark.parametrize("what", ["acquire", "release"])
def test_what_is_too_late_by_a_moment_says_so_where_its_lock_stays(
    at_all_levels, store, connection, monkeypatch, what
):
    """InnoDB and SQLite unlock nothing before the transaction ends. So the caller has to hear of it."""
    first = take(store, "x-1").token
    foresee = type(store.dialect).foresee
    if what == "acquire":
        store.execute(Release(KEY, "x-1", first))

    def slow(*arguments: Any) -> Any:
        seen = foresee(*arguments)
        if what == "release":
            store.execute(Break(KEY, reason="stuck", by="olga"))
        take(store, "a-1")
        return seen

    monkeypatch.setattr(type(store.dialect), "foresee", slow)
    late = Release(KEY, "x-1", first) if what == "release" else Acquire(KEY, "b-1", "b-1", 60.0, CLIENT)
    with pytest.raises(StoreUnavailable, match="roll back"):
        store.execute_within(connection, late)


@pytest.mark.parametrize("what", ["acquire", "release"])
def test_what_is_refused_after_another_transaction_leaves_nothing_locked(
    at_all_levels, store, connection, monkeypatch, what
):
    """Somebody else's transaction has the key, or all of the file, and ends while we wait for it."""
    token = take(store, "a-1", owner="a").token
    with closing(at_all_levels.connect()) as other:
        assert isinstance(take_within(store, other, "a-2", owner="a"), Granted)

        write_at_once = glance._write_at_once

        def write_in_vain(theirs: Any) -> None:
            try:
                write_at_once(theirs)
            finally:
                other.rollback()

        monkeypatch.setattr(glance, "_write_at_once", write_in_vain)
        monkeypatch.setattr(type(store.dialect), "wait_for_row", lambda *_: other.rollback())
        if what == "acquire":
            assert isinstance(take_within(store, connection, "b-1"), Busy)
        else:
            assert isinstance(store.execute_within(connection, Release(KEY, "z-1", token)), NotHeld)
        other.rollback()  # PostgreSQL does not wait for it
        assert renew(store, "a-1", token) == "renewed"


def test_who_becomes_the_writer_of_the_file_while_it_is_looked_at_is_told(tmp_path, monkeypatch):
    """SQLite does not say who writes: it was somebody else, who has just committed."""
    theirs = theirs_at("sqlite", "by itself", "", tmp_path)
    with (
        closing(open_store(theirs.url, StoreOptions(CLIENT))) as store,
        closing(theirs.connect()) as other,
        closing(theirs.connect()) as connection,
    ):
        store.open()
        assert isinstance(take_within(store, other, "a-1"), Granted)
        write_at_once = glance._write_at_once

        def write_later(theirs: Any) -> None:
            other.commit()
            write_at_once(theirs)

        monkeypatch.setattr(glance, "_write_at_once", write_later)
        with pytest.raises(StoreUnavailable, match="roll back"):
            take_within(store, connection, "b-1")
        connection.rollback()
        assert isinstance(take_within(store, connection, "b-1"), Busy)


def test_a_try_in_a_transaction_does_not_wait_for_another_transaction(servers, store, connection):
    """Nobody waits inside a transaction, not even for a row."""
    with closing(servers.connect()) as other:
        assert isinstance(take_within(store, other, "a-1"), Granted)
        busy = take_within(store, connection, "b-1")
        assert isinstance(busy, Busy)
        assert str(busy.holder) == "a transaction that is still open"
        other.rollback()
    assert isinstance(take_within(store, connection, "b-1"), Granted)


def test_a_free_lock_is_taken_in_a_transaction_however_often_its_row_is_locked_for_a_moment(
    servers, store, connection, monkeypatch
):
    """The keeper asks about a lease that was rolled back: it locks the row twice in a row."""
    wait_for_row = type(store.dialect).wait_for_row
    moments = iter(range(3))
    with closing(servers.connect()) as other:

        def lock_it() -> None:
            assert isinstance(take_within(store, other, "a-1"), Granted)

        def wait_for_a_moment(*arguments: Any) -> None:
            other.rollback()
            wait_for_row(*arguments)
            if next(moments, None) is not None:
                with monkeypatch.context() as undone:
                    undone.setattr(type(store.dialect), "wait_for_row", wait_for_row)
                    lock_it()

        lock_it()
        monkeypatch.setattr(type(store.dialect), "wait_for_row", wait_for_a_moment)
        assert isinstance(take_within(store, connection, "b-1"), Granted)
    assert next(moments, None) is None


def test_what_was_released_in_a_transaction_can_be_taken_in_it_again(at_all_levels, store, connection):
    token = take(store, "a-1").token
    assert store.execute_within(connection, Release(KEY, "a-1", token)) == Released()
    again = take_within(store, connection, "b-1")
    assert isinstance(again, Granted)
    assert again.token > token
    assert store.execute_within(connection, Fence(KEY, "b-1", again.token)) == Fenced(again.token)
    assert store.execute_within(connection, Release(KEY, "b-1", again.token)) == Released()
    connection.commit()
    assert isinstance(take(store, "c-1"), Granted)


def test_what_a_transaction_has_taken_itself_is_busy_for_its_next_try(theirs, store, connection):
    """On MariaDB the caller was told that somebody else had been granted it, and to roll back."""
    granted = take_within(store, connection, "a-1")
    assert isinstance(granted, Granted)
    assert isinstance(take_within(store, connection, "b-1"), Busy)
    assert store.execute_within(connection, Release(KEY, "a-1", granted.token)) == Released()


def test_all_holds_are_counted_whatever_the_limit_of_the_caller_is(mariadb, store, connection):
    """Only as many as sql_select_limit were seen: a lock with two holds left was free for somebody else."""
    mariadb.run(connection, "SET SESSION sql_select_limit = 1")
    token = take_within(store, connection, "a-1", owner="a").token
    for attempt in ("a-2", "a-3"):
        assert isinstance(take_within(store, connection, attempt, owner="a"), Granted)
    assert store.execute_within(connection, Release(KEY, "a-1", token)) == Released(2)
    connection.commit()
    assert isinstance(take(store, "b-1"), Busy)
    assert [renew(store, attempt, token) for attempt in ("a-2", "a-3")] == ["renewed", "renewed"]


# What is seen without a lock is seen as of one moment.


@pytest.fixture
def between(store, monkeypatch):
    """Return what has something done between a look at a lock and one at its holds, and behind that."""
    read_holds = holds.read_holds

    def plan(act: Callable[[], Any], behind: Callable[[], Any] = lambda: None) -> None:
        def late(*arguments: Any) -> Any:
            monkeypatch.setattr(holds, "read_holds", read_holds)
            act()
            found = read_holds(*arguments)
            behind()
            return found

        monkeypatch.setattr(holds, "read_holds", late)

    return plan


def test_a_lease_that_is_left_once_meanwhile_can_be_fenced(theirs, store, connection, between):
    """Its last hold moved into the lock's row, where nobody looked any more: a live lease was lost."""
    token = take(store, "a-1", owner="a").token
    take(store, "a-2", owner="a")
    between(lambda: store.execute(Release(KEY, "a-2", token)))
    assert store.execute_within(connection, Fence(KEY, "a-1", token)) == Fenced(token)


@pytest.mark.parametrize("servers", ["postgres", *MARIADB[:1]], indirect=True)
def test_a_lease_that_is_left_once_meanwhile_can_be_released(servers, store, connection, between):
    token = take(store, "a-1", owner="a").token
    take(store, "a-2", owner="a")
    between(lambda: store.execute(Release(KEY, "a-2", token)))
    assert store.execute_within(connection, Release(KEY, "a-1", token)) == Released()
    connection.commit()
    assert isinstance(take(store, "b-1"), Granted)


@pytest.mark.parametrize("servers", ["postgres", *MARIADB[:1]], indirect=True)
def test_a_lease_that_is_left_and_entered_meanwhile_can_be_released(servers, store, connection, between):
    """The lock's row is as it was before: only that holds are missing tells of another moment."""
    token = take(store, "a-1", owner="a").token

    def enter(attempt: str) -> None:
        assert isinstance(store.execute(Acquire(KEY, attempt, "a", 5.0, CLIENT)), Granted)

    enter("a-2")
    between(lambda: store.execute(Release(KEY, "a-2", token)), lambda: enter("a-3"))
    assert store.execute_within(connection, Release(KEY, "a-1", token)) == Released(1)


# Savepoints.


def test_a_fence_holds_when_a_savepoint_after_it_is_rolled_back(theirs, store, connection):
    token = take(store, "a-1").token
    fence = Fence(KEY, "a-1", token)
    assert store.execute_within(connection, fence) == Fenced(token)
    theirs.run(connection, "SAVEPOINT one")
    assert store.execute_within(connection, fence) == Fenced(token)
    theirs.run(connection, "ROLLBACK TO SAVEPOINT one")
    if store.traits.pins:
        store.execute(Break(KEY, reason="stuck", by="olga"))
    assert is_kept_out(store, "b-1")


def test_a_fence_inside_a_savepoint_holds_or_is_refused(theirs, store, connection):
    """After ROLLBACK TO SAVEPOINT the transaction went on without it: an update was lost."""
    token = take(store, "a-1").token
    theirs.run(connection, "SAVEPOINT one")
    fence = Fence(KEY, "a-1", token)
    if theirs.name == "postgres":
        with pytest.raises(SettingsError, match="before the savepoint"):
            store.execute_within(connection, fence)
        theirs.run(connection, "ROLLBACK TO SAVEPOINT one")
        store.execute(Release(KEY, "a-1", token))
        assert isinstance(take(store, "b-1"), Granted)
        return
    store.execute_within(connection, fence)
    if theirs.name == "sqlite":
        theirs.run(connection, "ROLLBACK TO SAVEPOINT one")
    else:  # the savepoint, from before the transaction had anything in it, is gone: loudly
        with pytest.raises(pymysql.MySQLError, match="SAVEPOINT one does not exist"):
            theirs.run(connection, "ROLLBACK TO SAVEPOINT one")
        store.execute(Break(KEY, reason="stuck", by="olga"))
    assert is_kept_out(store, "b-1")


def test_a_fence_inside_a_savepoint_is_refused_beside_another_fence_of_the_lease(postgres, store, connection):
    """The database keeps those who share a row elsewhere then."""
    token = take(store, "a-1").token
    fence = Fence(KEY, "a-1", token)
    with closing(postgres.connect()) as other:
        assert store.execute_within(other, fence) == Fenced(token)
        assert store.execute_within(connection, fence) == Fenced(token)
        assert renew(store, "a-1", token) == "renewed"
        assert store.execute_within(connection, fence) == Fenced(token)
        connection.rollback()
        with (
            connection.transaction(),
            pytest.raises(SettingsError, match="before the savepoint"),
            connection.transaction(),
        ):
            store.execute_within(connection, fence)
        assert store.execute_within(connection, fence) == Fenced(token)


def test_a_fence_after_a_savepoint_that_is_over_holds(theirs, store, connection):
    token = take(store, "a-1").token
    for ending in ("RELEASE SAVEPOINT one", "ROLLBACK TO SAVEPOINT one"):
        theirs.run(connection, "SAVEPOINT one")
        theirs.run(connection, "SELECT 1")
        theirs.run(connection, ending)
        if theirs.name == "postgres" and ending.startswith("ROLLBACK"):
            theirs.run(connection, "RELEASE SAVEPOINT one")
        assert store.execute_within(connection, Fence(KEY, "a-1", token)) == Fenced(token)
        connection.rollback()
        if theirs.name == "sqlite":
            theirs.run(connection, "BEGIN")


@pytest.mark.parametrize("by", ["session", "connection"])
def test_nothing_is_fenced_or_taken_in_a_nested_block_of_sqlalchemy(theirs, store, by):
    token = take(store, "a-1").token
    engine = sqlalchemy.create_engine(theirs.engine_url)
    with engine.connect() as connection, Session(engine) as session:
        given = session if by == "session" else connection
        with given.begin(), given.begin_nested():
            with pytest.raises(SettingsError, match="before the savepoint"):
                store.execute_within(given, Fence(KEY, "a-1", token))
            with pytest.raises(SettingsError, match="before the savepoint"):
                take_within(store, given, "b-1", "another")
            if theirs.name == "sqlite":  # where the end of the block is a commit, unless BEGIN came before it
                with pytest.raises(SettingsError, match="before the savepoint"):
                    store.execute_within(given, Release(KEY, "a-1", token))
            assert renew(store, "a-1", token) == "renewed"
        with given.begin():
            assert store.execute_within(given, Fence(KEY, "a-1", token)) == Fenced(token)
    engine.dispose()


def test_nothing_is_fenced_in_a_nested_block_of_asyncio(postgres_locks):
    plain = split_url(postgres_locks)[0]

    async def play() -> None:
        engine = create_async_engine(plain.replace("postgresql://", "postgresql+psycopg://"))
        async with (
            AsyncHoldfast(postgres_locks) as locks,
            await psycopg.AsyncConnection.connect(plain) as connection,
            AsyncSession(engine) as session,
        ):
            lease = await locks.acquire(KEY)
            async with session.begin(), session.begin_nested():
                with pytest.raises(SettingsError, match="before the savepoint"):
                    await lease.fence(session)
            with pytest.raises(SettingsError, match="before the savepoint"):
                async with connection.transaction(), connection.transaction():
                    await lease.fence(connection)
            await lease.fence(connection)
            await connection.rollback()
            await lease.release()
        await engine.dispose()

    asyncio.run(play())


def test_nothing_is_taken_inside_a_savepoint(postgres, store, connection):
    """The client would believe in a lease that ROLLBACK TO SAVEPOINT has undone."""
    postgres.run(connection, "SAVEPOINT one")
    with pytest.raises(SettingsError, match="before the savepoint"):
        take_within(store, connection, "a-1")
    postgres.run(connection, "ROLLBACK TO SAVEPOINT one")
    postgres.run(connection, "RELEASE SAVEPOINT one")
    assert isinstance(take_within(store, connection, "a-1"), Granted)
    connection.commit()
    assert isinstance(take(store, "b-1"), Busy)


@pytest.mark.parametrize("ending", ["RELEASE SAVEPOINT one", "ROLLBACK TO SAVEPOINT one"])
def test_what_is_refused_inside_a_savepoint_leaves_nothing_behind(postgres, store, connection, ending):
    """The error was caught, the transaction committed, and a lock was held by nobody's lease."""
    postgres.run(connection, "SAVEPOINT one")
    with pytest.raises(SettingsError, match="before the savepoint"):
        take_within(store, connection, "a-1")
    postgres.run(connection, ending)
    assert isinstance(take(store, "b-1"), Granted)
    connection.commit()
    assert isinstance(take(store, "c-1"), Busy)


@pytest.mark.parametrize(
    "ending", ["RELEASE SAVEPOINT one", "ROLLBACK TO SAVEPOINT one; RELEASE SAVEPOINT one"]
)
def test_a_lock_can_be_taken_after_a_savepoint_that_is_over(postgres, store, connection, ending):
    postgres.run(connection, "SAVEPOINT one")
    postgres.run(connection, "CREATE TEMPORARY TABLE mine (number integer)")
    postgres.run(connection, ending)
    assert isinstance(take_within(store, connection, "a-1"), Granted)
    connection.commit()
    assert isinstance(take(store, "b-1"), Busy)


@pytest.mark.parametrize("first", ["SELECT 1", "CREATE TEMPORARY TABLE mine (number integer)"])
def test_nothing_is_taken_inside_a_savepoint_where_the_row_is_theirs(postgres, store, connection, first):
    """What the transaction has locked already, it does not lock once more inside."""
    token = take_within(store, connection, "a-1", owner="a").token
    postgres.run(connection, "SAVEPOINT one")
    postgres.run(connection, first)
    with pytest.raises(SettingsError, match="before the savepoint"):
        take_within(store, connection, "a-2", owner="a")
    postgres.run(connection, "RELEASE SAVEPOINT one")
    assert store.execute_within(connection, Fence(KEY, "a-1", token)) == Fenced(token)
    assert store.execute_within(connection, Release(KEY, "a-1", token)) == Released()
    postgres.run(connection, "SAVEPOINT one")
    with pytest.raises(SettingsError, match="before the savepoint"):
        take_within(store, connection, "b-1")
    postgres.run(connection, "RELEASE SAVEPOINT one")
    connection.commit()
    assert isinstance(take(store, "c-1"), Granted)


def test_a_release_that_is_undone_by_a_savepoint_leaves_the_lease(theirs, store, connection):
    token = take(store, "a-1").token
    theirs.run(connection, "SELECT 1")
    if theirs.name == "mariadb":
        store.execute_within(connection, Fence(KEY, "a-1", token))
    theirs.run(connection, "SAVEPOINT one")
    assert store.execute_within(connection, Release(KEY, "a-1", token)) == Released()
    theirs.run(connection, "ROLLBACK TO SAVEPOINT one")
    connection.commit()
    assert renew(store, "a-1", token) == "renewed"
    assert isinstance(take(store, "b-1"), Busy)


@pytest.mark.parametrize("by", ["session", "connection", "sql"])
@pytest.mark.parametrize("undone", [True, False])
def test_a_release_is_as_good_in_a_savepoint_that_is_the_first_thing_in_a_transaction(
    mariadb, store, by, undone
):
    """holdfast began the transaction, which ended the savepoint: to leave the block failed with 1305."""
    release = Release(KEY, "a-1", take(store, "a-1").token)
    if by == "sql":
        with closing(mariadb.connect()) as connection:
            mariadb.run(connection, "SAVEPOINT one")
            assert store.execute_within(connection, release) == Released()
            mariadb.run(connection, "ROLLBACK TO SAVEPOINT one" if undone else "RELEASE SAVEPOINT one")
            connection.commit()
    else:
        engine = sqlalchemy.create_engine(mariadb.engine_url)
        with engine.connect() as connection, Session(engine) as session:
            given = session if by == "session" else connection
            with given.begin():
                block = given.begin_nested()
                assert store.execute_within(given, release) == Released()
                if undone:
                    block.rollback()
                else:
                    block.commit()
        engine.dispose()
    assert renew(store, "a-1", release.token) == ("renewed" if undone else "lost")
    assert isinstance(take(store, "b-1"), Busy if undone else Granted)


# Two phases.


@pytest.mark.parametrize("by", ["driver", "sqlalchemy"])
def test_mariadb_cannot_fence_in_two_phases(mariadb, store, by):
    """XA PREPARE lets go of the record that a fence locks."""
    token = take(store, "a-1").token
    fence = Fence(KEY, "a-1", token)
    if by == "sqlalchemy":
        engine = sqlalchemy.create_engine(mariadb.engine_url)
        with Session(engine, twophase=True) as session:
            with pytest.raises(SettingsError, match="two-phase"):
                store.execute_within(session, fence)
            session.rollback()
        engine.dispose()
        return
    with closing(mariadb.connect()) as connection:
        mariadb.run(connection, "XA START 'theirs'")
        with pytest.raises(SettingsError, match="two-phase"):
            store.execute_within(connection, fence)
        mariadb.run(connection, "XA END 'theirs'")
        mariadb.run(connection, "XA ROLLBACK 'theirs'")


def test_mariadb_releases_and_takes_in_two_phases(mariadb, store):
    token = take(store, "a-1").token
    with closing(mariadb.connect()) as connection:
        mariadb.run(connection, "XA START 'theirs'")
        assert store.execute_within(connection, Release(KEY, "a-1", token)) == Released()
        assert isinstance(take_within(store, connection, "b-1", "another"), Granted)
        mariadb.run(connection, "XA END 'theirs'")
        mariadb.run(connection, "XA PREPARE 'theirs'")
        assert isinstance(take(store, "c-1"), Busy)
        mariadb.run(connection, "XA COMMIT 'theirs'")
    assert isinstance(take(store, "c-1"), Granted)
    assert isinstance(take(store, "c-2", "another"), Busy)


def test_postgresql_fences_and_releases_in_two_phases_whoever_waits(tmp_path):
    """A notification in the transaction made PREPARE TRANSACTION fail, as soon as somebody waited."""
    from tests.servers import PostgresServer
    from tests.servers.fixtures import require, with_tables

    require("postgres")
    with PostgresServer(settings={"max_prepared_transactions": "2"}) as server:
        theirs = theirs_at("postgres", "", with_tables(server.create_database()), tmp_path)
        store = open_store(theirs.url, StoreOptions(CLIENT))
        store.open()
        token = take(store, "a-1").token
        waiting = Acquire(KEY, "b-1", "b-1", 60.0, OTHER_CLIENT, wait=True)
        assert isinstance(store.execute(waiting), Queued)
        with closing(theirs.connect()) as connection:
            assert store.execute_within(connection, Fence(KEY, "a-1", token)) == Fenced(token)
            assert store.execute_within(connection, Release(KEY, "a-1", token)) == Released()
            theirs.run(connection, "PREPARE TRANSACTION 'theirs'")
            connection.rollback()
            assert isinstance(store.execute(waiting), Queued)
            connection.autocommit = True
            theirs.run(connection, "COMMIT PREPARED 'theirs'")
        assert isinstance(store.execute(waiting), Granted)
        store.close()


def test_a_release_in_a_transaction_leaves_its_commit_as_durable_as_it_was(postgres, store, connection):
    """Who waits is told in the transaction; what need not reach the disk by itself must not touch theirs."""
    postgres.run(connection, "SET synchronous_commit = on")
    connection.commit()
    token = take(store, "a-1").token
    store.execute(Acquire(KEY, "b-1", "b-1", 60.0, OTHER_CLIENT, wait=True))
    assert store.execute_within(connection, Release(KEY, "a-1", token)) == Released()
    assert postgres.run(connection, "SHOW synchronous_commit") == [("on",)]


# Isolation levels.


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
def test_postgresql_releases_and_takes_only_at_read_committed(postgres, store, connection, level):
    """Else it fails as soon as the lease was renewed, or somebody waits; so not only then."""
    token = take(store, "a-1").token
    postgres.run(connection, f"SET TRANSACTION ISOLATION LEVEL {level}")
    assert store.execute_within(connection, Fence(KEY, "a-1", token)) == Fenced(token)
    assert renew(store, "a-1", token) == "renewed"
    for ask in (
        lambda: store.execute_within(connection, Release(KEY, "a-1", token)),
        lambda: take_within(store, connection, "a-2", "another"),
    ):
        with pytest.raises(SettingsError, match=f"(?i){level}.*READ COMMITTED"):
            ask()
    assert store.execute_within(connection, Fence(KEY, "a-1", token)) == Fenced(token)
    connection.commit()
    assert renew(store, "a-1", token) == "renewed"


@pytest.mark.parametrize("servers", MARIADB, indirect=True)
def test_a_snapshot_that_must_be_the_newest_is_fenced_and_not_written_to(servers, store, connection):
    """From MariaDB 11.6 on by default. After a renewal the server rolled all back, with error 1020."""
    servers.run(connection, "SET SESSION innodb_snapshot_isolation = ON")
    token = take(store, "a-1").token
    servers.run(connection, "SELECT * FROM holdfast_meta")
    assert renew(store, "a-1", token) == "renewed"
    assert isinstance(take(store, "w-1", wait=True), Queued)
    assert store.execute_within(connection, Fence(KEY, "a-1", token)) == Fenced(token)
    asks = (
        lambda: take_within(store, connection, "b-1", "another"),
        lambda: store.execute_within(connection, Release(KEY, "a-1", token)),
    )
    (level,) = servers.run(connection, "SELECT replace(@@tx_isolation, '-', ' ')")[0]
    for ask in asks:
        if level == "READ COMMITTED":
            assert isinstance(ask(), Granted | Released)
        else:
            with pytest.raises(
                SettingsError, match=f"{level} with innodb_snapshot_isolation.*READ COMMITTED"
            ):
                ask()
    assert servers.run(connection, "SELECT @@in_transaction") == ((1,),)
    connection.commit()
    assert renew(store, "a-1", token) == ("lost" if level == "READ COMMITTED" else "renewed")


def test_a_fence_is_in_the_way_of_no_renewal_at_any_level(servers, store, connection):
    token = take(store, "a-1").token
    assert store.execute_within(connection, Fence(KEY, "a-1", token)) == Fenced(token)
    assert renew(store, "a-1", token) == "renewed"
    assert isinstance(take(store, "b-1", wait=True), Queued)
    assert store.execute_within(connection, Fence(KEY, "a-1", token)) == Fenced(token)


@pytest.mark.parametrize("what", ["taken", "released", "entered again", "left again", "refused a fence"])
def test_what_is_done_to_one_key_in_a_transaction_makes_no_other_busy(servers, store, connection, what):
    """At REPEATABLE READ InnoDB locks the gaps beside what it looks for in vain, or by range."""
    neighbours = ["a", "m1", "m3", "z"]
    for key in ("b", "m2", "y"):  # rows and holds around it
        for n in (1, 2):
            assert isinstance(take(store, f"{key}-{n}", key, owner=key), Granted)
    store.execute(Release("m2", "m2-2", token := take(store, "m2-1", "m2", owner="m2").token))
    if what == "left again":
        take(store, "m2-3", "m2", owner="m2")
        assert store.execute_within(connection, Release("m2", "m2-3", token)) == Released(1)
    elif what == "entered again":
        entered = store.execute_within(connection, Acquire("m2", "m2-4", "m2", 60.0, CLIENT))
        assert isinstance(entered, Granted)
    elif what == "released":
        assert store.execute_within(connection, Release("m2", "m2-1", token)) == Released()
    elif what == "taken":
        store.execute(Release("m2", "m2-1", token))
        assert isinstance(take_within(store, connection, "m2-5", "m2"), Granted)
    else:
        store.execute(Break("m2", reason="stuck", by="olga"))
        take(store, "m2-6", "m2")
        assert isinstance(store.execute_within(connection, Fence("m2", "m2-1", token)), NotHeld)
    for key in neighbours:
        granted = take(store, f"{key}-1", key, owner=key)
        assert isinstance(granted, Granted), key
        assert isinstance(take(store, f"{key}-2", key, owner=key), Granted), key
        assert isinstance(take(store, "other", key, wait=True), Queued), key
        assert store.execute(Release(key, f"{key}-2", granted.token, retire=True)) == Released(1), key
    for key in ("b", "y"):
        assert isinstance(take(store, f"{key}-3", key, owner=key), Granted), key
