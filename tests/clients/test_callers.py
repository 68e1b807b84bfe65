"""Callers' connections in all the ways they can be set: what is asked there holds, or is refused."""

from __future__ import annotations

import asyncio
import sqlite3
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pymysql
import pytest
import sqlalchemy
from psycopg.rows import dict_row
from pymysql.constants import SERVER_STATUS
from sqlalchemy.ext.asyncio import create_async_engine

from holdfast import (
    AsyncHoldfast,
    Holdfast,
    Lease,
    LeaseLost,
    SettingsError,
    StoreMisconfigured,
    raise_token,
)
from holdfast.stores.sql.options import split_url
from tests.clients.support import QUICK

KEY = "Zoë:東:🔒"
FENCES = "CREATE TABLE holdfast_fences (resource {} PRIMARY KEY, token BIGINT NOT NULL)"
OF_3_12 = pytest.mark.skipif(sys.version_info < (3, 12), reason="sqlite3 has autocommit= from Python 3.12 on")


def state(locks: Holdfast, key: str = KEY) -> str:
    view = locks.inspect(key)
    return "none" if view is None else view.state


def all_work(
    locks: Holdfast, connection: Any, key: str = KEY, begin: Callable[[], Any] = lambda: None
) -> None:
    """See that all that can be asked within a transaction has its effect, and no earlier than the commit."""
    begin()
    lease = locks.acquire(key, within=connection, owner="Zoë")
    connection.rollback()
    assert state(locks, key) == "none"
    begin()
    lease = locks.acquire(key, within=connection, owner="Zoë")
    connection.commit()
    assert state(locks, key) == "held"
    begin()
    lease.fence(connection)
    connection.commit()
    begin()
    lease.release(within=connection)
    connection.rollback()
    assert state(locks, key) == "held"
    begin()
    lease.release(within=connection)
    connection.commit()
    assert state(locks, key) == "free"


def over(driver: str, url: str) -> str:
    scheme, rest = split_url(url)[0].split("://")
    return f"{scheme}+{driver}://{rest}"


def fence(locks: Holdfast, lease: Lease, connection: Any) -> None:
    lease.fence(connection)


def release(locks: Holdfast, lease: Lease, connection: Any) -> None:
    lease.release(within=connection)


def acquire(locks: Holdfast, lease: Lease, connection: Any) -> None:
    locks.acquire("other", within=connection)


def raising(locks: Holdfast, lease: Lease, connection: Any) -> None:
    raise_token(connection, lease)


Ask = Callable[[Holdfast, Lease, Any], None]
ASKS: tuple[Ask, ...] = (fence, release, acquire, raising)


# SQLite.


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "locks.db"


@pytest.fixture
def in_file(file: Path) -> Iterator[Holdfast]:
    with Holdfast(f"sqlite:///{file}?busy_timeout=0.3", settings=QUICK) as locks:
        with closing(sqlite3.connect(file)) as connection:
            connection.execute(FENCES.format("TEXT"))
        yield locks


@pytest.mark.parametrize("ask", ASKS)
@pytest.mark.parametrize(
    "options", [{"isolation_level": None}, pytest.param({"autocommit": True}, marks=OF_3_12)]
)
def test_a_file_whose_statements_are_committed_one_by_one_is_refused(
    file: Path, in_file: Holdfast, ask: Ask, options: Any
) -> None:
    engine = sqlalchemy.create_engine(f"sqlite:///{file}", connect_args=options)
    with in_file.hold(KEY) as lease:
        with closing(sqlite3.connect(file, **options)) as connection:
            with pytest.raises(SettingsError, match="no transaction"):
                ask(in_file, lease, connection)
            connection.execute("BEGIN IMMEDIATE")
            ask(in_file, lease, connection)
            assert connection.in_transaction
            connection.execute("ROLLBACK")
        with engine.connect() as theirs, pytest.raises(SettingsError, match="no transaction"):
            ask(in_file, lease, theirs)
    engine.dispose()


