"""Too many who want to connect, and servers that refuse: an error of the right kind that says what to do."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from holdfast import (
    Holdfast,
    SchemaMismatch,
    Settings,
    StoreError,
    StoreMisconfigured,
    StoreUnavailable,
)
from holdfast.core.requests import Sweep
from tests.clients.support import PATIENCE, QUICK, eventually
from tests.faults.conftest import SERVERS
from tests.servers import PostgresServer
from tests.servers.fixtures import require, with_tables
from tests.servers.ports import HOST


@pytest.fixture(params=SERVERS)
def url(request: pytest.FixtureRequest) -> str:
    """A server's database with tables."""
    url: str = request.getfixturevalue(f"{request.param}_locks")
    return url


@pytest.fixture(params=SERVERS)
def empty(request: pytest.FixtureRequest) -> str:
    """A server's database without any."""
    url: str = request.getfixturevalue(f"{request.param}_url")
    return url


@pytest.fixture
def postgres() -> Iterator[PostgresServer]:
    """A server of our own, with ten connections: three are reserved for the superuser."""
    require("postgres")
    with PostgresServer(settings={"max_connections": 10}) as server:
        yield server


# Crowds.


def test_fifty_threads_share_four_connections(url: str) -> None:
    """Everybody is served, and keepers renew past the crowd."""
    inside, most, tokens = set[int](), [0], list[int]()
    with Holdfast(f"{url}&pool_size=4", settings=QUICK) as locks:
        kept = locks.acquire("kept", ttl=5)
        before = kept._holding.kept.trusted_until

        def work(n: int) -> None:
            for turn in itertools.count():
                if turn >= 3 and kept._holding.kept.trusted_until > before:
                    return
                with locks.hold("nightly", timeout=PATIENCE) as lease, locks.hold(f"{n}-{turn}"):
                    assert not inside
                    inside.add(n)
                    tokens.append(lease.token)
                    most[0] = max(most[0], locks._engine.store.sessions.pool.open)  # type: ignore[attr-defined]
                    inside.discard(n)

        with ThreadPoolExecutor(50) as crowd:
            list(crowd.map(work, range(50)))
        kept.check()
    assert tokens == sorted(set(tokens))
    assert len(tokens) >= 150
    assert most[0] <= 5  # and one for a renewal that could not wait


def test_many_clients_make_the_tables_at_the_same_moment(empty: str) -> None:
    url = f"{empty}{'&' if '?' in empty else '?'}apply_schema=yes"
    start = threading.Barrier(8)

    def work(n: int) -> int:
        start.wait(PATIENCE)
        with Holdfast(url) as locks, locks.hold("nightly", timeout=PATIENCE) as lease:
            return lease.token

    with ThreadPoolExecutor(8) as crowd:
        tokens = list(crowd.map(work, range(8)))
    assert len(set(tokens)) == 8


def test_more_clients_than_connections_are_told_so_and_served_later(postgres: PostgresServer) -> None:
    url = with_tables(postgres.create_database())
    eventually(lambda: not postgres.execute("SELECT FROM pg_stat_activity WHERE usename = 'holdfast'"))
    clients = [Holdfast(f"{url}&pool_size=1&signals=off", settings=QUICK) for _ in range(7)]
    with pytest.raises(StoreUnavailable, match="raise max_connections or use fewer"):
        Holdfast(f"{url}&pool_size=1&signals=off", settings=QUICK)
    # Those who are in go on, and one who comes back later is served.
    with clients[0].hold("nightly", timeout=5):
        pass
    clients.pop().close()
    late = eventually(lambda: _try_to_open(f"{url}&pool_size=1&signals=off"))
    with late.hold("nightly", timeout=5):
        pass
    for client in (late, *clients):
        client.close()


def test_a_client_that_cannot_get_another_connection_waits_for_one(postgres: PostgresServer) -> None:
    """The server is full: requests of a running client are tried again, and its listener does without."""
    url = with_tables(postgres.create_database())
    with Holdfast(url, settings=QUICK) as locks:
        lease = locks.acquire("nightly", ttl=5)
        crowd = []
        while client := _try_to_open(f"{url}&pool_size=1&signals=off"):
            crowd.append(client)
        before = lease._holding.kept.trusted_until
        with ThreadPoolExecutor(8) as threads:
            taking = [threads.submit(locks.acquire, f"key-{n}", owner="me") for n in range(8)]
            eventually(lambda: lease._holding.kept.trusted_until > before)  # with the connection that it has
            for client in crowd:
                client.close()
            assert all(each.result(PATIENCE).held for each in taking)
        lease.check()


def _try_to_open(url: str) -> Holdfast | None:
    try:
        return Holdfast(url, settings=QUICK)
    except StoreUnavailable:
        return None


# Refusals.


def refused(url: str, kind: type[StoreError], *words: str) -> str:
    """Check what a client is told: when it is made, or else when it asks for something."""
    with pytest.raises(StoreError) as caught, Holdfast(url) as locks:
        locks.acquire("nightly", timeout=0)
    told = str(caught.value)
    assert type(caught.value) is kind, f"{caught.value!r}"
    for word in words:
        assert word in told, told
    return told


def test_a_database_that_is_not_there(postgres_server: PostgresServer) -> None:
    refused(postgres_server.url("nowhere"), StoreMisconfigured, "no such database", "create it")


