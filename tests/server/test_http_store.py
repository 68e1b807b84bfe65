"""The HTTP store: what is sent, what an answer means, and what is certain when there is none."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, get_args

import pytest

from holdfast import errors
from holdfast.core import access
from holdfast.core import requests as r
from holdfast.core.data import replace
from holdfast.core.wire import POSSIBLE
from holdfast.stores import open_store
from holdfast.stores.base import StoreOptions
from holdfast.stores.http import HTTPStore
from holdfast.stores.http.connections import Connection
from tests.server.scripted import (
    CLOSE,
    DRIP,
    GRANTED,
    HANG,
    HOLDER,
    RELEASED,
    RESET,
    Heard,
    Scripted,
    answer,
    answering,
    plain,
    problem,
    until,
)

CLIENT = r.Client("i-1", "alpha", 101)
ACQUIRE = r.Acquire("nightly", "a-1", "ann", 30.0, CLIENT)
RELEASE = r.Release("nightly", "a-1", 7)
INSPECT = r.Inspect("nightly")
HTML = "<html><body><h1>It works!</h1></body></html>"


@pytest.fixture
def server() -> Iterator[Scripted]:
    with Scripted() as server:
        yield server


@pytest.fixture
def open_at() -> Iterator[Callable[..., HTTPStore]]:
    opened: list[HTTPStore] = []

    def open_at(url: str, history="notable") -> HTTPStore:
        store = open_store(url, StoreOptions(CLIENT, history))
        assert isinstance(store, HTTPStore)
        store.open()
        opened.append(store)
        return store

    yield open_at
    for store in opened:
        store.close()


@pytest.fixture
def store(server: Scripted, open_at: Callable[..., HTTPStore]) -> HTTPStore:
    return open_at(f"{server.url}?timeout=5")


# What is sent.


def test_a_request_says_all_that_the_server_needs(server, open_at):
    store = open_at(f"{server.url}/locks/", "all")
    assert store.execute(ACQUIRE) == r.Granted(7, 30.0)
    heard = server.next("acquire")
    assert (heard.method, heard.path) == ("POST", "/locks/v1/locks/nightly/acquire")
    assert heard.headers["host"] == f"127.0.0.1:{server.port}"
    assert heard.headers["holdfast-history"] == "all"
    assert heard.headers["content-type"] == "application/json"
    assert "authorization" not in heard.headers
    assert heard.body["client"] == {"instance": "", "host": "alpha", "pid": 101}  # nothing listens yet
    assert "now" not in heard.body


def test_a_connection_is_kept(server, store):
    for _ in range(3):
        store.execute(ACQUIRE)
        store.execute(RELEASE)
    assert server.connections == 1


def test_a_connection_that_the_server_will_close_is_not_kept(server, store):
    server.on("/acquire", answer(GRANTED, more="Connection: close\r\n"))
    store.execute(ACQUIRE)
    store.execute(RELEASE)
    assert server.connections == 2


def test_a_connection_that_died_meanwhile_is_not_used(server, store):
    """Else whoever asks next would not know whether it was heard."""
    (kept,) = store._pool._idle
    server.close_all()
    until(lambda: not kept.is_alive())
    store.execute(ACQUIRE)
    assert server.next("acquire").connection == 2


def test_a_connection_that_rested_long_is_not_used(server, store):
    store._pool._idle[0]._used -= 31.0
    store.execute(ACQUIRE)
    assert server.next("acquire").connection == 2


def test_a_request_that_could_not_be_written_is_sent_on_another_connection(server, store):
    """It was certainly not heard."""
    store._pool._idle[0]._socket.shutdown(socket.SHUT_WR)
    store.execute(ACQUIRE)
    assert server.next("acquire").connection == 2


def test_a_new_connection_that_cannot_be_written_to_is_no_reason_to_try_for_ever(server, store):
    connection = Connection(store._how, None)
    connection._socket.shutdown(socket.SHUT_WR)
    store._pool._idle.append(connection)
    with pytest.raises(errors.StoreUnavailable, match="the connection was lost"):
        store.execute(ACQUIRE)


# What an answer means.


@pytest.mark.parametrize("request_", [kind for kind in vars(r).values() if isinstance(kind, type)])
def test_what_is_possible_as_an_answer_is_what_the_request_says(request_):
    if not issubclass(request_, r.Request) or request_ in (r.Request, r.Fence):
        return
    (said,) = get_args(request_.__orig_bases__[0])
    text = getattr(said, "__forward_arg__", None)
    hint = eval(text, vars(r) | vars(access)) if text else said
    if hint is tuple or getattr(hint, "__origin__", None) is tuple:
        assert POSSIBLE[request_] == (tuple,)
    else:
        assert set(POSSIBLE[request_]) == set(get_args(hint) or (hint,))


def test_a_refusal_is_the_answer_that_it_is_told_with(server, store):
    busy = {"answer": "busy", "holder": HOLDER, "expires_in": 12.5}
    server.on("/acquire", problem("LockTimeout", 409, because=busy))
    assert store.execute(ACQUIRE) == r.Busy(r.Holder(**HOLDER), 12.5)
    server.on("/nightly", problem("RequestRefused", 404, because={"answer": "nothing"}))
    assert store.execute(INSPECT) is None


@pytest.mark.parametrize(
    ("told", "kind"),
    [
        (problem("StoreUnavailable", 503), errors.StoreUnavailable),
        (problem("OutcomeUnknown", 503), errors.OutcomeUnknown),
        (problem("TooManyRequests", 429, retry_after=2.5), errors.TooManyRequests),
        (problem("LimitExceeded", 429, limit="keys", most=5), errors.LimitExceeded),
        (problem("AccessDenied", 403), errors.AccessDenied),
        (problem("SettingsError", 422), errors.SettingsError),
        (problem("InvalidKey", 422, key="", reason="is empty"), errors.InvalidKey),
        (problem("RequestRefused", 400), errors.RequestRefused),
        (problem("LockTimeout", 409), errors.RequestRefused),  # without an answer it cannot be one
        (problem("HoldfastError", 500), errors.OutcomeUnknown),
        (problem("SomethingNew", 500), errors.OutcomeUnknown),
        (problem("TooManyRequests", 429, retry_after="soon"), errors.TooManyRequests),
        (plain("<h1>Bad Gateway</h1>", 502), errors.OutcomeUnknown),
        (plain("", 503), errors.OutcomeUnknown),
        (answer({"error": "down"}, 504), errors.OutcomeUnknown),
        (plain("slow down", 429), errors.StoreUnavailable),
        (plain("too slow", 408), errors.StoreUnavailable),
        (plain("too large", 413), errors.RequestRefused),
        (plain(HTML, 404), errors.StoreMisconfigured),
        (plain(HTML, 403), errors.StoreMisconfigured),
        (plain(HTML), errors.StoreMisconfigured),
        (plain("", 204), errors.StoreMisconfigured),
        (answer(["granted"]), errors.StoreMisconfigured),
        (answer({"answer": "granted"}), errors.StoreMisconfigured),
        (answer(RELEASED), errors.StoreMisconfigured),  # an answer, but not to this
        (answer({"answer": "nothing"}), errors.StoreMisconfigured),
        (plain("[" * 100_000), errors.StoreMisconfigured),
    ],
)
def test_an_error_says_what_is_certain(server, store, told, kind):
    server.on("/acquire", told)
    with pytest.raises(errors.HoldfastError) as caught:
        store.execute(ACQUIRE)
    assert type(caught.value) is kind
    assert server.next("acquire").body["attempt"] == "a-1"
    assert server.heard.empty()  # asked once
    assert store.execute(RELEASE) == r.Released()


def test_what_answers_in_the_place_of_a_lock_server_is_shown(server, store):
    server.on("/acquire", plain(HTML))
    with pytest.raises(
        errors.StoreMisconfigured, match=r"no lock server.* it answered 200 text/html '<html>"
    ):
        store.execute(ACQUIRE)
    moved = plain("", 301, more="Location: https://locks.internal/\r\n")
    server.on("/acquire", moved)
    with pytest.raises(errors.StoreMisconfigured, match=r"301 and 'https://locks.internal/'; use that url"):
        store.execute(ACQUIRE)


def test_what_is_shown_of_garbage_can_be_printed(server, store):
    server.on("/acquire", plain("\x00\x1b[31m" + "x" * 1000))
    with pytest.raises(errors.StoreMisconfigured) as caught:
        store.execute(ACQUIRE)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 300


def test_to_look_changes_nothing_and_so_it_was_not_applied(server, store):
    """A plan asks again for what is unavailable; for what is unknown it does only where that is harmless."""
    server.on("/nightly", plain("", 502))
    with pytest.raises(errors.StoreUnavailable):
        store.execute(INSPECT)
    server.on("/nightly", CLOSE)
    with pytest.raises(errors.StoreUnavailable):
        store.execute(INSPECT)


# No answer, or half of one.


def make_impatient(store: HTTPStore) -> None:
    """From now on answers may take so long, also on a connection that is there."""
    store._pool.close()
    store._pool.reopen()
    store._how = replace(store._how, timeout=0.2)


HALF_HEAD = b"HTTP/1.1 200 OK\r\nContent-Le"
HALF_BODY = b'HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"answer": "gran'
HALF_CHUNK = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n10\r\n{"


@pytest.mark.parametrize("sent", [b"", HALF_HEAD, HALF_BODY, HALF_CHUNK])
@pytest.mark.parametrize("end", [CLOSE, RESET, HANG])
@pytest.mark.parametrize("request_", [ACQUIRE, RELEASE, r.Withdraw("nightly", "a-1")])
def test_without_a_whole_answer_the_outcome_is_unknown(server, store, sent, end, request_):
    """Whoever asked may have been heard. The store does not ask again: the plan does, if it wants to."""
    if end == HANG:
        make_impatient(store)
    path = "/" + type(request_).__name__.lower()
    server.on(path, *([sent] if sent else []), end)
    with pytest.raises(errors.OutcomeUnknown):
        store.execute(request_)
    server.next(path)
    assert server.heard.empty()
    assert store._pool.open == 0


def test_an_answer_that_comes_drop_by_drop_is_not_waited_for_without_end(server, store):
    """The time is for the whole answer, not for each of its bytes."""
    make_impatient(store)
    server.on("/acquire", b"HTTP/1.1 200 OK\r\nContent-Length: 9999999\r\n\r\n", DRIP)
    with pytest.raises(errors.OutcomeUnknown, match=r"did not answer within 0.2 s"):
        store.execute(ACQUIRE)


def test_nobody_there_means_that_nothing_was_done(server, store):
    server.close_all()
    server.stop_listening()
    with pytest.raises(errors.StoreUnavailable, match=r"cannot connect to http://127\.0\.0\.1"):
        store.execute(ACQUIRE)


def test_a_url_without_a_port_says_which_one_it_stands_for(server, store):
    server.stop_listening()
    with pytest.raises(errors.StoreUnavailable, match=f"the url names no port, and so it is {server.port}"):
        Connection(replace(store._how, port_given=False), None)


@pytest.mark.parametrize(
    ("sent", "match"),
    [
        (b"SSH-2.0-OpenSSH_9.2\r\n", "SSH-2.0"),
        (b"\x15\x03\x01\x00\x02\x02\x46", "it sent TLS, as over https://"),
        (b"HTTP/2 200\r\n\r\n", "HTTP/2"),
        (b"HTTP/1.1 OK\r\n\r\n", "HTTP/1.1 OK"),
        (b"HTTP/1.1 200 OK\r\nnonsense\r\n\r\n", "nonsense"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n", "a body of 99999999999 bytes"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", "a body of -1 bytes"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n{}", "content-length twice"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n", "gzip"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n", "a chunk of"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1" * 2000, "a chunk that"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"x" * 100_000, "a head without an end"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}more", "4 bytes behind the answer"),
    ],
)
def test_what_is_not_http_comes_from_no_lock_server(server, store, sent, match):
    server.on("/acquire", sent, CLOSE)
    with pytest.raises(errors.StoreMisconfigured, match=match):
        store.execute(ACQUIRE)
    assert store._pool.open == 0


def chunked(body: bytes) -> bytes:
    half = len(body) // 2
    return b"%x;ext=1\r\n%s\r\n%X\r\n%s\r\n0\r\nX-Trailer: 1\r\n\r\n" % (
        half,
        body[:half],
        len(body) - half,
        body[half:],
    )


BODY = b'{"answer": "granted", "token": 7, "expires_in": 30.0}'


@pytest.mark.parametrize(
    "acts",
    [
        [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked(BODY)],
        [b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 53\r\n\r\n" + BODY],
        [b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 53\r\n\r\n", BODY],
        [b"HTTP/1.0 200 OK\r\n\r\n" + BODY, CLOSE],
        [b"HTTP/1.1 200\r\ncontent-length:53\r\n\r\n" + BODY],
    ],
)
def test_answers_may_come_in_all_the_ways_of_http(server, store, acts):
    server.on("/acquire", *acts)
    assert store.execute(ACQUIRE) == r.Granted(7, 30.0)
    assert store.execute(RELEASE) == r.Released()


@pytest.mark.parametrize("coding", [b"Content-Length: 53", b"Transfer-Encoding: chunked"])
def test_a_network_may_cut_an_answer_anywhere(server, store, coding):
    body = BODY if coding.startswith(b"C") else chunked(BODY)
    whole = b"HTTP/1.1 200 OK\r\n" + coding + b"\r\n\r\n" + body
    server.on("/acquire", *[whole[at : at + 1] for at in range(len(whole))])
    assert store.execute(ACQUIRE) == r.Granted(7, 30.0)


# The rest of a store.


def test_opening_asks_the_server_what_it_is(server, open_at):
    said: dict[str, Any] = {"answer": "server", "store": {"durable": False, "signals": False}, "limits": None}
    server.on("/v1/server", answer(said))
    traits = open_at(f"{server.url}?pool_size=3&repeats=true").traits
    assert not traits.durable
    assert not traits.signals
    assert traits.repeats
    assert traits.blocking
    assert traits.lanes == 3
    assert not traits.transactions


@pytest.mark.parametrize(
    "told",
    [plain(HTML), answer({"answer": "page"}), answer({"answer": "server", "store": 7}), plain("", 404)],
)
def test_whatever_else_answers_is_no_lock_server(server, open_at, told):
    server.on("/v1/server", told)
    with pytest.raises(errors.StoreMisconfigured, match="is no lock server"):
        open_at(server.url)


def renewed(heard: Heard) -> bytes:
    """Answer a batch so that each answer can be told from the others."""
    leases = [{"outcome": "renewed", "expires_in": float(each["token"])} for each in heard.body["leases"]]
    tickets = [{"outcome": "waiting"} for _ in heard.body["tickets"]]
    return answer({"answer": "renewed", "leases": leases, "tickets": tickets})


def too_large(heard: Heard) -> bytes:
    """Answer as a proxy does that takes less than the server."""
    return renewed(heard) if len(heard.body["leases"]) <= 3 else plain("too large", 413)


BATCH = r.Renew(
    tuple(r.RenewLease(f"key-{number}", "a-1", number, 30.0) for number in range(11)),
    tuple(r.RefreshTicket(f"key-{number}", "b-1", 15.0) for number in range(3)),
)
ANSWERED = r.Renewed(
    tuple(r.LeaseAnswer("renewed", float(number)) for number in range(11)),
    tuple(r.TicketAnswer("waiting") for _ in range(3)),
)


def test_a_batch_that_is_too_large_for_the_server_goes_in_parts(server, open_at):
    server.on("/v1/server", answer({"answer": "server", "store": {}, "limits": {"body": 400}}))
    server.always["/renew"] = renewed
    assert open_at(server.url).execute(BATCH) == ANSWERED
    server.next("server")
    sizes = [int(server.heard.get_nowait().headers["content-length"]) for _ in range(server.heard.qsize())]
    assert len(sizes) > 1
    assert max(sizes) <= 400


def test_a_batch_that_is_too_large_for_a_proxy_goes_in_parts(server, store):
    server.always["/renew"] = too_large
    assert store.execute(BATCH) == ANSWERED


def test_a_batch_of_one_that_is_too_large_is_refused(server, store):
    server.always["/renew"] = lambda _: plain("too large", 413)
    with pytest.raises(errors.RequestRefused):
        store.execute(BATCH)


def test_a_request_may_be_larger_than_what_a_socket_takes_at_once(server, open_at):
    server.on("/v1/server", answer({"answer": "server", "store": {}, "limits": {"body": 10**8}}))
    server.always["/renew"] = renewed
    leases = tuple(r.RenewLease("k" * 200, f"a-{number}", number, 30.0) for number in range(20_000))
    assert len(open_at(server.url).execute(r.Renew(leases)).leases) == 20_000
    server.next("server")
    assert server.heard.qsize() == 1


def test_what_was_sent_in_part_may_have_been_heard(store):
    with answering(b"") as port:
        connection = Connection(replace(store._how, port=port), None)
        with pytest.raises(
            errors.OutcomeUnknown, match="the connection was lost before the answer was there"
        ):
            connection.ask(b"x" * 50_000_000)
        connection.close()


def test_many_requests_are_answered_one_by_one(server, store):
    server.on("/release", problem("StoreUnavailable", 503))
    granted, failed, released = store.execute_many([ACQUIRE, RELEASE, RELEASE])
    assert (granted, released) == (r.Granted(7, 30.0), r.Released())
    assert type(failed) is errors.StoreUnavailable


def test_a_lock_server_has_no_transactions(store):
    with pytest.raises(errors.SettingsError, match="no transactions to be part of"):
        store.execute_within(None, RELEASE)


def test_a_store_that_cannot_be_opened_leaves_nothing_open(server):
    server.on("/v1/server", plain(HTML))
    store = open_store(server.url, StoreOptions(CLIENT))
    assert isinstance(store, HTTPStore)
    with pytest.raises(errors.StoreMisconfigured):
        store.open()
    assert store._pool.open == 0


def test_a_request_after_closing_leaves_nothing_open(store):
    """A last wish, after which the client closes the store once more."""
    store.close()
    assert store.execute(RELEASE) == r.Released()
    assert store._pool.open == 0


def test_requests_of_many_threads_have_a_connection_each(server, open_at):
    store = open_at(f"{server.url}?pool_size=4")
    together = threading.Barrier(4)

    def granted(_: Heard) -> bytes:
        together.wait(20)
        return answer(GRANTED)

    server.always["/acquire"] = granted
    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(store.execute, [ACQUIRE] * 4)) == [r.Granted(7, 30.0)] * 4
    assert server.connections == store._pool.open == 4


def test_a_renewal_does_not_wait_for_a_connection(server, open_at):
    """Requests that hang must not cost the leases that are held."""
    store = open_at(f"{server.url}?pool_size=1&timeout=30")
    asked, over = threading.Event(), threading.Event()

    def hang(_: Heard) -> bytes:
        asked.set()
        over.wait(20)
        return answer(GRANTED)

    server.always |= {"/acquire": hang, "/renew": renewed}
    with ThreadPoolExecutor(1) as threads:
        hanging = threads.submit(store.execute, ACQUIRE)
        asked.wait(20)
        assert store.execute(BATCH) == ANSWERED
        over.set()
        assert hanging.result() == r.Granted(7, 30.0)
    assert store._pool.open == 1


def test_when_all_connections_are_busy_nothing_was_done(server, open_at):
    store = open_at(f"{server.url}?pool_size=1")
    store._pool._timeout = 0.1
    taken = store._pool.take()
    with pytest.raises(errors.StoreUnavailable, match="pool_size"):
        store.execute(ACQUIRE)
    store._pool.give_back(taken)
