"""What PostgreSQL locks, sees and writes, and when: facts that the store is built on, on a real server."""

from __future__ import annotations

import asyncio
import itertools
import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest

from holdfast import AsyncHoldfast, Holdfast, LeaseLost, OutcomeUnknown
from holdfast.core.data import replace
from holdfast.core.family import Outcome, Terms
from holdfast.core.requests import (
    Acquire,
    Break,
    Busy,
    Client,
    Granted,
    Inspect,
    Queued,
    Release,
    Released,
    Renew,
    RenewLease,
    Signal,
    Withdraw,
    Withdrawn,
)
from holdfast.stores import open_store
from holdfast.stores.base import Store, StoreOptions
from holdfast.stores.postgres import variables
from holdfast.stores.postgres.session import PostgresSession
from holdfast.stores.sql.options import split_url
from holdfast.stores.sql.rules.columns import Row
from holdfast.stores.sql.transactions.session import Batch, RowLocked
from holdfast.testing.conformance import CLIENT, OTHER_CLIENT
from holdfast.testing.conformance.asker import permits
from tests.servers import PostgresServer, Proxy

KEY = "nightly"


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests that wait for a row as long as a test takes to arrange it, on however busy a machine."""
    monkeypatch.setitem(variables.PINNED, "lock_timeout", "60s")
    monkeypatch.setitem(variables.PINNED, "statement_timeout", "60s")


@pytest.fixture
def make_store(postgres_locks: str) -> Iterator[Callable[..., Any]]:
    opened: list[Store] = []

    def make_store(client: Client = CLIENT, history: Any = "notable") -> Any:
        store = open_store(f"{postgres_locks}&request_timeout=60", StoreOptions(client, history))
        store.open()
        opened.append(store)
        return store

    yield make_store
    for store in opened:
        store.close()


@pytest.fixture
def store(make_store: Callable[..., Any]) -> Any:
    return make_store()


@pytest.fixture
def theirs(postgres_locks: str) -> Iterator[psycopg.Connection[Any]]:
    """Somebody's connection, with a transaction that is open for as long as a test likes."""
    with psycopg.connect(split_url(postgres_locks)[0]) as connection:
        yield connection
        connection.rollback()


def take(store: Store, attempt: str, key: str = KEY, *, ttl: float = 60.0, **options: Any) -> Any:
    return store.execute(Acquire(key, attempt, attempt, ttl, CLIENT, **options))


def free(store: Store, key: str = KEY) -> int:
    """Have a row for a key that nobody holds; return its token."""
    token: int = take(store, "first", key).token
    assert store.execute(Release(key, "first", token)) == Released()
    return token


def in_thread(work: Callable[[], Any]) -> Callable[[], Any]:
    """Start *work*; the result is a function that waits for it."""
    results: list[Any] = []

    def run() -> None:
        try:
            results.append(work())
        except Exception as error:
            results.append(error)

    thread = threading.Thread(target=run)
    thread.start()

    def result() -> Any:
        thread.join(20)
        return results[0]

    return result


def wait_for_waiters(server: PostgresServer, count: int, or_until: threading.Event | None = None) -> None:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        rows = server.execute("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'")
        if rows[0][0] >= count or (or_until is not None and or_until.is_set()):
            return
        time.sleep(0.005)
    raise AssertionError(f"no {count} wait for a row")


def lock_row(theirs: psycopg.Connection[Any], key: str = KEY) -> None:
    theirs.execute("SELECT 1 FROM holdfast_locks WHERE lock_key = %s FOR NO KEY UPDATE", [key])


