"""The engine's own tables, beside those of the locks, and one way to three drivers.

Nothing here knows about locks. An engine of yours would use what its application uses already: sqlite3,
psycopg, PyMySQL or SQLAlchemy.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import unquote, urlsplit

# The journal: what was done, by whom, when. An engine of yours should have (workflow, step) as its primary
# key. Here the token is part of it, so that without a fence it is not the key that saves us, and it shows.
SCHEMA = """
CREATE TABLE engine_steps (
    workflow  VARCHAR(200)      NOT NULL,  -- workflow:17
    step      VARCHAR(200)      NOT NULL,  -- node:17:charge, node:17:pack:2
    token     BIGINT            NOT NULL,  -- of the assignment it was done under
    engine    VARCHAR(100)      NOT NULL,
    began_at  DOUBLE PRECISION  NOT NULL,  -- by that engine's clock: for the picture, it decides nothing
    ended_at  DOUBLE PRECISION  NOT NULL,
    PRIMARY KEY (workflow, step, token)
);
CREATE TABLE engine_accounts (  -- what the nodes are about. Adding 1 twice shows
    customer  INTEGER  NOT NULL PRIMARY KEY,
    reserved  INTEGER  NOT NULL,
    packed    INTEGER  NOT NULL,
    charged   INTEGER  NOT NULL,
    notified  INTEGER  NOT NULL
);
CREATE TABLE engine_printers (  -- shared by all workflows, one label at a time
    printer  INTEGER  NOT NULL PRIMARY KEY,
    labels   INTEGER  NOT NULL
);
CREATE TABLE engine_events (  -- what happened to the engines
    at        DOUBLE PRECISION  NOT NULL,
    engine    VARCHAR(100)      NOT NULL,
    what      VARCHAR(20)       NOT NULL,  -- joined, killed, paused, continued, refused, drained
    workflow  VARCHAR(200)      NOT NULL
)
"""
TABLES = ("engine_steps", "engine_accounts", "engine_printers", "engine_events")


class Database:
    """One connection, for one thread at a time."""

    def __init__(self, url: str) -> None:
        self.connection = _connect(url)
        self._marks = "?" if isinstance(self.connection, sqlite3.Connection) else "%s"

    def run(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        """Run one statement, with ``?`` for each value, in the transaction under way, and give its rows."""
        cursor = self.connection.cursor()
        try:
            cursor.execute(statement.replace("?", self._marks), values)
            return list(cursor.fetchall()) if cursor.description else []
        finally:
            cursor.close()

    @contextmanager
    def transaction(self) -> Iterator[Database]:
        """Commit what the block does, or nothing of it."""
        try:
            yield self
            self.connection.commit()
        except BaseException:
            self.connection.rollback()
            raise

    def close(self) -> None:
        self.connection.close()


def make_tables(db: Database, customers: int, printers: int) -> None:
    """Make the engine's tables anew."""
    with db.transaction():
        for table in TABLES:
            db.run(f"DROP TABLE IF EXISTS {table}")
        for statement in SCHEMA.split(";"):
            db.run("\n".join(line.partition("--")[0] for line in statement.splitlines()))
        for customer in range(customers):
            db.run("INSERT INTO engine_accounts VALUES (?, 0, 0, 0, 0)", customer)
        for printer in range(printers):
            db.run("INSERT INTO engine_printers VALUES (?, 0)", printer)


def _connect(url: str) -> Any:
    """Open a connection of a driver's, to the database in which the locks are."""
    parts = urlsplit(url)
    if parts.scheme == "sqlite":
        return sqlite3.connect(unquote(parts.path[1:]), timeout=30, check_same_thread=False)
    if parts.scheme == "postgresql":
        import psycopg

        return psycopg.connect(url.partition("?")[0])  # options behind the ? are for the locks
    import pymysql

    return pymysql.connect(
        host=parts.hostname or "localhost",
        port=parts.port or 3306,
        user=parts.username,
        password=unquote(parts.password or ""),
        database=parts.path[1:],
    )
