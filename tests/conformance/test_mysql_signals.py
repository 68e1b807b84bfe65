"""Waking by KILL QUERY: nothing is lost, and nothing depends on it."""

import contextlib
import logging
import os
import queue
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import pymysql
import pytest

from holdfast import errors
from holdfast.core.family import Outcome, Terms
from holdfast.core.requests import Acquire, Break, Client, Granted, Queued, Release, Signal, Withdraw
from holdfast.stores import open_store
from holdfast.stores.base import StoreOptions
from holdfast.stores.mysql import signals
from holdfast.stores.mysql.failures import Interrupted
from holdfast.stores.mysql.session import MySQLSession
from holdfast.stores.mysql.signals import Doorbell
from holdfast.stores.mysql.statement import Statement
from holdfast.stores.mysql.store import MySQLStore
from holdfast.stores.sql.transactions.session import Conflict
from holdfast.testing.conformance import CLIENT, OTHER_CLIENT
from tests.clients.support import eventually

SOON = 10.0  # seconds; what a signal has not told is found after twenty


def hint(signal: Signal) -> Signal:
    """Return a signal without what can be entered by."""
    return Signal("granted", signal.key, signal.attempt) if signal.kind == "granted" else signal


@pytest.fixture
def stores(mariadb_locks: str):
    opened = []

    def make(client: Client, url: str = mariadb_locks):
        store = open_store(url, StoreOptions(client))
        store.open()
        opened.append(store)
        arrived: queue.Queue[Signal] = queue.Queue()
        store.listen(lambda signal: arrived.put(hint(signal)))
        return store, arrived

    yield make
    for store in opened:
        store.close()


def written(store) -> list[tuple]:
    """Return the signals that are in the table."""
    return store.sessions.use(lambda session: session.script("SELECT id FROM holdfast_signals"))


def ask(store, client: Client, attempt: str, key: str = "k", *, wait: bool = False, claim: float = 5.0):
    return store.execute(Acquire(key, attempt, attempt, 60.0, client, wait=wait, claim=claim))


def test_no_hand_over_goes_unnoticed(stores):
    """P8: the signal comes at any moment, before, while or after the listener looks."""
    (mine, _), (other, arrived) = stores(CLIENT), stores(OTHER_CLIENT)
    for number in range(60):
        token = ask(mine, CLIENT, f"a-{number}").token
        assert isinstance(ask(other, OTHER_CLIENT, f"b-{number}", wait=True), Queued)
        time.sleep(0.0005 * (number % 7))
        mine.execute(Release("k", f"a-{number}", token))
        assert arrived.get(timeout=SOON) == Signal("granted", "k", f"b-{number}")
        granted = ask(other, OTHER_CLIENT, f"b-{number}", wait=True)
        assert isinstance(granted, Granted)
        other.execute(Release("k", f"b-{number}", granted.token))
    assert arrived.empty()


FIRST, SECOND, SLEEP = "the first listener", "a second connection", "a sleep"

WAITS = f"""
SELECT CASE WHEN state = 'User sleep' THEN '{SLEEP}'
            WHEN state = 'User lock' AND info LIKE '%GET_LOCK(''holdfast first''%' THEN '{FIRST}'
            WHEN state = 'User lock' AND info LIKE '%GET_LOCK(''holdfast awaited%' THEN '{SECOND}'
            ELSE state END
  FROM information_schema.processlist WHERE info LIKE 'SELECT IF(EXISTS%'
"""


def resting(server) -> Counter[str]:
    """Return what the listeners of a server wait for."""
    return Counter(what for (what,) in server.execute(WAITS))


def until_resting(server, wanted: dict[str, int]) -> None:
    deadline = time.monotonic() + SOON
    while (seen := resting(server)) != wanted:
        assert time.monotonic() < deadline, seen
        time.sleep(0.01)


def test_no_listener_sleeps_and_when_the_first_leaves_another_one_is(stores, mariadb_server):
    """All sleeps of a server share one mutex: a KILL may keep all others waiting for 2 s."""
    listeners = [stores(Client(f"listener-{number}", "alpha", number)) for number in range(4)]
    for store, _ in listeners:
        store.be_reachable()
    while listeners:
        until_resting(mariadb_server, Counter([SECOND, *[FIRST] * (len(listeners) - 1)]))
        other, arrived = listeners.pop(0)
        mine, _ = stores(CLIENT)
        token = ask(mine, CLIENT, "a-1", other._client.instance).token
        ask(other, other._client, "b-1", other._client.instance, wait=True)
        mine.execute(Release(other._client.instance, "a-1", token))
        assert arrived.get(timeout=SOON).kind == "granted"
        other.close()


