"""Transactions of the caller's: fences, releases and grants that come with their commit (P4)."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import psycopg
import pymysql
import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from holdfast import (
    AsyncHoldfast,
    Holdfast,
    LeaseLost,
    LockTimeout,
    NotHeld,
    Settings,
    SettingsError,
    StoreUnavailable,
    raise_token,
)
from holdfast.core.requests import Fence
from holdfast.core.requests import NotHeld as Unheld
from holdfast.stores import _BUILT_IN
from holdfast.stores.sql.options import split_url
from tests.clients.support import PATIENCE, QUICK, eventually, until_renewed

STORES = ["sqlite", "postgres", *(["mariadb"] if "mysql" in _BUILT_IN else [])]


class Place:
    """A database that has both the locks and the caller's data, by one driver."""

    def __init__(self, url: str, connect: Callable[[], Any], engine_url: str) -> None:
        self.url = url
        self.connect = connect
        self.engine_url = engine_url

    def run(self, connection: Any, statement: str) -> Any:
        cursor = connection.cursor()
        cursor.execute(statement)
        found = cursor.fetchone()[0] if cursor.description else None
        cursor.close()
        return found


def place_of(store: str, request: pytest.FixtureRequest, folder: Path) -> Place:
    if store == "sqlite":
        file = folder / "locks.db"
        url = f"sqlite:///{file}?busy_timeout=0.3"
        return Place(url, lambda: sqlite3.connect(file, timeout=0.3), f"sqlite:///{file}")
    url = request.getfixturevalue(f"{store}_locks")
    plain = split_url(url)[0]
    if store == "postgres":
        engine_url = plain.replace("postgresql://", "postgresql+psycopg://")
        return Place(url, lambda: psycopg.connect(plain), engine_url)
    parts = sqlalchemy.make_url(plain)

    def connect() -> Any:
        return pymysql.connect(
            host=parts.host, port=parts.port, user=parts.username, database=parts.database, ssl_disabled=True
        )

    return Place(url, connect, f"{plain.replace('mysql://', 'mysql+pymysql://')}?ssl_disabled=true")


@pytest.fixture(params=STORES)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    place = place_of(request.param, request, tmp_path)
    with closing(place.connect()) as connection:
        place.run(connection, "DROP TABLE IF EXISTS account")
        place.run(connection, "CREATE TABLE account (balance INTEGER NOT NULL)")
        place.run(connection, "INSERT INTO account VALUES (0)")
        connection.commit()
    yield place
    with closing(place.connect()) as connection:
        place.run(connection, "DROP TABLE account")
        connection.commit()


@pytest.fixture
def locks(place: Place) -> Iterator[Holdfast]:
    with Holdfast(place.url, settings=QUICK) as locks:
        yield locks


@pytest.fixture
def connection(place: Place, locks: Holdfast) -> Iterator[Any]:
    with closing(place.connect()) as connection:
        yield connection


def test_a_fenced_transaction_commits_data_of_a_live_lease(place, locks, connection):
    with locks.hold("account:7") as lease:
        lease.fence(connection)
        place.run(connection, "UPDATE account SET balance = balance + 1")
        connection.commit()
        assert lease.held
    assert place.run(connection, "SELECT balance FROM account") == 1
    assert locks.inspect("account:7").state == "free"


def test_a_lease_that_was_taken_over_cannot_be_fenced(place, locks, connection):
    told = []
    lease = locks.acquire("account:7", ttl=0.1, renew=False, owner="a", on_lost=told.append)
    lease._holding.kept.trusted_until += 60.0  # a clock that is wrong, or a pause right after the check
    time.sleep(0.15)
    other = locks.acquire("account:7", owner="b")
    with pytest.raises(LeaseLost) as caught:
        lease.fence(connection)
    assert caught.value.reason in ("expired", "taken over")
    assert not lease.held
    eventually(lambda: told)
    connection.rollback()
    other.fence(connection)
    connection.rollback()
    other.release()