def test_an_attempt_that_ends_while_it_waits_for_the_row_is_not_granted(
    patient, store, theirs, postgres_server
):
    """P6, trap 7: what a withdrawal has written while we waited is not in our snapshot; the row tells."""
    token = free(store)
    lock_row(theirs)
    acquiring = in_thread(lambda: take(store, "x-1"))
    wait_for_waiters(postgres_server, 1)
    theirs.execute(
        "INSERT INTO holdfast_ended (lock_key, attempt, why, until_at) VALUES (%s, 'x-1', 'withdrawn', 1e18)",
        [KEY],
    )
    theirs.execute("UPDATE holdfast_locks SET token = token WHERE lock_key = %s", [KEY])
    theirs.commit()
    assert not isinstance(acquiring(), Granted)
    assert take(store, "y-1").token > token


def test_a_real_withdrawal_beats_an_acquire_that_waits_for_it(
    patient, make_store, store, theirs, postgres_server
):
    """P6, with the store's own requests: somebody has the row for as long as both come to wait for it."""
    free(store)
    other = make_store()
    lock_row(theirs)
    withdrawing = in_thread(lambda: other.execute(Withdraw(KEY, "x-1")))
    wait_for_waiters(postgres_server, 1)
    acquiring = in_thread(lambda: take(store, "x-1"))
    wait_for_waiters(postgres_server, 2)
    theirs.rollback()
    assert withdrawing() == Withdrawn()
    assert not isinstance(acquiring(), Granted)


def test_a_withdrawal_of_what_has_no_row_yet_holds_all_the_same(
    patient, make_store, store, theirs, postgres_server
):
    """P6: somebody makes the row and gives it up again, while both come to wait for it."""
    other, withdrawn = make_store(), threading.Event()
    theirs.execute(
        "INSERT INTO holdfast_locks (lock_key, token, expires_at, granted_at, instance, host, pid)"
        " VALUES (%s, 0, 0, 0, '', '', 0)",
        [KEY],
    )
    acquiring = in_thread(lambda: take(store, "x-1"))
    wait_for_waiters(postgres_server, 1)
    withdrawing = in_thread(lambda: (other.execute(Withdraw(KEY, "x-1")), withdrawn.set())[0])
    wait_for_waiters(postgres_server, 2, or_until=withdrawn)
    theirs.rollback()
    acquiring()
    assert withdrawing() == Withdrawn()
    assert isinstance(take(store, "y-1"), Granted)


@pytest.mark.parametrize("changed", [False, True], ids=["fast", "slow"])
def test_a_lease_that_was_waited_for_is_born_with_its_whole_ttl(
    patient, store, theirs, postgres_server, changed
):
    """Trap 2: the clock is read after the wait. now() would stand still from before it."""
    free(store)
    lock_row(theirs)
    if changed:  # then the fast path has to give up
        theirs.execute("UPDATE holdfast_locks SET host = host WHERE lock_key = %s", [KEY])
    acquiring = in_thread(lambda: take(store, "a-1", ttl=1.0))
    wait_for_waiters(postgres_server, 1)
    time.sleep(0.3)
    (released,) = theirs.execute("SELECT extract(epoch FROM clock_timestamp())").fetchone() or (0,)
    theirs.commit()
    assert isinstance(acquiring(), Granted)
    (end,) = theirs.execute("SELECT expires_at / 1e6 FROM holdfast_locks").fetchone() or (0,)
    assert end >= float(released) + 1.0


@pytest.fixture
def timeouts(monkeypatch):
    """Where somebody waited for a row in vain."""
    found = []
    monkeypatch.setattr(RowLocked, "__init__", lambda error, *about: found.append((error, about)))
    return found


def test_a_refusal_waits_for_no_row_and_locks_none(store, theirs, timeouts):
    """Whoever tries in a loop must not be in the way of the holder's renewals, nor of anybody's fence."""
    take(store, "a-1")
    theirs.execute("UPDATE holdfast_locks SET host = host WHERE lock_key = %s", [KEY])
    for n in range(20):
        assert isinstance(take(store, f"b-{n}"), Busy)
    assert not timeouts


