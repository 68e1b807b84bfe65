"""How MySQL finds rows: by an index, whatever the statement, at many rows as at ten (R7)."""

import json
import re
from collections.abc import Iterator

import pytest

from holdfast.stores import open_store
from holdfast.stores.base import StoreOptions
from holdfast.stores.mysql.schema import SQL, named
from holdfast.stores.mysql.session import MySQLSession
from holdfast.stores.postgres.schema import SQL as POSTGRES
from holdfast.testing.conformance import CLIENT

STATEMENTS = dict(SQL)
# Ours alone: no RETURNING, so a row is made by a second statement; and wake-ups by KILL instead of NOTIFY.
OWN = {
    "newest_row",
    "probe_token",
    "acquire_new",
    "listen",
    "be_awaited",
    "limits",
    "hear",
    "delete_signal",
    "signal",
    "wake",
    "hang_up",
}
OWN |= {"delete_signals", "signal_granted"}
POSTGRES_OWN = {"notify", "notify_winner", "notify_watchers", "expect_events", "acquire_many", "release_many"}
# In callers' transactions: what it takes there to unlock a row, and to see where a lock belongs.
POSTGRES_OWN |= {"fence_alive", "notify_within", "mark", "back_to_mark", "forget_mark", "is_outermost"}
# The fast way of a claim, which is another one on each.
OWN |= {"claim_note", "claim_pick", "claim_locks", "claim_new", "claim_free", "claim_want"}
OWN |= {"claim_works"}
POSTGRES_OWN |= {"claim_works", "want_work", "notify_permit"}

PREFIX = "big_"
ROWS = 20_000
FILL = f"""
INSERT INTO holdfast_locks
       (lock_key, token, owner, attempt, expires_at, granted_at, instance, host, pid, waiters)
SELECT concat('key-', seq), seq + 1, IF(seq % 2, concat('o-', seq % 100), NULL), concat('a-', seq),
       seq, 0, 'i', 'h', 1, 1
  FROM seq_1_to_{ROWS};
INSERT INTO holdfast_tickets
SELECT concat('key-', seq), 1, concat('b-', seq), concat('o-', seq), 'i', 'h', 1, 1, 1, seq, NULL
  FROM seq_1_to_{ROWS};
INSERT INTO holdfast_ended SELECT concat('key-', seq), 'e', 'released', NULL, NULL, seq FROM seq_1_to_{ROWS};
INSERT INTO holdfast_history
SELECT concat('key-', seq), 1, 'granted', seq, 1, 'o', NULL, NULL, nullif(seq, 7) FROM seq_1_to_{ROWS};
INSERT INTO holdfast_holds
SELECT concat('key-', seq), 'a', concat('o-', seq % 100), 1, NULL, 1, 1, 1, 'i', 'h', 1 FROM seq_1_to_{ROWS};
INSERT INTO holdfast_outcomes SELECT concat('key-', seq), 1, 1, 'null', seq FROM seq_1_to_{ROWS};
INSERT INTO holdfast_access SELECT concat('id-', seq), 'ci', '0', '[]', 1, seq FROM seq_1_to_{ROWS};
INSERT INTO holdfast_instances
SELECT concat('id-', seq), 'w', 'h', 1, 'i', '1', 8, elt(seq % 2 + 1, 'alive', 'left'), 1, 1, seq, 0, seq,
       NULL
  FROM seq_1_to_{ROWS};
INSERT INTO holdfast_work (work_key, type, state, due_at, data, text, tries, max_tries, instance, attempt,
                           token, claim, offered_at)
SELECT concat('job:', seq), 'job', elt(seq % 4 + 1, 'offered', 'assigned', 'completed', 'failed'), seq,
       'null', '', 0, 0, concat('id-', seq % 50), '', 0, 1, 1
  FROM seq_1_to_{ROWS};
ANALYZE TABLE holdfast_locks, holdfast_tickets, holdfast_ended, holdfast_history, holdfast_holds,
  holdfast_outcomes, holdfast_access, holdfast_instances, holdfast_work
"""