def test_who_is_refused_a_fence_does_not_wait_for_those_who_wait_for_its_transaction(tmp_path):
    """On SQLite all requests of a client share a connection, and whoever writes waits for the caller's."""

    file = tmp_path / "locks.db"
    with (
        Holdfast(f"sqlite:///{file}?busy_timeout={2 * PATIENCE}") as locks,
        closing(sqlite3.connect(file, isolation_level=None, check_same_thread=False)) as connection,
        ThreadPoolExecutor(2) as threads,
    ):
        lease = locks.acquire("k", ttl=600)
        locks.break_lock("k", reason="stuck")
        connection.execute("BEGIN IMMEDIATE")
        other = threads.submit(locks.try_acquire, "other")
        eventually(locks._engine.store.sessions.mutex.locked)
        fence = Fence("k", lease._holding.kept.grant.attempt, lease.token)
        try:
            refused = threads.submit(locks._engine.store.execute_within, connection, fence).result(PATIENCE)
        finally:
            connection.rollback()
        assert isinstance(refused, Unheld)
        assert refused.why == "broken"
        assert other.result() is not None


def test_a_break_keeps_a_transaction_from_being_fenced(locks, connection):
    lease = locks.acquire("account:7", renew=False)
    locks.break_lock("account:7", reason="stuck", by="olga")
    with pytest.raises(LeaseLost) as caught:
        lease.fence(connection)
    assert (caught.value.reason, caught.value.by) == ("broken", "olga")


def test_a_lease_can_be_released_with_the_commit(place, locks, connection):
    with locks.hold("account:7") as lease:
        lease.fence(connection)
        place.run(connection, "UPDATE account SET balance = balance + 1")
        lease.release(within=connection)
        connection.commit()
    assert locks.inspect("account:7").state == "free"
    assert place.run(connection, "SELECT balance FROM account") == 1


def test_the_block_may_end_before_the_transaction_that_releases(locks, connection):
    with locks.hold("account:7") as lease:
        lease.release(within=connection)
    connection.commit()
    assert locks.inspect("account:7").state == "free"
    with pytest.raises(NotHeld):
        lease.release()


def test_a_release_that_is_rolled_back_leaves_the_lease_in_our_hands(locks, connection):
    lease = locks.acquire("account:7", ttl=2)
    lease.release(within=connection)
    connection.rollback()
    until_renewed(lease)
    lease.check()
    lease.release()
    assert locks.inspect("account:7").state == "free"


def test_a_lease_that_was_released_with_a_commit_ends_without_a_word(locks, connection):
    told = []
    lease = locks.acquire("account:7", ttl=0.3, on_lost=told.append)
    lease.release(within=connection)
    connection.commit()
    eventually(lambda: not lease.held)
    lease.release()  # the transaction has done it, which is what was wanted
    assert told == []


def test_a_lock_can_be_taken_with_the_commit(place, locks, connection):
    """R9: lock and data in one transaction."""
    lease = locks.acquire("account:7", within=connection, ttl=2)
    place.run(connection, "UPDATE account SET balance = 7")
    connection.commit()
    assert locks.inspect("account:7").holder.token == lease.token
    until_renewed(lease)  # as any other
    lease.check()
    lease.release()


def test_a_lock_can_be_taken_with_the_commit_as_the_first_thing_of_all(tmp_path):
    """An async client opens its file when it first needs it."""

    async def play() -> None:
        locks = AsyncHoldfast(url)
        with closing(sqlite3.connect(file, isolation_level=None)) as connection:
            connection.execute("BEGIN")
            lease = await locks.acquire("k", within=connection)
            connection.execute("COMMIT")
        await lease.release()
        await locks.close()

    file = tmp_path / "locks.db"
    url = f"sqlite:///{file}"
    Holdfast(url).close()  # its tables are there
    asyncio.run(play())


