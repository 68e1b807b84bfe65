"""PostgreSQL's functions for joining and handing over: who may call them, what they are about."""

from __future__ import annotations

import queue
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from holdfast.core.family import Terms
from holdfast.core.requests import (
    Acquire,
    Busy,
    Client,
    Granted,
    Inspect,
    NotHeld,
    Queued,
    Release,
    Released,
    Signal,
)
from holdfast.stores import open_store, open_tables
from holdfast.stores.base import Store, StoreOptions
from holdfast.stores.postgres import variables
from holdfast.stores.postgres.dialect import PERMITS, PLAIN
from holdfast.stores.postgres.schema import FUNCTIONS, SCHEMA
from holdfast.stores.postgres.session import CHANNEL, END, PostgresSession
from holdfast.stores.sql.options import ServerOptions, split_url
from holdfast.stores.sql.rules.columns import Row
from holdfast.stores.sql.transactions.session import Batch
from holdfast.testing.conformance import CLIENT, OTHER_CLIENT
from holdfast.testing.conformance.asker import permits
from tests.clients.support import eventually
from tests.servers import PostgresServer
from tests.servers.fixtures import require, with_tables

KEY = "nightly"
OPTIONS = StoreOptions(CLIENT)
FAST = ["join_queue", "hand_over", END, "notify_winner"]
FAST_PERMIT = ["pass_permit", END, "notify_permit"]


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was sent, by the names of the statements."""
    names: list[str] = []
    send = PostgresSession.send

    def spy(session: PostgresSession, batch: Batch, /, *, commits: bool = False) -> list[list[Row]]:
        names.extend(name for name, _ in batch)
        return send(session, batch, commits=commits)

    monkeypatch.setattr(PostgresSession, "send", spy)
    return names


@pytest.fixture
def opened() -> Iterator[Callable[..., Any]]:
    stores: list[Store] = []

    def opened(url: str, client: Client = CLIENT) -> Any:
        stores.append(open_store(url, StoreOptions(client)))
        stores[-1].open()
        return stores[-1]

    yield opened
    for store in stores:
        store.close()


def pass_on(store: Store, key: str = KEY) -> None:
    """Take a lock, wait for it, and hand it over."""
    granted = store.execute(Acquire(key, "a-1", "a-1", 60.0, CLIENT))
    assert isinstance(granted, Granted)
    assert isinstance(store.execute(Acquire(key, "b-1", "b-1", 60.0, CLIENT, wait=True)), Queued)
    assert store.execute(Release(key, "a-1", granted.token)) == Released(0, next="b-1")


def pass_permit_on(store: Store, key: str) -> None:
    """Take both permits of a semaphore, wait for one, and hand it over, in a full queue."""
    tokens = []
    for attempt in ("a-1", "a-2", "b-1", "b-2"):
        asked = Acquire(key, attempt, attempt, 60.0, CLIENT, wait=True, terms=permits(2))
        answer = store.execute(asked)
        if isinstance(answer, Granted):
            tokens.append(answer.token)
    assert store.execute(Release(key, "a-1", tokens[0])) == Released(0, next="b-1")


def test_a_hand_over_is_three_statements_in_two_round_trips(opened, postgres_locks, sent):
    pass_on(opened(postgres_locks))
    assert sent == FAST


def test_who_holds_something_may_close_a_circle_and_looks(opened, postgres_locks, sent, monkeypatch):
    """After the commit: two who join each other's queues at once would not see each other before."""
    fetched: list[str] = []
    fetch = PostgresSession.fetch
    monkeypatch.setattr(PostgresSession, "fetch", lambda *asked: fetched.append(asked[1]) or fetch(*asked))
    store = opened(postgres_locks)
    store.execute(Acquire("another", "b-0", "b-1", 60.0, CLIENT))
    fetched.clear()
    pass_on(store)
    assert sent == FAST
    assert fetched[-2:] == ["join_queue", "is_waited_for"]


