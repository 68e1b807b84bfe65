"""Servers as fixtures: one of each kind for a worker, started when a test first asks, and a database a test.

A test that kills, pauses or configures starts a server of its own instead. Without the server's programs
tests skip with a reason that begins with ``missing:``; the conftest makes that a failure under ``CI=true``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from tests.servers.binaries import PACKAGES, find, versions
from tests.servers.mariadb import MariaDBServer
from tests.servers.postgres import PostgresServer


def header() -> str:
    return f"servers: {', '.join(versions())}"


def require(*programs: str) -> None:
    """Skip, unless all *programs* are on this machine."""
    if not sys.platform.startswith("linux"):
        pytest.skip("missing: Linux, for the processes of servers in /proc")
    for program in programs:
        if find(program) is None:
            pytest.skip(f"missing: {program}, from the package {PACKAGES[program]}")


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    require("postgres")
    with PostgresServer() as server:
        yield server


@pytest.fixture(scope="session")
def mariadb_server() -> Iterator[MariaDBServer]:
    require("mariadbd")
    with MariaDBServer() as server:
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