@pytest.mark.parametrize("retire", [False, True], ids=["fast", "slow"])
def test_a_release_does_not_pass_a_waiter_that_is_just_joining(
    patient, make_store, store, theirs, postgres_server, retire
):
    """Trap 7: a lost wake-up. The count of waiters is on the row that the release waits for."""
    token = take(store, "a-1").token
    lock_row(theirs)
    queueing = in_thread(lambda: take(make_store(OTHER_CLIENT), "b-1", wait=True))
    wait_for_waiters(postgres_server, 1)
    releasing = in_thread(lambda: store.execute(Release(KEY, "a-1", token, retire=retire)))
    wait_for_waiters(postgres_server, 2)
    theirs.rollback()
    queued, released = queueing(), releasing()
    assert isinstance(queued, Queued | Granted), queued
    if isinstance(queued, Queued):
        assert released == Released(0, next="b-1")
    assert isinstance(take(store, "c-1"), Busy)


def test_a_batch_of_renewals_waits_for_no_row(store, theirs):
    """A row that somebody has locked is unknown; the others are none the worse."""
    leases = [RenewLease(f"k{n}", "a-1", take(store, "a-1", f"k{n}").token, 60.0) for n in range(5)]
    lock_row(theirs, "k2")
    outcomes = [answer.outcome for answer in store.execute(Renew(leases=tuple(leases))).leases]
    assert outcomes == ["renewed", "renewed", "unknown", "renewed", "renewed"]


def test_eight_who_take_a_new_key_at_once_are_one_holder(make_store):
    """Trap 5: there is no row to lock yet."""
    stores = [make_store(Client(f"i{n}", "alpha", n)) for n in range(8)]
    for turn in range(10):
        asking = [
            in_thread(lambda s=s, n=n, t=turn: take(s, f"a-{n}", f"key-{t}")) for n, s in enumerate(stores)
        ]
        answers = [ask() for ask in asking]
        assert sum(isinstance(answer, Granted) for answer in answers) == 1, answers
        assert sum(isinstance(answer, Busy) for answer in answers) == 7, answers


def test_a_grant_is_on_the_disk_when_it_is_answered_and_a_release_need_not_be(request):
    """Trap 14."""
    from tests.servers.fixtures import require, with_tables

    require("postgres")
    with PostgresServer(durable=True, settings={"wal_writer_delay": "10s"}) as server:
        url = with_tables(server.create_database())
        store = open_store(url, StoreOptions(CLIENT))
        store.open()

        def unflushed() -> int:
            rows = server.execute("SELECT pg_current_wal_insert_lsn() - pg_current_wal_flush_lsn()")
            return int(rows[0][0])

        take(store, "warm-up", "another")
        granted = take(store, "a-1")
        assert unflushed() == 0
        store.execute(Renew(leases=(RenewLease(KEY, "a-1", granted.token, 60.0),)))
        assert unflushed() == 0
        take(store, "b-1", wait=True)
        assert store.execute(Release(KEY, "a-1", granted.token)) == Released(0, next="b-1")
        assert unflushed() == 0  # the winner enters by it
        claimed = take(store, "b-1", wait=True)
        assert isinstance(claimed, Granted)
        assert unflushed() == 0
        assert store.execute(Release(KEY, "b-1", claimed.token)) == Released()
        assert unflushed() > 0
        again = take(store, "c-1")
        assert unflushed() == 0
        assert store.execute(Release(KEY, "c-1", again.token)) == Released()
        permit = take(store, "p-1", "gpu", terms=permits(2))
        assert isinstance(take(store, "p-2", "gpu", terms=permits(2)), Granted)
        for waiter in ("q-1", "q-2"):
            assert isinstance(take(store, waiter, "gpu", wait=True, terms=permits(2)), Queued)
            assert unflushed() > 0
        assert store.execute(Release("gpu", "p-1", permit.token)) == Released(0, next="q-1")
        assert unflushed() == 0
        with_history = open_store(url, StoreOptions(CLIENT, "all"))  # then grants take the slow path
        with_history.open()
        assert isinstance(take(with_history, "d-1"), Granted)
        assert unflushed() == 0
        with_history.close()
        for outcome in (Outcome(True, "1"), Outcome(False, "no")):
            key, terms = f"pull:{outcome.text}", Terms(operation=True, max_attempts=1)
            doer = Acquire(key, "e-1", "e-1", 60.0, CLIENT, terms=terms)
            done = store.execute(doer)
            assert isinstance(done, Granted)
            store.execute(replace(doer, attempt="f-1", owner="f-1", wait=True))
            told = store.execute(Release(key, "e-1", done.token, retire=True, outcome=outcome))
            assert told == Released(told=1)
            assert unflushed() == 0  # a completion that others had seen was lost in a crash
        store.close()