def test_a_grant_that_is_rolled_back_is_lost(locks, connection):
    lease = locks.acquire("account:7", within=connection, ttl=0.3)
    connection.rollback()
    assert locks.inspect("account:7") is None
    eventually(lambda: not lease.held)
    with pytest.raises(LeaseLost):
        lease.release()


def test_nobody_waits_inside_a_transaction(locks, connection):
    lease = locks.acquire("account:7", owner="a")
    with pytest.raises(LockTimeout, match="is held by a"):
        locks.acquire("account:7", owner="b", within=connection)
    connection.rollback()
    assert locks.try_acquire("account:7", owner="b", within=connection) is None
    connection.rollback()
    with pytest.raises(SettingsError, match="nobody waits inside a transaction"):
        locks.acquire("account:7", owner="b", within=connection, timeout=5)
    lease.release()


def test_without_a_transaction_there_is_nothing_to_be_part_of(place, locks):
    with locks.hold("account:7") as lease, closing(place.connect()) as connection:
        if isinstance(connection, sqlite3.Connection):
            connection.isolation_level = None
        elif isinstance(connection, psycopg.Connection):
            connection.autocommit = True
        else:
            connection.autocommit(True)
        for ask in (lease.fence, lambda conn: lease.release(within=conn)):
            with pytest.raises(SettingsError, match="no transaction"):
                ask(connection)


def test_a_connection_to_another_database_is_refused(place, locks, tmp_path):
    foreign = sqlite3.connect(tmp_path / "foreign.db")
    with locks.hold("account:7") as lease, closing(foreign):
        with pytest.raises(SettingsError, match=r"another database|no part in locks"):
            lease.fence(foreign)
        with Holdfast(f"sqlite:///{tmp_path}/foreign.db"):  # now it has the tables, and still not the lock
            pass
        with pytest.raises(SettingsError, match=r"another database|no part in locks"):
            lease.fence(foreign)
        assert lease.held


def test_sqlalchemy_knows_of_the_transaction_that_a_fence_begins(place, locks):
    engine = sqlalchemy.create_engine(place.engine_url)
    update = sqlalchemy.text("UPDATE account SET balance = balance + 1")
    with locks.hold("account:7") as lease:
        with engine.begin() as connection:
            lease.fence(connection)
            connection.execute(update)
        with Session(engine) as session:
            lease.fence(session)
            session.execute(update)
            session.commit()
        with engine.connect() as connection:
            lease.release(within=connection)
            assert connection.in_transaction()
            connection.commit()
        with engine.connect() as connection:
            assert connection.scalar(sqlalchemy.text("SELECT balance FROM account")) == 2
    assert locks.inspect("account:7").state == "free"
    autocommit = engine.execution_options(isolation_level="AUTOCOMMIT")
    with (
        locks.hold("account:7") as lease,
        autocommit.connect() as connection,
        pytest.raises(SettingsError, match="no transaction"),
    ):
        lease.fence(connection)
    engine.dispose()


def test_a_snapshot_from_before_the_lease_is_too_old(place, locks, connection):
    """Under REPEATABLE READ it would read what another holder has changed since."""
    if isinstance(connection, sqlite3.Connection):
        place.run(connection, "BEGIN")
    elif isinstance(connection, psycopg.Connection):
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    assert place.run(connection, "SELECT balance FROM account") == 0
    with locks.hold("account:7") as lease:
        with pytest.raises(Exception, match=r"does not see the lease|locked|could not serialize") as caught:
            lease.fence(connection)
        assert not isinstance(caught.value, LeaseLost)
        connection.rollback()
        lease.fence(connection)
        connection.rollback()


