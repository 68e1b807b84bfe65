"""Connections that belong to the caller: how statements of ours are run inside their open transactions.

psycopg, sqlite3, PyMySQL, mysqlclient, and SQLAlchemy over any of them, by threads or by tasks. Whatever is
done here is part of the caller's transaction, and ends with it.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import nullcontext, suppress
from typing import Any

from holdfast.errors import SettingsError
from holdfast.stores.base import Awaits
from holdfast.stores.sql.rules.columns import Row

_PARAMETER = re.compile(r"(?<!:):([a-z_]+)")


class Caller(ABC):
    """A caller's connection, as far as we need it."""

    database: str  # sqlite, postgresql, mysql

    def __init__(self, connection: Any, awaits: Any = None) -> None:
        self._connection = connection
        self._awaits = awaits  # what an asyncio driver's is told, see `Awaits`

    @abstractmethod
    def execute(self, statement: str, parameters: dict[str, Any], /) -> list[Row]:
        """Run a statement with ``:name`` parameters in their transaction, and return its rows."""

    @abstractmethod
    def check(self) -> None:
        """Raise `SettingsError` unless what we do here will last until they commit."""


def caller(connection: Any, database: str, awaits: Awaits | None = None) -> Caller:
    """Return *connection* as a `Caller`, if it is one to *database*. *awaits* is for asyncio drivers'."""
    found = any_caller(connection, awaits)
    if found.database != database:
        raise SettingsError(f"a connection to {found.database} has no part in locks that are in {database}")
    return found


def any_caller(connection: Any, awaits: Awaits | None = None) -> Caller:
    """Return *connection* as a `Caller`, whatever its database."""
    kind = type(connection)
    names = {f"{each.__module__.partition('.')[0]}.{each.__name__}" for each in kind.__mro__}
    if "sqlalchemy.Session" in names:
        return _SQLAlchemy(connection.connection())
    for name, known in _KNOWN.items():
        if name in names:
            return known(connection)
    if awaits is not None and "psycopg.AsyncConnection" in names:
        return _AsyncPsycopg(connection, awaits)
    if awaits is not None and names & {"sqlalchemy.AsyncConnection", "sqlalchemy.AsyncSession"}:
        return _AsyncSQLAlchemy(connection, awaits)
    raise SettingsError(
        f"{kind.__module__}.{kind.__name__} is no connection that holdfast knows; give it one of psycopg,"
        " sqlite3, PyMySQL, mysqlclient or SQLAlchemy"
    )


IDLE = 0  # libpq's status of a connection that is in no transaction
DRIVERS = {"pysqlite", "psycopg", "psycopg_async", "psycopg2", "pymysql", "mysqldb"}  # below SQLAlchemy
NO_TRANSACTION = "there is no transaction to be part of: begin one first, or turn autocommit off"


class _SQLite(Caller):
    database = "sqlite"

    def execute(self, statement: str, parameters: dict[str, Any], /) -> list[Row]:
        import sqlite3

        # Python begins transactions by itself before UPDATE, but not before SELECT. Rows are tuples of text
        # and numbers, whatever the connection is set to make of them.
        cursor = sqlite3.Cursor(self._connection)
        theirs, self._connection.text_factory = self._connection.text_factory, str
        try:
            return cursor.execute(statement, parameters).fetchall()
        finally:
            self._connection.text_factory = theirs
            cursor.close()

    def check(self) -> None:
        connection = self._connection
        legacy = -1  # sqlite3.LEGACY_TRANSACTION_CONTROL, the only way there was before Python 3.12
        autocommit = getattr(connection, "autocommit", legacy)
        begins = autocommit is False or (autocommit == legacy and connection.isolation_level is not None)
        if not connection.in_transaction and not begins:
            raise SettingsError(NO_TRANSACTION)


class _Formatted(Caller):
    """Drivers that want ``%(name)s``."""

    def execute(self, statement: str, parameters: dict[str, Any], /) -> list[Row]:
        with self._cursor() as cursor:
            with self._at_once():
                cursor.execute(_formatted(statement), parameters)
            return _plain(cursor.fetchall()) if cursor.description else []

    def _at_once(self) -> Any:
        """Return a block at whose end the answer is there."""
        return nullcontext()

    @abstractmethod
    def _cursor(self) -> Any:
        """Return a cursor whose rows are tuples, whatever the connection is set to."""


class _Psycopg(_Formatted):
    database = "postgresql"

    def _cursor(self) -> Any:
        from psycopg import AsyncCursor, AsyncRawCursor, Cursor, RawCursor
        from psycopg.rows import tuple_row

        kind = self._connection.cursor_factory
        if issubclass(kind, RawCursor | AsyncRawCursor):  # they have parameters of another kind
            kind = Cursor if issubclass(kind, RawCursor) else AsyncCursor
        return kind(self._connection, row_factory=tuple_row)

    def _at_once(self) -> Any:
        in_pipeline: bool = self._connection.info.pipeline_status
        # One inside of theirs: it ends when all has been answered.
        return self._connection.pipeline() if in_pipeline else nullcontext()

    def check(self) -> None:
        if self._connection.autocommit:
            self._settle()
            if self._connection.info.transaction_status == IDLE:
                raise SettingsError(NO_TRANSACTION)

    def _settle(self) -> None:
        """Have a pipeline answered: otherwise nobody knows what it has begun."""
        with self._at_once():
            pass