def test_a_user_that_is_not_there(postgres_server: PostgresServer) -> None:
    told = refused(
        postgres_server.url("postgres", user="nobody_we_know"), StoreMisconfigured, "user", "check the url"
    )
    assert "no such database" not in told


def test_a_wrong_password(postgres: PostgresServer) -> None:
    postgres.execute("CREATE ROLE careful LOGIN PASSWORD 'right'")
    postgres.write(
        postgres.data / "pg_hba.conf",
        f"host all careful {HOST}/32 scram-sha-256\nhost all all {HOST}/32 trust\n",
    )
    postgres.configure()
    url = f"postgresql://careful:wrong-and-secret@{HOST}:{postgres.port}/postgres"
    told = refused(url, StoreMisconfigured, "password", "check the url")
    assert "wrong-and-secret" not in told
    refused(url.replace(":wrong-and-secret", ""), StoreMisconfigured, "password", "check the url")


def test_a_port_where_nobody_listens(postgres_server: PostgresServer) -> None:
    url = postgres_server.url("postgres").replace(f":{postgres_server.port}", ":1")
    refused(url, StoreUnavailable, "cannot connect")


def test_a_url_that_libpq_does_not_understand(postgres_server: PostgresServer) -> None:
    refused(f"{postgres_server.url('postgres')}?nonsense=1", StoreMisconfigured, "nonsense")


def test_tables_that_are_not_there(empty: str) -> None:
    refused(empty, SchemaMismatch, "holdfast schema apply", "apply_schema=yes")


def test_tables_of_another_version(postgres_server: PostgresServer, postgres_url: str) -> None:
    url = with_tables(postgres_url)
    database = postgres_url.rpartition("/")[2]
    postgres_server.execute("UPDATE holdfast_meta SET version = 99", database)
    for each in (url, postgres_url):
        refused(each, SchemaMismatch, "version 99", "use the release that made them")


def test_tables_that_vanish_under_a_running_client(
    postgres_server: PostgresServer, postgres_url: str
) -> None:
    with_tables(postgres_url)
    with Holdfast(postgres_url, settings=QUICK) as locks:
        locks.acquire("nightly", ttl=600).release()
        postgres_server.execute("DROP TABLE holdfast_locks", postgres_url.rpartition("/")[2])
        with pytest.raises(SchemaMismatch, match="holdfast schema apply"):
            locks.acquire("nightly", timeout=5)


def test_a_user_who_may_not(postgres: PostgresServer) -> None:
    url = postgres.create_database()
    with_tables(url)
    postgres.execute("CREATE ROLE guest LOGIN")
    guest = url.replace("holdfast@", "guest@")
    refused(guest, StoreMisconfigured, "privilege", "grant")
    refused(f"{guest}?apply_schema=yes", StoreMisconfigured, "privilege", "grant")
    database = url.rpartition("/")[2]
    postgres.execute("GRANT SELECT ON ALL TABLES IN SCHEMA public TO guest", database)
    refused(guest, StoreMisconfigured, "privilege", "grant")
    postgres.execute("GRANT INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO guest", database)
    with Holdfast(guest) as locks, locks.hold("nightly", timeout=0):
        pass
    postgres.execute(f"REVOKE CONNECT ON DATABASE {database} FROM public")
    refused(guest, StoreMisconfigured, "privilege", "grant")


def test_a_server_that_only_reads(postgres: PostgresServer) -> None:
    url = with_tables(postgres.create_database())
    postgres.configure(default_transaction_read_only="on")
    told = refused(url, StoreUnavailable, "standby", "target_session_attrs=read-write")
    assert "25006" in told
    with Holdfast(url) as locks:  # looking is allowed
        assert locks.inspect("nightly") is None


def test_a_standby(postgres: PostgresServer) -> None:
    url = with_tables(postgres.create_database())
    with postgres.standby() as standby:
        there = url.replace(f":{postgres.port}/", f":{standby.port}/")
        eventually(lambda: _can_look(there))
        refused(there, StoreUnavailable, "standby", "target_session_attrs=read-write")
        both = url.replace(f"@{HOST}:{postgres.port}/", f"@{HOST}:{standby.port},{HOST}:{postgres.port}/")
        with (
            Holdfast(f"{both}&target_session_attrs=read-write") as locks,
            locks.hold("nightly", timeout=5),
        ):
            pass


def _can_look(url: str) -> bool:
    try:
        with Holdfast(url) as locks:
            locks.inspect("nightly")
    except StoreError:  # what the primary wrote has not arrived yet
        return False
    return True


# Races that only a server has.


def test_a_sweep_that_finds_the_waiters_gone(url: str) -> None:
    """They have left between the walk over all keys and the look at theirs."""
    with Holdfast(url, settings=Settings(sweep_every=None)) as locks, Holdfast(url) as other:
        _lease = locks.acquire("nightly", ttl=600)
        waiting = threading.Thread(target=lambda: other.acquire("nightly", ttl=600))
        waiting.start()
        eventually(lambda: locks.inspect("nightly").waiting == 1)  # type: ignore[union-attr]
        store: Any = locks._engine.store
        fetch = store.sessions.fetch

        def leave_after_the_walk(name: str, /, **parameters: Any) -> Any:
            rows = fetch(name, **parameters)
            if name == "sweep_walk":
                assert rows
                locks.break_lock("nightly", reason="stuck")  # and the other one has it
                waiting.join(PATIENCE)
            return rows

        store.sessions.fetch = leave_after_the_walk
        assert store.execute(Sweep(10)).tickets == 0