@OF_3_12
@pytest.mark.parametrize("autocommit", [False, -1])
def test_a_file_that_is_in_a_transaction_by_itself_is_as_good_as_any(
    file: Path, in_file: Holdfast, autocommit: Any
) -> None:
    options = {"autocommit": autocommit}  # unknown to older ones
    with closing(sqlite3.connect(file, **options)) as connection:  # type: ignore[call-overload]
        # It reads before it writes, and who has read cannot write any more once another has written.
        write = partial(connection.execute, "UPDATE holdfast_fences SET token = token")
        all_work(in_file, connection, begin=write)


@pytest.mark.parametrize("rows", [None, sqlite3.Row, lambda _, row: {"row": row}])
@pytest.mark.parametrize("text", [str, bytes, lambda value: ("text", value)])
def test_what_a_file_makes_of_rows_and_text_does_not_matter(
    file: Path, in_file: Holdfast, rows: Any, text: Any
) -> None:
    with closing(sqlite3.connect(file)) as connection:
        connection.row_factory, connection.text_factory = rows, text
        all_work(in_file, connection)
        with in_file.hold(KEY) as lease:
            raise_token(connection, lease)
            connection.commit()
        assert (connection.row_factory, connection.text_factory) == (rows, text)


# PostgreSQL.


def test_a_pipeline_is_as_good_as_any_connection(postgres_locks: str) -> None:
    with (
        Holdfast(postgres_locks, settings=QUICK) as locks,
        psycopg.connect(split_url(postgres_locks)[0]) as connection,
    ):
        with connection.pipeline():
            all_work(locks, connection)
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_a_pipeline_without_a_transaction_is_refused(postgres_locks: str) -> None:
    with (
        Holdfast(postgres_locks, settings=QUICK) as locks,
        locks.hold(KEY) as lease,
        psycopg.connect(split_url(postgres_locks)[0], autocommit=True) as connection,
        connection.pipeline(),
    ):
        connection.execute("SELECT 1")  # under way, and not known to be no transaction
        with pytest.raises(SettingsError, match="no transaction"):
            lease.fence(connection)
        with connection.transaction():
            lease.fence(connection)


def test_a_pipeline_of_tasks_is_as_good_as_any_connection(postgres_locks: str) -> None:
    async def main() -> None:
        async with (
            AsyncHoldfast(postgres_locks, settings=QUICK) as locks,
            await psycopg.AsyncConnection.connect(split_url(postgres_locks)[0]) as connection,
            connection.pipeline(),
        ):
            lease = await locks.acquire(KEY, within=connection)
            await connection.commit()
            await lease.fence(connection)
            await lease.release(within=connection)
            await connection.commit()
            view = await locks.inspect(KEY)
            assert view is not None
            assert view.state == "free"
            await connection.set_autocommit(True)
            async with locks.hold(KEY) as lease:
                await connection.execute("SELECT 1")
                with pytest.raises(SettingsError, match="no transaction"):
                    await lease.fence(connection)
                async with connection.transaction():
                    await lease.fence(connection)

    asyncio.run(main())


@pytest.mark.parametrize("cursors", [psycopg.Cursor, psycopg.ClientCursor, psycopg.RawCursor])
def test_what_a_connection_makes_of_rows_and_statements_does_not_matter(
    postgres_locks: str, cursors: Any
) -> None:
    with (
        Holdfast(postgres_locks, settings=QUICK) as locks,
        psycopg.connect(
            split_url(postgres_locks)[0], row_factory=dict_row, cursor_factory=cursors
        ) as connection,
    ):
        all_work(locks, connection)


