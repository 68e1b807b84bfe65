"""One connection to the file: opening, schema, waiting for our turn to write, and errors in our terms."""

from __future__ import annotations

import itertools
import os
import random
import sqlite3
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from holdfast import errors
from holdfast.stores.base import failure
from holdfast.stores.sql.files import SHARED, Statements, schema_versions
from holdfast.stores.sql.rules.columns import KeyRead, Row
from holdfast.stores.sql.rules.runner import Post, Soon, Statement, read_lock
from holdfast.stores.sqlite import lockers
from holdfast.stores.sqlite.samefile import Beside, SameFile

T = TypeVar("T")

PACKAGE = "holdfast.stores.sqlite"
MIN_VERSION = (3, 35, 0)  # RETURNING

SQL = Statements(SHARED, PACKAGE)
SCHEMA = schema_versions(PACKAGE)
VERSION = SCHEMA[-1][0]

# Small pages: a commit writes whole pages to the log, and a lock is a short row. A third less per pair.
PAGE_SIZE = 1024
CHECKPOINT = 4000  # pages: every 4 MB of log, as SQLite would with pages of its usual size

OPENINGS = 5  # tries to open one and the same file
LOOK_EVERY = 0.005  # seconds from one look at whether it still is that to the next, if requests come faster

# How to wait for our turn to write: give way a few times, because a write takes some 50 µs, then sleep for
# about as long. SQLite's own busy handler sleeps up to 100 ms at a time, and starves whoever has bad luck.
YIELDS = 20
TURN = 0.0002
MOST_TURN = 0.002

_ERRORS: dict[int, tuple[type[errors.StoreError], str]] = {
    # primary result code: what it means for the request, and what to do
    sqlite3.SQLITE_BUSY: (errors.StoreUnavailable, ""),  # see `lockers`
    sqlite3.SQLITE_LOCKED: (errors.StoreUnavailable, "another connection keeps it locked"),
    sqlite3.SQLITE_PROTOCOL: (errors.StoreUnavailable, "too many processes start to use it at once"),
    sqlite3.SQLITE_FULL: (errors.StoreUnavailable, "the disk is full; free some space"),
    sqlite3.SQLITE_NOMEM: (errors.StoreUnavailable, "out of memory"),
    sqlite3.SQLITE_INTERRUPT: (errors.StoreUnavailable, "interrupted"),
    sqlite3.SQLITE_IOERR: (errors.OutcomeUnknown, "the disk failed; look at the system's log"),
    sqlite3.SQLITE_READONLY: (
        errors.StoreMisconfigured,
        "it is read-only; every client writes, so make the file and its directory writable",
    ),
    sqlite3.SQLITE_CANTOPEN: (
        errors.StoreMisconfigured,
        "it cannot be opened; check that the directory exists and that you may write there",
    ),
    sqlite3.SQLITE_PERM: (errors.StoreMisconfigured, "you may not access it"),
    sqlite3.SQLITE_AUTH: (errors.StoreMisconfigured, "you may not access it"),
    sqlite3.SQLITE_CORRUPT: (errors.StoreCorrupt, "its content is damaged; move it away, a new one is made"),
    sqlite3.SQLITE_NOTADB: (errors.StoreCorrupt, "it is not an SQLite database; is the path right?"),
}


class NotOurTurn(Exception):
    """Another connection is writing, and whoever asks does not wait. Nothing was done."""


