"""Connections that belong to the caller: how statements of ours are run inside their open transactions.

psycopg, sqlite3, PyMySQL, mysqlclient, and SQLAlchemy over any of them, by threads or by tasks. Whatever is
done here is part of the caller's transaction, and ends with it.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Protocol

from holdfast.errors import SettingsError
from holdfast.stores.base import Awaits
from holdfast.stores.sql.run import Row

_PARAMETER = re.compile(r"(?<!:):([a-z_]+)")


class Caller(Protocol):
    """A caller's connection, as far as we need it."""

    database: str  # sqlite, postgresql, mysql

    def execute(self, statement: str, parameters: dict[str, Any], /) -> list[Row]:
        """Run a statement with ``:name`` parameters in their transaction, and return its rows."""

    def changed(self) -> int:
        """Return how many rows the last statement changed."""

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
    if "sqlite3.Connection" in names:
        return _SQLite(connection)
    if "psycopg.Connection" in names:
        return _Psycopg(connection)
    if "pymysql.Connection" in names:
        return _PyMySQL(connection)
    if "MySQLdb.Connection" in names:
        return _MySQLClient(connection)
    if "sqlalchemy.Session" in names:
        return _SQLAlchemy(connection.connection())
    if "sqlalchemy.Connection" in names:
        return _SQLAlchemy(connection)
    if awaits is not None and "psycopg.AsyncConnection" in names:
        return _AsyncPsycopg(connection, awaits)
    if awaits is not None and names & {"sqlalchemy.AsyncConnection", "sqlalchemy.AsyncSession"}:
        return _AsyncSQLAlchemy(connection, awaits)
    raise SettingsError(
        f"{kind.__module__}.{kind.__name__} is no connection that holdfast knows; give it one of psycopg,"
        " sqlite3, PyMySQL, mysqlclient or SQLAlchemy"
    )


NO_TRANSACTION = "there is no transaction to be part of: begin one first, or turn autocommit off"


class _SQLite:
    database = "sqlite"

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._changed = 0

    def execute(self, statement: str, parameters: dict[str, Any], /) -> list[Row]:
        # Python begins transactions by itself before UPDATE, but not before SELECT.
        cursor = self._connection.execute(statement, parameters)
        try:
            rows = [tuple(row) for row in cursor.fetchall()]
            self._changed = cursor.rowcount
            return rows
        finally:
            cursor.close()

    def changed(self) -> int:
        return self._changed

    def check(self) -> None:
        connection = self._connection
        begins = getattr(connection, "autocommit", -1) is False or connection.isolation_level is not None
        if not connection.in_transaction and not begins:
            raise SettingsError(NO_TRANSACTION)