def test_an_encoding_that_lacks_a_keys_characters_is_refused(postgres_locks: str) -> None:
    plain = split_url(postgres_locks)[0]
    engine = sqlalchemy.create_engine(
        plain.replace("postgresql://", "postgresql+psycopg://"), connect_args={"client_encoding": "latin1"}
    )
    with (
        Holdfast(postgres_locks, settings=QUICK) as locks,
        psycopg.connect(plain, client_encoding="latin1") as connection,
        engine.connect() as other,
    ):
        all_work(locks, connection, "Zoë")
        for theirs in (connection, other):
            with locks.hold("東") as lease, pytest.raises(SettingsError, match=r"client_encoding.*UTF8"):
                lease.fence(theirs)
            theirs.rollback()
        with locks.hold("Zoë", owner="東") as lease:
            with pytest.raises(StoreMisconfigured, match=r"client_encoding.*UTF8"):
                lease.release(within=connection)
            connection.rollback()
    engine.dispose()
    with (
        Holdfast(postgres_locks, settings=QUICK) as locks,
        psycopg.connect(plain, client_encoding="sql_ascii") as connection,
    ):
        all_work(locks, connection)


# MySQL and MariaDB.


def connect(url: str, **options: Any) -> Any:
    parts = sqlalchemy.make_url(split_url(url)[0])
    return pymysql.connect(
        host=parts.host or "",
        port=parts.port or 0,
        user=parts.username,
        database=parts.database,
        ssl_disabled=True,
        **options,
    )


def test_a_character_set_that_means_other_keys_is_refused(mariadb_locks: str) -> None:
    with Holdfast(mariadb_locks, settings=QUICK) as locks:
        lease = locks.acquire("Zoë")
        for options in (
            {"charset": "latin1"},
            {"charset": "utf8mb3"},
            {"init_command": "SET NAMES latin1"},
            {"init_command": "SET character_set_results = latin1"},
            {"charset": "latin1", "init_command": "SET NAMES utf8mb4"},
        ):
            with closing(connect(mariadb_locks, **options)) as connection:
                for ask in ASKS:
                    with pytest.raises(SettingsError, match="utf8mb4"):
                        ask(locks, lease, connection)
        engine = sqlalchemy.create_engine(
            f"{over('pymysql', mariadb_locks)}?ssl_disabled=true&charset=latin1"
        )
        with engine.connect() as theirs, pytest.raises(SettingsError, match="utf8mb4"):
            lease.fence(theirs)
        engine.dispose()
        lease.release()
        with closing(connect(mariadb_locks)) as connection:
            all_work(locks, connection)
        with closing(connect(mariadb_locks, cursorclass=pymysql.cursors.DictCursor)) as connection:
            all_work(locks, connection, "東")


def test_a_transaction_that_a_deadlock_has_ended_is_none(mariadb_locks: str) -> None:
    """An answer that is an error does not tell of it, and PyMySQL goes by the last that did."""
    with (
        Holdfast(mariadb_locks, settings=QUICK) as locks,
        locks.hold(KEY) as lease,
        closing(connect(mariadb_locks, autocommit=True)) as connection,
        closing(connect(mariadb_locks)) as other,
    ):
        mine, others = connection.cursor(), other.cursor()
        mine.execute(FENCES.format("VARBINARY(1020)"))
        mine.execute("CREATE TABLE numbers (id INTEGER PRIMARY KEY, number INTEGER NOT NULL)")
        mine.execute("INSERT INTO numbers VALUES (1, 0), (2, 0)")
        try:
            mine.execute("BEGIN")
            mine.execute("UPDATE numbers SET number = 1 WHERE id = 1")
            # Who has written more is spared.
            others.executemany("INSERT INTO numbers VALUES (%s, 0)", [(n,) for n in range(3, 99)])
            others.execute("UPDATE numbers SET number = 1 WHERE id = 2")
            waiting = threading.Thread(
                target=others.execute, args=("UPDATE numbers SET number = 2 WHERE id = 1",)
            )
            waiting.start()
            with pytest.raises(pymysql.MySQLError, match="1213"):
                mine.execute("UPDATE numbers SET number = 2 WHERE id = 2")
            waiting.join()
            other.rollback()
            assert connection.server_status & SERVER_STATUS.SERVER_STATUS_IN_TRANS  # as it was before
            for ask in ASKS:
                with pytest.raises(SettingsError, match="no transaction"):
                    ask(locks, lease, connection)
            for begin, *end in (
                ("BEGIN", "ROLLBACK"),
                ("XA START 'theirs'", "XA END 'theirs'", "XA ROLLBACK 'theirs'"),
            ):
                mine.execute(begin)
                raise_token(connection, lease)
                for statement in end:
                    mine.execute(statement)
        finally:
            connection.rollback()
            mine.execute("DROP TABLE numbers, holdfast_fences")


