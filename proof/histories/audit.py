"""Triggers that write down every change of the locks, in the transaction that makes it.

A client that got no answer does not know what became of its request. The audit does: its rows are committed
with the change, or not at all. It is also the witness that does not depend on the code under test, only on
its tables. Times are by the store's clock, in the very words that `statements.sql` has for it.

What the library sees of its statements stays the same: counts of rows, and ``RETURNING``. Only on MariaDB any
trigger takes the insert id out of the server's answer, in which the token comes back; then the library asks
the session for it.
"""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

from proof.histories.records import Audit

CLOCKS = {
    "sqlite": "CAST((julianday('now') - 2440587.5) * 86400000000.0 AS INTEGER)",
    "postgresql": "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint",
    "mysql": "CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED)",
}
_COLUMNS = (
    "at, what, lock_key, token, owner, attempt, claimed, expires_at, granted_at, number, holds, waiters,"
    " terms"
)
_TABLES = {
    # Whoever writes is alone, so ids are in the order of all changes.
    "sqlite": """
        CREATE TABLE proof_audit (
            id INTEGER PRIMARY KEY, at INTEGER, what TEXT, lock_key TEXT, token INTEGER, owner TEXT,
            attempt TEXT, claimed INTEGER, expires_at INTEGER, granted_at INTEGER, number INTEGER,
            holds INTEGER, waiters INTEGER, terms TEXT)
        """,
    # Whoever changes a key has its row locked when the trigger takes an id; a sequence gives out one at a
    # time, and after a crash it goes on behind all that it may have given out.
    "postgresql": """
        CREATE TABLE proof_audit (
            id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, at bigint, what text, lock_key text,
            token bigint, owner text, attempt text, claimed int, expires_at bigint, granted_at bigint,
            number bigint, holds int, waiters int, terms text)
        """,
    "mysql": """
        CREATE TABLE proof_audit (
            id BIGINT AUTO_INCREMENT PRIMARY KEY, at BIGINT, what VARBINARY(20), lock_key VARBINARY(1020),
            token BIGINT, owner VARBINARY(1020), attempt VARBINARY(1100), claimed TINYINT, expires_at BIGINT,
            granted_at BIGINT, number BIGINT, holds INT, waiters INT, terms MEDIUMBLOB) ENGINE = InnoDB
        """,
}


MOVE = "MOVE"  # an update by which a hold becomes that of another attempt: before it, the one before is gone


class _Watched(NamedTuple):
    """What is written down of a table. Columns are those of the audit behind `at`, from *row*: NEW or OLD."""

    table: str
    event: str
    what: str
    values: str

    @property
    def row(self) -> str:
        return "OLD" if self.event in ("DELETE", MOVE) else "NEW"


_LOCK = (
    "{row}.token, coalesce({row}.owner, ''), coalesce({row}.attempt, ''), {row}.claimed, {row}.expires_at,"
    " {row}.granted_at, 0, {row}.holds, {row}.waiters, ''"
)
_HOLD = (
    "{row}.token, {row}.owner, {row}.attempt, {row}.claimed, {row}.expires_at, {row}.granted_at, 0, 0, 0,"
    " coalesce({row}.terms, '')"
)
# When a ticket was queued stands where a lease was granted.
_TICKET = (
    "0, {row}.owner, {row}.attempt, 1, {row}.expires_at, {row}.queued_at, {row}.number, 0, 0,"
    " coalesce({row}.terms, '')"
)
# Whether an operation succeeded stands where a lease is claimed, and its result where the terms are.
_OUTCOME = "{row}.token, '', '', {row}.succeeded, {row}.until_at, 0, 0, 0, 0, {row}.text"

_WATCHED = [
    _Watched("locks", "INSERT", "lock", _LOCK),
    _Watched("locks", "UPDATE", "lock", _LOCK),
    _Watched("holds", MOVE, "unhold", _HOLD),
    _Watched("holds", "INSERT", "hold", _HOLD),
    _Watched("holds", "UPDATE", "hold", _HOLD),
    _Watched("holds", "DELETE", "unhold", _HOLD),
    _Watched("tickets", "INSERT", "ticket", _TICKET),
    _Watched("tickets", "UPDATE", "ticket", _TICKET),
    _Watched("tickets", "DELETE", "unticket", _TICKET),
    _Watched("outcomes", "INSERT", "outcome", _OUTCOME),
]