@pytest.mark.parametrize("name", ["join_queue", "join_full"])
def test_who_joins_sees_what_it_has_waited_for(name, opened, postgres_locks, sent, monkeypatch):
    """A withdrawal that was under way when the late copy of its request came."""
    monkeypatch.setitem(variables.PINNED, "lock_timeout", "30s")
    monkeypatch.setitem(variables.PINNED, "statement_timeout", "30s")
    store, other = opened(f"{postgres_locks}&request_timeout=60"), opened(postgres_locks, OTHER_CLIENT)
    terms = Terms() if name == "join_queue" else permits(1)
    assert isinstance(store.execute(Acquire(KEY, "a-1", "a-1", 60.0, CLIENT, terms=terms)), Granted)
    assert isinstance(store.execute(Acquire(KEY, "a-2", "a-2", 60.0, CLIENT, terms=terms)), Busy)
    sent.clear()
    with psycopg.connect(split_url(postgres_locks)[0]) as theirs, ThreadPoolExecutor() as threads:
        theirs.execute("SELECT FROM holdfast_locks FOR NO KEY UPDATE")
        waits = Acquire(KEY, "b-1", "b-1", 60.0, CLIENT, wait=True, terms=terms)
        joining = threads.submit(store.execute, waits)
        blocked = (
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%_join%'"
        )
        eventually(lambda: other.sessions.use(lambda session: session.script(blocked)) == [(b"1",)])
        assert sent == [name]
        theirs.execute("INSERT INTO holdfast_ended VALUES (%s, 'b-1', 'withdrawn', NULL, NULL, 9e15)", [KEY])
        theirs.commit()
        assert joining.result(20) == NotHeld("already")
    assert store.execute(Inspect(KEY)).waiting == 0


def test_who_is_told_a_token_was_granted_it_by_this_very_release(opened, postgres_locks):
    """Somebody older may have handed over lazily in between."""
    store, heard = opened(postgres_locks), queue.Queue[Signal]()
    other = opened(postgres_locks, OTHER_CLIENT)
    other.listen(heard.put)
    granted = store.execute(Acquire(KEY, "a-1", "a-1", 60.0, CLIENT))
    assert isinstance(other.execute(Acquire(KEY, "b-1", "b-1", 60.0, OTHER_CLIENT, wait=True)), Queued)
    store.execute(Release(KEY, "a-1", granted.token))
    assert heard.get(timeout=10.0).token > granted.token
    asked = {"key": KEY, "instance": "i", "channel": CHANNEL}
    assert store.sessions.fetch("notify_winner", attempt="x-1", **asked) == []
    assert len(store.sessions.fetch("notify_winner", attempt="a-1", **asked)) == 1


@pytest.mark.parametrize("version", [1, 2])
def test_older_tables_do_without_and_are_upgraded_with_all_that_is_in_them(
    version, opened, postgres_url, sent, caplog
):
    """A release is rolled out first, beside older clients, and the tables are upgraded then."""
    with psycopg.connect(postgres_url) as theirs:
        for _, step in SCHEMA._steps[:version]:
            theirs.execute(step.encode())
        theirs.execute(
            "INSERT INTO holdfast_locks"
            " (lock_key, token, owner, attempt, expires_at, granted_at, instance, host, pid)"
            " VALUES ('old', 7, 'ann', 'a-0', 9000000000000000, 1, 'i', 'h', 1)"
        )
    early = opened(postgres_url)
    assert early.tables().status().startswith(f"version {version}")
    for number in (1, 2):
        pass_on(early, f"early {number}")
        pass_permit_on(early, f"early semaphore {number}")
    assert sent.count("hand_over") == (2 if version > 1 else 0)
    assert sent.count("join_full") == 1  # it is not tried again
    assert "pass_permit" not in sent
    missed = [line for line in caplog.messages if "without holdfast's functions" in line]
    assert len(missed) == (1 if version > 1 else 2)
    store = opened(f"{postgres_url}?apply_schema=yes")
    assert store.tables().status() == "version 3, up to date"
    assert store.execute(Release("old", "a-0", 7)) == Released()
    pass_on(store)
    pass_permit_on(store, "semaphore")
    assert sent[-3:] == FAST_PERMIT


def test_only_who_was_granted_the_functions_may_call_them(postgres_locks, postgres_server):
    address = split_url(postgres_locks)[0]
    with psycopg.connect(address) as theirs:
        public = (
            "SELECT count(*) FROM pg_proc, aclexplode(coalesce(proacl, acldefault('f', proowner))) AS a"
            " WHERE proname LIKE 'holdfast%' AND a.grantee = 0"
        )
        assert theirs.execute(public).fetchone() == (0,)
        owners_rights = "SELECT count(*) FROM pg_proc WHERE proname LIKE 'holdfast%' AND prosecdef"
        assert theirs.execute(owners_rights).fetchone() == (0,)