def test_a_token_is_raised_on_a_resource_elsewhere(place, locks, connection):
    place.run(connection, "DROP TABLE IF EXISTS holdfast_fences")
    place.run(
        connection, "CREATE TABLE holdfast_fences (resource VARCHAR(255) PRIMARY KEY, token BIGINT NOT NULL)"
    )
    connection.commit()
    with Holdfast("memory://") as elsewhere:
        old = elsewhere.acquire("account:7", owner="a")
        raise_token(connection, old)
        raise_token(connection, old)
        connection.commit()
        old._holding.kept.trusted_until += 60.0
        elsewhere.break_lock("account:7", reason="stuck")
        assert old.lost.wait(20)
        new = elsewhere.acquire("account:7", owner="b")
        raise_token(connection, new)
        connection.commit()
        old._holding.kept.lost = None  # it has not heard of it
        with pytest.raises(LeaseLost, match="the resource has seen a newer token"):
            raise_token(connection, old)
        connection.rollback()
        raise_token(connection, new)
        raise_token(connection, old, resource="another")
        connection.commit()
        with pytest.raises(SettingsError, match="no name of a table"):
            raise_token(connection, new, table="a; DROP TABLE b")
    place.run(connection, "DROP TABLE holdfast_fences")
    connection.commit()


@pytest.fixture
def fences(place):
    """The documented table, where a resource remembers the highest token."""
    with closing(place.connect()) as connection:
        place.run(connection, "DROP TABLE IF EXISTS holdfast_fences")
        place.run(
            connection,
            "CREATE TABLE holdfast_fences (resource VARCHAR(255) PRIMARY KEY, token BIGINT NOT NULL)",
        )
        connection.commit()
        yield "holdfast_fences"
        connection.rollback()
        place.run(connection, "DROP TABLE holdfast_fences")
        connection.commit()


@pytest.mark.parametrize("by", ["connection", "session"])
def test_no_token_is_raised_in_a_nested_block_of_sqlalchemy(place, fences, by):
    """ROLLBACK TO SAVEPOINT took it back, and the transaction went on without it: an update was lost."""
    engine = sqlalchemy.create_engine(place.engine_url)
    with Holdfast("memory://") as locks, engine.connect() as connection, Session(engine) as session:
        lease = locks.acquire("account:7")
        given = session if by == "session" else connection
        with given.begin():
            with given.begin_nested():
                with pytest.raises(SettingsError, match="before the savepoint"):
                    raise_token(given, lease)
                if by == "connection":
                    with Session(connection) as inside, pytest.raises(SettingsError, match="savepoint"):
                        raise_token(inside, lease)
            raise_token(given, lease)
    engine.dispose()


@pytest.fixture
def postgres(postgres_locks):
    with psycopg.connect(split_url(postgres_locks)[0]) as connection:
        connection.execute(
            "CREATE TABLE holdfast_fences (resource VARCHAR(255) PRIMARY KEY, token BIGINT NOT NULL)"
        )
        connection.execute("CREATE VIEW by_view AS SELECT * FROM holdfast_fences")
        connection.execute(
            "CREATE TABLE by_parts (LIKE holdfast_fences INCLUDING ALL) PARTITION BY HASH (resource)"
        )
        connection.execute("CREATE TABLE part PARTITION OF by_parts FOR VALUES WITH (MODULUS 1, REMAINDER 0)")
        connection.commit()
        yield connection
        connection.rollback()
        connection.execute("DROP VIEW by_view")
        connection.execute("DROP TABLE holdfast_fences, by_parts")


