"""Groups on PostgreSQL: one transaction that waits for nobody, and as durable as each request by itself."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from holdfast import errors
from holdfast.core.family import Terms
from holdfast.core.requests import Acquire, Busy, Granted, Inspect, Queued, Release, Released, Withdraw
from holdfast.stores import open_store
from holdfast.stores.base import Store, StoreOptions
from holdfast.stores.postgres import failures
from holdfast.stores.postgres.schema import SQL
from holdfast.stores.postgres.session import PostgresSession
from holdfast.stores.postgres.statement import Statement
from holdfast.stores.sql.options import split_url
from holdfast.testing.conformance import CLIENT
from tests.clients.support import eventually

# What a transaction is when it commits.
NOTES = """
CREATE TABLE committed (key text, how text, id xid);
CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO committed VALUES (NEW.lock_key, current_setting('synchronous_commit'), NEW.xmin); RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER note AFTER INSERT OR UPDATE ON holdfast_locks DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION note();
"""
REFUSES = """
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    IF NEW.lock_key = 'bad' THEN RAISE 'not this one'; END IF; RETURN NEW;
END $$;
CREATE TRIGGER refuse BEFORE INSERT OR UPDATE ON holdfast_locks FOR EACH ROW EXECUTE FUNCTION refuse();
"""
ENDS = """
CREATE FUNCTION cut() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER cut AFTER INSERT OR UPDATE ON holdfast_locks DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION cut();
"""
DOOMS = """
CREATE FUNCTION doom() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'not in the end'; END $$;
CREATE CONSTRAINT TRIGGER doom AFTER INSERT OR UPDATE ON holdfast_locks DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION doom();
"""


@pytest.fixture(params=["own", "pooled"])
def store(request: pytest.FixtureRequest, postgres_locks: str) -> Iterator[Any]:
    """A store with connections of its own, and one that shares them with others."""
    pooled = "&pooler=yes" if request.param == "pooled" else ""
    store = open_store(f"{postgres_locks}{pooled}", StoreOptions(CLIENT))
    store.open()
    yield store
    store.close()


@pytest.fixture
def theirs(postgres_locks: str) -> Iterator[psycopg.Connection[Any]]:
    """Somebody's connection."""
    with psycopg.connect(split_url(postgres_locks)[0]) as connection:
        yield connection
        connection.rollback()