class Connecting:
    """How a listener connects: the first time at once; then *again* is asked for."""

    def __init__(self, store: MySQLStore, again: Callable[[], MySQLSession]) -> None:
        self._connect = store.signals._connect
        self._again = again
        self.lines: list[MySQLSession] = []
        self.tries = 0
        store.signals._connect = self

    def __call__(self) -> MySQLSession:
        self.tries += 1
        self.lines.append(self._again() if self.lines else self.connect())
        return self.lines[-1]

    def connect(self) -> MySQLSession:
        return self._connect()


def failing(error: Exception) -> Callable[..., Any]:
    def fail(*_: Any, **__: Any) -> Any:
        raise error

    return fail


@pytest.mark.parametrize(
    "error", [errors.StoreUnavailable("no room"), TimeoutError("of a pool"), KeyError(1)]
)
def test_a_listener_that_has_nothing_to_wait_for_sleeps_and_is_told_all_the_same(
    stores, mariadb_server, error
):
    (mine, _), (other, arrived) = stores(CLIENT), stores(OTHER_CLIENT)
    connecting = Connecting(other, failing(error))
    other.be_reachable()
    for number in range(3):
        until_resting(mariadb_server, {SLEEP: 1})
        hand_over(mine, other, f"{number}")
        assert arrived.get(timeout=SOON) == Signal("granted", "k", f"b-{number}")
        other.execute(Withdraw("k", f"b-{number}"))
    assert connecting.tries == 2


def test_a_listener_outlives_that_it_cannot_be_told_whether_there_is_room(
    stores, mariadb_server, monkeypatch
):
    """Else the next one would be the first, and end as well."""
    (mine, _), (other, arrived) = stores(CLIENT), stores(OTHER_CLIENT)
    monkeypatch.setattr(signals, "_has_room", failing(ValueError("no rows")))
    other.be_reachable()
    line = listener_of(mariadb_server, OTHER_CLIENT)
    until_resting(mariadb_server, {SLEEP: 1})
    hand_over(mine, other, "1")
    assert arrived.get(timeout=SOON) == Signal("granted", "k", "b-1")
    assert listener_of(mariadb_server, OTHER_CLIENT) == line


def hand_over(mine: MySQLStore, other: MySQLStore, name: str) -> None:
    token = ask(mine, CLIENT, f"a-{name}").token
    ask(other, OTHER_CLIENT, f"b-{name}", wait=True)
    mine.execute(Release("k", f"a-{name}", token))


def test_a_listener_is_told_while_its_second_connection_takes_long(stores, mariadb_server):
    (mine, _), (other, arrived) = stores(CLIENT), stores(OTHER_CLIENT)
    opened = threading.Event()
    connecting = Connecting(other, lambda: opened.wait(SOON) and connecting.connect())
    other.be_reachable()
    hand_over(mine, other, "1")
    assert arrived.get(timeout=SOON) == Signal("granted", "k", "b-1")
    assert len(connecting.lines) == 1
    opened.set()
    until_resting(mariadb_server, {SECOND: 1})


def the_thread_that_connects() -> threading.Thread:
    (thread,) = [each for each in threading.enumerate() if each.name == "holdfast-awaited"]
    return thread


def test_closing_waits_a_moment_for_a_second_connection_that_is_being_made(stores, monkeypatch):
    monkeypatch.setattr(signals, "MOMENT", SOON)
    other, _ = stores(OTHER_CLIENT)
    opened = threading.Event()
    line = other.signals._connect()
    awaited = signals.Awaited(lambda: opened.wait(SOON) and line)
    session = other.source.new_session()
    awaited.look(session, signals.FIRST)
    session.close()
    thread = the_thread_that_connects()
    threading.Timer(0.05, opened.set).start()
    awaited.close()
    assert not thread.is_alive()
    assert not line._connection.open


def number_of(line: MySQLSession) -> int:
    return line._connection.thread_id()


def connections(server) -> set[int]:
    return {id for (id,) in server.execute("SELECT id FROM information_schema.processlist")}


