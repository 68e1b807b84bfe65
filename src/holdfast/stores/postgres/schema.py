"""The tables: created, upgraded, shown, dropped."""

from __future__ import annotations

import re

from holdfast import errors
from holdfast.stores.postgres.session import PostgresSession
from holdfast.stores.sql import schema_versions
from holdfast.stores.sql.options import ServerOptions
from holdfast.stores.sql.session import RowLocked
from holdfast.stores.sql.tables import mismatch

SCHEMA = schema_versions("holdfast.stores.postgres")
VERSION = SCHEMA[-1][0]

TABLES = (
    "meta",
    "locks",
    "holds",
    "tickets",
    "ended",
    "outcomes",
    "history",
    "feed",
    "access",
    "instances",
    "work",
)

_OURS = re.compile(r"\bholdfast_")
_LOCK = 7_205_759_403_792_794  # of those who apply the schema at the same moment; any number
_PATIENCE = "7s"  # less than a statement may take
# The default storage may have been changed to one that cannot lock rows as ours must be.
_APPLYING = (
    f"BEGIN; SET LOCAL lock_timeout = '{_PATIENCE}'; SET LOCAL default_table_access_method = 'heap';"
    f" SELECT pg_advisory_xact_lock({_LOCK})"
)


def script(server: ServerOptions, since: int = 0) -> str:
    """Return what creates the tables, or brings them from the version *since* to ours."""
    steps = [text for number, text in SCHEMA if number > since]
    where = ""
    if server.schema:
        where = (
            f'CREATE SCHEMA IF NOT EXISTS "{server.schema}";\nSET LOCAL search_path = "{server.schema}";\n'
        )
    return where + "\n".join(_OURS.sub(server.prefix, step) for step in steps)


def version(session: PostgresSession, server: ServerOptions) -> int | None:
    """Return the version of the tables; None if there are none."""
    table = f"{server.prefix}meta"
    name = f'"{server.schema}".{table}' if server.schema else table
    # By itself, to_regclass may tell what was there before we waited for an advisory lock. It is up to date
    # after a table has been opened.
    if not session.script(f"SELECT 1 FROM pg_class WHERE oid = to_regclass('{name}')"):  # noqa: S608
        return None
    rows = session.script(f"SELECT version FROM {name} WHERE id = 1")  # noqa: S608
    return int(rows[0][0] or 0) if rows else 0


def apply(session: PostgresSession, server: ServerOptions) -> tuple[int | None, int]:
    """Create or upgrade the tables in one transaction. Return the version before and after."""
    found = version(session, server)
    if found == VERSION:
        return found, VERSION
    try:
        session.script(_APPLYING)
        found = version(session, server)
        if found is not None and not 1 <= found <= VERSION:
            raise mismatch(found, VERSION)
        if found != VERSION:
            session.script(script(server, found or 0))
        session.script("COMMIT")
    except RowLocked as error:
        session.roll_back()
        raise errors.StoreUnavailable("somebody else is changing holdfast's tables; try again") from error
    except BaseException:
        session.roll_back()
        raise
    return found, VERSION


def drop(session: PostgresSession, server: ServerOptions) -> int:
    """Drop the tables, and with them every lock. Return how many there were."""
    where = f'"{server.schema}".' if server.schema else ""
    tables = [f"{where}{server.prefix}{name}" for name in TABLES]
    there = ", ".join(f"to_regclass('{table}')" for table in tables)
    found = session.script(f"SELECT num_nonnulls({there})")
    session.script(f"DROP TABLE IF EXISTS {', '.join(tables)}")
    return int(found[0][0] or 0)
