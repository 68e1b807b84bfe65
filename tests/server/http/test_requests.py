"""Requests and their answers, over real sockets."""

import asyncio
import json
import logging
import socket
from contextlib import suppress

import pytest

from holdfast.server.http.listener import _listen_on


def test_a_request_is_answered_and_the_connection_kept(site):
    with site.connect() as peer:
        for number in range(3):
            answer = peer.ask(f"/a%2Fb?n={number}", headers="X-One:  1 \r\nx-one: 2\r\n")
            assert answer.status == 200
            assert answer.json["path"] == "/a%2Fb"
            assert answer.json["query"] == f"n={number}"
            assert answer.json["headers"] == {"host": "here", "x-one": "1, 2"}
            assert answer.headers["holdfast-request-id"] == answer.json["id"]
            assert answer.headers["content-length"] == str(len(answer.body))
            assert answer.headers["cache-control"] == "no-store"
            assert answer.headers["date"].endswith("GMT")
            assert "connection" not in answer.headers


def test_ids_differ(site):
    with site.connect() as peer:
        assert peer.ask("/").json["id"] != peer.ask("/").json["id"]


def test_a_handler_knows_who_asks(site):
    with site.connect() as peer:
        peer.ask("/")
    request = site.desk.seen[0]
    assert (request.remote, request.secure, request.peer_certificate) == ("127.0.0.1", False, None)
    assert "here" not in repr(request)


