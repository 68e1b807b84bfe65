"""Wake-ups over an event stream: where they are sent, and what becomes of them when it breaks; and forks."""

from __future__ import annotations

import os
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator

import pytest

from holdfast import errors
from holdfast.core import requests as r
from holdfast.core.data import replace
from holdfast.core.family import Terms
from holdfast.server import ServerSettings
from holdfast.stores import open_store
from holdfast.stores.base import StoreOptions
from holdfast.stores.http import HTTPStore
from holdfast.stores.http import attempts as table
from holdfast.stores.http.attempts import Attempts
from holdfast.stores.http.events import MOST_BUFFERED, EventReader, ServerSent
from holdfast.stores.http.message import Garbled
from holdfast.testing.server import ServerThread
from tests.server.scripted import (
    CLOSE,
    HANG,
    QUEUED,
    STREAM,
    Scripted,
    answer,
    event,
    plain,
    problem,
    until,
)

CLIENT = r.Client("i-1", "alpha", 101)
TRY = r.Acquire("nightly", "a-1", "ann", 30.0, CLIENT)
WAIT = r.Acquire("nightly", "b-1", "bob", 30.0, CLIENT, wait=True)
HELLO = event("hello", {"address": "s1/0", "server": "s1"})
SIGNAL = {"kind": "granted", "key": "nightly", "attempt": "b-1", "expires_in": 0.0}


@pytest.fixture
def server() -> Iterator[Scripted]:
    with Scripted() as server:
        yield server


@pytest.fixture
def open_at(server: Scripted) -> Iterator[Callable[..., tuple[HTTPStore, queue.Queue[r.Signal]]]]:
    opened: list[HTTPStore] = []

    def open_at(options: str = "") -> tuple[HTTPStore, queue.Queue[r.Signal]]:
        store = open_store(f"{server.url}{options}", StoreOptions(CLIENT))
        assert isinstance(store, HTTPStore)
        told: queue.Queue[r.Signal] = queue.Queue()
        store.listen(told.put)
        store.open()
        opened.append(store)
        return store, told

    yield open_at
    for store in opened:
        store.close()


# Where signals are sent.


def test_who_waits_listens_before_it_asks(server, open_at):
    store, told = open_at()
    server.on("/acquire", answer(QUEUED, 202))
    assert isinstance(store.execute(WAIT), r.Queued)
    stream = server.next("signals")
    assert stream.path == "/v1/signals?instance=i-1&host=alpha&pid=101"
    assert server.next("acquire").body["client"]["instance"] == f"s1/{stream.connection}"
    server.streams.get().sendall(event("signal", SIGNAL))
    assert told.get(timeout=20) == r.Signal("granted", "nightly", "b-1")


def test_who_asks_for_no_lock_listens_to_nothing(server, open_at):
    store, _ = open_at()
    store.execute(r.Release("nightly", "a-1", 8))
    assert server.streams.empty()


def test_who_takes_a_lock_can_be_told_that_it_was_lost(server, open_at):
    """Also with a mere try: where it is told goes into the store with the lease."""
    store, told = open_at()
    store.execute(TRY)
    assert server.next("acquire").body["client"]["instance"] == "s1/2"
    server.streams.get().sendall(event("signal", {**SIGNAL, "kind": "lost", "attempt": "a-1"}))
    assert told.get(timeout=20) == r.Signal("lost", "nightly", "a-1")


@pytest.mark.parametrize("options", ["?signals=off", ""])
def test_without_signals_nobody_listens(server, open_at, options):
    if not options:
        server.on("/v1/server", answer({"answer": "server", "store": {"durable": True, "signals": False}}))
    store, _ = open_at(options)
    store.be_reachable()
    store.execute(WAIT)
    assert server.next("acquire").body["client"]["instance"] == ""
    assert server.streams.empty()


@pytest.mark.parametrize(
    "told", [plain("", 404), problem("AccessDenied", 403), plain("<html>", 200), CLOSE, STREAM + b"\xff" * 10]
)
def test_a_server_that_has_no_stream_for_us_is_asked_all_the_same(server, open_at, told):
    """Signals are hints: heartbeats do without."""
    store, _ = open_at()
    server.on("/v1/signals", told, CLOSE)
    server.on("/acquire", answer(QUEUED, 202))
    assert isinstance(store.execute(WAIT), r.Queued)
    assert server.next("acquire").body["client"]["instance"] in ("", "s1/3")  # or it was opened meanwhile


