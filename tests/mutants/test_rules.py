"""Rules that the mutants of `rules` break, and that no other test looks at."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pymysql
import pytest

from holdfast import Holdfast, SettingsError
from holdfast.core.family import PLAIN, Terms
from holdfast.core.requests import (
    Acquire,
    Break,
    Broken,
    Client,
    Granted,
    Release,
    Signal,
    Watch,
    Withdraw,
    Withdrawn,
)
from holdfast.stores import open_store
from holdfast.stores.base import Store, StoreOptions
from holdfast.stores.mysql.session import MySQLSession
from holdfast.stores.postgres.store import PostgresStore
from holdfast.stores.sql.options import split_url
from holdfast.stores.sql.transactions.session import Conflict, RowLocked
from holdfast.testing.conformance import CLIENT
from tests.conformance.conftest import at_rest, mysql_sessions, mysql_store  # noqa: F401
from tests.servers import PostgresServer
from tests.servers.fixtures import require, with_tables

SERVERS = ["postgres", "mariadb"]


@contextmanager
def opened(url: str, history: Any = "notable") -> Iterator[Any]:
    store = open_store(url, StoreOptions(CLIENT, history))
    store.open()
    with closing(store):
        yield store


@pytest.fixture(params=SERVERS)
def url(request: pytest.FixtureRequest) -> str:
    """The url of an empty store on each kind of server."""
    return str(request.getfixturevalue(f"{request.param}_locks"))


@contextmanager
def connected(url: str) -> Iterator[Any]:
    """A caller's connection to the database of a store."""
    address = urlsplit(split_url(url)[0])
    if address.scheme == "postgresql":
        with psycopg.connect(address.geturl()) as connection:
            yield connection
    else:
        with pymysql.connect(
            host=address.hostname,
            port=address.port or 0,
            user=address.username,
            database=address.path[1:],
            ssl_disabled=True,
        ) as connection:
            yield connection


def take(store: Store, attempt: str, key: str = "k", ttl: float = 60.0) -> Granted:
    answer = store.execute(Acquire(key, attempt, attempt, ttl, CLIENT))
    assert isinstance(answer, Granted), answer
    return answer


def parameters(attempt: str, key: str = "k") -> dict[str, Any]:
    """What the statements of the fast path are given."""
    client = Client("i-1", "alpha", 1)
    return {
        "key": key,
        "attempt": attempt,
        "owner": attempt,
        "ttl": 60_000_000,
        "instance": client.instance,
        "host": client.host,
        "pid": client.pid,
        "now": None,
    }


# Time.


def test_a_lease_begins_when_it_is_granted(tmp_path: Path) -> None:
    """Trap 2: by a clock of whole seconds a lease of 0.9 s had 0.12 s left, or more than it asked for."""
    path = tmp_path / "locks.db"
    with opened(f"sqlite:///{path}") as store, closing(sqlite3.connect(path)) as file:
        for number in range(3):
            before = time.time()
            take(store, "a-1", f"k-{number}")
            after = time.time()
            ((began,),) = file.execute("SELECT granted_at FROM holdfast_locks ORDER BY lock_key DESC LIMIT 1")
            # SQLite's clock counts milliseconds.
            assert before - 0.001 <= began / 1e6 <= after + 0.001


# Transactions.


def test_a_session_has_no_transaction_open_for_long(postgres_locks: str) -> None:
    """Trap 6: a client that is paused in the middle of one would keep its row locked for hours."""
    settings = {
        "lock_timeout": b"500ms",
        "statement_timeout": b"8s",
        "idle_in_transaction_session_timeout": b"3s",
    }
    with opened(postgres_locks) as store:
        assert isinstance(store, PostgresStore)
        session = store.sessions.pool.take()
        assert {name: session.script(f"SHOW {name}")[0][0] for name in settings} == settings
        store.sessions.pool.give_back(session)


def test_a_request_leaves_no_transaction_open(url: str) -> None:
    """Trap 6: by the slow path as well, which is a transaction of several statements."""
    with opened(url, "all") as store, connected(url) as connection, connection.cursor() as cursor:
        take(store, "a-1")
        cursor.execute("SELECT attempt FROM holdfast_locks WHERE lock_key = 'k' FOR UPDATE NOWAIT")
        assert [
            str(attempt, "ascii") if isinstance(attempt, bytes) else attempt for (attempt,) in cursor
        ] == ["a-1"]