def test_what_the_server_rolled_back_because_of_somebody_else_is_tried_again(store):
    """Deadlocks and the like: nobody is told of what goes well the second time."""
    tries: list[int] = []

    def work(session: Any) -> str:
        tries.append(1)
        if len(tries) == 1:
            session.script("DO $$ BEGIN RAISE SQLSTATE '40P01'; END $$")
        return "done"

    assert store.sessions.use(work) == "done"
    assert len(tries) == 2


def test_an_answer_that_does_not_come_is_an_unknown_outcome(postgres_locks):
    """Trap 17: the grant is there, though nobody was told."""
    address = urlsplit(postgres_locks)
    assert address.hostname
    assert address.port
    with Proxy(address.hostname, address.port) as proxy:
        url = f"{proxy.through(postgres_locks)}&request_timeout=3&signals=no"
        store: Any = open_store(url, StoreOptions(CLIENT))
        store.open()
        free(store)
        proxy.lose_answers()
        with pytest.raises(OutcomeUnknown):
            take(store, "a-1")
        proxy.restore()
        assert isinstance(take(store, "b-1"), Busy)
        store.close()


def test_one_client_is_notified_of_a_hand_over_and_nobody_of_anything_else(make_store, theirs):
    """Trap 13: a notification costs every listener something."""
    third_client = Client("c-3", "gamma", 3)
    winner, other, third = make_store(OTHER_CLIENT), make_store(), make_store(third_client)
    heard: list[str] = []
    theirs.autocommit = True
    theirs.add_notify_handler(lambda notification: heard.append(notification.payload))
    for instance in (CLIENT.instance, OTHER_CLIENT.instance, third_client.instance):
        theirs.execute(f'LISTEN "holdfast_{instance}"')
    token = take(other, "a-1").token
    winner.execute(Acquire(KEY, "b-1", "b-1", 60.0, OTHER_CLIENT, wait=True))
    third.execute(Acquire(KEY, "c-1", "c-1", 60.0, third_client, wait=True))
    other.execute(Release(KEY, "a-1", token))
    theirs.execute("SELECT 1")
    told = [payload.split("\n") for payload in heard if payload]
    assert [(said.split(" ")[0], attempt) for said, _, attempt, _, _ in told] == [("granted", "b-1")]


def test_nobody_is_woken_before_the_commit(make_store, monkeypatch):
    """Trap 13: in the transaction a signal holds others up, or comes before there is anything to see."""
    sent: list[str] = []
    send = PostgresSession.send

    def spy(session: PostgresSession, batch: Batch, /, *, commits: bool = False) -> list[list[Row]]:
        sent.extend(name for name, _ in batch)
        return send(session, batch, commits=commits)

    store = make_store()
    take(store, "a-1")
    make_store(OTHER_CLIENT).execute(Acquire(KEY, "b-1", "b-1", 60.0, OTHER_CLIENT, wait=True))
    monkeypatch.setattr(PostgresSession, "send", spy)
    assert store.execute(Break(KEY, "stuck", "olga")).next == "b-1"
    assert sent.index("commit") < sent.index("notify")


