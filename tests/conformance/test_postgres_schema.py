"""The tables in PostgreSQL: made once, by several at once, under any name; and the history's partitions."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from holdfast import errors
from holdfast.core.requests import Acquire, Break, Granted, History, Sweep
from holdfast.stores import open_store
from holdfast.stores.base import StoreOptions
from holdfast.stores.postgres import schema
from holdfast.stores.postgres.schema import SCHEMA
from holdfast.stores.sql.options import ServerOptions
from holdfast.stores.sql.schema import WEEK
from holdfast.testing.conformance import CLIENT
from tests.clients.support import eventually

OPTIONS = StoreOptions(CLIENT)


def opened(url: str) -> Any:
    store = open_store(url, OPTIONS)
    store.open()
    return store


@pytest.fixture
def store(postgres_url: str) -> Iterator[Any]:
    store = opened(f"{postgres_url}?apply_schema=yes&signals=no")
    yield store
    store.close()


def test_several_may_apply_the_schema_at_once(postgres_url):
    failures = []

    def apply() -> None:
        try:
            opened(f"{postgres_url}?apply_schema=yes&signals=no").close()
        except errors.StoreError as error:
            failures.append(error)

    threads = [threading.Thread(target=apply) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


@pytest.fixture
def somebody_applies(postgres_url: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("SELECT pg_advisory_lock(%s)", [schema._LOCK])
        yield connection


def test_who_applies_the_schema_waits_for_somebody_slow(somebody_applies, postgres_url):
    """Longer than requests wait for a row."""
    with ThreadPoolExecutor() as threads:
        opening = threads.submit(opened, f"{postgres_url}?apply_schema=yes&signals=no")
        waits = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
        eventually(lambda: somebody_applies.execute(waits).fetchone() == (1,), "somebody who waits")
        time.sleep(1.0)  # a request would have given up after half of it
        somebody_applies.execute("SELECT pg_advisory_unlock_all()")
        opening.result().close()


def test_who_has_waited_for_long_is_told_that_somebody_applies_the_schema(
    somebody_applies, postgres_url, monkeypatch
):
    monkeypatch.setattr(schema, "_APPLYING", schema._APPLYING.replace(schema._PATIENCE, "50ms"))
    with pytest.raises(errors.StoreUnavailable, match="somebody else is changing holdfast's tables"):
        opened(f"{postgres_url}?apply_schema=yes&signals=no")


def test_with_the_tables_in_place_nobody_waits(store, somebody_applies, postgres_url):
    opened(f"{postgres_url}?apply_schema=yes&signals=no").close()


def test_an_unknown_version_is_left_alone(store, postgres_url):
    store.sessions.use(lambda session: session.script("UPDATE holdfast_meta SET version = 7"))
    with pytest.raises(errors.SchemaMismatch, match="version 7"):
        store.open()
    with pytest.raises(errors.SchemaMismatch, match="version 7"):
        store.tables().apply()
    assert "version 7" in store.tables().status()


def test_a_prefix_and_a_schema_keep_locks_apart(postgres_url, store):
    there = f"{postgres_url}?apply_schema=yes&signals=no"
    others = [opened(f"{there}&prefix=other_"), opened(f"{there}&schema=elsewhere")]
    for each in (store, *others):
        assert isinstance(each.execute(Acquire("k", "a-1", "a-1", 10.0, CLIENT)), Granted)
    for other in others:
        assert other.tables().status() == "version 3, up to date"
        assert other.tables().held() == 1
        other.execute(Sweep())
        other.execute(Break("k", "olga", "stuck"))
        assert [event.kind for event in other.execute(History("k"))] == ["broken"]
        assert other.tables().drop() == len(SCHEMA.tables)
        assert other.tables().drop() == 0
        assert other.tables().held() == 0
        assert "no holdfast tables" in other.tables().status()
        other.close()
    assert store.tables().held() == 1


def test_the_script_makes_what_apply_makes(postgres_url):
    store: Any = open_store(f"{postgres_url}?signals=no", OPTIONS)
    text = store.tables().script()
    assert "holdfast_" not in SCHEMA.script(ServerOptions(prefix="mine_"))
    store.sessions.use(lambda session: session.script(text))
    store.open()
    store.close()


def test_weeks_are_made_ahead_and_dropped_when_they_are_over(store):
    """R8: the history is partitioned by time, and dropped by partition."""
    week = 3000
    now = week * WEEK + 5

    def keep(now: int, forget_before: int) -> list[int]:
        store.sessions.use(lambda session: SCHEMA.keep_weeks(session, store.server, now, forget_before))
        weeks: list[int] = store.sessions.use(lambda session: SCHEMA.weeks(session, store.server))
        return weeks

    event = {"key": "k", "kind": "granted", "token": 1, "owner": None, "by": None, "reason": None}
    assert keep(now, 0) == [week, week + 1, week + 2]
    assert keep(now, 0) == [week, week + 1, week + 2]
    for number, at in enumerate([5, now, now + WEEK, now + 9 * WEEK]):
        store.sessions.fetch("write_event", number=number, at=at, **event)
    assert keep(now + 2 * WEEK, 0) == [week + n for n in range(5)]
    assert keep(now + 2 * WEEK, (week + 1) * WEEK) == [week + n for n in range(1, 5)]
    assert [row[0] for row in store.sessions.fetch("history", key="k", limit=10)] == [3, 2, 0]
    assert len(store.sessions.fetch("delete_history", before=now + 20 * WEEK, limit=10)) == 2  # of no week
    assert [row[0] for row in store.sessions.fetch("history", key="k", limit=10)] == [2]


def test_a_week_that_has_events_in_the_rest_already_goes_without_a_partition(store):
    week = 3000
    event = {"key": "k", "kind": "granted", "token": 1, "owner": None, "by": None, "reason": None}
    store.sessions.fetch("write_event", number=1, at=week * WEEK + 5, **event)
    store.sessions.use(lambda session: SCHEMA.keep_weeks(session, store.server, week * WEEK, 0))
    assert store.sessions.use(lambda session: SCHEMA.weeks(session, store.server)) == [
        week + 1,
        week + 2,
    ]
    assert len(store.sessions.fetch("history", key="k", limit=10)) == 1


def test_a_sweep_makes_partitions_and_events_go_there(store):
    store.execute(Sweep())
    assert len(store.sessions.use(lambda session: SCHEMA.weeks(session, store.server))) == 3
    store.execute(Acquire("k", "a-1", "a-1", 10.0, CLIENT))
    store.execute(Break("k", "olga", "stuck"))
    rest = store.sessions.use(lambda session: session.script("SELECT count(*) FROM holdfast_history_rest"))
    assert rest == [(b"0",)]
    assert [event.kind for event in store.execute(History("k"))] == ["broken"]


def test_whoever_may_not_change_tables_can_still_lock_and_sweep(store, postgres_server, postgres_url):
    """The least privileges, as the documentation lists them."""
    database = postgres_url.rpartition("/")[2]
    postgres_server.execute("DROP ROLE IF EXISTS worker")
    postgres_server.execute("CREATE ROLE worker LOGIN")
    postgres_server.execute(
        "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO worker", database
    )
    try:
        theirs = opened(f"{postgres_url.replace('holdfast@', 'worker@')}?signals=no")
        assert isinstance(theirs.execute(Acquire("k", "a-1", "a-1", 10.0, CLIENT)), Granted)
        theirs.execute(Break("k", "olga", "stuck"))
        theirs.execute(Sweep())
        assert theirs.sessions.use(lambda session: SCHEMA.weeks(session, store.server)) == []
        theirs.close()
    finally:
        postgres_server.execute("DROP OWNED BY worker", database)
        postgres_server.execute("DROP ROLE worker")
