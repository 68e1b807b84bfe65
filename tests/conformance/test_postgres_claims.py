"""Claims on PostgreSQL beside others who have rows locked: nobody waits, and nothing is miscounted."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from holdfast.core.cluster import (
    Assign,
    Assigned,
    Beat,
    Claim,
    Claimed,
    InspectWork,
    Join,
    Offer,
    OfferedWork,
)
from holdfast.core.requests import Acquire, Break, Fence, Release
from holdfast.stores import open_store
from holdfast.stores.base import StoreOptions
from holdfast.stores.postgres import variables
from holdfast.stores.postgres.dialect import PostgresDialect
from holdfast.stores.postgres.store import PostgresStore
from holdfast.stores.sql.options import split_url
from holdfast.testing.conformance import CLIENT
from tests.servers import PostgresServer

ID = "e-1"


@pytest.fixture(params=["fast", "general"])
def store(
    request: pytest.FixtureRequest, postgres_locks: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[PostgresStore]:
    """A store with an instance of capacity 4; by the fast path, and by the rules alone."""
    if request.param == "general":
        monkeypatch.setattr(PostgresDialect, "claim", lambda *_: None)
    monkeypatch.setitem(variables.PINNED, "lock_timeout", "60s")
    store = open_store(f"{postgres_locks}&request_timeout=60", StoreOptions(CLIENT))
    assert isinstance(store, PostgresStore)
    store.open()
    joined = store.execute(Join(ID, "worker", CLIENT, 4, 60.0))
    assert joined.state == "alive"
    yield store
    store.close()


@pytest.fixture
def theirs(postgres_locks: str) -> Iterator[psycopg.Connection[Any]]:
    """Somebody's connection, with a transaction that is open for as long as a test likes."""
    with psycopg.connect(split_url(postgres_locks)[0]) as connection:
        yield connection
        connection.rollback()


def claim(store: PostgresStore, number: int = 1, limit: int = 10, **more: Any) -> Claimed | Beat:
    return store.execute(Claim(ID, number, f"a-{number}", ("job",), limit, 60.0, CLIENT, **more))


def keys(answer: Claimed | Beat) -> list[str]:
    assert isinstance(answer, Claimed)
    return [work.key for work in answer.works]


def offer(store: PostgresStore, *keys: str) -> None:
    store.execute(Offer(tuple(OfferedWork(key) for key in keys)))


def due_in(store: PostgresStore, key: str) -> float:
    """Return how long after it was offered a piece of work is due."""
    work = store.execute(InspectWork(key))
    assert work is not None
    assert work.state == "offered"
    return work.due_at - work.offered_at


def beside(server: PostgresServer, work: Callable[[], Any], waiting: int = 1) -> Callable[[], Any]:
    """Have *work* done in a thread, and wait until so many wait for a row; the result waits for its end."""
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(work()))
    thread.start()
    deadline = time.monotonic() + 20
    count = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
    while server.execute(count) != [(waiting,)]:
        assert time.monotonic() < deadline
        time.sleep(0.01)

    def result() -> Any:
        thread.join(20)
        return results[0]

    return result


def test_work_that_somebody_is_at_is_passed_over(store: PostgresStore, theirs: Any) -> None:
    offer(store, "job:1", "job:2")
    theirs.execute("SELECT 1 FROM holdfast_work WHERE work_key = 'job:1' FOR UPDATE")
    assert keys(claim(store)) == ["job:2"]
    assert due_in(store, "job:1") == 0.0
    theirs.rollback()
    assert keys(claim(store, 2)) == ["job:1"]


def test_a_lock_that_somebody_is_at_is_not_waited_for(store: PostgresStore, theirs: Any) -> None:
    """Its work is put off; else who has nothing else to do would ask for it again and again."""
    offer(store, "job:1", "job:2")
    held = store.execute(Acquire("job:1", "x", "x", 60.0, CLIENT))
    store.execute(Release("job:1", "x", held.token))  # so that there is a row
    theirs.execute("SELECT 1 FROM holdfast_locks WHERE lock_key = 'job:1' FOR NO KEY UPDATE")
    answer = claim(store)
    assert keys(answer) == ["job:2"]
    assert due_in(store, "job:1") >= 1.0
    theirs.rollback()
    assert keys(claim(store, 2)) == []


