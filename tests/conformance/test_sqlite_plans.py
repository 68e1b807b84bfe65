"""How SQLite finds rows: by an index, whatever the statement, at a million rows as at ten (R7)."""

import re
import sqlite3
from collections.abc import Iterator

import pytest

from holdfast.stores.sqlite.database import SCHEMA, SQL

STATEMENTS = dict(SQL)
CONTROL = {"begin", "commit", "rollback"}
# Reads of whole tables that are right, because they are bounded by LIMIT and go along an index.
WALKS = {"sweep_walk", "list"}


@pytest.fixture(scope="module")
def connection() -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(":memory:")
    for _, script in SCHEMA:
        connection.executescript(script)
    yield connection
    connection.close()


def plan(connection: sqlite3.Connection, name: str) -> list[str]:
    """Return the lines of the query plan of a statement."""
    statement = STATEMENTS[name]
    json = {"leases": "[]", "tickets": "[]", "keys": "[]"}
    parameters = {name: json.get(name, 1) for name in re.findall(r":(\w+)", statement)}
    rows = connection.execute(f"EXPLAIN QUERY PLAN {statement}", parameters)
    return [detail for *_, detail in rows]


def scans(lines: list[str]) -> list[str]:
    """Return the lines that read a whole table; batches and made-up rows are none."""
    harmless = {"SCAN CONSTANT ROW"}
    harmless |= {line.replace("CO-ROUTINE", "SCAN") for line in lines if line.startswith("CO-ROUTINE")}
    return [
        line
        for line in lines
        if line.startswith("SCAN") and line not in harmless and "VIRTUAL TABLE" not in line
    ]


@pytest.mark.parametrize("name", sorted(set(STATEMENTS) - CONTROL))
def test_no_statement_scans_a_table(connection, name):
    lines = plan(connection, name)
    assert scans(lines) == [], lines
    assert not [line for line in lines if "AUTOMATIC" in line], lines


def test_a_scan_would_be_noticed(connection):
    rows = connection.execute("EXPLAIN QUERY PLAN SELECT * FROM holdfast_locks AS t WHERE host = 'alpha'")
    assert scans([detail for *_, detail in rows]) == ["SCAN t"]


@pytest.mark.parametrize("name", sorted(WALKS))
def test_walks_begin_after_the_cursor_and_need_no_sorting(connection, name):
    lines = plan(connection, name)
    assert any(re.match(r"SEARCH holdfast_locks USING PRIMARY KEY \(lock_key>\?", line) for line in lines)
    assert not [line for line in lines if "TEMP B-TREE" in line], lines


@pytest.mark.parametrize(
    ("name", "index"),
    [
        ("list_by_owner", "holdfast_locks_by_owner (owner=? AND lock_key>?"),
        ("sweep_expired", "holdfast_locks_by_expiry (expires_at<?"),
        ("sweep_ended", "holdfast_ended_by_time (until_at<?"),
        ("sweep_history", "holdfast_history_by_time (at<?"),
        ("refresh_ticket", "holdfast_tickets_by_attempt (lock_key=? AND attempt=?"),
        ("find_ticket", "holdfast_tickets_by_attempt (lock_key=? AND attempt=?"),
        ("queue_head", "PRIMARY KEY (lock_key=?"),
        ("tickets_before", "PRIMARY KEY (lock_key=? AND number<?"),
        ("history", "PRIMARY KEY (lock_key=?"),
        ("read_ended", "PRIMARY KEY (lock_key=? AND attempt=?"),
    ],
)
def test_a_statement_uses_the_index_made_for_it(connection, name, index):
    lines = plan(connection, name)
    assert any(index in line for line in lines), lines
    assert not [line for line in lines if "TEMP B-TREE" in line], lines


@pytest.mark.parametrize(
    ("name", "table", "index"),
    [
        ("renew_leases", "l", "PRIMARY KEY (lock_key=?"),
        ("refresh_tickets", "t", "holdfast_tickets_by_attempt (lock_key=? AND attempt=?"),
        ("waited_for", "l", "PRIMARY KEY (lock_key=?"),
    ],
)
def test_a_batch_is_driven_by_what_was_asked_for(connection, name, table, index):
    """The batch is read once, and each entry finds its row; not the other way round."""
    outer, inner, *_ = plan(connection, name)
    assert re.match(r"SCAN [rk] VIRTUAL TABLE", outer), outer
    assert inner.startswith(f"SEARCH {table} USING"), inner
    assert index in inner