def test_a_release_by_the_fast_path_leaves_readers_to_the_slow_one(store, make_store):
    """There may be more than one of them, and what they hold is not in the row."""
    token = take(store, "a-1").token
    other = make_store()  # who releases does not know on what terms others wait
    for reader in ("b-1", "c-1"):
        asked = Acquire(KEY, reader, reader, 60.0, CLIENT, wait=True, terms=Terms(mode="shared"))
        assert isinstance(other.execute(asked), Queued)
    assert store.execute(Release(KEY, "a-1", token)) == Released(0, next="b-1")
    assert [holder.owner for holder in store.execute(Inspect(KEY)).holders] == ["b-1", "c-1"]


def test_who_joins_a_queue_and_holds_nothing_looks_for_no_circle(make_store, monkeypatch):
    """It cannot have closed one."""
    sent: list[str] = []
    send = PostgresSession.send

    def spy(session: PostgresSession, batch: Batch, /, *, commits: bool = False) -> list[list[Row]]:
        sent.extend(name for name, _ in batch)
        return send(session, batch, commits=commits)

    store = make_store()
    take(store, "a-1")
    monkeypatch.setattr(PostgresSession, "send", spy)
    assert isinstance(take(store, "b-1", wait=True), Queued)
    assert sent == ["join_queue"]


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_lease_that_only_the_database_knows_to_be_over_cannot_be_fenced(kind, postgres_locks, theirs):
    """P4: whatever its client still trusts."""

    def end_it() -> None:
        theirs.execute("UPDATE holdfast_locks SET expires_at = granted_at WHERE lock_key = %s", [KEY])
        theirs.commit()

    async def main() -> None:
        async with AsyncHoldfast(postgres_locks) as locks:
            lease = await locks.acquire(KEY)
            end_it()
            assert lease.held
            with pytest.raises(LeaseLost):
                await lease.fence(theirs)
            assert not lease.held

    if kind == "async":
        asyncio.run(main())
        return
    with Holdfast(postgres_locks) as locks:
        lease = locks.acquire(KEY)
        end_it()
        assert lease.held
        with pytest.raises(LeaseLost):
            lease.fence(theirs)
        assert not lease.held


def test_keys_are_compared_by_bytes_whatever_the_database_sorts_by(postgres_server):
    """Trap 16: the order of a page must be the order of the comparison that ends it."""
    from tests.servers.fixtures import with_tables

    url = postgres_server.create_database(icu_locale="en-US")
    try:
        store: Any = open_store(with_tables(url), StoreOptions(CLIENT))
        store.open()
        names = ["a", "B", "b", "á", "z", "Z", "a b", "a-b", "ä"]
        for name in names:
            take(store, "a-1", name)
        from holdfast.core.requests import List

        found: list[str] = []
        after = ""
        while True:
            page = store.execute(List(after=after, limit=2))
            found += [view.key for view in page.locks]
            if page.after is None:
                break
            after = page.after
        assert found == sorted(names)
        store.close()
    finally:
        postgres_server.drop_database(url)


def test_a_listener_outlives_a_handler_that_fails(make_store, caplog):
    """The first signal is lost, which is a hint only; those that come later are not."""
    mine, other = make_store(), make_store(OTHER_CLIENT)
    arrived: queue.Queue[Signal] = queue.Queue()
    failed = threading.Event()

    def handle(signal: Signal) -> None:
        if not failed.is_set():
            failed.set()
            raise RuntimeError("the loop is closed")
        arrived.put(signal)

    other.listen(handle)
    deadline = time.monotonic() + 30.0
    for number in itertools.count():  # it listens again in a moment, and we cannot see when
        key, attempt = f"{KEY}-{number}", f"b-{number}"
        held = take(mine, f"a-{number}", key)
        other.execute(Acquire(key, attempt, attempt, 60.0, OTHER_CLIENT, wait=True))
        mine.execute(Release(key, f"a-{number}", held.token))
        with suppress(queue.Empty):
            assert arrived.get(timeout=0.1).kind == "granted"
            break
        assert time.monotonic() < deadline
    assert failed.is_set()
    assert "the loop is closed" in caplog.text
