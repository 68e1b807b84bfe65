"""The stores that the suite is put to."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.core.requests import Client, Signal
from holdfast.stores import open_store
from holdfast.stores.base import Store, StoreOptions
from holdfast.stores.mysql.session import MySQLSession
from holdfast.stores.mysql.store import MySQLStore
from holdfast.testing.conformance import CLIENT, OTHER_CLIENT, AsyncAdapter, MakeStore
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
def at_rest(mariadb_database: tuple[str, Any]) -> Callable[[MySQLStore], MySQLStore]:
    """Have the listener of a store at rest when it is said to listen, and all that were before it.

    Until then it looks by itself. So it may tell of a grant that was told already, or see a hand-over
    before that is proved to be on the disk. Both are harmless, but tests count and compare signals.
    """
    listeners: list[Any] = []
    mutex = threading.Lock()

    def watched(store: MySQLStore) -> MySQLStore:
        bell: Any = store.signals
        be_reachable = bell.be_reachable
        listeners.append(bell)

        def be_reachable_and_rest() -> None:
            if bell._ready.is_set():
                return
            be_reachable()
            with mutex:
                eventually(lambda: _all_wait(mariadb_database[1], listeners), "all listeners at rest")

        bell.be_reachable = be_reachable_and_rest
        return store

    return watched


def _all_wait(admin: Any, listeners: list[Any]) -> bool:
    """Tell whether all listeners wait in the server, which they do for a lock that somebody has."""
    lines = {line._connection.thread_id() for bell in listeners if (line := bell._line) is not None}
    with admin.cursor() as cursor:
        cursor.execute(
            "SELECT id FROM information_schema.processlist"
            " WHERE state = 'User lock' AND info LIKE 'SELECT IF(EXISTS%'"
        )
        return lines <= {id for (id,) in cursor.fetchall()}


@pytest.fixture
def mysql_stores(
    way: Callable[[Store], Store],
    mariadb_locks: str,
    at_rest: Callable[[MySQLStore], MySQLStore],
) -> Iterator[MakeStore]:
    def wrap(store: Store) -> Store:
        assert isinstance(store, MySQLStore)
        return way(at_rest(store))

    yield from stores_of(mariadb_locks, wrap)


@pytest.fixture
def mysql_store(mariadb_locks: str, at_rest: Callable[[MySQLStore], MySQLStore]) -> Iterator[MySQLStore]:
    """A store, for what is MySQL's own."""
    store = open_store(mariadb_locks, StoreOptions(CLIENT))
    assert isinstance(store, MySQLStore)
    store.open()
    yield at_rest(store)
    store.close()


@pytest.fixture
def elsewhere(
    mariadb_locks: str, at_rest: Callable[[MySQLStore], MySQLStore]
) -> Iterator[tuple[MySQLStore, queue.Queue[Signal]]]:
    """The store of another client, and what that one is told."""
    store = open_store(mariadb_locks, StoreOptions(OTHER_CLIENT))
    assert isinstance(store, MySQLStore)
    store.open()
    arrived: queue.Queue[Signal] = queue.Queue()
    store.listen(arrived.put)
    yield at_rest(store), arrived
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
