"""Fencing a resource in another database than the one that has the locks.

Where both are in one database, `Lease.fence` is all that is needed. Elsewhere the resource has to remember
the highest token it was shown, in a table of its own, and it must be shown ours *before the first read*: a
check of the writes alone still loses updates.

    CREATE TABLE holdfast_fences (resource VARCHAR(255) PRIMARY KEY, token BIGINT NOT NULL);

On MySQL and MariaDB the column is ``resource VARBINARY(1020)``: their text takes ``A`` and ``a`` for one.
"""

from __future__ import annotations

import re
from typing import Any

from holdfast.client.leases import BaseLease
from holdfast.errors import LeaseLost, SettingsError
from holdfast.stores.sql.callers.connections import Caller, any_caller
from holdfast.stores.sql.callers.within import NESTED, in_savepoint

TABLE = "holdfast_fences"

_NAME = re.compile(r"^[A-Za-z_][A-Za-z0-9_.]{0,62}$")

# No row: a newer token was there. Else whether no savepoint can take the token back.
_UPSERT = """
INSERT INTO {table} AS f (resource, token) VALUES (:resource, :token)
    ON CONFLICT (resource) DO UPDATE SET token = excluded.token WHERE f.token <= excluded.token
RETURNING {lasts}
"""
# On PostgreSQL a savepoint writes under a number of its own, and keeps that locked until it is over. (xmin of
# the row would tell as well, but not where the table is partitioned, or a view.)
_LASTS = {
    "postgresql": """(SELECT count(*) = 1 FROM pg_locks WHERE locktype = 'transactionid'
            AND pid = pg_backend_pid() AND mode = 'ExclusiveLock' AND f.token IS NOT NULL)""",
    "sqlite": "true",  # nobody tells
}
# MySQL counts rows in its own way: so raise first, and read what is there now, which locks it.
_RAISE = """
INSERT INTO {table} (resource, token) VALUES (:resource, :token)
    ON DUPLICATE KEY UPDATE token = greatest(token, :token)
"""
_RAISED = "SELECT resource, token FROM {table} WHERE resource = :resource FOR UPDATE"


def raise_token(
    connection: Any, lease: BaseLease, *, resource: str | None = None, table: str = TABLE
) -> None:
    """Show a resource the token of *lease*, inside the transaction that is open on *connection*.

    Raise `LeaseLost` if it has seen a newer one: then somebody else holds the lock. Otherwise whoever comes
    with another token waits until the transaction has ended. *resource* is the lock's key by default. The
    connection is one of psycopg, PyMySQL, mysqlclient, sqlite3 or SQLAlchemy.

    Call it before the first read, and before any savepoint: to roll back to that would take the token back.
    Inside of one it raises `SettingsError`, where that can be seen: on PostgreSQL, and in SQLAlchemy's
    `begin_nested`. On MySQL, MariaDB and SQLite a savepoint that was set by SQL cannot be seen.
    """
    if not _NAME.match(table):
        raise SettingsError(f"{table!r} is no name of a table")
    lease.check()
    theirs = any_caller(connection)
    if in_savepoint(connection):
        raise SettingsError(NESTED)
    theirs.check()
    parameters = {"resource": lease.key if resource is None else resource, "token": lease.token}
    if theirs.database == "mysql":
        raised = _raise_on_mysql(theirs, table, parameters)
    else:
        rows = theirs.execute(_UPSERT.format(table=table, lasts=_LASTS[theirs.database]), parameters)
        if rows and not rows[0][0]:
            raise SettingsError(NESTED)
        raised = bool(rows)
    if not raised:
        raise LeaseLost(
            lease.key, "taken over", token=lease.token, detail="the resource has seen a newer token"
        )


def _raise_on_mysql(theirs: Caller, table: str, parameters: dict[str, Any]) -> bool:
    theirs.execute(_RAISE.format(table=table), parameters)
    found = theirs.execute(_RAISED.format(table=table), parameters)
    named = found[0][0] if found else "what it was cut to"
    if named != parameters["resource"]:  # by its collation, or the length of the column
        raise SettingsError(
            f"{table} takes {parameters['resource']!r} and {named!r} as one:"
            f" ALTER TABLE {table} MODIFY resource VARBINARY(1020) NOT NULL"
        )
    return bool(found[0][1] == parameters["token"])
