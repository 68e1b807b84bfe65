"""How SQLite finds rows: by an index, whatever the statement, at a million rows as at ten (R7)."""

import re
import sqlite3
from collections.abc import Iterator

import pytest

from holdfast.stores.sqlite.database import SCHEMA, SQL

STATEMENTS = dict(SQL)
CONTROL = {"begin", "commit", "rollback", "save", "undo", "forget"}
# Reads of whole tables that are right, because they are bounded by LIMIT and go along an index.
WALKS = {"sweep_walk", "list"}
ALL = {"list_access"}  # all there are is what it is for


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(":memory:")
    for _, script in SCHEMA:
        connection.executescript(script)
    yield connection
    connection.close()


def plan(connection: sqlite3.Connection, name: str) -> list[str]:
    """Return the lines of the query plan of a statement."""
    statement = STATEMENTS[name]
    parameters = dict.fromkeys(re.findall(r":(\w+)", statement), 1)
    rows = connection.execute(f"EXPLAIN QUERY PLAN {statement}", parameters)
    return [detail for *_, detail in rows]


def scans(lines: list[str]) -> list[str]:
    """Return the lines that read a whole table; made-up rows and lists that were given are none.

    Nor is the index of events without a place: it has no others, and LIMIT bounds how many are read.
    """
    harmless = {"SCAN CONSTANT ROW", "SCAN holdfast_history USING INDEX holdfast_history_unplaced"}
    harmless |= {line for line in lines if re.match(r"SCAN \w+ VIRTUAL TABLE", line)}
    made_up = ("CO-ROUTINE ", "MATERIALIZE ")
    harmless |= {f"SCAN {line.partition(' ')[2]}" for line in lines if line.startswith(made_up)}
    return [line for line in lines if line.startswith("SCAN") and line not in harmless]


@pytest.mark.parametrize("name", sorted(set(STATEMENTS) - CONTROL - ALL))
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
        ("list_by_owner", "holdfast_holds_by_owner (owner=? AND lock_key>?"),
        ("is_waited_for", "holdfast_locks_by_owner (owner=?"),
        ("is_waited_for", "holdfast_holds_by_owner (owner=?"),
        ("find_ticket", "holdfast_tickets_by_attempt (lock_key=? AND attempt=?"),
        ("all_tickets", "PRIMARY KEY (lock_key=?"),
        ("read_outcome", "PRIMARY KEY (lock_key=? AND token=?"),
        ("delete_outcomes", "holdfast_outcomes_by_time (until_at<?"),
        ("delete_access", "holdfast_access_by_time (expires_at<?"),
        ("revoke_access", "PRIMARY KEY (id=?"),
        ("keep_ticket", "holdfast_tickets_by_attempt (lock_key=? AND attempt=?"),
        ("feed_new", "holdfast_history_unplaced"),
        ("feed_place", "PRIMARY KEY (lock_key=? AND number=?"),
        ("feed_read", "holdfast_history_by_feed (feed>?"),
        ("sweep_expired", "holdfast_locks_by_expiry (expires_at<?"),
        ("delete_ended", "holdfast_ended_by_time (until_at<?"),
        ("delete_history", "holdfast_history_by_time (at<?"),
        ("renew_lease", "PRIMARY KEY (lock_key=?"),
        ("begin_claim", "holdfast_work_by_due (state=? AND type=? AND due_at<?"),
        ("pick_free", "holdfast_work_by_due (state=? AND type=? AND due_at<?"),
        ("next_due", "holdfast_work_by_due (state=? AND type=?"),
        ("count_assigned", "holdfast_work_by_instance (instance=? AND state=?"),
        ("read_instance", "holdfast_work_by_instance (instance=? AND state=?"),
        ("works_of", "holdfast_work_by_instance (instance=? AND state=?"),
        ("delete_works", "holdfast_work_by_end (due_at<?"),
        ("count_living", "holdfast_instances_by_state (state=? AND expires_at>?"),
        ("list_work", "sqlite_autoindex_holdfast_work_1 (work_key>?"),
        ("refresh_ticket", "holdfast_tickets_by_attempt (lock_key=? AND attempt=?"),
        ("queue_head", "PRIMARY KEY (lock_key=?"),
        ("tickets_before", "PRIMARY KEY (lock_key=? AND number<?"),
        ("history", "PRIMARY KEY (lock_key=?"),
        ("read_lock", "e USING PRIMARY KEY (lock_key=? AND attempt=?"),
        ("read_lock", "mine USING INDEX holdfast_tickets_by_attempt (lock_key=? AND attempt=?"),
        ("read_lock", "two USING PRIMARY KEY (lock_key=? AND number=?"),
    ],
)
def test_a_statement_uses_the_index_made_for_it(connection, name, index):
    lines = plan(connection, name)
    assert any(index in line for line in lines), lines
    assert not [line for line in lines if "TEMP B-TREE" in line], lines


@pytest.mark.parametrize(
    "name",
    [
        "renew_lease",
        "refresh_ticket",
        "keep_ticket",
        "waited_for",
        "acquire",
        "release",
        "read_lock",
        "pick_work",
        "due_assigned",
        "take_works",
        "offer_works",
        "is_waited_for",
        "read_leases",
        "wanted_by",
        "holds_at",
        "tickets_at",
        "feed_read",
    ],
)
def test_statistics_of_a_small_table_do_not_mislead_the_planner(connection, name):
    """An application that shares the file may run ANALYZE or PRAGMA optimize when our tables are small."""
    connection.execute(
        "INSERT INTO holdfast_locks (lock_key, token, expires_at, granted_at, instance, host, pid)"
        " VALUES ('a', 1, 1, 1, 'i', 'h', 1), ('b', 1, 1, 1, 'i', 'h', 1), ('c', 1, 1, 1, 'i', 'h', 1)"
    )
    connection.execute(
        "INSERT INTO holdfast_work (work_key, type, state, due_at, data, text, max_tries, offered_at)"
        " VALUES ('a', '', 'offered', 1, '', '', 0, 1), ('b', '', 'offered', 1, '', '', 0, 1)"
    )
    connection.execute("ANALYZE")
    lines = plan(connection, name)
    assert scans(lines) == [], lines
    assert not [line for line in lines if "BLOOM" in line], lines
