"""The stores that the suite is put to."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.core.requests import Client
from holdfast.stores import open_store
from holdfast.stores.base import Store, StoreOptions
from holdfast.stores.mysql.session import MySQLSession
from holdfast.stores.mysql.store import MySQLStore
from holdfast.testing.conformance import CLIENT, AsyncAdapter, MakeStore
from tests.clients.support import eventually


def stores_of(url: str, wrap: Callable[[Store], Store]) -> Iterator[MakeStore]:
    """Yield a function that opens stores of *url*, and close them all in the end."""
    opened: list[Store] = []

    def make_store(client: Client = CLIENT, history="notable") -> Store:
        store = wrap(open_store(url, StoreOptions(client, history)))
        store.open()
        opened.append(store)
        return store

    yield make_store
    for store in opened:
        store.close()


@pytest.fixture(params=["sync", "async"])
def way(request: pytest.FixtureRequest) -> Callable[[Store], Store]:
    """How requests reach the store: from the test's thread, or by way of an event loop."""
    return AsyncAdapter if request.param == "async" else lambda store: store


@pytest.fixture
def memory_stores(way: Callable[[Store], Store], tmp_path: Path) -> Iterator[MakeStore]:
    yield from stores_of(f"memory://{tmp_path.name}", way)


@pytest.fixture
def sqlite_stores(
    way: Callable[[Store], Store], tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[MakeStore]:
    """Stores that wait for each other, but not for long for a transaction of the test's own."""
    busy_timeout = 0.3 if "connect" in request.fixturenames else 60
    yield from stores_of(f"sqlite:///{tmp_path}/locks.db?busy_timeout={busy_timeout}", way)


@pytest.fixture
def postgres_stores(way: Callable[[Store], Store], postgres_locks: str) -> Iterator[MakeStore]:
    yield from stores_of(postgres_locks, way)


@pytest.fixture
def mysql_stores(
    way: Callable[[Store], Store], mariadb_locks: str, mariadb_database: tuple[str, Any]
) -> Iterator[MakeStore]:
    """Stores whose listeners are at rest when they are said to listen.

    The first of all listeners looks once more when it becomes that, and may tell of a grant that was told
    already. That is harmless, but the suite counts signals.
    """
    listeners: list[Any] = []
    mutex = threading.Lock()

    def at_rest(store: Store) -> Store:
        assert isinstance(store, MySQLStore)
        bell: Any = store.signals
        be_reachable = bell.be_reachable
        listeners.append(bell)

        def hang_up_and_rest() -> None:
            if bell._ready.is_set():
                return
            be_reachable()
            with mutex:
                eventually(lambda: _has_a_first(mariadb_database[1], listeners), "a first listener")

        bell.be_reachable = hang_up_and_rest
        return way(store)

    yield from stores_of(mariadb_locks, at_rest)


def _has_a_first(admin: Any, listeners: list[Any]) -> bool:
    """Tell whether one of the listeners waits for its second connection: then no other looks by itself."""
    lines = [line._connection.thread_id() for bell in listeners if (line := bell._line) is not None]
    with admin.cursor() as cursor:
        cursor.execute(
            "SELECT id FROM information_schema.processlist"
            " WHERE state = 'User lock' AND info LIKE '%''holdfast awaited%'"
        )
        return any(id in lines for (id,) in cursor.fetchall())


@pytest.fixture
def mysql_store(mariadb_locks: str) -> Iterator[MySQLStore]:
    """A store, for what is MySQL's own."""
    store = open_store(mariadb_locks, StoreOptions(CLIENT))
    assert isinstance(store, MySQLStore)
    store.open()
    yield store
    store.close()


@pytest.fixture
def mysql_sessions(mysql_store: MySQLStore) -> Iterator[Callable[[], MySQLSession]]:
    """Connections set up as the store's own are, as many as a test wants."""
    sessions: list[MySQLSession] = []

    def connect() -> MySQLSession:
        sessions.append(mysql_store.source.new_session())
        return sessions[-1]

    yield connect
    for session in sessions:
        session.close()