def test_who_makes_a_row_waits_for_who_has_just_made_it(mysql_sessions: Callable[[], MySQLSession]) -> None:  # noqa: F811
    """Trap 4: a key has one row, also while nobody can see it yet."""
    first, second = mysql_sessions(), mysql_sessions()
    first.send([("begin", {}), ("acquire_new", parameters("a-1"))])
    with suppress(Conflict):
        second.fetch("acquire_new", parameters("b-1"))
    first.send([("commit", {})], commits=True)
    assert second.script("SELECT attempt FROM holdfast_locks WHERE lock_key = 'k'") == [("a-1",)]


def test_a_refusal_waits_for_no_row(postgres_locks: str) -> None:
    """PostgreSQL's ON CONFLICT locks the row even when its WHERE refuses."""
    with opened(postgres_locks) as store, connected(postgres_locks) as theirs:
        take(store, "a-1")
        theirs.execute("UPDATE holdfast_locks SET host = host WHERE lock_key = 'k'")
        try:
            refused = store.sessions.use(lambda session: session.fetch("acquire", parameters("b-1")))
        except RowLocked as error:
            pytest.fail(f"it waits for the row: {error}")
        assert refused == []


def test_tables_of_another_store_are_refused(postgres_locks: str, postgres_url: str) -> None:
    """They look like ours, and know nothing of our lease."""
    other = with_tables(postgres_url)
    with Holdfast(postgres_locks) as locks, connected(other) as connection:
        lease = locks.acquire("account:7")
        for ask in (lease.fence, lambda theirs: lease.release(within=theirs)):
            with pytest.raises(SettingsError, match="another database"):
                ask(connection)
            connection.rollback()
        assert lease.held


# SQLite's file.


@pytest.mark.parametrize(("wanted", "number"), [("full", 2), ("normal", 1)])
def test_whoever_asks_for_the_disk_gets_it(tmp_path: Path, wanted: str, number: int) -> None:
    """Trap 14: what it is set to, SQLite itself has to say."""
    with opened(f"sqlite:///{tmp_path}/locks.db?synchronous={wanted}") as store:
        assert store.sessions.database.fetch("PRAGMA synchronous", {}) == [(number,)]


def test_who_writes_waits_for_the_file_before_it_reads(tmp_path: Path) -> None:
    """Trap 15: a reader that wants to write when somebody has written meanwhile fails, however patient."""
    path = tmp_path / "locks.db"
    with opened(f"sqlite:///{path}?busy_timeout=20") as store, closing(sqlite3.connect(path)) as other:
        take(store, "a-1")

        def work(run: Any) -> list[tuple[int]]:
            read: list[tuple[int]] = run("read_lock", key="k", attempt="b-1", now=None)
            with suppress(sqlite3.OperationalError), other:  # it has to wait for us
                other.execute("PRAGMA busy_timeout = 0")
                other.execute("UPDATE holdfast_locks SET host = 'elsewhere'")
            run("raise_floor", token=7)
            return read

        assert len(store.sessions.database.transact(work)) == 1
        assert other.execute("SELECT host FROM holdfast_locks").fetchall() != [("elsewhere",)]


def test_a_writer_is_waited_for(tmp_path: Path) -> None:
    """Trap 15: many processes share the file, and each writes for a moment."""
    path = tmp_path / "locks.db"
    with (
        opened(f"sqlite:///{path}?busy_timeout=20") as store,
        closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as other,
    ):
        other.execute("BEGIN IMMEDIATE")
        timer = threading.Timer(0.3, other.execute, ["COMMIT"])
        timer.start()
        assert take(store, "a-1").token > 0
        timer.join()


# PostgreSQL's disk.


@pytest.fixture(scope="module")
def durable() -> Iterator[PostgresServer]:
    """A server that writes nothing to the disk before somebody waits for it."""
    require("postgres")
    with PostgresServer(durable=True, settings={"wal_writer_delay": "10s"}) as server:
        yield server