def until_gone(server, line: int) -> None:
    deadline = time.monotonic() + SOON
    while line in connections(server):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_second_connection_that_comes_too_late_is_not_kept(stores, mariadb_server):
    other, _ = stores(OTHER_CLIENT)
    opened = threading.Event()
    connecting = Connecting(other, lambda: opened.wait(SOON) and connecting.connect())
    other.be_reachable()
    until_resting(mariadb_server, {SLEEP: 1})
    other.close()
    thread = the_thread_that_connects()
    opened.set()
    thread.join(SOON)
    until_gone(mariadb_server, number_of(connecting.lines[1]))


def test_a_second_connection_ends_although_nobody_can_hang_up(stores, mariadb_server):
    """That takes a connection of the caller's pool, which raises what it likes."""
    other, _ = stores(OTHER_CLIENT)
    connecting = Connecting(other, lambda: connecting.connect())
    other.be_reachable()
    until_resting(mariadb_server, {SECOND: 1})
    other.signals._hang_up = failing(TimeoutError("full"))
    other.close()
    until_gone(mariadb_server, number_of(connecting.lines[1]))


def test_a_forked_child_keeps_no_connection_alive(stores, mariadb_server):
    """It has the lines of its parent open as well, for as long as it lives."""
    other, _ = stores(OTHER_CLIENT)
    connecting = Connecting(other, lambda: connecting.connect())
    other.be_reachable()
    until_resting(mariadb_server, {SECOND: 1})
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(writing)
        os.read(reading, 1)
        os._exit(0)
    try:
        other.close()
        for line in connecting.lines:
            until_gone(mariadb_server, number_of(line))
    finally:
        os.close(writing)
        os.close(reading)
        os.waitpid(child, 0)


@pytest.mark.parametrize(("rest", "then"), [(0.05, SECOND), (20, SLEEP)], ids=["often", "once"])
def test_a_listener_whose_second_connection_ends_takes_another_one_but_not_again_and_again(
    stores, mariadb_server, monkeypatch, rest, then
):
    """For example because it was idle for longer than the server allows."""
    monkeypatch.setattr("holdfast.stores.mysql.signals.REST", rest)
    (mine, _), (other, arrived) = stores(CLIENT), stores(OTHER_CLIENT)
    connecting = Connecting(other, lambda: connecting.connect())
    other.be_reachable()
    until_resting(mariadb_server, {SECOND: 1})
    time.sleep(rest if rest < 1 else 0)
    second = number_of(connecting.lines[1])
    mariadb_server.execute(f"KILL {second}")
    if then == SECOND:
        eventually(lambda: len(connecting.lines) == 3, "a third connection")
    until_resting(mariadb_server, {then: 1})
    hand_over(mine, other, "1")
    assert len(connecting.lines) == (3 if then == SECOND else 2)
    assert arrived.get(timeout=SOON) == Signal("granted", "k", "b-1")
    assert mariadb_server.execute(f"SELECT IS_USED_LOCK('holdfast awaited {second}')") == [(None,)]