def test_a_body_comes_with_its_length_or_in_chunks(site):
    with site.connect() as peer:
        assert peer.ask("/", "POST", body=b"abc").json["body"] == "abc"
        peer.send(b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n")
        peer.send(b"3;x=y\r\nab\r\r\n4\r\n\n\r\n\r\r\n0\r\nAuthorization: late\r\n\r\n")
        answer = peer.answer()
        assert answer.json["body"] == "ab\r\n\r\n\r"
        assert "authorization" not in answer.json["headers"]
        assert peer.ask("/next").json["path"] == "/next"


def test_a_large_body_arrives_as_it_was_sent(site):
    body = bytes(range(256)) * 4096
    with site.connect() as peer:
        assert peer.ask("/", "POST", body=body).json["body"].encode("latin-1") == body


def test_pipelined_requests_are_answered_in_order(site):
    with site.connect() as peer:
        requests = [f"GET /{n} HTTP/1.1\r\nHost: h\r\n\r\n" for n in range(2000)]
        peer.send("".join(requests).encode())
        assert [peer.answer().json["path"] for _ in requests] == [f"/{n}" for n in range(2000)]


def test_one_request_of_a_connection_is_handled_at_a_time(site):
    with site.connect() as peer:
        peer.get("/wait")
        peer.get("/second", "POST", body=b"b")
        assert site.desk.waiting.wait(30)
        assert len(site.desk.seen) == 1
        site.call(site.desk.go_on.set)
        assert peer.answer().json == "waited"
        assert peer.answer().json["path"] == "/second"


def test_what_comes_too_early_is_not_read_without_end(site):
    """A peer that sends on and on while it waits for an answer is stopped by the socket's own buffers."""
    with site.connect() as peer:
        peer.get("/wait")
        assert site.desk.waiting.wait(30)
        peer.sock.settimeout(0.5)
        with pytest.raises(TimeoutError):
            peer.send(b"x" * 100_000_000)
        (connection,) = site.listener.connections
        assert len(connection._ahead) < 32 * 1024
        site.call(site.desk.go_on.set)
        peer.sock.settimeout(30)
        assert peer.answer().json == "waited"
        assert peer.answer().status == 400


def test_head_is_answered_without_a_body(site):
    with site.connect() as peer:
        peer.get("/", "HEAD")
        answer = peer.answer(to="HEAD")
        assert int(answer.headers["content-length"]) > 0
        assert peer.ask("/next").json["path"] == "/next"


def test_an_answer_without_content_has_no_length(site):
    with site.connect() as peer:
        answer = peer.ask("/nothing")
        assert answer.status == 204
        assert answer.headers.keys() & {"content-length", "content-type"} == set()
        assert peer.ask("/next").status == 200


def test_a_peer_may_ask_to_close(site):
    with site.connect() as peer:
        answer = peer.ask("/", headers="Connection: close\r\n")
        assert answer.headers["connection"] == "close"
        assert peer.is_closed()


def test_http_1_0_closes_unless_asked_otherwise(site):
    with site.connect() as peer:
        peer.send(b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
        assert peer.answer().headers["connection"] == "keep-alive"
        peer.send(b"GET / HTTP/1.0\r\n\r\n")
        assert peer.answer().headers["connection"] == "close"
        assert peer.is_closed()


def test_a_body_may_be_asked_for(site):
    with site.connect() as peer:
        peer.send(b"POST / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n")
        assert peer.head().status == 100
        peer.send(b"abc")
        assert peer.answer().json["body"] == "abc"


def test_nothing_is_asked_for_that_is_there_already(site):
    with site.connect() as peer:
        answer = peer.ask("/", "POST", headers="Expect: 100-continue\r\n", body=b"abc")
        assert answer.json["body"] == "abc"


def test_targets_of_all_forms(site):
    with site.connect() as peer:
        for target, path, query in (
            ("http://elsewhere:80/a?b=c", "/a", "b=c"),
            ("http://elsewhere", "/", ""),
            ("HTTPS://elsewhere?x", "/", "x"),
            ("//a", "//a", ""),
            ("/?", "/", ""),
        ):
            answer = peer.ask(target).json
            assert (answer["path"], answer["query"]) == (path, query)
        assert peer.ask("*", "OPTIONS").json["path"] == "*"


def test_a_wish_for_another_protocol_is_ignored(site):
    with site.connect() as peer:
        answer = peer.ask("/", headers="Connection: Upgrade\r\nUpgrade: h2c\r\n")
        assert (answer.status, answer.headers["connection"]) == (200, "close")
        assert peer.is_closed()


def test_handlers_may_set_headers(site):
    with site.connect() as peer:
        answer = peer.ask("/cached")
        assert answer.headers["cache-control"] == "max-age=60"
        assert answer.headers["x-other"] == "yes"


def test_a_failing_handler_is_logged_and_tells_nothing(site, caplog):
    with site.connect() as peer, caplog.at_level(logging.ERROR, "holdfast"):
        answer = peer.ask("/fail")
        assert answer.status == 500
        assert answer.headers["content-type"] == "application/problem+json"
        assert b"secret" not in answer.body
        id = answer.headers["holdfast-request-id"]
        assert id in answer.json["detail"]
        assert id in caplog.text
        assert "the secret reason" in caplog.text
        assert peer.ask("/next").status == 200


@pytest.mark.parametrize("path", ["/inject", "/none", "/stream?bad"])
def test_an_answer_that_cannot_be_sent_is_a_failure(site, caplog, path):
    with site.connect() as peer, caplog.at_level(logging.ERROR, "holdfast"):
        answer = peer.ask(path)
        assert answer.status == 500
        assert "set-cookie" not in answer.headers
        assert json.loads(answer.body)["error"] == "StoreError"
        assert peer.ask("/next").status == 200
    assert "cannot be sent" in caplog.text


def test_a_handler_is_cancelled_when_its_peer_leaves(site):
    peer = site.connect()
    peer.get("/wait")
    assert site.desk.waiting.wait(30)
    peer.close()
    assert site.desk.cancelled.wait(30)
    site.until(lambda: not site.listener.connections)


def test_a_handler_is_cancelled_when_its_peer_is_cut_off(site):
    peer = site.connect()
    peer.get("/wait")
    assert site.desk.waiting.wait(30)
    peer.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # 0 s: it is reset
    peer.close()
    assert site.desk.cancelled.wait(30)


def test_a_listener_has_one_port_on_all_addresses_of_a_host(site):
    async def start():
        return await site.listener.start("localhost", 0)

    port = site.run(start())
    assert port != site.port
    site.port = port
    with site.connect() as peer:
        assert peer.ask("/").status == 200


def test_a_port_that_is_taken_is_an_error(site):
    async def start():
        return await site.listener.start("localhost", site.port)

    with pytest.raises(OSError, match="in use"):
        site.run(start())
    with site.connect() as peer:
        assert peer.ask("/").status == 200


def test_an_address_of_another_machine_is_an_error_unless_there_are_others(site):
    ours, foreign = (socket.AF_INET, ("127.0.0.1", 0)), (socket.AF_INET, ("192.0.2.1", 0))
    (one,) = _listen_on([foreign, ours, ours], 0)
    one.close()
    with pytest.raises(OSError, match="assign"):
        _listen_on([foreign], 0)


def test_a_connection_says_what_it_is_about(site):
    with site.connect() as peer:
        peer.get("/wait")
        assert site.desk.waiting.wait(30)
        (connection,) = site.listener.connections
        assert repr(connection) == "<Connection from 127.0.0.1: handling>"


@pytest.mark.parametrize("path", ["/", "/stream"])
def test_an_answer_for_somebody_who_has_just_left_is_dropped(site, path):
    """The handler does not notice that it is cancelled."""
    original = site.desk._stream if path == "/stream" else site.desk._echo

    async def stubborn(request):
        with suppress(asyncio.CancelledError):
            await site.desk._wait(request)
        return await original(request)

    site.desk._stubborn = stubborn
    peer = site.connect()
    peer.get("/stubborn")
    assert site.desk.waiting.wait(30)
    peer.close()
    assert site.desk.cancelled.wait(30)
    site.until(lambda: not site.listener.connections)
    assert site.desk.gone.is_set() == (path == "/stream")


def test_no_answer_is_sniffed_and_no_stream_is_buffered_by_a_proxy(site):
    with site.connect() as peer:
        answer = peer.ask("/")
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "strict-transport-security" not in answer.headers
        assert "x-accel-buffering" not in answer.headers
        peer.get("/stream")
        head = peer.head()
        assert (head.headers["x-accel-buffering"], head.headers["x-content-type-options"]) == (
            "no",
            "nosniff",
        )
