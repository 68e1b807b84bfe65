"""What the traffic updates under its locks: three ways to change one row, and a log that shows what survived.

A resource is a row with its newest value, and a log with one row for each update: its value, and the value
that it was based on. Walking back from the newest gives the updates that survive. Whoever writes on the basis
of what he read too long ago cuts out all that came in between: that is a lost update. Values are unique.

The control, `bare_update`, is `raised_update` without the guard: the same looks, steps, and pauses.

All functions block, and return when the commit was acknowledged. What fails is raised as it is, after the
connection was rolled back or closed; whoever finds `alive` false connects again.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from holdfast import LeaseLost, raise_token
from holdfast.client.leases import BaseLease

PATIENCE: Final = 4.0  # seconds that a statement waits for another's row, and that a transaction may idle

Pause = Callable[[], None]


class FencedOff(LeaseLost):
    """The guard itself has refused: the database or the resource, not the library's look at our own clock."""


def looked_at(lease: Any) -> Any:
    """Look at a lease, and return it as one that is not looked at again.

    So it is for a program that is stopped just after the library has looked at the clock, and before it asks
    the database: what it does when it goes on, only the guard can refuse. (The library cannot be stopped
    there on purpose; a fault rarely hits that moment.)
    """
    lease.check()
    same = object.__new__(type(lease))
    vars(same).update(vars(lease))
    same.check = lambda: None
    return same


TABLES = {
    "sqlite": """
        CREATE TABLE proof_resources (name TEXT PRIMARY KEY, head TEXT NOT NULL);
        CREATE TABLE proof_updates (name TEXT, value TEXT, previous TEXT NOT NULL, PRIMARY KEY (name, value));
        CREATE TABLE holdfast_fences (resource VARCHAR(255) PRIMARY KEY, token BIGINT NOT NULL);
        """,
    "postgresql": """
        CREATE TABLE proof_resources (name text PRIMARY KEY, head text NOT NULL);
        CREATE TABLE proof_updates (name text, value text, previous text NOT NULL, PRIMARY KEY (name, value));
        CREATE TABLE holdfast_fences (resource VARCHAR(255) PRIMARY KEY, token BIGINT NOT NULL);
        """,
    "mysql": """
        CREATE TABLE proof_resources (name VARBINARY(200) PRIMARY KEY, head VARBINARY(200) NOT NULL);
        CREATE TABLE proof_updates (name VARBINARY(200), value VARBINARY(200),
                                    previous VARBINARY(200) NOT NULL, PRIMARY KEY (name, value));
        CREATE TABLE holdfast_fences (resource VARCHAR(255) PRIMARY KEY, token BIGINT NOT NULL);
        """,
}


def statements(dialect: str) -> list[str]:
    """Return what makes the tables."""
    return [each for each in TABLES[dialect].split(";") if each.strip()]


class Rest:
    """Keeps updates and forks apart.

    A thread that is inside of SQLite when another one forks may have one of its mutexes, which then stays
    locked in the child for ever. The library sees to its own connections; these are the program's.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._busy = 0
        self._wanted = False

    @contextmanager
    def disturbed(self) -> Iterator[None]:
        """Be inside of SQLite, but not while somebody forks."""
        with self._changed:
            self._changed.wait_for(lambda: not self._wanted)
            self._busy += 1
        try:
            yield
        finally:
            with self._changed:
                self._busy -= 1
                self._changed.notify_all()

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Fork, while nobody is."""
        with self._changed:
            self._wanted = True
            # Not for ever: an interrupt may have hit where nobody counts back.
            self._changed.wait_for(lambda: not self._busy, 2 * PATIENCE)
            try:
                yield  # with the mutex, so that in the child nobody else has it
            finally:
                self._wanted = False
                self._changed.notify_all()


REST: Final = Rest()