# An update that changes nothing of this is no change: MariaDB runs triggers for those too.
_COMPARED = {
    "locks": "token owner attempt claimed expires_at granted_at holds waiters",
    "holds": "attempt claimed expires_at terms",
    "tickets": "expires_at",
}


def statements(dialect: str) -> list[str]:
    """Return what makes the table and the triggers, behind holdfast's own tables."""
    return [_TABLES[dialect], *(each for watched in _WATCHED for each in _trigger(dialect, watched))]


def read(url: str) -> Iterator[Audit]:
    """Return the audit in a database, row by row, in the order in which changes of one key were made."""
    same = sys.intern  # a few names in a million rows
    for id, at, what, key, token, owner, attempt, claimed, *numbers, terms in _rows(url):
        expires_at, granted_at, number, holds, waiters = numbers
        yield Audit(
            id,
            at,
            same(what),
            same(key),
            token,
            same(owner),
            same(attempt),
            bool(claimed),
            expires_at,
            granted_at,
            number,
            holds,
            waiters,
            same(terms),
        )


def _trigger(dialect: str, watched: _Watched) -> list[str]:
    table, event, what, values = watched
    name = f"proof_{table}_{event.lower()}"
    values = values.format(row=watched.row)
    if dialect == "postgresql":
        values = values.replace(".succeeded", ".succeeded::int")
    note = (
        f"INSERT INTO proof_audit ({_COLUMNS})"
        f" VALUES ({CLOCKS[dialect]}, '{what}', {watched.row}.lock_key, {values});"
    )
    columns = _COMPARED.get(table, "").split() if event == "UPDATE" else ["attempt"] if event == MOVE else []
    when = "BEFORE UPDATE" if event == MOVE else f"AFTER {event}"
    head = f"{when} ON holdfast_{table} FOR EACH ROW"
    if dialect == "postgresql":
        changed = " OR ".join(f"OLD.{column} IS DISTINCT FROM NEW.{column}" for column in columns)
        head = f"{head} WHEN ({changed})" if changed else head
        body = f"$$ BEGIN {note} RETURN NEW; END $$"
        return [
            f"CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS {body}",
            f"CREATE TRIGGER {name} {head} EXECUTE FUNCTION {name}()",
        ]
    if dialect == "sqlite":
        changed = " OR ".join(f"OLD.{column} IS NOT NEW.{column}" for column in columns)
        return [f"CREATE TRIGGER {name} {head} {f'WHEN {changed}' if changed else ''} BEGIN {note} END"]
    changed = " OR ".join(f"NOT OLD.{column} <=> NEW.{column}" for column in columns)
    body = f"BEGIN IF {changed} THEN {note} END IF; END" if changed else note.removesuffix(";")
    return [f"CREATE TRIGGER {name} {head} {body}"]


def _rows(url: str) -> Iterator[tuple[Any, ...]]:
    """Return all rows with text as text, without ever having all of them in memory."""
    query = f"SELECT id, {_COLUMNS} FROM proof_audit ORDER BY id"
    parts = urlsplit(url)
    if parts.scheme == "sqlite":
        file = sqlite3.connect(unquote(url.partition("?")[0].removeprefix("sqlite:///")))
        try:
            yield from file.execute(query)
        finally:
            file.close()
    elif parts.scheme == "postgresql":
        import psycopg

        with psycopg.connect(url) as connection, connection.cursor("audit") as cursor:
            cursor.itersize = 5000
            yield from cursor.execute(query)
    else:
        import pymysql
        from pymysql.cursors import SSCursor

        with pymysql.connect(
            host=parts.hostname,
            port=parts.port or 3306,
            user=parts.username,
            database=parts.path[1:],
            ssl_disabled=True,
            cursorclass=SSCursor,
        ) as connected:
            cursor_of_bytes = connected.cursor()
            cursor_of_bytes.execute(query)
            for row in cursor_of_bytes:
                yield tuple(each.decode() if isinstance(each, bytes) else each for each in row)
