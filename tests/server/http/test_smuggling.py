"""What two servers in a row could understand differently is refused, and its connection closed."""

import socket
from contextlib import suppress

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.server.http.test_limits import refused

POST = b"POST / HTTP/1.1\r\nHost: h\r\n"
NEXT = b"GET /smuggled HTTP/1.1\r\nHost: h\r\n\r\n"

BAD = {
    "length and chunks": POST + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunks and length": POST + b"Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n",
    "two lengths": POST + b"Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc",
    "two lengths in one": POST + b"Content-Length: 3, 3\r\n\r\nabc",
    "a signed length": POST + b"Content-Length: +3\r\n\r\nabc",
    "a negative length": POST + b"Content-Length: -3\r\n\r\nabc",
    "a length in hexadecimal": POST + b"Content-Length: 0x3\r\n\r\nabc",
    "no length at all": POST + b"Content-Length: \r\n\r\nabc",
    "an endless length": POST + b"Content-Length: 99999999999999999999999\r\n\r\nabc",
    "a blank before the colon": POST + b"Content-Length : 3\r\n\r\nabc",
    "another encoding": POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "two encodings": POST + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "identity": POST + b"Transfer-Encoding: identity\r\n\r\n",
    "a control character": POST + b"Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n",
    "chunks in HTTP/1.0": b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "a folded header": POST + b"X: a\r\n b\r\n\r\n",
    "a bare line feed": POST + b"X: a\nY: b\r\n\r\n",
    "lines that end with line feeds": b"GET / HTTP/1.1\nHost: h\n\n",
    "a bare carriage return": POST + b"X: a\rY: b\r\n\r\n",
    "a null byte": POST + b"X: a\0b\r\n\r\n",
    "no header name": POST + b": a\r\n\r\n",
    "a chunk with a sign": POST + b"Transfer-Encoding: chunked\r\n\r\n+3\r\nabc\r\n0\r\n\r\n",
    "a chunk that is longer": POST + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n0\r\n\r\n",
    "a chunk line without return": POST + b"Transfer-Encoding: chunked\r\n\r\n3\nabc\r\n0\r\n\r\n",
    "two hosts": b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    "no host": b"GET / HTTP/1.1\r\n\r\n",
    "a tunnel": b"CONNECT elsewhere:80 HTTP/1.1\r\nHost: h\r\n\r\n",
    "a star": b"GET * HTTP/1.1\r\nHost: h\r\n\r\n",
    "a relative path": b"GET a HTTP/1.1\r\nHost: h\r\n\r\n",
    "a foreign scheme": b"GET ftp://h/a HTTP/1.1\r\nHost: h\r\n\r\n",
    "a fragment": b"GET /a#b HTTP/1.1\r\nHost: h\r\n\r\n",
    "a blank in the path": b"GET /a b HTTP/1.1\r\nHost: h\r\n\r\n",
    "a byte beyond ASCII": b"GET /\xff HTTP/1.1\r\nHost: h\r\n\r\n",
    "an unknown method": b"BREW / HTTP/1.1\r\nHost: h\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "another protocol with a body": POST + b"Connection: Upgrade\r\nUpgrade: a\r\nContent-Length: 1\r\n\r\nx",
}
OTHERS = {
    505: [b"GET / HTTP/2.0\r\nHost: h\r\n\r\n", b"GET /\r\n\r\n"],
    417: [POST + b"Expect: the best\r\nContent-Length: 1\r\n\r\n"],
}


@pytest.mark.parametrize("what", BAD)
def test_it_is_refused(site, what):
    with site.connect() as peer:
        peer.send(BAD[what] + NEXT)
        refused(peer, 400)
    assert site.desk.seen == []


@pytest.mark.parametrize("status", OTHERS)
def test_it_is_refused_for_another_reason(site, status):
    for request in OTHERS[status]:
        with site.connect() as peer:
            peer.send(request + NEXT)
            refused(peer, status)
    assert site.desk.seen == []


def test_nothing_is_read_after_a_request_that_ends_the_connection(site):
    with site.connect() as peer:
        peer.send(b"GET /first HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n" + NEXT)
        assert peer.answer().json["path"] == "/first"
        assert peer.is_closed()
    assert [request.path for request in site.desk.seen] == ["/first"]


WORDS = b"""GET / HTTP/1.1$|Host: h$|$|$$|Content-Length: 5$|0$$|5$abcde|Transfer-Encoding: chunked$|POST| |
|Connection: close$|Expect: 100-continue$"""
words = st.sampled_from(WORDS.replace(b"$", b"\r\n").split(b"|"))


@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(st.lists(words | st.binary(max_size=20), max_size=15), st.booleans())
def test_whatever_comes_it_is_answered_or_closed_and_others_are_served(site, pieces, stays):
    with site.connect() as peer, site.connect() as other:
        with suppress(BrokenPipeError, ConnectionResetError):  # it may be closed already
            for piece in pieces:
                peer.send(piece)
        assert other.ask("/").status == 200
        if not stays:
            with suppress(OSError):
                peer.sock.shutdown(socket.SHUT_WR)
            with suppress(ConnectionResetError):
                answers = peer.rest()
                assert answers[:9] in (b"", b"HTTP/1.1 ")
    assert site.faults == []
