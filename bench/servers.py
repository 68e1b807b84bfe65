"""Private database servers to measure on: started for one section, durable, and removed after it."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from bench.report import Line
from holdfast import Holdfast
from tests.servers import MariaDBServer, PostgresServer
from tests.servers.binaries import PACKAGES, find, version


@dataclass(frozen=True)
class Kind:
    """A database server, and how we may hurry it where nothing is measured."""

    name: str
    program: str
    driver: str
    make: Callable[..., Any]
    settings: Mapping[str, str | int]  # memory as a small server in the field has it, not as a test has it
    hurried: Mapping[str, str | int]
    durable: Mapping[str, str | int]

    @property
    def version(self) -> str | None:
        return version(self.program)

    def missing(self) -> str | None:
        """Say what is not here; None if all is."""
        if not sys.platform.startswith("linux"):
            return "private servers need Linux"
        if find(self.program) is None:
            return f"{self.program} is missing: install {PACKAGES[self.program]}"
        if importlib.util.find_spec(self.driver) is None:
            return f"{self.driver} is missing: pip install {self.driver}"
        return None


POSTGRES = Kind(
    "PostgreSQL",
    "postgres",
    "psycopg",
    PostgresServer,
    # Nothing is to checkpoint in the middle of a round. It does so every five minutes by default.
    {"shared_buffers": "1GB", "max_wal_size": "8GB", "checkpoint_timeout": "1h", "max_connections": 500},
    {"synchronous_commit": "off"},
    {"synchronous_commit": "on"},
)
MARIADB = Kind(
    "MariaDB",
    "mariadbd",
    "pymysql",
    MariaDBServer,
    {"innodb_buffer_pool_size": "1G", "innodb_log_file_size": "512M"},
    {"innodb_flush_log_at_trx_commit": 0},
    {"innodb_flush_log_at_trx_commit": 1},
)
KINDS = (POSTGRES, MARIADB)
LEFT_OUT = "left out, to be quick"


class Place:
    """A running server."""

    def __init__(self, kind: Kind, server: Any) -> None:
        self.kind = kind
        self._server = server

    def database(self) -> str:
        """Make a database with our tables; return its URL."""
        url: str = self._server.create_database()
        with Holdfast(f"{url}?apply_schema=yes") as locks:
            locks.inspect("anything")
        return url

    @contextmanager
    def hurry(self) -> Iterator[None]:
        """Let commits return before they are on the disk, while something is only being prepared."""
        self._server.configure(**self.kind.hurried)
        try:
            yield
        finally:
            self._server.configure(**self.kind.durable)

    def run(self, url: str, *statements: str) -> None:
        """Run statements as administrator in the database of *url*."""
        for statement in statements:
            self._server.execute(statement, urlsplit(url).path[1:])


@contextmanager
def running(kind: Kind) -> Iterator[Place]:
    """Start a server of that kind, durable as it comes out of its package."""
    with kind.make(durable=True, settings=kind.settings) as server:
        yield Place(kind, server)
        server.stop()  # in order, so that what its processes used is known to be ours


def on_each(measure: Callable[[Place], list[Line]]) -> list[Line]:
    """Measure on a server of each kind; say so where there is none."""
    lines = []
    for kind in KINDS:
        if missing := kind.missing():
            lines.append(not_here(kind.name, missing))
            continue
        with running(kind) as place:
            lines += measure(place)
    return lines


def not_here(what: str, why: str) -> Line:
    return Line(what, "not here", why)


def versions() -> list[str]:
    """Name the servers that are measured on."""
    return [f"{kind.name} {kind.version or 'not here'}" for kind in KINDS]


# Connections for whoever needs no more than a driver.


def postgres(url: str) -> Any:
    """Connect as a program would that has only psycopg."""
    import psycopg

    return psycopg.connect(url, autocommit=True, prepare_threshold=None)


def mariadb(url: str) -> Any:
    """Connect as a program would that has only PyMySQL."""
    import pymysql

    parts = urlsplit(url)
    connection = pymysql.connect(
        host=parts.hostname,
        port=parts.port or 3306,
        user=parts.username,
        database=parts.path[1:],
        autocommit=True,
        ssl_disabled=True,
    )
    connection.cursor().execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
    return connection