class Admin:
    """Asks a server by one connection: others that come and go would count where connections are scarce."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def execute(self, statement: str) -> list[tuple]:
        with self._connection.cursor() as cursor:
            cursor.execute(statement)
            return list(cursor.fetchall())


@pytest.mark.parametrize("what", ["the account", "the server"])
def test_a_second_connection_leaves_the_last_ones_to_whoever_needs_them(
    stores, mariadb_database, mariadb_locks, monkeypatch, what
):
    """Other clients, other programs, an administrator: they cannot ask for it."""
    monkeypatch.setattr(signals, "REST", 0.05)
    admin = Admin(mariadb_database[1])
    admin.execute("CREATE OR REPLACE USER frugal@'%' WITH MAX_USER_CONNECTIONS 10")
    admin.execute("GRANT ALL ON *.* TO frugal@'%'")
    url = urlsplit(mariadb_locks)
    who = "frugal" if what == "the account" else url.username
    mine, _ = stores(CLIENT)
    theirs = url._replace(netloc=f"{who}@{url.hostname}:{url.port}").geturl()
    store, arrived = stores(OTHER_CLIENT, theirs)
    store.be_reachable()
    until_resting(admin, {SECOND: 1})
    with contextlib.ExitStack() as others:
        if what == "the server":
            others.callback(admin.execute, "SET GLOBAL max_connections = 300")
            admin.execute("SET GLOBAL max_connections = 10")
        with contextlib.suppress(pymysql.err.OperationalError):  # there is room for no more
            while resting(admin) != {SLEEP: 1}:
                line = pymysql.connect(host=url.hostname, port=url.port, user=who, ssl_disabled=True)
                others.enter_context(line)
        until_resting(admin, {SLEEP: 1})
        for _ in range(10):  # it does not come again
            time.sleep(0.02)
            assert resting(admin)[SECOND] == 0
        hand_over(mine, store, "1")
        assert arrived.get(timeout=SOON) == Signal("granted", "k", "b-1")
    until_resting(admin, {SECOND: 1})


def test_to_fail_for_long_is_no_reason_to_try_again_at_once(stores, monkeypatch):
    """The pool of a caller's may let us wait for longer than from one try to the next."""
    monkeypatch.setattr(signals, "REST", 0.0)
    other, _ = stores(OTHER_CLIENT)
    session = other.source.new_session()
    full = threading.Event()
    awaited = signals.Awaited(lambda: full.wait(SOON) and failing(TimeoutError("full"))())
    awaited.look(session, signals.FIRST)
    thread = awaited._thread
    monkeypatch.setattr(signals, "REST", SOON)
    full.set()
    thread.join(SOON)
    assert awaited.wait()["seconds"] == signals.REST  # nothing is to be expected soon
    awaited.look(session, "")
    assert awaited._thread is thread
    session.close()


def test_a_second_connection_that_broke_at_once_is_not_the_last_one(stores, mariadb_server, monkeypatch):
    monkeypatch.setattr("holdfast.stores.mysql.signals.REST", 0.05)
    other, _ = stores(OTHER_CLIENT)

    def connect_badly() -> MySQLSession:
        line = connecting.connect()
        if len(connecting.lines) == 1:
            line.break_off()
        return line

    connecting = Connecting(other, connect_badly)
    other.be_reachable()
    until_resting(mariadb_server, {SECOND: 1})
    assert len(connecting.lines) == 3


def test_a_grant_is_told_once_however_long_it_stays_unclaimed(stores):
    (mine, _), (other, arrived) = stores(CLIENT), stores(OTHER_CLIENT)
    for key in ("k1", "k2"):
        token = ask(mine, CLIENT, "a-1", key).token
        ask(other, OTHER_CLIENT, f"b-{key}", key, wait=True)
        mine.execute(Release(key, "a-1", token))
        assert arrived.get(timeout=SOON) == Signal("granted", key, f"b-{key}")
    time.sleep(0.2)
    assert arrived.empty()


def test_a_broken_lease_and_a_new_head_are_told_with_what_they_need(stores):
    (mine, _), (other, arrived) = stores(CLIENT), stores(OTHER_CLIENT)
    ask(other, OTHER_CLIENT, "a-1")
    other.be_reachable()
    ask(other, OTHER_CLIENT, "b-1", wait=True, claim=4.0)
    ask(other, OTHER_CLIENT, "c-1", wait=True, claim=6.0)
    mine.execute(Break("k", "olga", "stuck"))
    told: dict[tuple[str, str], float] = {}
    while len(told) < 3:  # one whose deletion is interrupted by the next is told again
        signal = arrived.get(timeout=SOON)
        told[signal.kind, signal.attempt] = signal.expires_in
    assert set(told) == {("lost", "a-1"), ("granted", "b-1"), ("head", "c-1")}
    assert told["head", "c-1"] == pytest.approx(4.0, abs=0.1)
    deadline = time.monotonic() + SOON
    while written(mine) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert written(mine) == []


def ask_for(store, client: Client, attempt: str, terms: Terms, *, wait: bool = False):
    return store.execute(Acquire("k", attempt, attempt, 60.0, client, wait=wait, terms=terms))