class _Formatted(ABC):
    """Drivers that want ``%(name)s``."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._changed = 0

    def execute(self, statement: str, parameters: dict[str, Any], /) -> list[Row]:
        with self._cursor() as cursor:
            cursor.execute(_formatted(statement), parameters)
            self._changed = cursor.rowcount
            return _plain(cursor.fetchall()) if cursor.description else []

    def changed(self) -> int:
        return self._changed

    @abstractmethod
    def _cursor(self) -> Any:
        """Return a cursor whose rows are tuples, whatever the connection is set to."""


class _Psycopg(_Formatted):
    database = "postgresql"

    def _cursor(self) -> Any:
        from psycopg.rows import tuple_row

        return self._connection.cursor(row_factory=tuple_row)

    def check(self) -> None:
        if self._connection.autocommit and self._connection.info.transaction_status == 0:  # idle
            raise SettingsError(NO_TRANSACTION)


class _PyMySQL(_Formatted):
    database = "mysql"

    def _cursor(self) -> Any:
        from pymysql.cursors import Cursor

        return self._connection.cursor(Cursor)

    def check(self) -> None:
        in_transaction = self._connection.server_status & 1
        if self._connection.get_autocommit() and not in_transaction:
            raise SettingsError(NO_TRANSACTION)


class _MySQLClient(_Formatted):
    database = "mysql"

    def _cursor(self) -> Any:
        from MySQLdb.cursors import Cursor  # type: ignore[import-untyped, import-not-found, unused-ignore]

        return self._connection.cursor(Cursor)

    def check(self) -> None:
        if not self._connection.get_autocommit():
            return
        try:
            begun = self.execute("SELECT @@in_transaction", {})[0][0]
        except self._connection.OperationalError:  # MySQL has no such variable, and the driver does not tell
            begun = False
        if not begun:
            raise SettingsError(NO_TRANSACTION)


class _SQLAlchemy:
    """By SQLAlchemy's own methods, so that it knows of the transaction that begins with ours."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._changed = 0
        self.database: str = {"mariadb": "mysql"}.get(connection.dialect.name, connection.dialect.name)

    def execute(self, statement: str, parameters: dict[str, Any], /) -> list[Row]:
        text = statement if self.database == "sqlite" else _formatted(statement)
        result = self._connection.exec_driver_sql(text, parameters)
        self._changed = result.rowcount
        return _plain(result.fetchall()) if result.returns_rows else []

    def changed(self) -> int:
        return self._changed

    def check(self) -> None:
        if self._connection.get_execution_options().get("isolation_level") == "AUTOCOMMIT":
            raise SettingsError(NO_TRANSACTION)
        driver = self._connection.connection.driver_connection
        if getattr(driver, "autocommit", False) is True:  # psycopg's, of either kind
            raise SettingsError(NO_TRANSACTION)
        if self.database != "postgresql":
            any_caller(driver).check()


class _AsyncPsycopg:
    """An asyncio driver's connection, used from a thread: what it awaits is awaited elsewhere."""

    database = "postgresql"

    def __init__(self, connection: Any, awaits: Awaits) -> None:
        self._connection = connection
        self._awaits = awaits
        self._changed = 0

    def execute(self, statement: str, parameters: dict[str, Any], /) -> list[Row]:
        async def run() -> list[Row]:
            from psycopg.rows import tuple_row

            async with self._connection.cursor(row_factory=tuple_row) as cursor:
                await cursor.execute(_formatted(statement), parameters)
                self._changed = cursor.rowcount
                return _plain(await cursor.fetchall()) if cursor.description else []

        rows: list[Row] = self._awaits(run)
        return rows

    def changed(self) -> int:
        return self._changed

    def check(self) -> None:
        if self._connection.autocommit and self._connection.info.transaction_status == 0:
            raise SettingsError(NO_TRANSACTION)


class _AsyncSQLAlchemy:
    """SQLAlchemy's asyncio connection, whose synchronous side is used where it is awaited."""

    def __init__(self, connection: Any, awaits: Awaits) -> None:
        self._connection = connection
        self._awaits = awaits
        self._changed = 0
        self.database = self._inside(lambda caller: caller.database)

    def execute(self, statement: str, parameters: dict[str, Any], /) -> list[Row]:
        def run(caller: Caller) -> list[Row]:
            rows = caller.execute(statement, parameters)
            self._changed = caller.changed()
            return rows

        rows: list[Row] = self._inside(run)
        return rows

    def changed(self) -> int:
        return self._changed

    def check(self) -> None:
        self._inside(lambda caller: caller.check())

    def _inside(self, work: Callable[[Caller], Any]) -> Any:
        return self._awaits(
            lambda: self._connection.run_sync(lambda connection: work(any_caller(connection)))
        )


def _formatted(statement: str) -> str:
    return _PARAMETER.sub(r"%(\1)s", statement.replace("%", "%%"))


def _plain(rows: Any) -> list[Row]:
    """Return rows as tuples, with text where a driver has bytes."""
    return [tuple(value.decode() if isinstance(value, bytes) else value for value in row) for row in rows]