def test_what_a_newer_server_says_more_is_not_heard(server, open_at):
    store, told = open_at()
    store.be_reachable()
    stream = server.streams.get()
    for data in ({**SIGNAL, "kind": "sung"}, {"kind": "granted"}, {**SIGNAL, "expires_in": "soon"}):
        stream.sendall(event("signal", data))
    stream.sendall(b": a comment\n\nevent: signal\ndata: no json\n\nevent: signal\ndata: [7]\n\nid: 7\n\n")
    stream.sendall(event("fanfare", SIGNAL) + event("signal", SIGNAL))
    assert told.get(timeout=20) == r.Signal("granted", "nightly", "b-1")
    assert told.empty()


def test_a_stream_in_chunks_is_a_stream_too(server, open_at):
    """So it comes through most proxies."""
    store, told = open_at()
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    pieces = [HELLO[:9], HELLO[9:], event("signal", SIGNAL)]
    server.on("/v1/signals", head, *[b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces], HANG)
    store.be_reachable()
    assert told.get(timeout=20) == r.Signal("granted", "nightly", "b-1")


# When the stream breaks.


@pytest.mark.parametrize("end", ["close", "goodbye"])
def test_who_waits_asks_again_after_a_break_and_says_where_it_is_now(server, open_at, end):
    """Whatever was sent meanwhile is lost, and the old address is nobody's."""
    store, told = open_at()
    server.always["/acquire"] = lambda _: answer(QUEUED, 202)
    store.execute(WAIT)
    server.always.clear()
    store.execute(TRY)
    stream = server.streams.get()
    if end == "goodbye":
        stream.sendall(event("goodbye", {"reason": "draining", "detail": "the server is going away"}))
    else:
        server.close_all()
    missed = {told.get(timeout=20) for _ in range(2)}
    assert missed == {r.Signal("granted", "nightly", "b-1"), r.Signal("lost", "nightly", "a-1")}
    server.next("signals")
    again = server.next("signals")
    server.on("/acquire", answer(QUEUED, 202))
    store.execute(WAIT)
    assert server.next("acquire").body["client"]["instance"] == f"s1/{again.connection}"


def test_a_stream_that_opens_while_somebody_joins_the_queue_is_said_at_once(server, open_at):
    """Its ticket has the old address, and it was not among those that wait when the stream was opened."""
    store, told = open_at()
    server.on("/v1/signals", plain("", 503))

    def queued(_) -> bytes:
        until(lambda: store._signals.address)
        return answer(QUEUED, 202)

    server.always["/acquire"] = queued
    store.execute(WAIT)
    assert told.get(timeout=20) == r.Signal("granted", "nightly", "b-1")


def test_silence_is_a_broken_stream(server, open_at, monkeypatch):
    monkeypatch.setattr("holdfast.stores.http.signals.SILENCE", 0.1)
    store, _ = open_at()
    store.be_reachable()
    server.next("signals")
    server.next("signals")


def test_a_closed_store_listens_no_more(server, open_at):
    store, _ = open_at()
    store.be_reachable()
    stream = server.streams.get()
    store.close()
    assert stream.recv(100) == b""
    assert store._signals.address == ""


def test_a_token_that_is_refused_for_the_stream_is_read_again(server, open_at, tmp_path):
    file = tmp_path / "token"
    file.write_text("hf_old")
    store, _ = open_at(f"?token_file={file}")
    file.write_text("hf_new")
    server.on("/v1/signals", problem("NotAuthenticated", 401))
    store.be_reachable()
    assert server.next("signals").headers["authorization"] == "Bearer hf_old"
    assert server.next("signals").headers["authorization"] == "Bearer hf_new"