@pytest.fixture
def again(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The signals whose deletion was interrupted, by the next hint: those may be told again."""
    numbers: list[int] = []
    fetch = MySQLSession.fetch

    def watching(session: MySQLSession, name: str, parameters: dict[str, Any], /) -> Any:
        try:
            return fetch(session, name, parameters)
        except (Interrupted, Conflict):
            if name == "delete_signal":
                numbers.append(parameters["id"])
            raise

    monkeypatch.setattr(MySQLSession, "fetch", watching)
    return numbers


def hear(arrived: queue.Queue[Signal], again: list[int], *wanted: Signal) -> None:
    """Hear these signals and nothing else, each once, but for those that may be told again."""
    heard = []
    while not set(wanted) <= set(heard):
        heard.append(arrived.get(timeout=SOON))
    with contextlib.suppress(queue.Empty):
        while len(heard) < 100:
            heard.append(arrived.get(timeout=0.2))
    assert set(heard) == set(wanted)
    assert len(heard) <= len(wanted) + len(again)


def test_those_whose_holds_are_not_in_the_row_are_told_too_and_once(stores, again):
    """P8: the listener finds by itself only what is in a lock's own row."""
    (mine, _), (other, arrived) = stores(CLIENT), stores(OTHER_CLIENT)
    token = ask(mine, CLIENT, "a-1").token
    for attempt in ("b-1", "c-1"):
        assert isinstance(ask_for(other, OTHER_CLIENT, attempt, Terms(mode="shared"), wait=True), Queued)
    mine.execute(Release("k", "a-1", token))
    hear(arrived, again, Signal("granted", "k", "b-1"), Signal("granted", "k", "c-1"))


def test_a_grant_by_the_slow_path_is_told_once(stores, again):
    (mine, _), (other, arrived) = stores(CLIENT), stores(OTHER_CLIENT)
    ask(mine, CLIENT, "a-1")
    ask(other, OTHER_CLIENT, "b-1", wait=True)
    mine.execute(Break("k", "olga", "stuck"))
    hear(arrived, again, Signal("granted", "k", "b-1"))


def test_one_reader_alone_is_told_too_and_once(stores, again):
    """Its hold is the only one, and still not in the row."""
    (mine, _), (other, arrived) = stores(CLIENT), stores(OTHER_CLIENT)
    token = ask(mine, CLIENT, "a-1").token
    assert isinstance(ask_for(other, OTHER_CLIENT, "b-1", Terms(mode="shared"), wait=True), Queued)
    mine.execute(Release("k", "a-1", token))
    hear(arrived, again, Signal("granted", "k", "b-1"))


def test_the_end_of_an_operation_is_told_once_to_all_of_a_client(stores, again):
    (mine, _), (other, arrived) = stores(CLIENT), stores(OTHER_CLIENT)
    operation = Terms(operation=True)
    token = ask_for(mine, CLIENT, "a-1", operation).token
    for attempt in ("b-1", "c-1"):
        assert isinstance(ask_for(other, OTHER_CLIENT, attempt, operation, wait=True), Queued)
    mine.execute(Release("k", "a-1", token, outcome=Outcome(True, "7")))
    hear(arrived, again, Signal("over", "k", ""))


def test_many_listeners_that_are_gone_are_no_hindrance(stores):
    """A hint that fails ends the text that it came with. The rest is sent again, however often."""
    (mine, _), (other, arrived) = stores(CLIENT), stores(OTHER_CLIENT)
    operation = Terms(operation=True)
    token = ask_for(mine, CLIENT, "a-1", operation).token
    gone = [Client(f"g-{number:04}", "gamma", number) for number in range(600)]
    for client in gone:
        assert isinstance(ask_for(mine, client, f"w-{client.pid}", operation, wait=True), Queued)
    assert isinstance(ask_for(other, OTHER_CLIENT, "b-1", operation, wait=True), Queued)
    mine.execute(Release("k", "a-1", token, outcome=Outcome(True, "7")))
    assert arrived.get(timeout=SOON) == Signal("over", "k", "")


def test_nothing_is_written_for_somebody_who_does_not_listen(stores):
    (mine, _), (other, _) = stores(CLIENT), stores(OTHER_CLIENT)
    ask(other, OTHER_CLIENT, "a-1")
    mine.execute(Break("k", "olga", "stuck"))
    assert written(mine) == []


def test_one_dead_listener_does_not_keep_others_from_being_woken(stores):
    """A hint that fails makes the server skip those behind it."""
    dead = Client("i-3", "gamma", 303)
    (mine, _), (other, arrived), (third, _) = stores(CLIENT), stores(OTHER_CLIENT), stores(dead)
    ask(third, dead, "a-1")
    ask(other, OTHER_CLIENT, "b-1", wait=True)
    mine.execute(Break("k", "olga", "stuck"))  # tells a-1, who is not there, and b-1
    assert arrived.get(timeout=SOON) == Signal("granted", "k", "b-1")


def test_a_listener_comes_back_by_itself(stores, mariadb_server, caplog):
    caplog.set_level(logging.CRITICAL, "holdfast")
    (mine, _), (other, arrived) = stores(CLIENT), stores(OTHER_CLIENT)
    other.be_reachable()
    name = f"holdfast:{OTHER_CLIENT.instance}"
    ((before,),) = mariadb_server.execute(f"SELECT IS_USED_LOCK('{name}')")
    mariadb_server.execute(f"KILL {before}")
    deadline = time.monotonic() + SOON
    while time.monotonic() < deadline:
        ((now,),) = mariadb_server.execute(f"SELECT IS_USED_LOCK('{name}')")
        if now not in (None, before):
            break
        time.sleep(0.02)
    token = ask(mine, CLIENT, "a-1").token
    ask(other, OTHER_CLIENT, "b-1", wait=True)
    mine.execute(Release("k", "a-1", token))
    assert arrived.get(timeout=SOON) == Signal("granted", "k", "b-1")


def listener_of(server, client: Client) -> int | None:
    """Return which connection listens for a client."""
    ((number,),) = server.execute(f"SELECT IS_USED_LOCK('holdfast:{client.instance}')")
    return number


def test_a_line_that_died_without_a_word_is_hung_up(
    stores, mariadb_locks, mariadb_server, monkeypatch, caplog
):
    """The server may keep it for minutes, and with it the name by which our listener is found."""
    caplog.set_level(logging.CRITICAL, "holdfast")
    monkeypatch.setattr("holdfast.stores.mysql.signals.TURN", 0.2)
    (mine, _), (other, arrived) = stores(CLIENT), stores(OTHER_CLIENT)
    url = urlsplit(mariadb_locks)
    with contextlib.closing(
        pymysql.connect(host=url.hostname, port=url.port, user=url.username, ssl_disabled=True)
    ) as dead:
        dead.cursor().execute(f"SELECT GET_LOCK('holdfast:{OTHER_CLIENT.instance}', 0)")
        before = listener_of(mariadb_server, OTHER_CLIENT)
        other.be_reachable()
        deadline = time.monotonic() + SOON
        while listener_of(mariadb_server, OTHER_CLIENT) in (None, before):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        token = ask(mine, CLIENT, "a-1").token
        ask(other, OTHER_CLIENT, "b-1", wait=True)
        mine.execute(Release("k", "a-1", token))
        assert arrived.get(timeout=SOON) == Signal("granted", "k", "b-1")


class Failing(Statement):
    """A statement that fails, and counts how often it is asked."""

    asked = 0

    def filled(self, *_: Any) -> list[str]:
        self.asked += 1
        return ["SIGNAL SQLSTATE '40001' SET MYSQL_ERRNO = 1213"]


def test_a_listener_that_is_in_somebodys_way_keeps_its_line(stores, mariadb_server, caplog):
    """A change of the tables makes circles with it, and the server picks the one who has to give in."""
    (mine, _), (other, arrived) = stores(CLIENT), stores(OTHER_CLIENT)
    other.be_reachable()
    before = listener_of(mariadb_server, OTHER_CLIENT)
    statements = other.source.statements
    healthy, statements["hear"] = statements["hear"], (failing := Failing("SELECT 1"))
    with caplog.at_level(logging.WARNING, "holdfast"):
        deadline = time.monotonic() + SOON
        while failing.asked < 3:
            assert time.monotonic() < deadline
            with contextlib.suppress(errors.StoreError):
                mine.sessions.fetch("wake", instance=OTHER_CLIENT.instance)
            time.sleep(0.01)
        statements["hear"] = healthy
        token = ask(mine, CLIENT, "a-1").token
        ask(other, OTHER_CLIENT, "b-1", wait=True)
        mine.execute(Release("k", "a-1", token))
        assert arrived.get(timeout=SOON) == Signal("granted", "k", "b-1")
    assert listener_of(mariadb_server, OTHER_CLIENT) == before
    assert not caplog.records


def test_listeners_do_not_come_back_all_at_one_moment(caplog):
    """All lose their server at the same one."""
    caplog.set_level(logging.CRITICAL, "holdfast")

    class Pauses(threading.Event):
        def __init__(self) -> None:
            super().__init__()
            self.seen: list[float] = []

        def wait(self, timeout: float | None = None) -> bool:
            assert timeout is not None
            self.seen.append(timeout)
            if len(self.seen) == 10:
                self.set()
            return self.is_set()

    def refuse() -> None:
        raise errors.StoreUnavailable("away")

    def pauses() -> list[float]:
        bell = Doorbell(refuse, "i-1", lambda *_: None)
        bell.listen(lambda _: None)
        bell._stop = stop = Pauses()
        bell.be_reachable()
        bell._thread.join(SOON)
        return stop.seen

    one, another = pauses(), pauses()
    assert all(mine != theirs for mine, theirs in zip(one, another, strict=True))
    for seen in (one, another):
        assert 0.05 <= seen[0] <= 0.1
        assert 7.5 <= seen[-1] <= 15.0


def listening_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "holdfast-listener"]