@pytest.mark.parametrize("why", ["not granted", "missing", "of tables that are gone"])
def test_without_the_functions_the_rules_do_it(why, opened, postgres_url, postgres_server, sent, caplog):
    """Somebody may have upgraded the tables and not granted anew."""
    with_tables(postgres_url)
    database, role = postgres_url.rpartition("/")[2], f"worker_{postgres_url[-8:]}"
    postgres_server.execute(f"CREATE ROLE {role} LOGIN")
    try:
        tables = open_tables(postgres_url, OPTIONS)
        for statement in tables.grants(role, serving=False).splitlines():
            if why != "not granted" or "EXECUTE" not in statement:
                postgres_server.execute(statement, database)
        if why == "missing":
            for name, types in FUNCTIONS.items():
                postgres_server.execute(f"DROP FUNCTION holdfast_{name}({types})", database)
        if why == "of tables that are gone":
            for name in FUNCTIONS:
                body = f"SELECT pg_get_functiondef(oid) FROM pg_proc WHERE proname = 'holdfast_{name}'"
                ((text,),) = postgres_server.execute(body, database)
                postgres_server.execute(
                    re.sub(r"public\.(?=holdfast_(?!join|hand_over|pass_permit))", "gone.", text), database
                )
        store = opened(postgres_url.replace("holdfast@", f"{role}@"))
        for number in (1, 2):
            pass_on(store, f"lock {number}")
            pass_permit_on(store, f"semaphore {number}")
        for joins, hands_over in (("join_queue", "hand_over"), ("join_full", "pass_permit")):
            assert sent.count(joins) == 1  # it is not tried again
            assert hands_over not in sent
        assert len([line for line in caplog.messages if "without holdfast's functions" in line]) == 2
    finally:
        postgres_server.execute(f"DROP OWNED BY {role}", database)
        postgres_server.execute(f"DROP ROLE {role}")


def test_the_functions_are_about_their_own_tables_whatever_the_search_path_is(opened, postgres_url):
    """And about no temporary ones, which come first in every search path."""
    store = opened(f"{postgres_url}?apply_schema=yes&schema=mine&prefix=our_&pool_size=1")
    decoys = "; ".join(
        f'CREATE TEMP TABLE our_{name} (LIKE "mine".our_{name} INCLUDING ALL)'
        for name in ("locks", "holds", "tickets", "ended")
    )
    store.sessions.use(lambda session: session.script(decoys))
    store.sessions.use(lambda session: session.script("SET search_path = pg_temp, public"))
    pass_on(store)
    pass_permit_on(store, "semaphore")
    owners = "SELECT owner FROM mine.our_locks UNION SELECT owner FROM mine.our_holds ORDER BY 1"
    assert store.sessions.use(lambda session: session.script(owners)) == [(b"a-2",), (b"b-1",)]


@pytest.mark.parametrize(
    "setting", ["plpgsql.variable_conflict = 'use_column'", "plpgsql.extra_errors = 'all'"]
)
def test_settings_of_the_language_change_nothing(setting, opened, postgres_url, postgres_server):
    with_tables(postgres_url)
    database = postgres_url.rpartition("/")[2]
    postgres_server.execute(f"LOAD 'plpgsql'; ALTER DATABASE {database} SET {setting}", database)
    store = opened(postgres_url)
    pass_on(store)
    pass_permit_on(store, "semaphore")


def test_dropping_the_tables_drops_the_functions(opened, postgres_url):
    store = opened(f"{postgres_url}?apply_schema=yes")
    store.tables().drop()
    left = "SELECT count(*) FROM pg_proc WHERE proname LIKE 'holdfast%'"
    assert store.sessions.use(lambda session: session.script(left)) == [(b"0",)]
    assert SCHEMA._functions(ServerOptions(schema="a", prefix="b_"))[0].startswith('"a".b_join(')