GIVEN = {
    "key": "key-77", "attempt": "a-77", "owner": "o-7", "from_key": "key-5", "to_key": "key-6",
    "after": "key-5", "upto": "key-6", "state": "held", "instance": "i", "host": "h", "kind": "lost",
    "why": "broken", "by": "x", "reason": "y", "limit": 10, "token": 78, "id": "id-77",
    "keys": json.dumps(["key-1", "锁", "🔒"]), "owners": json.dumps(["o-1", "锁"]),
    "leases": json.dumps([{"place": 0, "key": "key-1", "attempt": "a-1", "token": 1, "ttl": 5}]),
    "tickets": json.dumps([{"place": 0, "key": "key-1", "attempt": "b-1", "patience": 5}]),
    "works": json.dumps([{"key": "job:1", "type": "job", "attempt": "a-1", "due": 5, "data": "null"}]),
    "types": json.dumps(["job", "task"]), "each_type": "job", "wanted": "\njob\n", "type": "job",
    "data": "null", "text": "", "name": "w", "address": "i", "version": "1", "awaited": "somebody",
}  # fmt: skip
LISTS = {"claim_locks", "claim_free", "claim_works"}  # these have lists of keys and no JSON
LISTED = "'job:1', 'job:2'"
EXPLAINED = re.compile(r"\(?(SELECT|UPDATE|DELETE|INSERT)\b")
# What is read whole: one row, or rows that are made of JSON.
WHOLE = {"a", "k", "t", "<derived2>", "<union1,2>", "<union1,2,3,4>", "found"}
# All of one key, which is the point of it; who has died since the last look; who waits for work.
SORTED = {"read_holds", "dead_instances", "wanting"}
ALL = {"list_access", "count_work"}  # all there are is what it is for


@pytest.fixture(scope="module")
def big(mariadb_database: tuple) -> Iterator[MySQLSession]:
    store = open_store(f"{mariadb_database[0]}&prefix={PREFIX}", StoreOptions(CLIENT))
    store.open()
    session = store.source.new_session()
    session.script("SET SESSION max_statement_time = 0")
    session.script(named(FILL.strip(), store.server))
    session.script("SELECT group_concat(hex('key-1')) INTO @holdfast_never")
    session.script("SET @holdfast_due = '0', @holdfast_idle = '1', @holdfast_now = 1, @holdfast_known = 0")
    session.script(
        "SET @holdfast_new = '1', @holdfast_over = '1', @holdfast_again = '1', @holdfast_taken = '1'"
    )
    session.script("SELECT group_concat(hex('id-1')) INTO @holdfast_gone")
    session.script("SET @holdfast_ticket = 1, @holdfast_token = 78, @holdfast_first = 1")
    session.script(f"SET @holdfast_works = '{GIVEN['works']}', @holdfast_free = '1', @holdfast_mine = '1'")
    yield session
    store.tables().drop()
    session.close()
    store.close()


def plan(session: MySQLSession, name: str, now: str = "5") -> list[tuple]:
    """Return (table, type, index, rows, extra) of every table that a statement reads, in all its parts."""
    text = re.sub(r"(?<!@)\bholdfast_(?=[a-z]+\b)", PREFIX, STATEMENTS[name])
    quote = session._connection.escape
    given = dict(GIVEN)
    if name == "feed_read":
        given["after"] = 7
    literals = {key: quote(value) for key, value in given.items()}
    if name in LISTS:
        literals |= {"keys": LISTED, "free": LISTED}
    if name == "list_work_of":
        literals["state"] = "NULL"
    literals["now"] = now
    text = re.sub(r":([a-z_]+)", lambda match: literals.get(match[1], "1"), text)
    lines = []
    for part in text.split(";\n"):
        part = re.sub(r"\s+INTO @\w+(,\s+@\w+)*", "", part)
        if EXPLAINED.match(part):
            for _, _, table, *rest in session.script(f"EXPLAIN {part}"):
                kind, _, index, _, _, rows, extra = rest[-7:]
                lines.append((table, kind, index, rows, extra or ""))
    return lines


def test_the_stores_have_the_same_statements():
    """So that the rules over them need be written only once."""
    assert set(STATEMENTS) - OWN == {name for name, _ in POSTGRES} - POSTGRES_OWN


@pytest.mark.parametrize("name", sorted(set(STATEMENTS) - {"count_held"} - ALL))
def test_no_statement_reads_a_whole_table(big, name):
    for table, kind, index, rows, extra in plan(big, name):
        if table is None or table in WHOLE or rows is None:  # without rows: it is written to
            continue
        assert kind not in ("ALL", "index"), (table, kind, index, rows, extra)
        assert "filesort" not in extra or name in SORTED, (table, kind, index, rows, extra)


