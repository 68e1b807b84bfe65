"""The suite on servers whose defaults are as bad as a DBA can make them: a lock means the same there.

What decides who holds what runs always, the whole suite in turn, or with `make full`.
"""

from __future__ import annotations

import queue
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pymysql
import pytest
import sqlalchemy
from psycopg_pool import ConnectionPool

from holdfast import Holdfast
from holdfast.core.family import Terms
from holdfast.core.requests import Acquire, Busy, Granted, Release, Signal
from holdfast.stores import open_store
from holdfast.stores.base import Store, StoreOptions
from holdfast.stores.mysql import variables as pinning_mysql
from holdfast.stores.postgres import variables as pinning_postgres
from holdfast.stores.postgres.session import channel_of, notification
from holdfast.testing.conformance import CLIENT, OTHER_CLIENT, MakeStore, StoreConformance
from holdfast.testing.conformance.grants import Grants
from holdfast.testing.conformance.handovers import Handovers
from holdfast.testing.conformance.names import Names
from holdfast.testing.conformance.races import Races
from holdfast.testing.conformance.renewals import Renewals
from holdfast.testing.conformance.semaphores import Semaphores
from holdfast.testing.conformance.traits import TraitsAndClients
from tests.conformance.conftest import stores_of
from tests.servers import PgBouncer
from tests.servers.fixtures import EMPTY, require, wait_for_requests, with_tables
from tests.servers.hostile import MARIADB, POSTGRES, SWITCHES, HostileMariaDB, HostilePostgres
from tests.servers.mariadb import ADMIN as MARIADB_ADMIN
from tests.servers.postgres import ADMIN as POSTGRES_ADMIN

NAME = "schlüssel ß €"


class Deciding(Grants, Renewals, Handovers, Semaphores, Names, Races, TraitsAndClients):
    """What decides who holds what."""

    store = StoreConformance.store
    ask = StoreConformance.ask


@pytest.fixture(scope="module")
def postgres() -> Iterator[tuple[HostilePostgres, str, Any]]:
    """A hostile server, the URL of a database with tables there, and a superuser's connection to it."""
    require("postgres")
    with HostilePostgres() as server:
        url = server.create_database()
        with psycopg.connect(_as(url, POSTGRES_ADMIN), autocommit=True) as admin:
            yield server, with_tables(url), admin


@pytest.fixture(scope="module")
def mariadb() -> Iterator[tuple[HostileMariaDB, str, Any]]:
    require("mariadbd")
    with HostileMariaDB() as server:
        url = with_tables(server.create_database())
        admin = pymysql.connect(**_arguments(_as(url, MARIADB_ADMIN)), autocommit=True)
        yield server, url, admin
        admin.close()


@pytest.fixture
def postgres_at(postgres: tuple[HostilePostgres, str, Any]) -> Iterator[str]:
    _, url, admin = postgres
    yield url
    wait_for_requests()
    admin.execute("; ".join(EMPTY))


@pytest.fixture
def mariadb_at(mariadb: tuple[HostileMariaDB, str, Any]) -> Iterator[str]:
    _, url, admin = mariadb
    yield url
    wait_for_requests()
    with admin.cursor() as cursor:
        for statement in (*EMPTY, "DELETE FROM holdfast_signals"):
            cursor.execute(statement)


def _as(url: str, user: str) -> str:
    parts = urlsplit(url.partition("?")[0])
    return parts._replace(netloc=f"{user}@{parts.hostname}:{parts.port}").geturl()


def _arguments(url: str) -> dict[str, Any]:
    parts = urlsplit(url)
    return {
        "host": parts.hostname,
        "port": parts.port,
        "user": parts.username,
        "database": parts.path[1:],
        "charset": "utf8mb4",
        "ssl_disabled": True,
    }


class OnHostilePostgres:
    @pytest.fixture
    def make_store(self, postgres_at: str) -> Iterator[MakeStore]:
        yield from stores_of(postgres_at, lambda store: store)

    @pytest.fixture
    def connect(self, postgres_at: str) -> Any:
        """Callers are not ours to set up: theirs is an account that nobody was hostile to."""
        return lambda: psycopg.connect(_as(postgres_at, POSTGRES_ADMIN))


class TestHostilePostgres(OnHostilePostgres, Deciding):
    """What decides who holds what."""