@pytest.fixture
def fences(mariadb_locks: str) -> Iterator[Any]:
    with closing(connect(mariadb_locks)) as connection:
        yield connection
        connection.cursor().execute("DROP TABLE holdfast_fences")


def documented_table() -> str:
    """Return the table that the documentation has for MySQL."""
    page = Path("docs/howto/fence-a-resource.md").read_text()
    return next(line for line in page.splitlines() if line.startswith("CREATE TABLE") and "VARBINARY" in line)


def test_keys_that_differ_in_case_are_two_resources(fences: Any) -> None:
    fences.cursor().execute(documented_table())
    with Holdfast("memory://") as locks:
        old, new = locks.acquire("account"), locks.acquire("ACCOUNT")
        assert old.token < new.token
        raise_token(fences, new)
        raise_token(fences, old)
        for odd in (KEY, "account ", "áccount"):
            raise_token(fences, old, resource=odd)
        fences.commit()
        newest = locks.acquire("newest")
        raise_token(fences, newest, resource=KEY)
        with pytest.raises(LeaseLost, match="newer token"):
            raise_token(fences, old, resource=KEY)
        fences.rollback()


def test_a_table_that_takes_two_keys_for_one_is_refused(fences: Any) -> None:
    fences.cursor().execute(FENCES.format("VARCHAR(255)"))
    with Holdfast("memory://") as locks:
        old, new = locks.acquire("account"), locks.acquire("ACCOUNT")
        raise_token(fences, new)
        raise_token(fences, new)
        with pytest.raises(SettingsError, match=r"'account' and 'ACCOUNT' as one.*VARBINARY"):
            raise_token(fences, old)
        fences.rollback()


# SQLAlchemy over others.


def test_psycopg2_below_sqlalchemy_is_as_good_as_any(postgres_locks: str) -> None:
    pytest.importorskip("psycopg2")
    engine = sqlalchemy.create_engine(over("psycopg2", postgres_locks))
    with Holdfast(postgres_locks, settings=QUICK) as locks:
        with engine.connect() as theirs:
            all_work(locks, theirs)
        with locks.hold(KEY) as lease:
            with (
                engine.execution_options(isolation_level="AUTOCOMMIT").connect() as theirs,
                pytest.raises(SettingsError, match="no transaction"),
            ):
                lease.fence(theirs)
            with engine.connect() as theirs:
                theirs.exec_driver_sql("SET search_path TO nowhere")
                with pytest.raises(SettingsError, match="another database"):
                    lease.fence(theirs)
    engine.dispose()


def test_asyncpg_below_sqlalchemy_is_refused(postgres_locks: str) -> None:
    pytest.importorskip("asyncpg")

    async def main() -> None:
        engine = create_async_engine(over("asyncpg", postgres_locks))
        async with (
            AsyncHoldfast(postgres_locks, settings=QUICK) as locks,
            locks.hold(KEY) as lease,
            engine.connect() as theirs,
        ):
            for asking in (
                lease.fence(theirs),
                lease.release(within=theirs),
                locks.acquire("other", within=theirs),
                theirs.run_sync(raise_token, lease),
            ):
                with pytest.raises(SettingsError, match="SQLAlchemy over asyncpg is no connection"):
                    await asking
            assert (await theirs.execute(sqlalchemy.text("SELECT 1"))).scalar() == 1  # it is as it was
        await engine.dispose()

    asyncio.run(main())
