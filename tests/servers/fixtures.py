"""Servers as fixtures: one of each kind for a worker, started when a test first asks.

- ``…_locks``: a database with holdfast's tables, empty. All tests of a worker share it: emptying costs a few
  milliseconds, a database of its own and its tables fifty
- ``…_url``: a database without anything, for one test

A test that kills, pauses or configures starts a server of its own instead. Without the server's programs
tests skip with a reason that begins with ``missing:``; the conftest makes that a failure under ``CI=true``.

Whoever runs tests many times can lend them a server: the variable `LENT` has its port.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar
from urllib.parse import urlsplit

import pytest

from holdfast import Holdfast
from tests.servers.binaries import PACKAGES, find, versions
from tests.servers.mariadb import ADMIN as MARIADB_ADMIN
from tests.servers.mariadb import MariaDBServer
from tests.servers.ports import HOST
from tests.servers.postgres import ADMIN as POSTGRES_ADMIN
from tests.servers.postgres import PostgresServer
from tests.servers.server import Server

S = TypeVar("S", bound=Server)

TABLES = ("locks", "holds", "tickets", "ended", "outcomes", "history", "instances", "work", "access")
EMPTY = [
    "DELETE FROM holdfast_locks WHERE lock_key <> ''",  # MySQL's tables have a row there from the start
    *(f"DELETE FROM holdfast_{table}" for table in TABLES[1:]),
    "UPDATE holdfast_meta SET token_floor = 0",
    "UPDATE holdfast_feed SET last = 0",
]


LENT = "HOLDFAST_TESTS_{}_PORT"  # with the name of the program; that server is neither started nor stopped

_idle: weakref.WeakSet[threading.Thread] = weakref.WeakSet()


def header() -> str:
    return f"servers: {', '.join(versions())}"


def require(*programs: str) -> None:
    """Skip, unless all *programs* are on this machine."""
    if not sys.platform.startswith("linux"):
        pytest.skip("missing: Linux, for the processes of servers in /proc")
    for program in programs:
        if find(program) is None:
            pytest.skip(f"missing: {program}, from the package {PACKAGES[program]}")


def lent(kind: type[S]) -> AbstractContextManager[S] | None:
    """Give a server that somebody else keeps running, if there is one."""
    if not (port := os.environ.get(LENT.format(kind.program))):
        return None
    server = kind()
    server.port = int(port)
    return nullcontext(server)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    require("postgres")
    with lent(PostgresServer) or PostgresServer() as server:
        yield server


@pytest.fixture(scope="session")
def mariadb_server() -> Iterator[MariaDBServer]:
    require("mariadbd")
    with lent(MariaDBServer) or MariaDBServer() as server:
        yield server


@pytest.fixture
def postgres_url(postgres_server: PostgresServer) -> Iterator[str]:
    url = postgres_server.create_database()
    yield url
    postgres_server.drop_database(url)


@pytest.fixture
def mariadb_url(mariadb_server: MariaDBServer) -> Iterator[str]:
    url = mariadb_server.create_database()
    yield url
    mariadb_server.drop_database(url)


ASKING = ("holdfast-store", "holdfast-company")  # threads that ask a store, by the beginning of their name


def wait_for_requests() -> None:
    """Wait until the threads of clients that were closed have ended.

    A request whose task was cancelled goes on in its thread. In a database that is emptied meanwhile it would
    not find that it was withdrawn, and take a lock from the next test.
    """
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        waited_for = [thread for thread in threading.enumerate() if thread.name.startswith(ASKING)]
        if _idle.issuperset(waited_for):
            return
        time.sleep(0.005)
    _idle.update(waited_for)  # of a client that a test has left open: they have nothing to do any more


def with_tables(url: str) -> str:
    """Make holdfast's tables in a database, and give the URL with which every client would."""
    url = f"{url}{'&' if '?' in url else '?'}apply_schema=yes"
    with Holdfast(url) as locks:
        locks.inspect("anything")
    return url


@pytest.fixture(scope="session")
def postgres_database(postgres_server: PostgresServer) -> Iterator[tuple[str, Any]]:
    """The URL of a worker's database with tables, and a superuser's connection to it."""
    import psycopg  # not above: most tests need no driver, and all load the fixtures

    url = postgres_server.create_database()
    admin = psycopg.connect(postgres_server.url(urlsplit(url).path[1:], user=POSTGRES_ADMIN), autocommit=True)
    yield with_tables(url), admin
    admin.close()
    postgres_server.drop_database(url)


@pytest.fixture
def postgres_locks(postgres_database: tuple[str, Any]) -> Iterator[str]:
    """The URL of a PostgreSQL database in which nobody has locked anything yet."""
    url, admin = postgres_database
    yield url
    wait_for_requests()
    # Whoever is still connected may have been killed or stopped in the middle of a transaction.
    while admin.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()"
    ).rowcount:
        time.sleep(0.002)
    admin.execute("; ".join(EMPTY))


@pytest.fixture(scope="session")
def mariadb_database(mariadb_server: MariaDBServer) -> Iterator[tuple[str, Any]]:
    """The URL of a worker's database with tables, and a superuser's connection to it."""
    import pymysql

    url = mariadb_server.create_database()
    admin = pymysql.connect(
        host=HOST,
        port=mariadb_server.port,
        user=MARIADB_ADMIN,
        database=urlsplit(url).path[1:],
        autocommit=True,
        ssl_disabled=True,
    )
    yield with_tables(url), admin
    admin.close()
    mariadb_server.drop_database(url)


@pytest.fixture
def mariadb_locks(mariadb_database: tuple[str, Any]) -> Iterator[str]:
    """The URL of a MariaDB database in which nobody has locked anything yet."""
    import pymysql

    url, admin = mariadb_database
    yield url
    wait_for_requests()
    with admin.cursor() as cursor:
        cursor.execute(
            "SELECT id FROM information_schema.processlist WHERE db = database() AND id <> connection_id()"
        )
        for (connection,) in cursor.fetchall():
            try:
                cursor.execute(f"KILL {connection}")
            except pymysql.err.MySQLError:  # it left by itself
                continue
        for statement in (*EMPTY, "DELETE FROM holdfast_signals"):
            cursor.execute(statement)