@pytest.mark.full
class TestAllOfItOnHostilePostgres(OnHostilePostgres, StoreConformance):
    """The whole suite."""


class OnHostileMariaDB:
    @pytest.fixture
    def make_store(self, mariadb_at: str) -> Iterator[MakeStore]:
        yield from stores_of(mariadb_at, lambda store: store)

    @pytest.fixture
    def connect(self, mariadb_at: str) -> Any:
        def connect() -> Any:
            connection = pymysql.connect(**_arguments(_as(mariadb_at, MARIADB_ADMIN)))
            connection.query("SET NAMES utf8mb4")  # as the server does not listen to the driver
            return connection

        return connect


class TestHostileMariaDB(OnHostileMariaDB, Deciding):
    """What decides who holds what."""


@pytest.mark.full
class TestAllOfItOnHostileMariaDB(OnHostileMariaDB, StoreConformance):
    """The whole suite."""


# Where connections come from.


@pytest.fixture(
    params=["url", "url and environment", "engine", "pool", "pooler", "pooler unsaid", "pooler of sessions"]
)
def postgres_source(
    request: pytest.FixtureRequest,
    postgres: tuple[HostilePostgres, str, Any],
    postgres_at: str,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Any]:
    bare = postgres_at.partition("?")[0]
    if request.param == "url and environment":
        monkeypatch.setenv("PGOPTIONS", "-c default_transaction_isolation=serializable -c lock_timeout=1")
        monkeypatch.setenv("PGCLIENTENCODING", "LATIN1")
        yield f"{bare}?client_encoding=LATIN1"
    elif request.param == "engine":
        engine = sqlalchemy.create_engine(bare.replace("postgresql:", "postgresql+psycopg:"))
        yield engine
        engine.dispose()
    elif request.param == "pool":
        with ConnectionPool(bare, min_size=1, max_size=6, open=True) as pool:
            yield pool
    elif request.param == "pooler of sessions":
        yield request.getfixturevalue("pooler_of_sessions")
    elif "pooler" in request.param:
        require("pgbouncer")
        with PgBouncer(postgres[0], settings={"default_pool_size": 2}) as pooler:
            yield pooler.through(bare) + ("" if "unsaid" in request.param else "?pooler=on")
    else:
        yield bare


@pytest.fixture
def pooler_of_sessions(postgres: tuple[HostilePostgres, str, Any], postgres_at: str) -> Iterator[str]:
    require("pgbouncer")
    with PgBouncer(postgres[0], settings={"pool_mode": "session"}) as pooler:
        yield pooler.through(postgres_at.partition("?")[0]) + "?pooler=off"


@pytest.fixture(params=["url", "engine"])
def mariadb_source(request: pytest.FixtureRequest, mariadb_at: str) -> Iterator[Any]:
    bare = mariadb_at.partition("?")[0]
    if request.param == "url":
        yield bare
        return
    engine = sqlalchemy.create_engine(f"{bare.replace('mysql:', 'mysql+pymysql:')}?charset=latin1")
    yield engine
    engine.dispose()


def opened(source: Any, stack: list[Store], client: Any = CLIENT) -> Store:
    store = open_store(source, StoreOptions(client))
    store.open()
    stack.append(store)
    return store


@pytest.fixture
def stack() -> Iterator[list[Store]]:
    stores: list[Store] = []
    yield stores
    for store in stores:
        store.close()


def has_one_holder(source: Any, friendly: str, stack: list[Store]) -> None:
    """P2, between a session of which everything was set otherwise and one of which nothing was."""
    first, second = opened(source, stack), opened(friendly, stack, OTHER_CLIENT)
    # The slow path commits, and leaves nothing open behind it.
    first.execute(Acquire("pool", "p-1", "me", 60.0, CLIENT, terms=Terms("permits", permits=2)))
    granted = first.execute(Acquire(NAME, "a-1", "me", 60.0, CLIENT))
    assert isinstance(granted, Granted)
    busy = second.execute(Acquire(NAME, "a-2", "you", 60.0, OTHER_CLIENT))
    assert isinstance(busy, Busy)
    assert busy.holder is not None
    assert busy.holder.owner == "me"
    first.execute(Release(NAME, "a-1", granted.token))
    again = second.execute(Acquire(NAME, "a-3", "you", 60.0, OTHER_CLIENT))
    assert isinstance(again, Granted)
    assert isinstance(first.execute(Acquire(NAME, "a-4", "me", 60.0, CLIENT)), Busy)


