"""The tables in MySQL: made once, by several at once, under any prefix; and the history's partitions."""

import threading

import pytest

from holdfast import errors
from holdfast.core.requests import Acquire, Granted, Sweep
from holdfast.stores import open_store
from holdfast.stores.base import StoreOptions
from holdfast.stores.mysql.schema import SCHEMA
from holdfast.stores.sql.options import ServerOptions
from holdfast.stores.sql.schema import WEEK
from holdfast.testing.conformance import CLIENT

OPTIONS = StoreOptions(CLIENT)


@pytest.fixture
def store(mariadb_url: str):
    store = open_store(f"{mariadb_url}?apply_schema=yes&signals=no", OPTIONS)
    store.open()
    yield store
    store.close()


def test_without_tables_one_is_told_what_to_do(mariadb_url):
    store = open_store(mariadb_url, OPTIONS)
    with pytest.raises(errors.SchemaMismatch, match="holdfast schema apply"):
        store.open()
    store.close()


def test_several_may_apply_the_schema_at_once(mariadb_url):
    failures = []

    def apply() -> None:
        store = open_store(f"{mariadb_url}?apply_schema=yes&signals=no", OPTIONS)
        try:
            store.open()
        except errors.StoreError as error:
            failures.append(error)
        store.close()

    threads = [threading.Thread(target=apply) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_whoever_was_interrupted_can_go_on(store):
    """A change of tables cannot be rolled back: what is there already is left alone."""
    store.sessions.use(
        lambda session: session.script("DROP TABLE holdfast_meta; DROP TABLE holdfast_signals")
    )
    assert store.sessions.use(lambda session: SCHEMA.find(session, store.server)) is None
    store.tables().apply()
    assert store.tables().status() == "version 1, up to date"
    store.sessions.use(lambda session: session.script("DELETE FROM holdfast_meta"))
    store.tables().apply()
    assert store.tables().status() == "version 1, up to date"


def test_tables_of_another_version_are_left_alone(store):
    store.sessions.use(lambda session: session.script("UPDATE holdfast_meta SET version = 7"))
    with pytest.raises(errors.SchemaMismatch, match="version 7"):
        store.open()


def test_prefixes_keep_locks_apart_and_dropping_one_leaves_the_other(mariadb_url, store):
    other = open_store(f"{mariadb_url}?apply_schema=yes&signals=no&prefix=other_", OPTIONS)
    other.open()
    for each in (store, other):
        assert isinstance(each.execute(Acquire("k", "a-1", "a-1", 10.0, CLIENT)), Granted)
    assert other.tables().held() == 1
    assert other.tables().drop() == len(SCHEMA.tables)
    assert other.tables().drop() == 0
    assert other.tables().held() == 0
    assert store.tables().held() == 1
    other.close()


def test_the_script_makes_what_apply_makes(mariadb_url):
    store = open_store(f"{mariadb_url}?signals=no", OPTIONS)
    text = store.tables().script()
    assert "holdfast_locks" in text
    assert "holdfast_" not in SCHEMA.script(ServerOptions(prefix="mine_"))
    store.sessions.use(lambda session: session.script(text.strip().removesuffix(";")))
    store.open()
    store.close()


def test_weeks_are_made_ahead_and_dropped_when_they_are_over(store):
    """R8: the history is partitioned by time, and dropped by partition."""
    week = 3000
    now = week * WEEK + 5

    def keep(now: int, forget_before: int) -> list[int]:
        store.sessions.use(lambda session: SCHEMA.keep_weeks(session, store.server, now, forget_before))
        return store.sessions.use(lambda session: SCHEMA.weeks(session, store.server))

    event = {"key": "k", "kind": "granted", "token": 1, "owner": None, "by": None, "reason": None}
    assert keep(now, 0) == [week, week + 1, week + 2]
    assert keep(now, 0) == [week, week + 1, week + 2]
    for number, at in enumerate([5, now, now + WEEK, now + 9 * WEEK]):
        store.sessions.fetch("write_event", number=number, at=at, **event)
    assert keep(now + 2 * WEEK, 0) == [week + n for n in range(5)]
    assert len(store.sessions.fetch("history", key="k", limit=10)) == 4
    assert keep(now + 2 * WEEK, (week + 1) * WEEK) == [week + n for n in range(1, 5)]
    assert [row[0] for row in store.sessions.fetch("history", key="k", limit=10)] == [3, 2, 0]
    assert len(store.sessions.fetch("delete_history", before=now + 20 * WEEK, limit=10)) == 2  # of no week
    assert [row[0] for row in store.sessions.fetch("history", key="k", limit=10)] == [2]


def test_a_sweep_keeps_partitions_and_forgets_signals_nobody_read(store):
    store.sessions.use(
        lambda session: session.script(
            "INSERT INTO holdfast_signals (instance, kind, lock_key, attempt, expires_in, at)"
            " VALUES ('gone', 'lost', 'k', 'a-1', 0, 5)"
        )
    )
    store.execute(Sweep())
    assert len(store.sessions.use(lambda session: SCHEMA.weeks(session, store.server))) == 3
    assert store.sessions.use(lambda session: session.script("SELECT id FROM holdfast_signals")) == []


def test_whoever_may_not_change_tables_can_still_sweep(store, mariadb_server, mariadb_url):
    mariadb_server.execute("CREATE OR REPLACE USER reader@'%'")
    mariadb_server.execute("GRANT SELECT, INSERT, UPDATE, DELETE ON *.* TO reader@'%'")
    theirs = open_store(f"{mariadb_url.replace('holdfast@', 'reader@')}?signals=no", OPTIONS)
    theirs.open()
    theirs.execute(Sweep())
    assert theirs.sessions.use(lambda session: SCHEMA.weeks(session, store.server)) == []
    theirs.close()