@pytest.mark.parametrize("has_started", [False, True])
def test_who_is_interrupted_while_the_listener_starts_has_one_the_next_time(stores, monkeypatch, has_started):
    """Not one that never runs, for which all who wait would wait, and not two that hang each other up."""
    other, _ = stores(OTHER_CLIENT)
    start = threading.Thread.start

    def interrupted(thread: threading.Thread) -> None:
        if has_started:
            start(thread)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", interrupted)
        with pytest.raises(KeyboardInterrupt):
            other.be_reachable()
    other.be_reachable()
    assert other.signals._ready.is_set()
    deadline = time.monotonic() + SOON
    while len(listening_threads()) != 1:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_listener_outlives_a_handler_that_fails(stores, caplog):
    (mine, _), (other, arrived) = stores(CLIENT), stores(OTHER_CLIENT)
    failures = [RuntimeError("the loop is closed")]

    def handle(signal: Signal) -> None:
        if failures:
            raise failures.pop()
        arrived.put(hint(signal))

    other.listen(handle)
    token = ask(mine, CLIENT, "a-1").token
    ask(other, OTHER_CLIENT, "b-1", wait=True)
    with caplog.at_level(logging.WARNING, "holdfast"):
        mine.execute(Release("k", "a-1", token))
        assert arrived.get(timeout=SOON) == Signal("granted", "k", "b-1")
    (record,) = caplog.records
    assert record.exc_info is not None
    assert "the loop is closed" in record.message