def a_semaphore_has_no_more_holders_than_permits(source: Any, stack: list[Store]) -> None:
    store = opened(source, stack)
    terms = Terms("permits", permits=3)
    answers = [
        store.execute(Acquire("pool", f"a-{n}", f"owner-{n}", 60.0, CLIENT, terms=terms)) for n in range(8)
    ]
    assert sum(isinstance(answer, Granted) for answer in answers) == 3


def test_a_name_has_one_holder_on_postgresql(postgres_source: Any, postgres_at: str, stack: Any) -> None:
    has_one_holder(postgres_source, f"{_as(postgres_at, POSTGRES_ADMIN)}?client_encoding=UTF8", stack)


def test_a_semaphore_keeps_its_number_on_postgresql(postgres_source: Any, stack: Any) -> None:
    a_semaphore_has_no_more_holders_than_permits(postgres_source, stack)


def test_a_name_has_one_holder_on_mariadb(mariadb_source: Any, mariadb_at: str, stack: Any) -> None:
    has_one_holder(mariadb_source, _as(mariadb_at, MARIADB_ADMIN), stack)


def test_a_semaphore_keeps_its_number_on_mariadb(mariadb_source: Any, stack: Any) -> None:
    a_semaphore_has_no_more_holders_than_permits(mariadb_source, stack)


@pytest.mark.parametrize("database", ["postgres", "mariadb"])
def test_a_waiter_is_woken_by_a_listener_that_was_told_otherwise(
    request: pytest.FixtureRequest, database: str
) -> None:
    url = request.getfixturevalue(f"{database}_at")
    with Holdfast(url) as one, Holdfast(url) as two:
        lease = one.acquire(NAME, owner="me")
        two.try_acquire(NAME, owner="you")
        lease.release()
        with two.hold(NAME, owner="you", timeout=20):
            pass


def test_a_listener_behind_a_pooler_that_keeps_sessions_hears_every_name(
    postgres: tuple[HostilePostgres, str, Any], pooler_of_sessions: str, stack: list[Store]
) -> None:
    store: Any = opened(pooler_of_sessions, stack)
    heard: queue.Queue[Signal] = queue.Queue()
    store.listen(heard.put)
    store.signals.be_reachable()
    assert store.signals._ready.wait(60)
    told = notification(CLIENT.instance, Signal("granted", NAME, "a-1"))
    postgres[2].execute("SELECT pg_notify(%s, %s)", (channel_of(CLIENT.instance), told["payload"]))
    assert heard.get(timeout=30).key == NAME


# What a session is set to.


def test_every_session_on_postgresql_has_what_is_pinned(postgres_at: str, stack: list[Store]) -> None:
    store: Any = opened(postgres_at, stack)
    wanted = pinning_postgres.pins(150000)
    names = ", ".join(f"'{name}'" for name in wanted)
    ask = f"SELECT name, current_setting(name) FROM pg_settings WHERE name IN ({names})"
    found = dict(store.sessions.use(lambda session: session.script(ask)))
    assert {name.decode(): value.decode() for name, value in found.items()} == wanted