@pytest.mark.parametrize("table", ["holdfast_fences", "by_view", "by_parts"])
@pytest.mark.parametrize("known", [False, True])
def test_no_token_is_raised_inside_a_savepoint_by_sql(postgres, table, known):
    """The server itself is asked, so it does not matter who has set the savepoint."""
    with Holdfast("memory://") as locks:
        if known:
            raise_token(postgres, locks.acquire("account:7", renew=False, owner="me"), table=table)
            postgres.commit()
        lease = locks.acquire("account:7", owner="me")
        for first in ("SELECT 1", "CREATE TEMPORARY TABLE mine (number integer)"):
            postgres.execute("SAVEPOINT one")
            postgres.execute(first)
            with pytest.raises(SettingsError, match="before the savepoint"):
                raise_token(postgres, lease, table=table)
            postgres.execute("ROLLBACK TO SAVEPOINT one")
            with pytest.raises(SettingsError, match="before the savepoint"):  # it is still there
                raise_token(postgres, lease, table=table)
            postgres.execute("ROLLBACK TO SAVEPOINT one")
            postgres.execute("RELEASE SAVEPOINT one")
            raise_token(postgres, lease, table=table)
            postgres.rollback()
        raise_token(postgres, lease, table=table)
        with pytest.raises(SettingsError, match="before the savepoint"), postgres.transaction():
            raise_token(postgres, lease, table=table)