@pytest.mark.parametrize(
    ("name", "table", "index"),
    [
        ("list", "big_locks", "PRIMARY"),
        ("list_by_owner", "l", "by_owner"),
        ("list_by_owner", "h", "by_owner"),
        ("is_waited_for", "big_locks", "by_owner"),
        ("is_waited_for", "h", "by_owner"),
        ("wanted_by", "t", "by_owner"),
        ("holds_at", "l", "PRIMARY"),
        ("holds_at", "h", "PRIMARY"),
        ("tickets_at", "t", "PRIMARY"),
        ("feed_new", "big_history", "by_feed"),
        ("feed_read", "big_history", "by_feed"),
        ("delete_outcomes", "big_outcomes", "by_time"),
        ("delete_access", "big_access", "by_time"),
        ("revoke_access", "a", "PRIMARY"),
        ("sweep_expired", "big_locks", "by_expiry"),
        ("sweep_walk", "big_locks", "PRIMARY"),
        ("renew", "l", "PRIMARY"),
        ("waited_for", "l", "PRIMARY"),
        ("refresh_tickets", "t", "by_attempt"),
        ("delete_ended", "big_ended", "by_time"),
        ("delete_history", "big_history", "by_time"),
        ("history", "big_history", "PRIMARY"),
        ("read_lock", "mine", "by_attempt"),
        ("hear", "big_locks", "by_winner"),
        ("hear", "big_signals", "by_instance"),
        ("join_queue", "big_locks", "by_owner"),
        ("join_queue", "big_tickets", "PRIMARY"),
        ("hand_over", "big_locks", "by_token"),
        ("hand_over", "big_tickets", "PRIMARY"),
        ("join_full", "big_locks", "PRIMARY"),
        ("join_full", "big_holds", "PRIMARY"),
        ("pass_permit", "big_locks", "PRIMARY"),
        ("pass_permit", "big_locks", "by_token"),
        ("pass_permit", "big_holds", "PRIMARY"),
        ("pass_permit", "big_tickets", "PRIMARY"),
        ("fence", "big_locks", "by_token"),
        ("fence_seen", "big_locks", "by_token"),
        ("probe_pin", "big_locks", "by_token"),
        ("probe_token", "big_locks", "by_token"),
        ("lock_row", "big_locks", "PRIMARY"),
        ("acquire", "l", "PRIMARY"),
        ("release", "big_locks", "PRIMARY"),
        ("write_lock", "big_locks", "PRIMARY"),
        ("dead_instances", "big_instances", "by_state"),
        ("count_living", "big_instances", "by_state"),
        ("delete_instances", "big_instances", "by_state"),
        ("read_instance", "big_work", "by_instance"),
        ("list_instances", "w", "by_instance"),
        ("claimed_before", "w", "by_instance"),
        ("works_of", "big_work", "by_instance"),
        ("list_work", "big_work", "PRIMARY"),
        ("list_work_of", "big_work", "by_instance"),
        ("due_assigned", "w", "by_due"),
        ("pick_work", "w", "by_due"),
        ("next_due", "w", "by_due"),
        ("claim_pick", "big_work", "by_due"),
        ("claim_note", "w", "by_instance"),
        ("claim_works", "big_work", "PRIMARY"),
        ("claim_free", "big_locks", "PRIMARY"),
        ("claim_locks", "l", "PRIMARY"),
        ("claim_locks", "p", "by_token"),
        ("take_locks", "l", "PRIMARY"),
        ("take_locks", "p", "by_token"),
        ("take_works", "w", "PRIMARY"),
        ("delete_works", "big_work", "by_end"),
    ],
)
def test_a_statement_uses_the_index_made_for_it(big, name, table, index):
    lines = plan(big, name)
    assert (table, index) in {(found, key) for found, _, key, _, _ in lines}, lines


@pytest.mark.parametrize("name", ["pick_work", "due_assigned", "claim_pick"])
def test_claims_read_no_more_work_than_they_take(big, name):
    """The first that are due, by the index in its order: what is read is locked, and others pass it over.

    An instant that is compared with must be one that the index can be searched by; a clock is not.
    """
    for now in ("5", "NULL"):
        ((_, kind, index, _, extra), *_) = [
            line
            for line in plan(big, name, now=now)
            if line[0] in ("w", "big_work") and "away" not in line[4]
        ]
        assert (kind, index) == ("range", "by_due"), (kind, index, extra)
        assert "filesort" not in extra, extra


def test_a_whole_table_would_be_noticed(big):
    ((_, _, _, *rest),) = big.script("EXPLAIN SELECT * FROM big_locks WHERE host = 'alpha'")
    assert rest[0] == "ALL"