class Resources:
    """A connection to the resources at *url*, for one thread at a time."""

    def __init__(self, url: str) -> None:
        self.dialect = urlsplit(url).scheme
        with self._at_work():
            self.connection = _connect(url)

    def _at_work(self) -> AbstractContextManager[None]:
        return REST.disturbed() if self.dialect == "sqlite" else nullcontext()

    @property
    def alive(self) -> bool:
        """Whether it can still be used. After a failure that nobody knows the extent of, it cannot."""
        return self.connection is not None

    def close(self) -> None:
        if self.connection is not None:
            with suppress(Exception):
                self.connection.close()
            self.connection = None

    def run(self, statement: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """Run a statement with ``?`` for its parameters, and return its rows as text."""
        if self.dialect == "sqlite":
            return list(self.connection.execute(statement, parameters).fetchall())
        with self.connection.cursor() as cursor:
            cursor.execute(statement.replace("?", "%s"), parameters)
            rows = cursor.fetchall() if cursor.description else []
        return [tuple(each.decode() if isinstance(each, bytes) else each for each in row) for row in rows]

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Begin, and commit at the end. Whatever fails, the connection is of no more use: close it."""
        assert self.connection is not None, "closed: connect again"
        with self._at_work():
            try:
                # SQLite: whoever reads first and writes then would fail if somebody wrote in between.
                self.run("BEGIN IMMEDIATE" if self.dialect == "sqlite" else "BEGIN")
                yield
                self.run("COMMIT")
            except BaseException:
                self.close()
                raise


def connect(url: str) -> Resources:
    """Connect to the resources at *url*, which `Stage.resource_url` gives."""
    return Resources(url)


def fenced_update(
    lease: Any,
    resources: Resources,
    key: str,
    value: str,
    pause: Pause = lambda: None,
    loop: asyncio.AbstractEventLoop | None = None,
) -> None:
    """Update in one transaction that the lease fences. The database is the one that has the locks.

    *loop* is that of an `AsyncLease`, if this runs in another thread. On SQLite everybody who would write
    waits for the pause.
    """
    with resources.transaction():
        fencing = lease.fence(resources.connection)
        if loop is not None:
            asyncio.run_coroutine_threadsafe(fencing, loop).result()
        head = _head(resources, key)
        pause()
        _write(resources, key, value, head)


def raised_update(
    lease: BaseLease,
    resources: Resources,
    key: str,
    value: str,
    pause: Pause = lambda: None,
    *,
    check: bool = False,
) -> None:
    """Update another database: raise the token before the first read, write if it is still the highest.

    With *check* the program also looks at its lease before it writes.
    """
    _update_elsewhere(lease, resources, key, value, pause, check=check, guarded=True)


def bare_update(
    lease: BaseLease,
    resources: Resources,
    key: str,
    value: str,
    pause: Pause = lambda: None,
    *,
    check: bool = False,
) -> None:
    """Update another database with no guard, as programs do that trust in a lock. All else is the same."""
    _update_elsewhere(lease, resources, key, value, pause, check=check, guarded=False)


def _update_elsewhere(
    lease: BaseLease,
    resources: Resources,
    key: str,
    value: str,
    pause: Pause,
    *,
    check: bool,
    guarded: bool,
) -> None:
    with resources.transaction():
        if guarded:
            raise_token(resources.connection, lease, resource=key)
        else:
            lease.check()  # as `raise_token` does
        head = _head(resources, key)
    pause()
    if check:
        lease.check()
    with resources.transaction():
        if guarded:
            _see_it_is_highest(lease, resources, key)
        _write(resources, key, value, head)


def _see_it_is_highest(lease: BaseLease, resources: Resources, key: str) -> None:
    # Locked until the commit: a newer one cannot raise it in between.
    locked = "" if resources.dialect == "sqlite" else " FOR UPDATE"
    ((token,),) = resources.run(f"SELECT token FROM holdfast_fences WHERE resource = ?{locked}", key)
    if token != lease.token:
        raise FencedOff(key, "taken over", token=lease.token, detail=f"the resource has seen {token}")


def surviving(resources: Resources) -> dict[str, list[str]]:
    """Return the updates of each resource that survive, in order."""
    heads = dict(resources.run("SELECT name, head FROM proof_resources"))
    previous = {
        (name, value): before
        for name, value, before in resources.run("SELECT name, value, previous FROM proof_updates")
    }
    survivors: dict[str, list[str]] = {}
    for name, head in heads.items():
        values = []
        while head:
            values.append(head)
            head = previous[name, head]
        survivors[name] = values[::-1]
    return survivors


def _head(resources: Resources, key: str) -> str:
    rows = resources.run("SELECT head FROM proof_resources WHERE name = ?", key)
    return str(rows[0][0]) if rows else ""


def _write(resources: Resources, key: str, value: str, based_on: str) -> None:
    resources.run("INSERT INTO proof_updates (name, value, previous) VALUES (?, ?, ?)", key, value, based_on)
    upsert = (
        "ON DUPLICATE KEY UPDATE head = VALUES(head)"
        if resources.dialect == "mysql"
        else "ON CONFLICT (name) DO UPDATE SET head = excluded.head"
    )
    resources.run(f"INSERT INTO proof_resources (name, head) VALUES (?, ?) {upsert}", key, value)


def _connect(url: str) -> Any:
    parts = urlsplit(url)
    if parts.scheme == "sqlite":
        path = unquote(url.partition("?")[0].removeprefix("sqlite:///"))
        file = sqlite3.connect(path, timeout=PATIENCE, isolation_level=None, check_same_thread=False)
        file.execute("PRAGMA journal_mode = WAL")
        file.execute("PRAGMA synchronous = FULL")
        return file
    if parts.scheme == "postgresql":
        import psycopg

        limits = " ".join(
            f"-c {name}={PATIENCE * 1000:.0f}"
            for name in ("lock_timeout", "idle_in_transaction_session_timeout")
        )
        return psycopg.connect(url, autocommit=True, connect_timeout=3, options=limits)
    import pymysql

    return pymysql.connect(
        host=parts.hostname,
        port=parts.port or 3306,
        user=parts.username,
        database=parts.path[1:],
        autocommit=True,
        ssl_disabled=True,
        connect_timeout=3,
        read_timeout=2 * PATIENCE,
        write_timeout=2 * PATIENCE,
        init_command="SET SESSION tx_isolation = 'READ-COMMITTED',"
        f" innodb_lock_wait_timeout = {PATIENCE:.0f}, idle_transaction_timeout = {PATIENCE:.0f}",
    )
