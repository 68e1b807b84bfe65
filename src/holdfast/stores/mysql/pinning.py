"""What our sessions are set to, whatever the server, the account, ``init_connect`` or an engine has set.

This is the only place. Decision 0034 goes through all session variables of MariaDB and MySQL, and says of
each why it is here or need not be.
"""

from __future__ import annotations

from typing import Any

from holdfast.stores.sql.run import Row

MARIADB, MYSQL = "MariaDB", "MySQL"

# Nothing of ours may wait for long: others wait for us. A client that is paused in the middle of a
# transaction loses it, and with it its hold on the row. Of each variable: our value, and what it is where
# nobody has set it.
PINNED: dict[str, tuple[str, str]] = {
    "completion_type": ("NO_CHAIN", "NO_CHAIN"),  # otherwise a commit begins the next transaction
    "autocommit": ("ON", "ON"),
    "sql_select_limit": ("18446744073709551615", "18446744073709551615"),
    "sql_mode": ("STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION", ""),
    "sql_safe_updates": ("OFF", "OFF"),
    "sql_big_selects": ("ON", "ON"),
    "sql_auto_is_null": ("OFF", "OFF"),
    "sql_buffer_result": ("OFF", "OFF"),
    "unique_checks": ("ON", "ON"),
    "foreign_key_checks": ("ON", "ON"),
    "time_zone": ("+00:00", "SYSTEM"),
    "max_sort_length": ("2048", "1024"),  # longer than every name
    "group_concat_max_len": ("16777216", "1048576"),
    "div_precision_increment": ("4", "4"),
    "innodb_lock_wait_timeout": ("1", "50"),
    "lock_wait_timeout": ("2", "86400"),
    "optimizer_switch": ("default", ""),  # the server's own defaults: with them the tests were run
}
# Whoever asks may take as long; and a listener, which asks every few seconds, any time. One that does not ask
# is at the end of a dead line, which the server would notice much later.
BOUNDS = {
    MARIADB: {
        "max_statement_time": ("8", "0"),
        "idle_transaction_timeout": ("3", "0"),
        "idle_write_transaction_timeout": ("0", "0"),
        "idle_readonly_transaction_timeout": ("0", "0"),
    },
    # MySQL can end neither a statement that writes nor an idle transaction, but an idle session.
    MYSQL: {"max_execution_time": ("8000", "0"), "wait_timeout": ("10", "28800")},
}
LISTENING = {
    MARIADB: {"max_statement_time": ("0", "0"), "wait_timeout": ("60", "28800")},
    MYSQL: {"max_execution_time": ("0", "0"), "wait_timeout": ("60", "28800")},
}
# Not every version has them. A block cannot name what the server does not know, but a text in it can.
IF_KNOWN = {
    "innodb_snapshot_isolation": ("OFF", "OFF"),
    "old_mode": ("", "UTF8_IS_UTF8MB3"),
    "query_cache_type": ("OFF", "OFF"),
}
_UNKNOWN = 1193
_CACHE_IS_OFF = 1651  # so it need not be switched off

# What a set-up does beside: whatever init_connect has begun is over, names are bytes in UTF-8, and the clock
# is the server's. It comes behind completion_type: a rollback that is chained would begin the same again, and
# if that only reads, our first statement could not write.
_BESIDE = """\
ROLLBACK;
SET NAMES utf8mb4 COLLATE utf8mb4_bin;
SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE;
SET SESSION timestamp = DEFAULT;
"""


def text(kind: str, database: str | None, *, listening: bool = False) -> str:
    """Return what sets up a session, for this kind of server; *database* is where our tables are."""
    pins = {**PINNED, **(LISTENING if listening else BOUNDS)[kind]}
    there = f"USE `{database.replace('`', '``')}`;\n" if database else ""
    known = _if_known() if kind == MARIADB else ""
    return f"SET SESSION {_assignments(pins)};\n{_BESIDE}{there}{known}"


def _assignments(pins: dict[str, tuple[str, str]]) -> str:
    return ", ".join(f"{name} = {_literal(value)}" for name, (value, _) in pins.items())


def _literal(value: str) -> str:
    return value if value.isdigit() else f"'{value}'"


def _if_known() -> str:
    texts = "".join(
        f"EXECUTE IMMEDIATE 'SET SESSION {name} = \"{value}\"';\n" for name, (value, _) in IF_KNOWN.items()
    )
    handler = f"DECLARE CONTINUE HANDLER FOR {_UNKNOWN}, {_CACHE_IS_OFF} BEGIN END;\n"
    return f"BEGIN NOT ATOMIC\n{handler}{texts}END;\n"


def usual(kind: str) -> dict[str, str]:
    """Return what variables are where nobody has set them, as far as all versions agree."""
    pins = {**PINNED, **BOUNDS[kind]}
    said = {name: default for name, (_, default) in pins.items() if default}
    return {**said, "character_set_client": "utf8mb4", "autocommit": "ON"}


def look(kind: str) -> str:
    """Return the statement that reads them, in that order."""
    return "SELECT " + ", ".join(f"@@session.{name}" for name in usual(kind))


def overridden(kind: str, before: Row, after: Row) -> dict[str, tuple[str, str]]:
    """Return which of them somebody has set otherwise: what they are, and what we make of them."""
    return {
        name: (str(theirs), str(ours))
        for (name, default), theirs, ours in zip(usual(kind).items(), before, after, strict=True)
        if theirs != ours and not _is_same(theirs, default)
    }


def _is_same(value: Any, default: str) -> bool:
    default = {"ON": "1", "OFF": "0"}.get(default, default)
    try:
        return float(value) == float(default)
    except ValueError:
        return str(value) == default