def test_a_real_server_wakes_who_waits(tmp_path):
    """And a client that was connected to a server that is gone finds the next one."""
    settings = ServerSettings(url=f"sqlite:///{tmp_path}/locks.db", port=0, log_level="error")
    with ServerThread(settings) as serving:
        one, two = (open_store(serving.server.url, StoreOptions(replace(CLIENT, instance=n))) for n in "12")
        told: queue.Queue[r.Signal] = queue.Queue()
        two.listen(told.put)
        one.open()
        two.open()
        first = one.execute(replace(TRY, client=replace(CLIENT, instance="1")))
        assert isinstance(first, r.Granted)
        assert isinstance(two.execute(replace(WAIT, client=replace(CLIENT, instance="2"))), r.Queued)
        one.execute(r.Release("nightly", "a-1", first.token))
        handed = told.get(timeout=20)
        assert (handed.kind, handed.attempt, handed.expires_in) == ("granted", "b-1", WAIT.claim)
        assert two.execute(r.Inspect("nightly")).token == handed.token > first.token
        assert handed.at > 0
        one.close()
        two.close()


# What is known of our attempts.

GRANTED, QUEUED_ = r.Granted(7, 30.0), r.Queued(1, r.Holder("x", "h", 1, 3, 1.0), 20.0)
ENDS = [
    (r.Release("nightly", "b-1", 7), r.Released()),
    (r.Release("nightly", "b-1", 7), r.NotHeld("expired")),
    (r.Withdraw("nightly", "b-1"), r.Withdrawn()),
    (r.Withdraw("nightly", "b-1"), r.NotHeld("already")),
    (r.Downgrade("nightly", "b-1", 7), r.NotHeld("expired")),
    (WAIT, r.Busy(r.Holder("x", "h", 1, 3, 1.0), 20.0)),
    (WAIT, r.Done("null", 7)),
    (WAIT, r.Failed(())),
    (WAIT, r.NotHeld("already")),
    (WAIT, r.Deadlocked(())),
    (WAIT, r.Refused("take")),
    (r.Renew((r.RenewLease("nightly", "b-1", 7, 30.0),)), r.Renewed((r.LeaseAnswer("lost"),))),
    (r.Renew((), (r.RefreshTicket("nightly", "b-1", 15.0),)), r.Renewed((), (r.TicketAnswer("gone"),))),
]
STAYS = [
    (WAIT, QUEUED_),
    (r.Release("nightly", "b-1", 7), r.Refused("holds")),
    (r.Downgrade("nightly", "b-1", 7), r.Granted(7, 30.0)),
    (r.Release("nightly", "c-1", 7), r.Released()),
    (r.Renew((r.RenewLease("nightly", "b-1", 7, 30.0),)), r.Renewed((r.LeaseAnswer("renewed"),))),
    (r.Renew((r.RenewLease("nightly", "b-1", 7, 30.0),)), r.Renewed((r.LeaseAnswer("unknown"),))),
    (r.Renew((), (r.RefreshTicket("nightly", "b-1", 15.0),)), r.Renewed((), (r.TicketAnswer("waiting"),))),
    (r.Inspect("nightly"), None),
]


@pytest.mark.parametrize("before", [GRANTED, QUEUED_])
@pytest.mark.parametrize(("request_", "answered"), ENDS)
def test_what_ends_an_attempt_ends_what_is_known_of_it(before, request_, answered):
    known = Attempts()
    known.note(WAIT, before)
    assert len(known) == 1
    known.note(request_, answered)
    assert len(known) == 0


@pytest.mark.parametrize("before", [GRANTED, QUEUED_])
@pytest.mark.parametrize(("request_", "answered"), STAYS)
def test_nothing_else_does(before, request_, answered):
    known = Attempts()
    known.note(WAIT, before)
    known.note(request_, answered)
    # What is renewed was entered by the hand-over.
    renews = answered == r.Renewed((r.LeaseAnswer("renewed"),))
    waits = not renews and (before is QUEUED_ or answered is QUEUED_)
    assert known.missed() == [r.Signal("granted" if waits else "lost", "nightly", "b-1")]


def test_a_withdrawal_ends_an_attempt_even_if_it_fails(server, open_at):
    """It is asked for once. What it did not undo ends with its patience."""
    store, _ = open_at()
    server.on("/acquire", answer(QUEUED, 202))
    store.execute(WAIT)
    assert len(store._attempts) == 1
    server.on("/withdraw", CLOSE)
    with pytest.raises(errors.OutcomeUnknown):
        store.execute(r.Withdraw("nightly", "b-1"))
    assert len(store._attempts) == 0


