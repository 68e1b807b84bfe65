"""The tables: created, upgraded, shown, dropped."""

from __future__ import annotations

import re

from holdfast.stores.postgres.session import PostgresSession
from holdfast.stores.sql import schema_versions
from holdfast.stores.sql.options import ServerOptions
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
# The default storage may have been changed to one that cannot lock rows as ours must be.
_APPLYING = "SET LOCAL lock_timeout = '8s'; SET LOCAL default_table_access_method = 'heap';\n"
_LOCK = 7_205_759_403_792_794  # of those who apply the schema at the same moment; any number


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
    if session.script(f"SELECT to_regclass('{name}')") == [(None,)]:
        return None
    rows = session.script(f"SELECT version FROM {name} WHERE id = 1")  # noqa: S608
    return int(rows[0][0] or 0) if rows else 0


def apply(session: PostgresSession, server: ServerOptions) -> tuple[int | None, int]:
    """Create or upgrade the tables in one transaction. Return the version before and after."""
    session.script(f"BEGIN; SELECT pg_advisory_xact_lock({_LOCK})")
    try:
        found = version(session, server)
        if found is not None and not 1 <= found <= VERSION:
            raise mismatch(found, VERSION)
        if found != VERSION:
            session.script(_APPLYING + script(server, found or 0))
        session.script("COMMIT")
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