def test_a_lock_that_is_pinned_is_not_granted(store: PostgresStore, theirs: Any) -> None:
    """A transaction of its last holder is still open, and may write what it read under that lease."""
    offer(store, "job:1", "job:2")
    held = store.execute(Acquire("job:1", "x", "x", 60.0, CLIENT))
    store.execute_within(theirs, Fence("job:1", "x", held.token))
    store.execute(Break("job:1", "olga", "stuck"))
    assert keys(claim(store)) == ["job:2"]
    assert due_in(store, "job:1") >= 1.0


def test_what_an_instance_has_is_counted_after_the_wait_for_its_row(
    store: PostgresStore, theirs: Any, postgres_server: PostgresServer
) -> None:
    """Somebody else gives it work at the same time; together they do not give it more than it can have."""
    offer(store, "job:1", "job:2", "job:3")
    theirs.execute("SELECT 1 FROM holdfast_instances WHERE id = %s FOR UPDATE", [ID])
    theirs.execute(
        "INSERT INTO holdfast_work"
        " (work_key, type, state, due_at, data, text, max_tries, offered_at, instance)"
        " SELECT 'other:' || n, 'other', 'assigned', 9e15, 'null', '', 0, 0, %s"
        " FROM generate_series(1, 3) AS n",
        [ID],
    )
    theirs.execute("UPDATE holdfast_instances SET load = load + 3 WHERE id = %s", [ID])
    result = beside(postgres_server, lambda: claim(store, spread=0.001))
    theirs.commit()
    assert keys(result()) == ["job:1"]


def test_a_claim_and_an_assignment_share_a_capacity(store: PostgresStore) -> None:
    offer(store, "job:1", "job:2")
    for n in range(3):
        request = Assign(f"other:{n}", f"b-{n}", ID, 60.0, CLIENT, id=ID)
        assert isinstance(store.execute(request), Assigned)
    assert keys(claim(store)) == ["job:1"]


def test_two_copies_of_a_claim_take_the_same(
    store: PostgresStore, theirs: Any, postgres_server: PostgresServer
) -> None:
    """Both wait for the instance; the second finds what the first has taken."""
    offer(store, "job:1", "job:2")
    theirs.execute("SELECT 1 FROM holdfast_instances WHERE id = %s FOR UPDATE", [ID])
    first = beside(postgres_server, lambda: claim(store, limit=1))
    second = beside(postgres_server, lambda: claim(store, limit=1), waiting=2)
    theirs.rollback()
    assert keys(first()) == keys(second()) == ["job:1"]
    assert first().works[0].token == second().works[0].token


def test_a_claim_that_takes_nothing_notes_its_number(store: PostgresStore) -> None:
    assert claim(store, 5) == Claimed((), None)
    offer(store, "job:1")
    assert keys(claim(store, 5)) == []
    assert keys(claim(store, 6)) == ["job:1"]


def test_work_is_looked_at_later_if_somebody_is_at_its_lock(store: PostgresStore, theirs: Any) -> None:
    """A transaction has its row: who has nothing else to do would look at it all the time."""
    offer(store, "job:1")
    assert keys(claim(store)) == ["job:1"]
    theirs.execute("UPDATE holdfast_locks SET expires_at = 1")
    theirs.execute("UPDATE holdfast_work SET due_at = 1")
    theirs.commit()
    theirs.execute("SELECT 1 FROM holdfast_locks FOR NO KEY UPDATE")
    assert keys(claim(store, 2)) == []
    work = store.execute(InspectWork("job:1"))
    assert work is not None
    assert work.state == "assigned"
    assert work.assigned_at is not None
    assert work.due_at >= work.assigned_at + 1.0
    theirs.execute("UPDATE holdfast_work SET due_at = 1")
    theirs.commit()
    assert keys(claim(store, 3)) == ["job:1"]