@pytest.fixture
def change(theirs: psycopg.Connection[Any]) -> Iterator[Callable[[str], None]]:
    """A function that changes the schema, as an operator with a console could, until the test is over."""

    def change(script: str) -> None:
        theirs.execute(script.encode())
        theirs.commit()

    yield change
    theirs.rollback()
    change("DROP TABLE IF EXISTS committed; DROP FUNCTION IF EXISTS note, refuse, cut, doom CASCADE")


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The names of the statements that went out together."""
    seen: list[list[str]] = []
    send = PostgresSession.send

    def spy(self: PostgresSession, batch: Any, /, *, commits: bool = False) -> Any:
        if len(batch) > 1 or batch[0][0].endswith("_many"):
            seen.append([name for name, _ in batch])
        return send(self, batch, commits=commits)

    monkeypatch.setattr(PostgresSession, "send", spy)
    return seen


def wants(key: str, attempt: str = "a-1", **how: Any) -> Acquire:
    return Acquire(key, attempt, attempt, 60.0, CLIENT, **how)


def take(store: Store, *keys: str, attempt: str = "a-1") -> list[Release]:
    """Take locks one by one; return the requests that release them."""
    return [Release(key, attempt, store.execute(wants(key, attempt)).token) for key in keys]  # type: ignore[union-attr]


def kinds(answers: list[Any]) -> list[type]:
    return [type(answer) for answer in answers]


def test_a_group_is_one_round_trip_and_one_transaction(
    store: Any, change: Any, theirs: Any, sent: Any
) -> None:
    releases = take(store, "k3", "k4")
    change(NOTES)
    answers = store.try_together([wants("k1"), wants("k2"), *releases])
    assert kinds(answers) == [Granted, Granted, Released, Released]
    assert sent == [["acquire_many", "release_many"]]
    assert theirs.execute("SELECT count(*), count(DISTINCT id::text) FROM committed").fetchone() == (4, 1)


def test_a_release_makes_no_grant_of_its_group_lazy(store: Any, change: Any, theirs: Any) -> None:
    """A grant that was told and then lost in a crash would be given to somebody else."""
    releases = take(store, "k3", "k4")
    change(NOTES)
    store.try_together([*releases, wants("k1"), wants("k2")])
    assert theirs.execute("SELECT DISTINCT how FROM committed").fetchall() == [("on",)]


def test_releases_among_themselves_need_not_wait_for_the_disk(store: Any, change: Any, theirs: Any) -> None:
    releases = take(store, "k3", "k4")
    change(NOTES)
    assert store.try_together(releases) == [Released(), Released()]
    assert theirs.execute("SELECT DISTINCT how FROM committed").fetchall() == [("off",)]
    store.try_together([wants("k1"), wants("k2")])
    assert ("k1", "on") in theirs.execute("SELECT key, how FROM committed").fetchall(), "it lasts"


def test_a_request_that_fails_fails_alone(store: Any, change: Any) -> None:
    releases = take(store, "k3")
    change(REFUSES)
    assert store.try_together([wants("k1"), wants("bad"), *releases]) == [None] * 3
    first, bad, released, last = store.execute_many([wants("k1"), wants("bad"), *releases, wants("k2")])
    assert kinds([first, released, last]) == [Granted, Released, Granted]
    assert isinstance(bad, errors.StoreError)
    assert "not this one" in str(bad)
    assert store.execute(Inspect("bad")) is None


def test_what_somebody_has_locked_holds_up_nobody(store: Any, theirs: Any) -> None:
    """Neither to be taken, nor to be released, nor because it is fenced."""
    releases = take(store, "k1", "k2", "k3", "k4", "k5")
    store.execute_many(releases[:3])
    theirs.execute("SELECT 1 FROM holdfast_locks WHERE lock_key IN ('k1', 'k4') FOR NO KEY UPDATE")
    theirs.execute("SELECT 1 FROM holdfast_locks WHERE lock_key = 'k2' FOR KEY SHARE")
    answers = store.try_together([*(wants(f"k{n}", "b-1") for n in (1, 2, 3)), *releases[3:]])
    # If it had waited for a row until lock_timeout, all would be undone.
    assert [answer and type(answer) for answer in answers] == [None, None, Granted, None, Released]


def test_what_needs_the_rules_is_left_to_them(store: Any) -> None:
    (held, expired, ended, freed, waited_for) = take(store, "held", "expired", "ended", "freed", "waited-for")
    store.execute_many([ended, freed])
    store.execute(Withdraw("ended", "b-1"))
    store.execute(wants("counted", terms=Terms(mode="shared")))
    late = time.time() + 3600
    asked = [wants(key, "b-1") for key in ("held", "ended", "counted")]
    assert store.try_together(asked) == [None] * 3
    assert store.try_together([wants("freed", "a-1"), wants("expired", "b-1", now=late)]) == [None] * 2
    assert isinstance(store.execute(wants("waited-for", "b-1", wait=True)), Queued)
    wrong = Release("held", "a-1", held.token + 1)
    over = Release("expired", "a-1", expired.token, now=late)
    assert store.try_together([wrong, waited_for, over]) == [None] * 3


def test_the_order_of_requests_is_kept(store: Any, sent: Any) -> None:
    (release,) = take(store, "k1")
    begin: list[Any] = [wants("k2"), release, wants("k1", "b-1"), wants("k3")]
    answers = store.execute_many([*begin, Inspect("k4"), Inspect("k3"), wants("k3", "c-1"), wants("k4")])
    assert kinds(answers)[:4] == [Granted, Released, Granted, Granted]
    assert answers[4] is None
    assert answers[5].holder.owner == "a-1"
    assert kinds(answers[6:]) == [Busy, Granted]
    assert sent[:2] == [["acquire_many", "release_many"], ["acquire_many"]]


def test_an_attempt_that_ends_while_its_group_begins_is_not_granted(
    store: Any, theirs: Any, postgres_locks: str
) -> None:
    """P6, trap 7: what a withdrawal wrote after our snapshot is not in it; the row tells."""
    store.execute_many(take(store, "k1"))
    slow = SQL["acquire_many"].replace(" AS known,", " AS known, pg_advisory_xact_lock(1),")
    asked = {
        "key": "k1",
        "attempt": "x-1",
        "owner": "o",
        "ttl": 60_000_000,
        "instance": "i",
        "host": "h",
        "pid": 1,
    }
    granted: list[Any] = []

    def acquire() -> None:
        text = Statement("slow", slow).text.replace(b"$1", b"%s")
        granted.extend(theirs.execute(text, [json.dumps([asked])]).fetchall())

    thread = threading.Thread(target=acquire)
    with psycopg.connect(split_url(postgres_locks)[0], autocommit=True) as gate:
        gate.execute("SELECT pg_advisory_lock(1)")
        thread.start()
        waits = "SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
        eventually(lambda: gate.execute(waits).fetchall(), "its group begins")
        store.execute(Withdraw("k1", "x-1"))
    thread.join()
    theirs.commit()
    assert granted == []
    assert isinstance(store.execute(wants("k1", "b-1")), Granted)


def test_two_groups_of_the_same_new_keys_do_not_wait_for_each_other_for_ever(
    postgres_locks: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In whatever order they name them. Each key goes to one, and the server has to end no deadlock."""
    granted: list[str] = []
    failed: list[str] = []
    start = threading.Barrier(4)
    translate = failures.translate

    def noted(state: str, message: str) -> errors.StoreError:
        failed.append(message)
        return translate(state, message)

    monkeypatch.setattr(failures, "translate", noted)

    def work(number: int) -> None:
        store: Any = open_store(postgres_locks, StoreOptions(CLIENT))
        store.open()
        for each in range(20):
            keys = [f"k{each}-{n}" for n in range(12)]
            random.Random(number).shuffle(keys)
            start.wait(60)
            found = store.try_together([wants(key, f"t{number}-{key}") for key in keys])
            granted.extend(key for key, answer in zip(keys, found, strict=True) if answer is not None)
        store.close()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert sorted(granted) == sorted({f"k{each}-{n}" for each in range(20) for n in range(12)})


