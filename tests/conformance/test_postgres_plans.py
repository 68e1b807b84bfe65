"""How PostgreSQL finds rows: by an index, whatever the statement, at a million rows as at ten (R7)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from holdfast import Holdfast
from holdfast.stores.postgres import variables
from holdfast.stores.postgres.schema import SQL
from holdfast.stores.postgres.statement import Statement

ROWS = 1_000_000
CONTROL = {"begin", "commit", "commit_lazily", "rollback", "notify", "now", "schema_version", "store_id"}
CONTROL |= {"notify_within", "mark", "back_to_mark", "forget_mark"}
PAGES = {"list", "list_by_owner", "sweep_walk", "sweep_expired", "history", "queue_head", "all_tickets"}
PAGES |= {"feed_new", "feed_read", "list_instances", "list_work", "list_work_of", "works_of", "next_due"}
STATES = "ARRAY['offered', 'assigned', 'completed', 'failed']"
ABOUT_INSTANCES = ("name", "host", "pid", "address", "version", "capacity", "joined_at", "beat_at")
ABOUT_INSTANCES += ("asked_at", "expires_at")
COUNTS = {"count_held", "count_work"}  # by hand; what is open, for a look at it

VALUES: dict[str, Any] = {
    "key": "key:500000",
    "attempt": "attempt-500000",
    "owner": "owner-7",
    "instance": "i-1",
    "host": "alpha",
    "ttl": 1000,
    "pid": 1,
    "token": 500000,
    "now": None,
    "long": True,
    "number": 1,
    "claim": 1,
    "patience": 1,
    "channel": "c",
    "payload": "p",
    "hint": "h",
    "keys": json.dumps(["key:1", "key:2"]),
    "owners": json.dumps(["o-1", "o-2"]),
    "leases": json.dumps(
        [{"place": 0, "key": "key:500000", "attempt": "attempt-500000", "token": 1, "ttl": 1}]
    ),
    "tickets": json.dumps([{"place": 0, "key": "key:500000", "attempt": "t-1", "patience": 1}]),
    "acquires": json.dumps(
        [
            {
                "key": "key:500000",
                "attempt": "a",
                "owner": "o",
                "ttl": 1,
                "instance": "i",
                "host": "h",
                "pid": 1,
            }
        ]
    ),
    "releases": json.dumps([{"key": "key:500000", "attempt": "attempt-500000", "token": 1}]),
    "lazily": True,
    "from_key": "key:5",
    "to_key": "key:6",
    "after": "key:50",
    "upto": "key:51",
    "state": "held",
    "limit": 100,
    "lasts": 1,
    "memory": 1,
    "before": 1000,
    "idle_since": 1000,
    "kind": "expired",
    "at": 1,
    "by": None,
    "reason": None,
    "why": "released",
    "until_at": 1,
    "claimed": 1,
    "expires_at": 1,
    "granted_at": 1,
    "last_attempt": None,
    "holds": 0,
    "waiters": 0,
    "next_ticket": 1,
    "events": 1,
    "queued_at": 1,
    "terms": None,
    "notes": None,
    "succeeded": True,
    "text": "null",
    "feed": 1,
    "last": 1,
    "id": "id-7",
    "name": "ci",
    "digest": "0",
    "rights": "[]",
    "address": "i-1",
    "version": "1",
    "capacity": 8,
    "beat_at": 1,
    "claims": 1,
    "asked_at": 1,
    "wants": None,
    "wanted": "\njob\n",
    "type": "job",
    "types": json.dumps(["job", "task"]),
    "due_at": 1,
    "data": "null",
    "tries": 0,
    "spread": 1,
    "load": 1,
    "max_tries": 0,
    "offered_at": 1,
    "assigned_at": None,
    "again": True,
    "works": json.dumps([{"key": "job:7", "attempt": "a-7", "due": 1, "type": "job", "data": "null"}]),
}


SORTS_ALL = re.compile(r"Sort  \(.*\n.*Sort Key.*\n(?:.*Subquery Scan.*\n)?+(?!.*->  Limit)")
MEANT = {  # indexes that are for few statements, and would be a slow way for all others
    "by_owner": {"list_by_owner", "is_waited_for", "wanted_by"},
    "by_expiry": {"sweep_expired", "count_held"},
    "by_time": {"delete_ended", "delete_outcomes", "delete_access"},
    "_at_idx": {"delete_history", "feed_place"},  # hardly two events have the same microsecond
    "_feed_idx": {"feed_read"},
    "by_state": {"dead_instances", "count_living", "wanting", "delete_instances"},
    "by_due": {"due_assigned", "pick_work", "next_due", "claim_works"},
    "by_instance": {
        "claim_works",
        "read_instance",
        "list_instances",
        "claimed_before",
        "works_of",
        "list_work_of",
    },
    "by_end": {"delete_works"},
    "_at_lock_key_number_idx": {"feed_new"},
}


@pytest.fixture
def connection(postgres_url: str) -> Iterator[psycopg.Connection[Any]]:
    """A connection set up as the store's own are, to a database with empty tables."""
    with Holdfast(f"{postgres_url}?apply_schema=yes"):
        pass
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        # Filling takes long, and the server may be vacuuming what was filled when it is analysed.
        connection.execute(variables.setting(connection.info.server_version, "false").encode())
        connection.execute("SET lock_timeout = '60s'; SET statement_timeout = '60s'")
        yield connection