def test_a_stronger_synchronous_commit_is_left_as_it_is(
    postgres_at: str, stack: list[Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGOPTIONS", "-c synchronous_commit=remote_apply")
    store: Any = opened(postgres_at, stack)
    assert store.sessions.use(lambda session: session.script("SHOW synchronous_commit")) == [
        (b"remote_apply",)
    ]


def test_a_session_that_is_shared_keeps_nothing_of_ours(postgres_at: str, stack: list[Store]) -> None:
    with ConnectionPool(postgres_at.partition("?")[0], min_size=1, max_size=1, open=True) as pool:
        store: Any = open_store(pool, StoreOptions(CLIENT))
        store.open()
        assert isinstance(store.execute(Acquire(NAME, "a-1", "me", 60.0, CLIENT)), Granted)
        with pool.connection() as theirs:
            for name, value in POSTGRES.items():
                assert theirs.execute(f"SHOW {name}").fetchone() == (value,)
        store.close()


@pytest.mark.parametrize("listening", [False, True])
def test_every_session_on_mariadb_has_what_is_pinned(
    mariadb_at: str, stack: list[Store], listening: bool
) -> None:
    store: Any = opened(mariadb_at, stack)
    session = store.source.new_listener(store.source.connect) if listening else store.source.new_session()
    found = dict(session.script("SHOW SESSION VARIABLES"))
    bounds = (pinning_mysql.LISTENING if listening else pinning_mysql.BOUNDS)[pinning_mysql.MARIADB]
    pins = {**pinning_mysql.PINNED, **bounds, **pinning_mysql.IF_KNOWN}
    of_another_spelling = {"optimizer_switch", "max_statement_time"}
    assert {name: found[name] for name in pins if name not in of_another_spelling} == {
        name: value for name, value in pins.items() if name not in of_another_spelling
    }
    assert "materialization=on" in found["optimizer_switch"]
    assert float(found["max_statement_time"]) == (0 if listening else 8)
    assert (found["tx_isolation"], found["tx_read_only"]) == ("READ-COMMITTED", "OFF")
    assert {found[f"character_set_{of}"] for of in ("client", "connection", "results")} == {"utf8mb4"}
    assert found["collation_connection"] == "utf8mb4_bin"
    assert session.script("SELECT database(), @@in_transaction") == [(urlsplit(mariadb_at).path[1:], 0)]
    session.close()


@pytest.mark.parametrize(
    ("database", "names"),
    [
        ("postgres", ["client_encoding is LATIN1, holdfast uses UTF8", "synchronous_commit is off"]),
        ("mariadb", ["completion_type is CHAIN, holdfast uses NO_CHAIN", "sql_select_limit is 1"]),
    ],
)
def test_what_was_overridden_can_be_told(
    request: pytest.FixtureRequest, database: str, names: list[str], stack: list[Store]
) -> None:
    store: Any = opened(request.getfixturevalue(f"{database}_at"), stack)
    said = "\n".join(store.remarks())
    assert [name for name in names if name not in said] == []
    assert "enable_seqscan" not in said


def test_what_was_overridden_can_be_told_wherever_connections_come_from(
    postgres_source: Any, stack: list[Store]
) -> None:
    store: Any = opened(postgres_source, stack)
    said = store.remarks()
    assert "synchronous_commit is off, holdfast uses on" in said
    assert "lock_timeout is 1ms, holdfast uses 500ms" in said
    assert store.remarks() == said  # nothing has stayed, and nothing is in the way


def told(store: Any) -> dict[str, str]:
    """Return what is said of each variable."""
    return dict(said.split(" is ", 1) for said in store.remarks())


def test_all_that_was_overridden_on_mariadb_is_told(mariadb_at: str, stack: list[Store]) -> None:
    found = told(opened(mariadb_at, stack))
    pins = {**pinning_mysql.PINNED, **pinning_mysql.BOUNDS[pinning_mysql.MARIADB], **pinning_mysql.IF_KNOWN}
    assert set(found) == {*pins, "tx_isolation", "tx_read_only", "timestamp"} & set(MARIADB)
    assert found["tx_isolation"] == "SERIALIZABLE, holdfast uses READ-COMMITTED"
    assert found["old_mode"].endswith("holdfast uses none")
    assert found["timestamp"] == "1.0, holdfast uses the server's clock"


def test_switches_that_are_the_servers_own_are_left_and_not_told(mariadb_at: str, stack: list[Store]) -> None:
    store: Any = opened(mariadb_at, stack)
    ((switches,),) = store.sessions.use(lambda session: session.script("SELECT @@session.optimizer_switch"))
    assert set(SWITCHES.split(",")) < set(switches.split(","))
    assert told(store)["optimizer_switch"] == "materialization=off, holdfast uses materialization=on"


@pytest.mark.parametrize("database", ["postgres", "mariadb"])
def test_where_nobody_has_set_anything_nothing_is_told(
    request: pytest.FixtureRequest, database: str, stack: list[Store]
) -> None:
    store: Any = opened(request.getfixturevalue(f"{database}_locks"), stack)
    # The tests' own servers do not wait for the disk.
    assert [said for said in store.remarks() if "synchronous_commit" not in said] == []
