"""The history by weeks: partitions are made ahead, and dropped as a whole when they are over.

Ranges have no gaps between them: what happened before the first week is in ``p_old``, what comes after the
last one in ``p_rest``, and a new week is split off that while it is still empty.
"""

from __future__ import annotations

import re
from contextlib import suppress

from holdfast import errors
from holdfast.stores.mysql.session import MySQLSession
from holdfast.stores.sql.options import ServerOptions

WEEK = 7 * 86_400_000_000  # microseconds; weeks are counted since the epoch
AHEAD = 2


def keep(session: MySQLSession, server: ServerOptions, now: int, forget_before: int) -> None:
    """Make this week's partition and the next ones, and drop those that ended before *forget_before*.

    Whoever may not change tables leaves that to somebody who may; until then events go into the rest.
    """
    table = f"{server.prefix}history"
    there = weeks(session, server)
    first = max([now // WEEK, *(week + 1 for week in there)])
    new = range(first, now // WEEK + AHEAD + 1)
    if new:
        made = ", ".join(f"PARTITION p_w{week} VALUES LESS THAN ({(week + 1) * WEEK})" for week in new)
        _change(
            session,
            f"ALTER TABLE {table} REORGANIZE PARTITION p_rest INTO"
            f" ({made}, PARTITION p_rest VALUES LESS THAN MAXVALUE)",
        )
    over = [f"p_w{week}" for week in there if (week + 1) * WEEK <= forget_before]
    if over:
        _change(session, f"ALTER TABLE {table} DROP PARTITION {', '.join(over)}")


def weeks(session: MySQLSession, server: ServerOptions) -> list[int]:
    """Return the weeks that have a partition."""
    rows = session.script(
        "SELECT partition_name FROM information_schema.partitions"  # noqa: S608
        f" WHERE table_schema = database() AND table_name = '{server.prefix}history'"
    )
    found = (re.fullmatch(r"p_w(\d+)", name) for (name,) in rows if name)
    return sorted(int(match[1]) for match in found if match)


def _change(session: MySQLSession, statement: str) -> None:
    # No right to, or somebody else is at it, or somebody reads the history and would have to wait behind us.
    with suppress(errors.StoreError):
        session.script(statement)