def test_a_call_finds_its_rows_by_their_indexes(opened, postgres_url):
    """What a function does inside no plan shows; how much it reads does."""
    store = opened(f"{postgres_url}?apply_schema=yes&pool_size=1")
    with psycopg.connect(postgres_url, autocommit=True) as theirs:
        theirs.execute(variables.setting(theirs.info.server_version, "false").encode())
        theirs.execute(
            "INSERT INTO holdfast_locks"
            " (lock_key, token, owner, attempt, granted_at, expires_at, instance, host, pid, waiters)"
            " SELECT 'key:' || n, n, 'o-' || n % 10, 'a-' || n, n, n, 'i', 'h', 1, 0"
            " FROM generate_series(1, 50000) AS n"
        )
        theirs.execute(
            "INSERT INTO holdfast_tickets"
            " (lock_key, number, attempt, owner, instance, host, pid, claim, queued_at, expires_at)"
            " SELECT 'key:1', n, 't-' || n, 'o-' || n, 'i', 'h', 1, 5, 1, 1000"
            " FROM generate_series(1, 50000) AS n"
        )
        theirs.execute(
            "UPDATE holdfast_locks SET waiters = 50000, next_ticket = 50001 WHERE lock_key = 'key:1'"
        )
        notes = '{"mode":"permits","permits":2}'
        theirs.execute(
            "UPDATE holdfast_locks SET holds = 2, attempt = NULL, notes = %s WHERE lock_key = 'key:2'",
            [notes],
        )
        theirs.execute(
            "INSERT INTO holdfast_holds (lock_key, attempt, owner, token, terms, claimed, expires_at,"
            " granted_at, instance, host, pid)"
            " SELECT 'key:' || 2 + n / 2, 'h-' || n, 'o-' || n, n, %s, 1, n + 9, n, 'i', 'h', 1"
            " FROM generate_series(0, 50000) AS n",
            [notes],
        )
        theirs.execute(
            "INSERT INTO holdfast_tickets"
            " (lock_key, number, attempt, owner, instance, host, pid, claim, queued_at, expires_at, terms)"
            " SELECT 'key:2', n, 't-' || n, 'o-' || n, 'i', 'h', 1, 5, 1, 1000, %s"
            " FROM generate_series(1, 50000) AS n",
            [notes],
        )
        theirs.execute(
            "UPDATE holdfast_locks SET waiters = 50000, next_ticket = 50001 WHERE lock_key = 'key:2'"
        )
        theirs.execute("VACUUM ANALYZE holdfast_locks, holdfast_tickets, holdfast_holds")
        calls = {
            "holdfast_join('key:1', 'new', 'o-3', 'i', 'h', 1, 5, 9, 0)": 1,
            "holdfast_hand_over('key:1', 'a-1', 1, 0)": -1,
            f"holdfast_join_full('key:2', 'new', 'o-3', 'i', 'h', 1, 5, 9, '{notes}', '{notes}', 0)": 1,
            "holdfast_pass_permit('key:2', 'h-1', 1, 60, 0)": -1,
        }
        for call, more in calls.items():
            for _ in range(2):  # the second time all plans are made
                theirs.execute("BEGIN")
                shown = theirs.execute(f"EXPLAIN (ANALYZE, BUFFERS) SELECT * FROM {call}".encode()).fetchall()
                left = theirs.execute("SELECT count(*) FROM holdfast_tickets").fetchone()
                theirs.execute("ROLLBACK")
            text = "\n".join(line for (line,) in shown)
            assert "rows=1 " in text
            assert left == (100_000 + more,)
            found = re.search(r"Buffers: shared hit=(\d+)", text)
            assert found is not None
            assert int(found[1]) < 150, text
    store.execute(Acquire("key:3", "x", "x", 60.0, CLIENT))


@pytest.mark.parametrize("path", ["fast", "slow"])
def test_with_standbys_that_have_to_confirm_no_token_is_told_to_others(path, opened):
    """A wait for them that is given up is only a warning, and the notification is sent by then."""
    require("postgres")
    with PostgresServer() as server:
        url = with_tables(server.create_database())
        mine, other = opened(url), opened(url, OTHER_CLIENT)
        heard: queue.Queue[Signal] = queue.Queue()
        other.listen(heard.put)
        mine.dialect._without = set() if path == "fast" else {PLAIN, PERMITS}

        def hand_over(name: str, terms: Terms) -> Signal:
            granted = mine.execute(Acquire(name, "a-1", "a-1", 60.0, CLIENT, terms=terms))
            if terms.mode == "permits":
                assert isinstance(
                    mine.execute(Acquire(name, "a-2", "a-2", 60.0, CLIENT, terms=terms)), Granted
                )
            for store, client, attempt in ((other, OTHER_CLIENT, "b-1"), (mine, CLIENT, "c-1")):
                waits = Acquire(name, attempt, attempt, 60.0, client, wait=True, terms=terms)
                assert isinstance(store.execute(waits), Queued)
            mine.execute(Release(name, "a-1", granted.token))
            return heard.get(timeout=10.0)

        for terms in (Terms(), permits(2)):
            assert hand_over(f"alone {terms.mode}", terms).token > 0
        with server.standby(synchronous=True):
            for terms in (Terms(), permits(2)):
                name = f"confirmed {terms.mode}"
                assert hand_over(name, terms) == Signal("granted", name, "b-1")
            server.configure(synchronous_standby_names="")
