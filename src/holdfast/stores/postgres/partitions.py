"""The history by weeks: partitions are made ahead, and dropped as a whole when they are over."""

from __future__ import annotations

import re
from contextlib import suppress

from holdfast import errors
from holdfast.stores.postgres.session import PostgresSession
from holdfast.stores.sql.options import ServerOptions

WEEK = 7 * 86_400_000_000  # microseconds; weeks are counted since the epoch
AHEAD = 2


def keep(session: PostgresSession, server: ServerOptions, now: int, forget_before: int) -> None:
    """Make this week's partition and the next ones, and drop those that ended before *forget_before*.

    Whoever may not change tables leaves that to somebody who may; until then events go into the rest.
    """
    where = f'"{server.schema}".' if server.schema else ""
    table = f"{where}{server.prefix}history"
    there = weeks(session, server)
    for week in range(now // WEEK, now // WEEK + AHEAD + 1):
        if week not in there:
            _make(session, table, week)
    for week in there:
        if (week + 1) * WEEK <= forget_before:
            with suppress(errors.StoreMisconfigured, errors.StoreUnavailable):
                session.script(f"DROP TABLE IF EXISTS {table}_w{week}")


def weeks(session: PostgresSession, server: ServerOptions) -> list[int]:
    """Return the weeks that have a partition."""
    where = f'"{server.schema}".' if server.schema else ""
    rows = session.script(
        "SELECT c.relname FROM pg_inherits AS i JOIN pg_class AS c ON c.oid = i.inhrelid"  # noqa: S608
        f" WHERE i.inhparent = '{where}{server.prefix}history'::regclass"
    )
    found = (re.search(rb"_w(\d+)$", name) for (name,) in rows if name)
    return sorted(int(match[1]) for match in found if match)


def _make(session: PostgresSession, table: str, week: int) -> None:
    # Attached and not created in place: that would lock out whoever reads or writes the history meanwhile.
    name = f"{table}_w{week}"
    try:
        session.script(
            f"BEGIN; CREATE TABLE {name} (LIKE {table} INCLUDING ALL);"
            f" ALTER TABLE {table} ATTACH PARTITION {name}"
            f" FOR VALUES FROM ({week * WEEK}) TO ({(week + 1) * WEEK}); COMMIT"
        )
    except errors.StoreError:
        session.roll_back()  # no right to, made by somebody else just now, or events of that week in the rest
