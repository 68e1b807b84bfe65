"""What our sessions are set to, whatever the server, the account, ``init_connect`` or an engine has set.

This is the only place. Decision 0034 goes through all session variables of MariaDB and MySQL, and says of
each why it is here or need not be.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.stores.mysql.session import MySQLSession

MARIADB, MYSQL = "MariaDB", "MySQL"

# Nothing of ours may wait for long: others wait for us. A client that is paused in the middle of a
# transaction loses it, and with it its hold on the row.
PINNED = {
    "completion_type": "NO_CHAIN",  # otherwise a commit begins the next transaction
    "autocommit": "ON",
    "sql_select_limit": "18446744073709551615",
    "sql_mode": "STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION",
    "sql_safe_updates": "OFF",
    "sql_big_selects": "ON",
    "sql_auto_is_null": "OFF",
    "sql_buffer_result": "OFF",
    "unique_checks": "ON",
    "foreign_key_checks": "ON",
    "time_zone": "+00:00",
    "max_sort_length": "2048",  # longer than every name
    "group_concat_max_len": "16777216",
    "div_precision_increment": "4",
    "innodb_lock_wait_timeout": "1",
    "lock_wait_timeout": "2",
    "optimizer_switch": "default",  # what the server has for all, by its configuration too
}
# Whoever asks may take as long; and a listener, which asks every few seconds, any time. One that does not ask
# is at the end of a dead line, which the server would notice much later.
BOUNDS = {
    MARIADB: {
        "max_statement_time": "8",
        "idle_transaction_timeout": "3",
        "idle_write_transaction_timeout": "0",
        "idle_readonly_transaction_timeout": "0",
    },
    # MySQL can end neither a statement that writes nor an idle transaction, but an idle session.
    MYSQL: {"max_execution_time": "8000", "wait_timeout": "10"},
}
LISTENING = {
    MARIADB: {"max_statement_time": "0", "wait_timeout": "60"},
    MYSQL: {"max_execution_time": "0", "wait_timeout": "60"},
}
# Not every version has them. A block cannot name what the server does not know, but a text in it can.
IF_KNOWN = {"innodb_snapshot_isolation": "OFF", "old_mode": "", "query_cache_type": "OFF"}
_UNKNOWN = 1193
_CACHE_IS_OFF = 1651  # so it need not be switched off

# What a set-up does beside: whatever init_connect has begun is over, names are bytes in UTF-8, and the clock
# is the server's. It comes after completion_type: a rollback that is chained would begin the same again, and
# if that only reads, our first statement could not write.
_BESIDE = """\
ROLLBACK;
SET NAMES utf8mb4 COLLATE utf8mb4_bin;
SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE;
SET SESSION timestamp = DEFAULT;
"""
# What of it is seen in variables. What is set by SET NAMES the driver has set already.
_LEVEL = {
    MARIADB: ("tx_isolation", "tx_read_only"),
    MYSQL: ("transaction_isolation", "transaction_read_only"),
}
# What MySQL 8 has where nobody has set anything, unless it is what we set. MariaDB is asked.
_USUAL_ON_MYSQL = {
    "sql_mode": "ONLY_FULL_GROUP_BY,STRICT_TRANS_TABLES,NO_ZERO_IN_DATE,NO_ZERO_DATE,"
    "ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION",
    "time_zone": "SYSTEM",
    "max_sort_length": "1024",
    "group_concat_max_len": "1024",
    "innodb_lock_wait_timeout": "50",
    "lock_wait_timeout": "31536000",
    "max_execution_time": "0",
    "wait_timeout": "28800",
    "transaction_isolation": "REPEATABLE-READ",
}
# A limit of the statement's own comes before sql_select_limit, and max_join_size would forbid to look. Of
# sql_big_selects the table has a wrong default.
_LOOK_AROUND = """\
SET STATEMENT sql_big_selects = 1 FOR
SELECT lower(variable_name), session_value, default_value FROM information_schema.system_variables
 WHERE variable_name IN ({}) LIMIT 1000"""
_BIG_SELECTS = "sql_big_selects"
_LOOK_AT_BIG_SELECTS = f"SELECT '{_BIG_SELECTS}', IF(@@session.{_BIG_SELECTS}, 'ON', 'OFF'), 'ON' LIMIT 1"
_LOOK_AT_CLOCK = "SELECT @@session.timestamp, SLEEP(0.001) LIMIT 1"


def text(kind: str, database: str | None, *, listening: bool = False) -> str:
    """Return what sets up a session, for this kind of server; *database* is where our tables are."""
    pins = {**PINNED, **(LISTENING if listening else BOUNDS)[kind]}
    there = f"USE `{database.replace('`', '``')}`;\n" if database else ""
    known = _if_known() if kind == MARIADB else ""
    assigned = ", ".join(f"{name} = {_literal(value)}" for name, value in pins.items())
    return f"SET SESSION {assigned};\n{_BESIDE}{there}{known}"


def _literal(value: str) -> str:
    return value if value.isdigit() else f"'{value}'"


def _if_known() -> str:
    texts = "".join(
        f"EXECUTE IMMEDIATE 'SET SESSION {name} = \"{value}\"';\n" for name, value in IF_KNOWN.items()
    )
    handler = f"DECLARE CONTINUE HANDLER FOR {_UNKNOWN}, {_CACHE_IS_OFF} BEGIN END;\n"
    return f"BEGIN NOT ATOMIC\n{handler}{texts}END;\n"


def overridden(session: MySQLSession, kind: str, settings: str) -> dict[str, tuple[str, str]]:
    """Return which variables somebody has set otherwise: what they are, and what *settings* make of them."""
    times = [session.script(_LOOK_AT_CLOCK)[0][0] for _ in range(2)]
    before = _look(session, kind)
    session.script(settings)
    after = _look(session, kind)
    found = {
        name: _told(name, theirs, after[name][0])
        for name, (theirs, usual) in before.items()
        if theirs not in (after[name][0], usual)
    }
    return found if times[0] != times[1] else {**found, "timestamp": (str(times[0]), "the server's clock")}


def _look(session: MySQLSession, kind: str) -> dict[str, tuple[str, str | None]]:
    """Return what the variables are, and what they are where nobody has set them."""
    names = [*PINNED, *BOUNDS[kind], *_LEVEL[kind]]
    if kind == MYSQL:
        (row,) = session.script(f"SELECT {', '.join(f'@@session.{name}' for name in names)} LIMIT 1")
        return {name: (str(value), _USUAL_ON_MYSQL.get(name)) for name, value in zip(names, row, strict=True)}
    asked = ", ".join(f"'{name}'" for name in (*names, *IF_KNOWN) if name != _BIG_SELECTS)
    rows = [*session.script(_LOOK_AT_BIG_SELECTS), *session.script(_LOOK_AROUND.format(asked))]
    return {name: (value, usual) for name, value, usual in rows}


def _told(name: str, theirs: str, ours: str) -> tuple[str, str]:
    if name == "optimizer_switch":  # dozens, of which most are the same
        return _without(theirs, ours), _without(ours, theirs)
    return theirs or "none", ours or "none"


def _without(some: str, others: str) -> str:
    return ",".join(each for each in some.split(",") if each not in others.split(","))