def fill(connection: psycopg.Connection[Any], rows: int, others: int) -> None:
    connection.execute(
        "INSERT INTO holdfast_locks"
        " (lock_key, token, owner, attempt, granted_at, expires_at, instance, host, pid)"
        " SELECT 'key:' || n, n, 'owner-' || n % 1000, 'attempt-' || n, n, n, 'i-' || n % 100, 'alpha', 1"
        f" FROM generate_series(1, {rows}) AS n"
    )
    for table, columns, values in (
        (
            "holds",
            "lock_key, attempt, owner, token, claimed, expires_at, granted_at, instance, host, pid",
            "'key:' || n, 'h-' || n, 'owner-' || n % 1000, n, 1, n, 1, 'i', 'h', 1",
        ),
        (
            "tickets",
            "lock_key, number, attempt, owner, instance, host, pid, claim, queued_at, expires_at",
            "'key:' || n % 100, n, 't-' || n, 'o-' || n, 'i', 'h', 1, 1, 1, n",
        ),
        ("ended", "lock_key, attempt, why, until_at", "'key:' || n, 'e-' || n, 'released', n"),
        ("outcomes", "lock_key, token, succeeded, text, until_at", "'key:' || n, n, true, 'null', n"),
        ("access", "id, name, digest, rights, created_at, expires_at", "'id-' || n, 'ci', '0', '[]', 1, n"),
        (
            "instances",
            f"id, state, {', '.join(ABOUT_INSTANCES)}",
            "'id-' || n, (ARRAY['alive', 'left'])[n % 2 + 1], 'w', 'h', 1, 'i', '1', 8, 1, 1, n, n",
        ),
        (
            "work",
            "work_key, type, state, due_at, data, text, max_tries, instance, offered_at",
            f"'job:' || n, 'job', ({STATES})[n % 4 + 1], n, 'null', '', 0, 'id-' || n % 50, 1",
        ),
        (
            "history",
            "lock_key, number, kind, at, token, feed",
            "'key:' || n % 1000, n, 'expired', n, 1, nullif(n, 7)",
        ),
    ):
        connection.execute(
            f"INSERT INTO holdfast_{table} ({columns}) SELECT {values} FROM generate_series(1, {others}) AS n"
        )
    connection.execute("ANALYZE")


def plan(connection: psycopg.Connection[Any], name: str) -> str:
    """Return the plan of a statement as it is prepared: for any parameters."""
    statement = Statement(name, SQL[name])
    given = {**VALUES, "after": 7} if name == "feed_read" else VALUES
    values = [given[parameter] for parameter in statement._names]
    connection.execute(f"PREPARE looked_at AS {statement.text.decode()}".encode())
    try:
        shown = ", ".join("NULL" if value is None else f"'{value}'" for value in values)
        rows = connection.execute(f"EXPLAIN EXECUTE looked_at{f'({shown})' if values else ''}".encode())
        return "\n".join(line for (line,) in rows)
    finally:
        connection.execute("DEALLOCATE looked_at")


def scans(lines: str) -> list[str]:
    return re.findall(r"Seq Scan on (?!holdfast_meta|holdfast_feed)\w+", lines)


def walks(lines: str) -> list[str]:
    """Return the scans of a whole index, as for a join that is planned to read all there is of both."""
    found = re.findall(
        r"(Index (?:Only )?Scan using \w+) on (?!holdfast_meta|holdfast_feed)\w+.*\n(.*)", lines
    )
    return [scan for scan, behind in found if "Index Cond" not in behind]


def bad_ways(connection: psycopg.Connection[Any]) -> dict[str, str]:
    """Return the plans that would be slow at a million rows."""
    names = {name for name, _ in SQL} - CONTROL - COUNTS
    assert len(names) > 30
    plans = {name: plan(connection, name) for name in sorted(names)}
    return {
        name: lines
        for name, lines in plans.items()
        if scans(lines)
        or (re.search("holdfast_(work|instances)", SQL[name]) and walks(lines))
        or any(index in lines and name not in meant for index, meant in MEANT.items())
        or (name in PAGES and SORTS_ALL.search(lines))  # each page would sort all that is left
    }


def test_no_statement_reads_or_sorts_a_whole_table(connection: psycopg.Connection[Any]) -> None:
    fill(connection, ROWS, 50_000)
    assert bad_ways(connection) == {}
    connection.execute("SET enable_seqscan = on")
    bad = connection.execute("EXPLAIN SELECT * FROM holdfast_locks WHERE host = 'beta'")
    assert scans("\n".join(line for (line,) in bad)), "a scan would not be noticed"


@pytest.mark.parametrize("rows", [0, 3])
def test_plans_that_are_made_for_small_tables_are_good_for_large_ones(
    connection: psycopg.Connection[Any], rows: int
) -> None:
    """They are kept: in a new database a plan for a few rows would live until they are many."""
    if rows:
        fill(connection, rows, rows)
    assert bad_ways(connection) == {}


@pytest.mark.parametrize("rows", [0, 3, 50_000])
@pytest.mark.parametrize("name", ["pick_work", "due_assigned"])
def test_claims_read_no_more_work_than_they_take(
    connection: psycopg.Connection[Any], name: str, rows: int
) -> None:
    """The first that are due, by the index in its order, each locked when it is reached."""
    if rows:
        fill(connection, rows, rows)
    lines = plan(connection, name)
    ways = (
        r"Limit .*\n +->  LockRows .*\n +->  Index (Only )?Scan using holdfast_work_by_due on holdfast_work "
    )
    assert re.search(ways, lines), lines