@pytest.mark.parametrize(
    "request_",
    [
        pytest.param(Break("k", by="operator", reason="stuck"), id="break"),
        pytest.param(Withdraw("k", "a-1"), id="withdrawal"),
    ],
)
def test_what_others_rely_on_is_on_the_disk_when_it_is_answered(
    durable: PostgresServer, request_: Any
) -> None:
    """Trap 14: to lose it in a crash would bring back what somebody was told is gone."""
    with opened(with_tables(durable.create_database())) as store:
        take(store, "a-1")
        assert isinstance(store.execute(request_), Broken | Withdrawn)
        (left,) = durable.execute("SELECT pg_current_wal_insert_lsn() - pg_current_wal_flush_lsn()")
        assert int(left[0]) == 0


def test_a_hand_over_by_the_rules_is_on_the_disk_when_its_winner_is_told(durable: PostgresServer) -> None:
    """Trap 14: its winner enters by it. One that tells nobody a token need not be."""
    with opened(with_tables(durable.create_database()), "all") as store:  # then there are no fast paths
        told: list[Signal] = []
        store.listen(told.append)
        for key, terms in ("plain", PLAIN), ("pull", Terms(at_least=0.001)):
            first = store.execute(Acquire(key, "a-1", "a", 60.0, CLIENT, terms=terms))
            assert isinstance(first, Granted)
            store.execute(Acquire(key, "b-1", "b", 60.0, CLIENT, wait=True, terms=terms))
            time.sleep(0.01)
            assert store.execute(Release(key, "a-1", first.token)).next == "b"
            (left,) = durable.execute("SELECT pg_current_wal_insert_lsn() - pg_current_wal_flush_lsn()")
            assert (int(left[0]) == 0) == bool(told[-1].token) == terms.enters


# Wake-ups and events.


def test_a_listener_looks_before_it_sleeps(mysql_sessions: Callable[[], MySQLSession]) -> None:  # noqa: F811
    """Whoever is woken between looking and sleeping would sleep on. The server ends what takes 1 s."""
    listener, other = mysql_sessions(), mysql_sessions()
    other.script(
        "INSERT INTO holdfast_signals (instance, kind, lock_key, attempt, expires_in, at)"
        " VALUES ('i-1', 'head', 'k', 'a-1', 0, 0)"
    )
    listener.script("SET SESSION max_statement_time = 1")
    asked = {"instance": "i-1", "told": "", "awaited": "", "seconds": 30}
    assert listener.fetch("hear", asked)[0][0] == 0


def test_an_event_that_commits_late_is_seen_by_who_has_read_a_later_one(url: str) -> None:
    """Trap 21: whoever goes on behind the last id it saw would never see an id that was taken before."""
    with opened(url, "all") as store, connected(url) as theirs:
        lease = take(store, "a-1", "late")
        store.execute_within(theirs, Release("late", "a-1", lease.token))
        take(store, "b-1", "early")
        seen = store.execute(Watch("", after=0, limit=100))
        assert [(event.key, event.kind) for event in seen.events] == [
            ("late", "granted"),
            ("early", "granted"),
        ]
        theirs.commit()
        late = store.execute(Watch("", after=seen.after, limit=100))
        assert [(event.key, event.kind) for event in late.events] == [("late", "released")]


def test_who_gives_events_their_places_is_alone(mysql_sessions: Callable[[], MySQLSession]) -> None:  # noqa: F811
    """Trap 21: two at once would give one place twice."""
    first, second = mysql_sessions(), mysql_sessions()
    first.send([("begin", {}), ("feed_lock", {})])
    with pytest.raises(RowLocked):
        second.send([("begin", {}), ("feed_lock", {})])
    first.roll_back()


# Owners.


def test_two_processes_that_do_the_same_are_two_owners(tmp_path: Path) -> None:
    """Whatever they count comes to the same numbers, and whoever has the owner's name enters."""
    code = f"""
from holdfast import Holdfast
locks = Holdfast("sqlite:///{tmp_path}/locks.db")
lease = locks.try_acquire("nightly", ttl=60, renew=False)
print(lease is not None, flush=True)
import os
os._exit(0)
"""
    run = [sys.executable, "-c", code]
    entered = [subprocess.run(run, capture_output=True, text=True, check=True).stdout for _ in range(2)]
    assert entered == ["True\n", "False\n"]