def test_what_was_given_up_in_silence_is_not_kept_for_ever(monkeypatch):
    now = 0.0
    monkeypatch.setattr(table, "boot_time", lambda: now)
    known = Attempts()
    for number in range(10 * table.FIRST_LOOK):
        now += 1.0
        known.note(replace(TRY, attempt=f"a-{number}"), GRANTED)
        assert len(known) <= table.FIRST_LOOK
    kept = Attempts()
    for number in range(3 * table.FIRST_LOOK):
        kept.note(replace(TRY, attempt=f"a-{number}"), GRANTED)
    assert len(kept) == 3 * table.FIRST_LOOK


def test_the_end_of_an_operation_is_told_once_to_each_who_waits_behind_us():
    known = Attempts()
    for attempt, to in (("b-1", "/s-1"), ("b-2", "/s-2"), ("b-3", "/s-1")):
        who = replace(CLIENT, instance=f"i-1{to}")
        known.note(replace(WAIT, attempt=attempt, client=who, terms=Terms(operation=True)), QUEUED_)
    over = r.Signal("over", "nightly", "")
    assert known.signals_for(over) == [replace(over, to="s-1"), replace(over, to="s-2")]
    assert known.signals_for(r.Signal("over", "other", "")) == [r.Signal("over", "other", "")]


# Event streams.


def test_events_are_read_however_the_network_cuts_them():
    stream = (
        b": hi\r\n\r\nid: 7\r\nevent: granted\r\ndata: {\r\ndata:  }\r\n\r\n"
        b"data\n\nid: 8\n\nid: \0\nretry: 5\nevent\ndata: \xc3\xa9\xff\n\ndata: never finished\n"
    )
    events = [
        ServerSent("granted", "{\n }", "7"),
        ServerSent("message", "", "7"),
        ServerSent("message", "é\ufffd", "8"),
    ]
    for size in (1, 2, 3, 7, len(stream)):
        reader = EventReader()
        pieces = (stream[at : at + size] for at in range(0, len(stream), size))
        assert [each for piece in pieces for each in reader.feed(piece)] == events
        assert reader.last_id == "8"


@pytest.mark.parametrize("piece", [b"x" * 1000, b"data: " + b"x" * 1000 + b"\n"])
def test_an_event_without_an_end_is_not_kept(piece):
    reader = EventReader()
    for _ in range(MOST_BUFFERED // 1000 - 10):
        reader.feed(piece)
    with pytest.raises(Garbled):
        reader.feed(20 * piece)


# Forks.

FORKING = """
import os, sys
from holdfast import Holdfast

locks = Holdfast(sys.argv[1])
with locks.hold("parent") as lease:
    inherited = locks._engine.store._signals._line
    pid = os.fork()
    if not pid:
        assert lease.lost, "the child holds nothing"
        assert locks._engine.store._signals.address == ""
        with locks.hold("child", timeout=20):
            assert locks._engine.store._signals.address
        locks.close()
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    assert locks._engine.store._signals._line is inherited
    lease.check()
    with locks.hold("again", timeout=20):
        pass
locks.close()
print("ok")
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_child_has_connections_of_its_own_and_leaves_the_parents_alone(tmp_path):
    settings = ServerSettings(url=f"sqlite:///{tmp_path}/locks.db", port=0, log_level="error")
    with ServerThread(settings) as serving:
        command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", FORKING, serving.server.url]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr) == ("ok\n", "")


def test_in_a_child_the_parents_connections_are_closed(server, open_at):
    """Else the server would not notice when the parent leaves."""
    store, _ = open_at()
    store.be_reachable()
    stream = server.streams.get()
    store.execute(TRY)
    store.before_fork()
    store.after_fork_in_parent()
    threads = threading.active_count()
    store.after_fork(replace(CLIENT, instance="i-2"))
    assert stream.recv(100) == b""
    assert threading.active_count() <= threads
    store.execute(TRY)
    assert server.next("instance=i-2")