def test_a_commit_that_fails_is_a_failure_of_each(store: Any, change: Any) -> None:
    releases = take(store, "k3")
    change(DOOMS)
    assert store.try_together([wants("k1"), wants("k2"), *releases]) == [None] * 3
    assert kinds(store.execute_many([wants("k1"), *releases])) == [errors.StoreError] * 2
    assert store.execute(Inspect("k1")) is None


def test_only_a_hint_may_fail_in_its_commit(store: Any, change: Any) -> None:
    """As a notification does on a full disk. What comes before it is done, and answered."""
    change("CREATE TABLE committed (key int UNIQUE DEFERRABLE INITIALLY DEFERRED)")
    fails = Statement("fails", "INSERT INTO committed VALUES (:n), (:n) RETURNING key")

    def send(*batch: Any) -> Any:
        def work(session: PostgresSession) -> Any:
            session._statements = {**session._statements, "fails": fails}
            return session.send(list(batch), commits=True)

        return store.sessions.use(work)

    look, write, end = ("now", {"now": 5}), ("fails", {"n": 1}), ("end", {})
    assert send(look, end, write)[0] == [(5,)]
    assert send(look, end, look, write)[2] == [(5,)]
    for batch in ((write, end, look), (look, write), (write, look), (look, write, end, write)):
        with pytest.raises(errors.StoreError, match="committed_key_key"):
            send(*batch)
    assert send(look, look) == [[(5,)]] * 2


def test_if_the_line_breaks_in_the_commit_nobody_knows(store: Any, change: Any) -> None:
    change(ENDS)
    answers = store.try_together([wants("k1"), wants("k2")])
    assert kinds(answers) == [errors.OutcomeUnknown] * 2
    assert answers[0] is not answers[1], "each is raised by itself"


def test_if_the_store_is_away_all_are_told(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: object, **__: object) -> None:
        raise errors.StoreUnavailable("away")

    monkeypatch.setattr(store.sessions.pool, "take", away)
    answers = store.try_together([wants("k1"), wants("k2")])
    assert kinds(answers) == [errors.StoreUnavailable] * 2


def test_only_what_is_likely_plain_and_free_goes_together(store: Any) -> None:
    (release,) = take(store, "k1")
    may = store.may_go_together
    assert may(wants("k1"))
    assert may(release)
    assert not may(wants("k1", terms=Terms(mode="shared")))
    assert not may(Release("k1", "a-1", 1, retire=True))
    assert not may(Withdraw("k1", "a-1"))
    assert isinstance(store.execute(wants("k1", "b-1", wait=True)), Queued)
    assert not may(wants("k1", "c-1"))
    assert not may(release)
