"""The tables: created, upgraded, shown, dropped."""

from __future__ import annotations

import re
from contextlib import suppress

from holdfast import errors
from holdfast.stores.mysql.session import MySQLSession
from holdfast.stores.sql import schema_versions
from holdfast.stores.sql.options import ServerOptions
from holdfast.stores.sql.tables import mismatch

SCHEMA = schema_versions("holdfast.stores.mysql")
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
    "instances",
    "work",
    "access",
    "signals",
)

_OURS = re.compile(r"\bholdfast_")
# Of those who apply the schema at the same moment. Such names are the whole server's, and have 64 characters.
_LOCK = "concat('holdfast:schema:', left(sha1(database()), 32))"
_PATIENCE = 8


def script(server: ServerOptions, since: int = 0) -> str:
    """Return what creates the tables, or brings them from the version *since* to ours."""
    steps = [text for number, text in SCHEMA if number > since]
    return "\n".join(_OURS.sub(server.prefix, step) for step in steps)


def version(session: MySQLSession, server: ServerOptions) -> int | None:
    """Return the version of the tables; None if there are none."""
    table = f"{server.prefix}meta"
    if not session.script(
        f"SELECT 1 FROM information_schema.tables WHERE table_schema = database() AND table_name = '{table}'"  # noqa: S608
    ):
        # Tables on which one has no right are not in that list. To read one says which it is.
        with suppress(errors.SchemaMismatch):
            session.script(f"SELECT 1 FROM {table} LIMIT 0")  # noqa: S608
        return None
    rows = session.script(f"SELECT version FROM {table} WHERE id = 1")  # noqa: S608
    return int(rows[0][0]) if rows else None  # without the row somebody was interrupted


def apply(session: MySQLSession, server: ServerOptions) -> tuple[int | None, int]:
    """Create or upgrade the tables, one at a time. Return the version before and after.

    A change of tables cannot be rolled back here: whoever is interrupted leaves it to the next one to go on.
    """
    found = version(session, server)
    if found == VERSION:
        return found, VERSION
    if session.script(f"SELECT GET_LOCK({_LOCK}, {_PATIENCE})") != [(1,)]:
        raise errors.StoreUnavailable("somebody else is changing holdfast's tables; try again")
    try:
        found = version(session, server)
        if found is not None and not 1 <= found <= VERSION:
            raise mismatch(found, VERSION)
        if found != VERSION:
            session.script(script(server, found or 0).strip().removesuffix(";"))
    finally:
        with suppress(errors.StoreError):
            session.script(f"SELECT RELEASE_LOCK({_LOCK})")
    return found, VERSION


def drop(session: MySQLSession, server: ServerOptions) -> int:
    """Drop the tables, and with them every lock. Return how many there were."""
    names = [server.prefix + name for name in TABLES]
    listed = ", ".join(f"'{name}'" for name in names)
    found = session.script(
        "SELECT count(*) FROM information_schema.tables"  # noqa: S608
        f" WHERE table_schema = database() AND table_name IN ({listed})"
    )
    session.script(f"DROP TABLE IF EXISTS {', '.join(names)}")
    return int(found[0][0])
