"""Servers that go away in the middle of the traffic: everybody goes on by himself, and nobody meets."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.core.requests import Acquire, Deadlocked, Queued, Release, Released
from holdfast.stores import open_store
from holdfast.stores.base import StoreOptions
from holdfast.testing.conformance import CLIENT
from tests.faults.conftest import SERVERS, house_of
from tests.faults.fleets import Fleet, violations
from tests.faults.processes import House
from tests.servers import MariaDBServer, PostgresServer
from tests.servers.fixtures import require

KINDS: dict[str, type[PostgresServer] | type[MariaDBServer]] = {
    "postgres": PostgresServer,
    "mariadb": MariaDBServer,
}


REQUEST_TIMEOUT = 2
HOLDERS = {"k1": "ann", "k2": "bob"}


@pytest.fixture(params=SERVERS)
def server(request: pytest.FixtureRequest) -> Iterator[PostgresServer | MariaDBServer]:
    """A server of our own, whose commits survive a kill."""
    kind = KINDS[request.param]
    require(kind.program)
    with kind(durable=True) as server:
        yield server


@pytest.fixture
def house(server: PostgresServer | MariaDBServer, tmp_path: Path) -> Iterator[House]:
    yield from house_of(
        f"{server.create_database()}?apply_schema=yes&request_timeout={REQUEST_TIMEOUT}", tmp_path
    )


@pytest.mark.parametrize("way", ["stopped", "killed", "paused"])
def test_sixteen_workers_go_on_after_their_server_was(
    way: str, server: PostgresServer | MariaDBServer, house: House
) -> None:
    fleet = Fleet(house)
    if way == "stopped":
        server.restart()
    elif way == "killed":
        server.kill()
        server.start()
    else:
        server.pause()
        time.sleep(1.5 * REQUEST_TIMEOUT)  # so that they have given up every connection
        server.resume()
    fleet.until_all_had_turns()
    lost = way == "killed" and isinstance(server, PostgresServer)  # where a release need not reach the disk
    assert fleet.check(lost_releases=lost) >= 64  # each of them four


def test_releases_that_a_crash_has_lost_may_look_like_a_circle() -> None:
    """While leases last that nobody has any more. It is the price of releases that wait for no disk."""
    require(PostgresServer.program)
    with PostgresServer(durable=True, settings={"wal_writer_delay": "10s"}) as server:
        options = StoreOptions(CLIENT)
        url = server.create_database()
        store = open_store(f"{url}?apply_schema=yes", options)
        store.open()
        asked = {key: Acquire(key, f"{key}-1", owner, 60.0, CLIENT) for key, owner in HOLDERS.items()}
        granted = {key: store.execute(request) for key, request in asked.items()}
        for key, request in asked.items():
            assert store.execute(Release(key, request.attempt, granted[key].token)) == Released()
        server.kill()
        server.start()
        store.close()
        again = open_store(url, options)
        again.open()
        ann = again.execute(Acquire("k2", "k2-2", "ann", 60.0, CLIENT, wait=True))
        bob = again.execute(Acquire("k1", "k1-2", "bob", 60.0, CLIENT, wait=True))
        again.close()
    assert isinstance(ann, Queued)
    assert 0 < ann.expires_in <= 60.0  # no longer than that
    assert isinstance(bob, Deadlocked)
    assert {(link.owner, link.key) for link in bob.cycle} == {("ann", "k2"), ("bob", "k1")}


def test_a_token_does_not_fall_when_the_server_is_killed(
    server: PostgresServer | MariaDBServer, house: House
) -> None:
    """A release may be lost in a crash, a grant may not: whoever had one is believed."""
    tokens = []
    for _ in range(3):
        lease = house.locks.acquire("nightly", ttl=600)
        server.kill()
        server.start()
        assert house.look().token == lease.token
        assert house.look().state == "held"
        lease.check()
        lease.release()
        tokens.append(lease.token)
    assert tokens == sorted(set(tokens))


def test_the_checker_can_tell() -> None:
    """The harness itself: what it is there for must not pass."""
    assert violations([("a", 1, 0.0, 1.0, "x"), ("a", 2, 1.0, 2.0, "y"), ("b", 1, 0.5, 0.6, "y")]) == []
    assert "trusted" in violations([("a", 1, 0.0, 1.0, "x"), ("a", 2, 0.9, 2.0, "y")])[0]
    assert "got 1 after" in violations([("a", 2, 0.0, 1.0, "x"), ("a", 1, 1.5, 2.0, "y")])[0]
    assert "got 2 after" in violations([("a", 2, 0.0, 1.0, "x"), ("a", 2, 1.5, 2.0, "y")])[0]