def test_another_account_is_not_woken_and_that_is_said_once(stores, mariadb_locks, mariadb_server, caplog):
    mariadb_server.execute("CREATE OR REPLACE USER stranger@'%'")
    mariadb_server.execute("GRANT SELECT, INSERT, UPDATE, DELETE ON *.* TO stranger@'%'")
    url = urlsplit(mariadb_locks)
    theirs = (
        url._replace(netloc=f"stranger@{url.hostname}:{url.port}").geturl().replace("apply_schema=yes", "")
    )
    (mine, _), (other, _) = stores(CLIENT), stores(OTHER_CLIENT, theirs)
    with caplog.at_level(logging.WARNING, "holdfast"):
        for number in range(2):
            token = ask(mine, CLIENT, f"a-{number}").token
            ask(other, OTHER_CLIENT, f"b-{number}", wait=True)
            mine.execute(Release("k", f"a-{number}", token))
            granted = ask(other, OTHER_CLIENT, f"b-{number}", wait=True)
            assert isinstance(granted, Granted)
            other.execute(Release("k", f"b-{number}", granted.token))
    # Whether a signal has arrived says nothing: its listener looks by itself, too, whenever it wakes up.
    assert sum("could not be woken" in record.message for record in caplog.records) == 1


def test_closing_does_not_wait_for_the_sleep_to_end(stores, mariadb_server):
    other, _ = stores(OTHER_CLIENT)
    other.be_reachable()
    other.close()
    deadline = time.monotonic() + SOON
    while listening_threads():
        assert time.monotonic() < deadline
    assert listener_of(mariadb_server, OTHER_CLIENT) is None


def test_without_signals_nobody_listens(stores, mariadb_locks):
    store, _ = stores(OTHER_CLIENT, f"{mariadb_locks}&signals=no")
    assert not store.traits.signals
    before = set(listening_threads())  # one of a test before may not have ended yet
    store.be_reachable()
    assert set(listening_threads()) <= before