class _MySQL(_Formatted):
    """What goes for all drivers of MySQL and MariaDB."""

    database = "mysql"

    def check(self) -> None:
        if self._connection.get_autocommit() and not self._in_transaction():
            raise SettingsError(NO_TRANSACTION)
        self._check_characters()

    @abstractmethod
    def _in_transaction(self) -> bool:
        """Tell whether there is a transaction, where none begins by itself with the next statement."""

    def _check_characters(self) -> None:
        """See that text arrives as it is, there and back: in another character set a key is another key."""
        with suppress(UnicodeEncodeError, self._connection.Error):
            if self.execute(_ARRIVES, {"text": TEXT}) == [(HEXED, HEXED, "utf8mb4")]:
                return
        raise SettingsError(
            "keys do not arrive on this connection as they are: its character sets are"
            f" {', '.join(map(str, self.execute(_SETS, {})[0]))} (client, connection, results). Connect with"
            " charset='utf8mb4', and leave it at that"
        )


TEXT = "Aé東🔒"  # of one to four bytes
HEXED = TEXT.encode().hex().upper()
# Nothing in the answer is of that text, names of columns included: a driver that fails to decode an answer is
# out of step with the server from then on.
_ARRIVES = "SELECT hex(:text) AS a, hex(CONVERT(:text USING utf8mb4)) AS b, @@character_set_results AS c"
_SETS = "SELECT @@character_set_client, @@character_set_connection, @@character_set_results"


class _PyMySQL(_MySQL):
    def _cursor(self) -> Any:
        from pymysql.cursors import Cursor

        return self._connection.cursor(Cursor)

    def _in_transaction(self) -> bool:
        # What the driver knows is from the last answer that told of it. Errors do not, and a deadlock ends a
        # transaction.
        self.execute("DO 0", {})
        return bool(self._connection.server_status & 1)


class _MySQLClient(_MySQL):
    def _cursor(self) -> Any:
        from MySQLdb.cursors import Cursor  # type: ignore[import-untyped, import-not-found, unused-ignore]

        return self._connection.cursor(Cursor)

    def _in_transaction(self) -> bool:
        try:
            return bool(self.execute("SELECT @@in_transaction", {})[0][0])
        except self._connection.OperationalError:  # MySQL has no such variable, and the driver does not tell
            return False


class _SQLAlchemy(Caller):
    """By SQLAlchemy's own methods, so that it knows of the transaction that begins with ours."""

    def __init__(self, connection: Any) -> None:
        super().__init__(connection)
        self.database = {"mariadb": "mysql"}.get(connection.dialect.name, connection.dialect.name)
        if connection.dialect.driver not in DRIVERS:
            raise SettingsError(
                f"SQLAlchemy over {connection.dialect.driver} is no connection that holdfast knows; use it"
                " over psycopg, psycopg2, sqlite3, PyMySQL or mysqlclient"
            )

    def execute(self, statement: str, parameters: dict[str, Any], /) -> list[Row]:
        text = statement if self.database == "sqlite" else _formatted(statement)
        result = self._connection.exec_driver_sql(text, parameters)
        return _plain(result.fetchall()) if result.returns_rows else []

    def check(self) -> None:
        if self._connection.get_execution_options().get("isolation_level") == "AUTOCOMMIT":
            raise SettingsError(NO_TRANSACTION)
        driver = self._connection.connection.driver_connection
        if getattr(driver, "autocommit", False) is True:  # psycopg's, of either kind
            raise SettingsError(NO_TRANSACTION)
        if self.database != "postgresql":
            any_caller(driver).check()


class _AsyncPsycopg(_Psycopg):
    """An asyncio driver's connection, used from a thread: what it awaits is awaited elsewhere."""

    def execute(self, statement: str, parameters: dict[str, Any], /) -> list[Row]:
        async def run() -> list[Row]:
            async with self._cursor() as cursor:
                async with self._at_once():
                    await cursor.execute(_formatted(statement), parameters)
                return _plain(await cursor.fetchall()) if cursor.description else []

        rows: list[Row] = self._awaits(run)
        return rows

    def _settle(self) -> None:
        async def settle() -> None:
            async with self._at_once():
                pass

        self._awaits(settle)


class _AsyncSQLAlchemy(Caller):
    """SQLAlchemy's asyncio connection, whose synchronous side is used where it is awaited."""

    def __init__(self, connection: Any, awaits: Awaits) -> None:
        super().__init__(connection, awaits)
        self.database = self._inside(lambda caller: caller.database)

    def execute(self, statement: str, parameters: dict[str, Any], /) -> list[Row]:
        rows: list[Row] = self._inside(lambda caller: caller.execute(statement, parameters))
        return rows

    def check(self) -> None:
        self._inside(lambda caller: caller.check())

    def _inside(self, work: Callable[[Caller], Any]) -> Any:
        return self._awaits(
            lambda: self._connection.run_sync(lambda connection: work(any_caller(connection)))
        )


_KNOWN: dict[str, Callable[[Any], Caller]] = {
    "sqlite3.Connection": _SQLite,
    "psycopg.Connection": _Psycopg,
    "pymysql.Connection": _PyMySQL,
    "MySQLdb.Connection": _MySQLClient,
    "sqlalchemy.Connection": _SQLAlchemy,
}


def _formatted(statement: str) -> str:
    return _PARAMETER.sub(r"%(\1)s", statement.replace("%", "%%"))


def _plain(rows: Any) -> list[Row]:
    """Return rows as tuples, with text where a driver has bytes."""
    return [tuple(value.decode() if isinstance(value, bytes) else value for value in row) for row in rows]
