"""Addresses that people have already: urls and engines as SQLAlchemy has them."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pymysql
import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import create_async_engine

from holdfast import AsyncHoldfast, Holdfast, SettingsError
from holdfast.stores import address_of, addresses
from holdfast.stores.sql.options import split_url

DRIVERS = [(database, driver) for database, drivers in addresses.DRIVERS.items() for driver in drivers]
SECRET = "p@:/ß +%3?#"
NASTY = "p%40%3A%2F%C3%9F%20%2B%253%3F%23"


@pytest.mark.parametrize(("database", "driver"), sorted(DRIVERS))
def test_the_driver_that_a_url_names_does_not_matter(database: str, driver: str) -> None:
    place = "//locks.db" if database == "sqlite" else "//app:secret@db.internal:7777/app?prefix=locks_"
    assert address_of(f"{database.title()}+{driver.upper()}:{place}") == f"{database}:{place}"


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("postgresql+psycopg://app@db/app", "postgresql://app@db/app"),
        ("postgresql+psycopg://app:a/b?c#d@db/app", "postgresql://app:a%2Fb%3Fc%23d@db/app"),
        ("postgresql+psycopg://me@tenant:a%40b@db/app", "postgresql://me%40tenant:a%40b@db/app"),
        ("postgresql+psycopg://app:@db/app", "postgresql://app:@db/app"),
        ("postgresql+psycopg://one:1,two:2/app", "postgresql://one:1,two:2/app"),
        ("postgresql+psycopg://[::1]:5432/app", "postgresql://[::1]:5432/app"),
        ("postgresql+psycopg:///app?host=/run/pg", "postgresql:///app?host=/run/pg"),
        ("postgresql+psycopg://db/app?application_name=a+b", "postgresql://db/app?application_name=a%20b"),
        ("postgresql+asyncpg://db/app?ssl=verify-full", "postgresql://db/app?sslmode=verify-full"),
        ("postgresql+asyncpg://db/app?prepared_statement_cache_size=0", "postgresql://db/app"),
        (
            "mysql+pymysql://db/app?ssl_ca=ca.pem",
            "mysql://db/app?ssl_ca=ca.pem&ssl_verify_cert=yes&ssl_verify_identity=yes",
        ),
        (
            "mysql+pymysql://db/app?ssl_ca=ca.pem&ssl_check_hostname=false",
            "mysql://db/app?ssl_ca=ca.pem&ssl_verify_identity=false&ssl_verify_cert=yes",
        ),
        ("sqlite+pysqlite:///a.db", "sqlite:///a.db"),
        ("sqlite+aiosqlite:////var/a.db", "sqlite:////var/a.db"),
        ("postgresql://app:a/b@db/app", "postgresql://app:a/b@db/app"),  # ours already: letter by letter
        ("redis+tls://cache", "redis+tls://cache"),
    ],
)
def test_a_url_in_their_spelling_means_what_it_means_there(theirs: str, ours: str) -> None:
    assert address_of(theirs) == ours


@pytest.mark.parametrize(
    ("parts", "ours"),
    [
        (("postgresql+psycopg", "app", SECRET, "db", 5432, "app"), f"postgresql://app:{NASTY}@db:5432/app"),
        (("postgresql", "a@b", None, "::1", None, "app"), "postgresql://a%40b@[::1]/app"),
        (("mysql+mysqldb", "app", SECRET, "db", None, "a b"), f"mysql://app:{NASTY}@db/a%20b"),
        (("sqlite", None, None, None, None, "/var/a b#.db"), "sqlite:////var/a%20b%23.db"),
        (("sqlite+pysqlite", None, None, None, None, "a.db"), "sqlite:///a.db"),
    ],
)
def test_a_url_object_keeps_its_password(parts: Any, ours: str) -> None:
    assert address_of(sqlalchemy.URL.create(*parts)) == ours


def test_the_options_of_a_url_object_stay() -> None:
    query = {"options": "-c search_path=a+b", "prefix": "locks_"}
    url = sqlalchemy.URL.create("postgresql+psycopg", host="db", database="app", query=query)
    assert address_of(url) == "postgresql://db/app?options=-c%20search_path%3Da%2Bb&prefix=locks_"
    url = sqlalchemy.make_url("mysql://db/app?ssl_ca=ca.pem")
    assert address_of(url) == "mysql://db/app?ssl_ca=ca.pem&ssl_verify_cert=yes&ssl_verify_identity=yes"


def over(driver: str, url: str) -> str:
    scheme, rest = url.split("://")
    return f"{scheme}+{driver}://{rest}"


@pytest.mark.parametrize("driver", ["psycopg", "psycopg2", "asyncpg"])
def test_locks_by_their_url_are_the_locks_by_ours_on_postgresql(postgres_locks: str, driver: str) -> None:
    are_the_same(over(driver, postgres_locks), postgres_locks)


@pytest.mark.parametrize("driver", ["pymysql", "mysqldb", "aiomysql"])
def test_locks_by_their_url_are_the_locks_by_ours_on_mariadb(mariadb_locks: str, driver: str) -> None:
    options = "charset=utf8mb4&use_unicode=1"
    mark = "&" if "?" in mariadb_locks else "?"
    are_the_same(over(driver, mariadb_locks) + mark + options, mariadb_locks)
    are_the_same(f"{mariadb_locks}{mark}{options}", mariadb_locks)


def test_locks_by_a_url_object_are_the_locks_by_its_text(postgres_locks: str, mariadb_locks: str) -> None:
    for url in (postgres_locks, mariadb_locks):
        are_the_same(sqlalchemy.make_url(url), url)
    engine = sqlalchemy.create_engine(over("psycopg2", split_url(postgres_locks)[0]))
    are_the_same(engine.url, postgres_locks)


def are_the_same(theirs: Any, ours: str) -> None:
    with Holdfast(theirs) as one, Holdfast(ours) as other, one.hold("nightly"):
        assert other.try_acquire("nightly", owner="other") is None

    async def main() -> None:
        async with AsyncHoldfast(theirs) as one, one.hold("nightly"):
            with Holdfast(ours) as other:
                assert other.try_acquire("nightly", owner="other") is None

    asyncio.run(main())


def test_a_password_that_sqlalchemy_can_read_is_read_the_same(mariadb_url: str) -> None:
    parts = sqlalchemy.make_url(mariadb_url)
    admin = pymysql.connect(host=parts.host, port=parts.port or 0, user="root", ssl_disabled=True)
    with closing(admin), admin.cursor() as cursor:
        cursor.execute("CREATE USER IF NOT EXISTS nasty IDENTIFIED BY %s", (SECRET,))
        cursor.execute(f"GRANT ALL ON `{parts.database}`.* TO nasty")
        options = {"ssl_disabled": "true", "apply_schema": "yes"}
        url = parts.set(
            drivername="mysql+pymysql", username="nasty", password=SECRET, query={**parts.query, **options}
        )
        with Holdfast(url) as locks, locks.hold("nightly"):
            assert "***@" in repr(locks)
            assert SECRET not in repr(locks)
        cursor.execute("DROP USER nasty")


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("sqlite+pysqlcipher://:key@/a.db", "give an address of its own for the locks, sqlite://"),
        ("postgresql+pyodbc://app:secret@dsn", "may not read the url as pyodbc does"),
        ("sqlite+pysqlite://", "names no file: use sqlite:///relative.db, .*, or memory://"),
        ("sqlite+aiosqlite:///:memory:", "or memory://"),
        ("sqlite:///file:a.db?mode=ro&uri=true", "unknown options: mode, uri; there are synchronous"),
        ("postgresql+psycopg:///app?host=one:1&host=two:2", "app@one:5432,two:5432/app"),
    ],
)
def test_a_url_that_cannot_mean_the_same_is_refused_with_what_to_write(url: str, words: str) -> None:
    with pytest.raises(SettingsError, match=words) as refused:
        Holdfast(url)
    assert "secret" not in str(refused.value)


def test_the_options_of_the_sqlite_driver_are_left_out(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/app.db"
    are_the_same(f"{url}?check_same_thread=False&busy_timeout=1&isolation_level=IMMEDIATE", url)


@pytest.mark.parametrize("name", ["app.db", "a b%23?.db"])
def test_an_engine_on_a_file_is_that_file(tmp_path: Path, name: str) -> None:
    url = sqlalchemy.URL.create("sqlite", database=str(tmp_path / name))
    engine = sqlalchemy.create_engine(url, pool_size=1, max_overflow=0)
    with engine.connect() as theirs, Holdfast(engine) as locks:  # its only connection is in use
        are_the_same(locks.url, str(address_of(url)))
        with locks.hold("nightly") as lease:
            lease.fence(theirs)
            theirs.rollback()
    assert (tmp_path / name).exists()
    engine.dispose()


def test_a_relative_file_is_relative_to_the_same_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    engine = sqlalchemy.create_engine("sqlite:///app.db")
    with Holdfast(engine) as locks, Holdfast("sqlite:///app.db") as others, locks.hold("nightly") as lease:
        assert others.try_acquire("nightly", owner="other") is None
        with engine.connect() as theirs:
            lease.fence(theirs)
    engine.dispose()


class Aiosqlite:
    """What SQLAlchemy wants to see of aiosqlite before it connects, which we never have it do."""

    has_stop = True

    def __getattr__(self, name: str) -> Any:
        return getattr(sqlite3, name)


def async_engine(url: str) -> Any:
    return create_async_engine(url, module=Aiosqlite())


def test_an_async_engine_on_a_file_is_that_file_for_both_clients(tmp_path: Path) -> None:
    are_the_same(async_engine(f"sqlite+aiosqlite:///{tmp_path}/app.db"), f"sqlite:///{tmp_path}/app.db")


@pytest.mark.parametrize("client", [Holdfast, AsyncHoldfast])
@pytest.mark.parametrize("make", [sqlalchemy.create_engine, async_engine])
@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("//", "is in memory, .* create_engine\\('sqlite:///app.db'\\), or 'memory://'"),
        ("///:memory:", "is in memory"),
        ("///file:a.db?uri=true", "give the file's path"),
        ("///file::memory:?uri=true&cache=shared", "give the file's path"),
    ],
)
def test_an_engine_that_is_not_on_a_file_is_refused(
    make: Any, client: type, place: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    engine = make(f"sqlite{'+aiosqlite' if make is async_engine else ''}:{place}")
    with pytest.raises(SettingsError, match=words):
        client(engine)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("client", [Holdfast, AsyncHoldfast])
@pytest.mark.parametrize("driver", ["psycopg", "asyncpg"])
def test_an_async_engine_for_a_server_is_refused_and_its_url_is_named(client: type, driver: str) -> None:
    """Its arguments and events may say where and as whom to connect; from the url alone that is a guess."""
    engine = create_async_engine(f"postgresql+{driver}://app:secret@db.invalid/app")
    with pytest.raises(
        SettingsError, match=r"AsyncEngine .* engine\.url, if that is all it takes"
    ) as refused:
        client(engine)
    assert "secret" not in str(refused.value)


def test_an_engine_with_another_driver_is_refused_and_its_url_is_named() -> None:
    engine = sqlalchemy.create_engine("postgresql+psycopg2://app:secret@db.invalid/app")
    with pytest.raises(SettingsError, match=r"uses 'psycopg2', .* engine\.url, if that is all it takes"):
        Holdfast(engine)


def test_the_environment_and_the_listening_url_may_be_in_their_spelling(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_URL", f"sqlite+pysqlite:///{tmp_path}/app.db")
    with Holdfast() as locks:
        assert locks.url == f"sqlite:///{tmp_path}/app.db"
    _, options = split_url("postgresql://pooler/app?listen=postgresql%2Bpsycopg://db/app")
    assert options.listen == "postgresql://db/app"