def test_no_update_is_lost_whatever_pauses_do(place):
    """P4: leases run out in the middle of everything, and only who could fence was acknowledged."""
    acknowledged = []
    settings = Settings(margin=0.02, heartbeat=0.05, claim=0.2, patience=1.0)
    url = place.url.replace("busy_timeout=0.3", "busy_timeout=20")  # writing may be slow, and is in turn

    def connect() -> Any:
        connection = place.connect()
        if url.startswith("sqlite:"):
            connection.execute("PRAGMA busy_timeout = 20000")
        return connection

    def work(name: str) -> None:
        with Holdfast(url, settings=settings) as locks, closing(connect()) as connection:
            for turn in range(6):
                with suppress(LeaseLost, StoreUnavailable):  # too slow for a tenth of a second, thrice
                    ttl = 0.1 if turn % 2 else 60.0  # those are in time, however busy the machine is
                    lease = locks.acquire("account:7", owner=name, ttl=ttl, renew=False, timeout=20)
                    if turn % 2:
                        lease._holding.kept.trusted_until += 60.0  # we do not know …
                        time.sleep(0.12)  # … that we are past the lease: somebody else has the lock by now
                    try:
                        lease.fence(connection)
                        balance = place.run(connection, "SELECT balance FROM account")
                        place.run(connection, f"UPDATE account SET balance = {balance + 1}")
                        connection.commit()
                        acknowledged.append(name)
                    finally:
                        connection.rollback()
                        with suppress(LeaseLost):
                            lease.release()

    threads = [threading.Thread(target=work, args=(f"w{n}",)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    with closing(place.connect()) as connection:
        assert place.run(connection, "SELECT balance FROM account") == len(acknowledged)
    assert len(acknowledged) >= 12  # those who were in time


def test_asyncio_drivers_can_fence_as_well(postgres_locks):
    plain = split_url(postgres_locks)[0]

    async def main() -> None:
        engine = create_async_engine(plain.replace("postgresql://", "postgresql+psycopg://"))
        async with (
            AsyncHoldfast(postgres_locks, settings=QUICK) as locks,
            await psycopg.AsyncConnection.connect(plain) as connection,
        ):
            async with locks.hold("account:7", ttl=2) as lease:
                await lease.fence(connection)
                await asyncio.to_thread(until_renewed, lease)
                await connection.commit()
                async with engine.begin() as other:
                    await lease.fence(other)
                async with AsyncSession(engine) as session:
                    await lease.fence(session)
                    await session.commit()
                with psycopg.connect(plain) as blocking:
                    await lease.fence(blocking)
                await lease.release(within=connection)
                await connection.commit()
            assert (await locks.inspect("account:7")).state == "free"
            lease = await locks.acquire("account:7", within=connection)
            await connection.commit()
            assert (await locks.inspect("account:7")).holder.token == lease.token
            await lease.release()
            with pytest.raises(SettingsError, match="no connection that holdfast knows"):
                async with locks.hold("account:7") as lease:
                    await lease.fence(object())
        await engine.dispose()

    asyncio.run(main())


# What a transaction has read before must not decide: at REPEATABLE READ it still reads that.


def test_a_lock_that_was_taken_since_the_transaction_began_is_not_taken_again(place, locks, connection):
    locks.acquire("nightly", owner="before").release()
    place.run(connection, "SELECT balance FROM account")
    holder = locks.acquire("nightly", owner="holder")
    with pytest.raises(LockTimeout):
        locks.acquire("nightly", owner="me", within=connection)
    connection.rollback()
    holder.check()
    holder.release()


def test_a_release_in_a_transaction_forgets_none_of_those_who_queued_meanwhile(place, locks, connection):
    lease = locks.acquire("nightly", owner="me")
    lease.fence(connection)
    place.run(connection, "SELECT balance FROM account")
    served: list[int] = []

    def wait(n: int) -> None:
        with Holdfast(place.url, settings=QUICK) as mine, mine.hold("nightly", timeout=20):
            served.append(n)

    waiting = []
    if not place.url.startswith("sqlite"):  # there nobody can queue while somebody fences
        for n in range(3):
            waiting.append(threading.Thread(target=wait, args=(n,)))
            waiting[-1].start()
            eventually(lambda n=n: locks.inspect("nightly").waiting == n + 1)
    lease.release(within=connection)
    connection.commit()
    for each in waiting:
        each.join()
    assert served == list(range(len(waiting)))
    view = locks.inspect("nightly")
    assert (view.state, view.waiting) == ("free", 0)


def test_a_reader_that_leaves_in_a_transaction_takes_no_other_reader_with_it(place, locks, connection):
    first = locks.acquire("table", owner="first", mode="shared")
    if place.url.startswith("mysql"):
        place.run(connection, "SELECT balance FROM account")
    second = locks.acquire("table", owner="second", mode="shared")
    first.release(within=connection)
    connection.commit()
    assert locks.try_acquire("table", owner="writer") is None
    second.check()
    second.release()
    locks.acquire("table", owner="writer", timeout=0).release()


def test_what_a_transaction_has_done_to_a_lock_itself_counts(place, locks, connection):
    outer = locks.acquire("nightly", owner="me", within=connection)
    inner = locks.acquire("nightly", owner="me", within=connection)
    assert inner.token == outer.token
    inner.release(within=connection)
    outer.release(within=connection)
    connection.commit()
    view = locks.inspect("nightly")
    assert (view.state, view.holds) == ("free", 0)


def test_a_permit_that_is_given_back_in_a_transaction_goes_to_who_waits(place, locks, connection):
    """Nobody is handed it before the commit, and another permit is still held then."""
    first = locks.acquire("gpu", owner="first", permits=2)
    second = locks.acquire("gpu", owner="second", permits=2)
    with Holdfast(place.url, settings=QUICK) as elsewhere:
        waiting: list[Any] = []
        waiter = threading.Thread(
            target=lambda: waiting.append(elsewhere.acquire("gpu", permits=2, owner="third"))
        )
        waiter.start()
        eventually(lambda: locks.inspect("gpu").waiting == 1)
        first.release(within=connection)
        connection.commit()
        waiter.join(30)
        assert waiting
        second.check()
        waiting[0].release()
    second.release()


def test_readers_come_in_after_a_downgrade_in_a_fenced_transaction(place, locks, connection):
    lease = locks.acquire("table", owner="writer")
    with Holdfast(place.url, settings=QUICK) as elsewhere:
        waiting: list[Any] = []
        reader = threading.Thread(
            target=lambda: waiting.append(elsewhere.acquire("table", mode="shared", owner="reader"))
        )
        reader.start()
        eventually(lambda: locks.inspect("table").waiting == 1)
        lease.fence(connection)
        if place.url.startswith("sqlite"):  # there nobody else writes while somebody fences
            connection.commit()
        lease.downgrade()
        connection.commit()
        reader.join(30)
        assert waiting
        waiting[0].release()
    lease.release()
