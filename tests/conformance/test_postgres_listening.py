"""Who listens on PostgreSQL, and for how long: each listener costs every notification something."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from holdfast import Holdfast
from holdfast.core.requests import Signal
from holdfast.stores.postgres import signals
from holdfast.stores.postgres.session import channel_of
from holdfast.stores.postgres.signals import Notifications
from holdfast.stores.sql.options import split_url
from tests.clients.support import PATIENCE, QUICK, eventually


@pytest.fixture
def server(postgres_locks: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(split_url(postgres_locks)[0], autocommit=True) as connection:
        yield connection


def listeners(server: psycopg.Connection[Any]) -> int:
    asked = (
        "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'LISTEN %' AND datname = current_database()"
    )
    row = server.execute(asked).fetchone()
    assert row is not None
    return int(row[0])


@pytest.fixture
def bell(postgres_locks: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A listener that stops at once when nobody waits."""
    monkeypatch.setattr(signals, "LINGER", 0.0)
    address = split_url(postgres_locks)[0]
    bell = Notifications(
        lambda: psycopg.connect(address, autocommit=True),
        "c-1",
        lambda connection: connection.close(),
        keeps=False,
    )
    bell.heard = queue.Queue()  # type: ignore[attr-defined]
    bell.listen(bell.heard.put)  # type: ignore[attr-defined]
    yield bell
    bell.close()


def test_who_only_holds_does_not_listen(postgres_locks, server):
    with Holdfast(postgres_locks, settings=QUICK) as locks:
        lease = locks.acquire("nightly")
        before = lease._holding.kept.trusted_until
        eventually(lambda: lease._holding.kept.trusted_until > before, "a renewal")
        assert listeners(server) == 0
        with Holdfast(postgres_locks, settings=QUICK) as other:
            waiting = threading.Thread(target=lambda: other.acquire("nightly").release())
            waiting.start()
            eventually(lambda: locks.inspect("nightly").waiting == 1)
            assert listeners(server) == 1
            lease.release()
            waiting.join(PATIENCE)


def test_who_only_holds_learns_of_a_break_by_its_renewal(postgres_locks):
    with Holdfast(postgres_locks, settings=QUICK) as locks, Holdfast(postgres_locks) as other:
        lease = locks.acquire("nightly")
        other.break_lock("nightly", reason="stuck")
        assert lease.lost.wait(PATIENCE)


def test_when_nobody_waits_any_more_nobody_listens(bell, server):
    bell.expect(60.0)
    bell.expect(0.0, begins=False)
    assert listeners(server) == 1
    bell._wanted_until = 0.0  # nobody waits any more
    server.execute("SELECT pg_notify(%s, '')", [channel_of("c-1")])  # it looks
    eventually(lambda: listeners(server) == 0)
    assert bell._thread is None
    bell.expect(30.0)
    assert listeners(server) == 1
    server.execute("SELECT pg_notify(%s, %s)", [channel_of("c-1"), "granted 7 8\nk\na\n5.0\n"])
    assert bell.heard.get(timeout=PATIENCE) == Signal("granted", "k", "a", 5.0, token=7, at=8 / 1e6)


def test_who_is_to_be_reachable_always_stays_so(bell, server):
    bell.be_reachable()
    bell.expect(0.0)
    time.sleep(0.2)
    assert bell._ready.is_set()
    assert listeners(server) == 1


def test_who_begins_to_wait_while_the_listener_stops_is_woken(bell, monkeypatch):
    """It has said that it wants to be woken just before the listener is not ready any more."""
    clear = threading.Event.clear

    def begin(event: threading.Event) -> None:
        if event is bell._ready and bell._wanted_until < time.monotonic():
            bell.expect(30.0)  # and sees that the listener is ready
        clear(event)

    monkeypatch.setattr(threading.Event, "clear", begin)
    bell.expect(0.05)
    thread = bell._thread
    eventually(lambda: bell._wanted_until > time.monotonic() + 20)
    eventually(bell._ready.is_set)
    assert bell._thread is thread
    assert thread.is_alive()