class Transaction:
    """Runs named statements inside a transaction."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection

    def __call__(self, name: str, /, **parameters: Any) -> list[Row]:
        """Run one statement, and return its rows."""
        return self.connection.execute(SQL[name], parameters).fetchall()

    def later(self, name: str, /, **parameters: Any) -> None:
        """Run one statement: there are no round trips to save."""
        self(name, **parameters)

    def soon(self, name: str, /, **parameters: Any) -> Soon:
        """Run one statement, and keep its rows."""
        return Soon(self(name, **parameters))

    def lock(self, key: str, attempt: str, now: int | None) -> KeyRead:
        """Read a key: whoever is in a transaction here is the only writer."""
        return read_lock(self, key, attempt, now)

    def many(self, name: str, parameters: Iterable[dict[str, Any]]) -> int:
        """Run one statement for each set of parameters, and return how many rows they changed."""
        return self.connection.executemany(SQL[name], parameters).rowcount

    def commit(self, signals: Post, *, lazily: bool = False, read: Statement | None = None) -> list[Row]:
        """Leave the commit to `Database`, and read at once: nobody else can commit in between."""
        return [] if read is None else self(read[0], **read[1])


class Database:
    """A connection that waits for its turn, and raises only `StoreError`. Not for two threads at once."""

    def __init__(
        self,
        path: Path,
        *,
        synchronous: str,
        busy_timeout: float,
        file: SameFile | None = None,
        checkpoint: int = CHECKPOINT,
    ) -> None:
        self.path = path
        self._synchronous = synchronous
        self._busy_timeout = busy_timeout
        self._checkpoint = checkpoint
        self._connection: sqlite3.Connection | None = None
        self.file = file or SameFile(path)
        self._beside: Beside = []
        self._look_at = 0.0
        self.grouped = False  # what is done now is part of a group
        self._saved = False  # and has a savepoint

    def open(self) -> None:
        """Connect, and create or check the tables."""
        if sqlite3.sqlite_version_info < MIN_VERSION:
            raise errors.StoreMisconfigured(
                f"SQLite {sqlite3.sqlite_version} is too old;"
                f" {'.'.join(map(str, MIN_VERSION))} or newer is needed"
            )
        try:
            for _ in range(OPENINGS):
                if self._open():
                    return
                self.close()
        except sqlite3.Error as error:
            self.close()
            raise self.translate(error) from error
        except BaseException:  # also an interrupt: a connection that is not prepared must not be used
            self.close()
            raise
        raise errors.StoreUnavailable(f"{self.path}: another file is put in its place again and again")

    def _open(self) -> bool:
        """Connect once; False if it is not certain to which file. A file that we make is opened twice."""
        before = self.file.look()
        self._connection = sqlite3.connect(
            self.path, timeout=0, isolation_level=None, check_same_thread=False, cached_statements=256
        )
        self.in_turn(self._prepare)
        id = self._connection.execute(SQL.store_id).fetchone()[0]
        self._beside = self.file.beside()
        return self.file.settle(before, id)

    def fetch(self, statement: str, parameters: dict[str, Any]) -> list[Row]:
        """Run one statement by itself, when it is our turn."""
        try:
            rows = self._connected().execute(statement, parameters).fetchall()
        except sqlite3.Error as error:
            if self.grouped or not is_busy(error):
                raise self.translate(error) from error
            rows = self.in_turn(lambda: self._connected().execute(statement, parameters).fetchall())
        if not self.grouped:
            self.check()
        return rows

    def try_fetch(self, statement: str, parameters: dict[str, Any]) -> list[Row] | None:
        """Run one statement by itself; None if it would have to wait, or we are not connected."""
        if self._connection is None or self.file.refusal:
            return None
        try:
            rows = self._connection.execute(statement, parameters).fetchall()
        except sqlite3.Error as error:
            if is_busy(error):
                return None
            raise self.translate(error) from error
        self.check()
        return rows

    def read(self, work: Callable[[Transaction], T]) -> T:
        """Have *work* read everything as of one moment. In the write-ahead log that waits for no writer."""
        result = self.in_turn(lambda: self._read(work))
        self.check()
        return result

    def _read(self, work: Callable[[Transaction], T]) -> T:
        connection = self._connected()
        try:
            connection.execute("BEGIN")
            return work(Transaction(connection))
        finally:
            self._roll_back(connection)

    def transact(self, work: Callable[[Transaction], T], within: float | None = None) -> T:
        """Run *work* in one transaction, when it is our turn, or give up *within* some seconds.

        Within none raises `NotOurTurn`, and says nothing of who keeps us from it: to find that takes time.
        """
        connection = self._connected()
        if self.grouped:
            return self._transact_in_group(connection, work)
        try:
            self._begin(connection, within)  # inside: an interrupt can hit when it has just begun
            result = work(Transaction(connection))
            connection.execute(SQL.commit)
        except BaseException as error:
            self._roll_back(connection)
            if isinstance(error, sqlite3.Error):
                raise self.translate(error) from error
            raise
        self.check()
        return result

    def check(self) -> None:
        """Raise if what was done was done in another file than the one at the path now, or a moment ago."""
        now = time.monotonic()
        if now >= self._look_at:
            self._look_at = now + LOOK_EVERY
            self.file.check(self._beside)

    def look_again(self) -> None:
        """Raise if the file is not ours any more, without asking it anything."""
        if self._connection is not None:
            self.file.check(self._beside)
        else:
            self.file.look()

    def as_one(self, work: Callable[[], T]) -> T:
        """Do *work* in one transaction, however many it has. If it fails, all of it is undone."""

        def whole(_: Transaction) -> T:
            self.grouped = self._saved = True  # with the whole: so it needs no savepoint
            return work()

        return self._transact_whole(whole)

    def group(self, works: Sequence[Callable[[], Any]], within: float | None = None) -> list[Any]:
        """Do all *works* in one transaction, and return what each returns, or how it failed.

        One that fails is undone alone: by its savepoint, which it has from its first transaction on. What is
        one statement needs none. If nothing can be kept, or nobody knows, all have failed.
        """

        def whole(run: Transaction) -> list[Any]:
            self.grouped = True
            return [self._do_in_group(run.connection, work) for work in works]

        try:
            return self._transact_whole(whole, within)
        except errors.StoreError as error:
            return [type(error)(*error.args) for _ in works]

    def _transact_whole(self, whole: Callable[[Transaction], T], within: float | None = None) -> T:
        self.grouped = False
        try:
            return self.transact(whole, within)
        finally:
            self.grouped = False

    def _do_in_group(self, connection: sqlite3.Connection, work: Callable[[], Any]) -> Any:
        self._saved = False
        try:
            result = work()
        except Exception as error:
            if not connection.in_transaction:
                raise failure(error) from error  # SQLite has rolled back everything
            if self._saved:
                connection.execute(SQL.undo)
                connection.execute(SQL.forget)
            return failure(error)
        if self._saved:
            connection.execute(SQL.forget)
        return result

    def _transact_in_group(self, connection: sqlite3.Connection, work: Callable[[Transaction], T]) -> T:
        try:
            if not self._saved:
                connection.execute(SQL.save)
                self._saved = True
            return work(Transaction(connection))
        except sqlite3.Error as error:
            raise self.translate(error) from error

    @property
    def is_open(self) -> bool:
        """Whether it is connected."""
        return self._connection is not None

    def abandon(self) -> None:
        """Forget the connection in a forked child, without closing it: SQLite's locks are the parent's."""
        self._beside.clear()
        if self._connection is not None:
            _of_the_parent.append(self._connection)
            self._connection = None

    def close(self) -> None:
        """Close the connection."""
        self._beside.clear()  # first: the last one to close deletes the log, and others may be looking at it
        if self._connection is not None:
            with suppress(sqlite3.Error):
                self._connection.close()
            self._connection = None

    def _connected(self) -> sqlite3.Connection:
        if self.file.refusal:
            raise errors.StoreMisconfigured(self.file.refusal)
        if self._connection is None:
            self.open()
            assert self._connection is not None
        elif not self.grouped and self._connection.in_transaction:
            self._roll_back(self._connection)  # an interrupt hit us in the middle of rolling back
        return self._connection

    def _begin(self, connection: sqlite3.Connection, within: float | None = None) -> None:
        try:
            connection.execute(SQL.begin)
        except sqlite3.Error as error:
            if not is_busy(error):
                raise self.translate(error) from error
            if within == 0:
                raise NotOurTurn from error
            self.in_turn(lambda: connection.execute(SQL.begin), within)

    @staticmethod
    def _roll_back(connection: sqlite3.Connection) -> None:
        with suppress(sqlite3.Error):
            if connection.in_transaction:
                connection.execute(SQL.rollback)

    def in_turn(self, call: Callable[[], T], within: float | None = None) -> T:
        """Do it as soon as no other connection is writing."""
        deadline = time.monotonic() + (self._busy_timeout if within is None else within)
        pause = TURN
        for tries in itertools.count(1):
            try:
                return call()
            except sqlite3.Error as error:
                if not is_busy(error) or time.monotonic() >= deadline:
                    raise self.translate(error) from error
            if tries <= YIELDS:
                _give_way()
            else:
                time.sleep(pause * (0.5 + random.random()))
                pause = min(pause * 1.5, MOST_TURN)
        raise AssertionError("unreachable")

    def _prepare(self) -> None:
        connection = self._connected()
        self._roll_back(connection)
        connection.execute(f"PRAGMA page_size = {PAGE_SIZE}")  # of a new file; ignored in an old one
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(f"PRAGMA synchronous = {self._synchronous}")
        connection.execute(f"PRAGMA wal_autocheckpoint = {self._checkpoint}")
        version = self._version(connection)
        if version == VERSION:
            return
        connection.execute(SQL.begin)
        try:
            version = self._version(connection)  # somebody else may have been faster
            for number, script in SCHEMA:
                if number > version:
                    for statement in _split(script):
                        connection.execute(statement)
            connection.execute(SQL.commit)
        finally:
            self._roll_back(connection)

    def _version(self, connection: sqlite3.Connection) -> int:
        """Return the version of the tables; 0 if there are none yet."""
        meta = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'holdfast_meta'"
        if connection.execute(meta).fetchone() is None:
            return 0
        rows = connection.execute(SQL.schema_version).fetchall()
        version = rows[0][0] if rows else None
        if not isinstance(version, int) or not 1 <= version <= VERSION:
            raise errors.SchemaMismatch(
                f"{self.path} has holdfast tables of version {version}; this release knows 1 to {VERSION}."
                " Upgrade holdfast, or use another file"
            )
        return version

    def translate(self, error: sqlite3.Error) -> errors.StoreError:
        code = getattr(error, "sqlite_errorcode", None)
        kind, advice = _ERRORS.get((code or 0) & 0xFF, (errors.StoreError, ""))
        if kind is errors.StoreError and "no such table" in str(error):
            kind, advice = errors.StoreMisconfigured, "its holdfast tables are gone; restart to create them"
        if code == sqlite3.SQLITE_BUSY_SNAPSHOT:  # only in a caller's transaction
            advice = "somebody has written to it since your transaction first read: roll back, and try again"
        elif (code or 0) & 0xFF == sqlite3.SQLITE_BUSY:
            advice = lockers.advice(self.path)
        if os.path.isdir(self.path):
            advice = "it is a directory, not a file"
        return kind(f"{self.path}: {error}" + (f": {advice}" if advice else ""))


# Not everywhere; but where it is missing, a sleep of nothing does as well.
_give_way = getattr(os, "sched_yield", lambda: time.sleep(0))

_of_the_parent: list[sqlite3.Connection] = []


def is_busy(error: BaseException | None) -> bool:
    """Tell whether somebody else has the file, and keeps it for longer than we wait."""
    code = getattr(error, "sqlite_errorcode", None) or 0
    return code & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def _split(script: str) -> list[str]:
    """Cut a script into statements. `executescript` would commit between them."""
    statements, lines = [], []
    for line in script.splitlines():
        lines.append(line)
        text = "\n".join(lines)
        if sqlite3.complete_statement(text):
            statements.append(text)
            lines = []
    return statements
