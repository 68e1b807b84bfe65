"""However a network cuts them, bytes become the same requests."""

from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.errors import RequestRefused
from holdfast.server.http.reader import Reader, Room, _names
from holdfast.server.settings import Limits

bodies = st.binary(max_size=60) | st.text("\r\n0x", max_size=12).map(str.encode)


def plain(number, body):
    length = f"Content-Length: {len(body)}\r\n" if body or number % 2 else ""
    return f"POST /{number} HTTP/1.1\r\nHost: h\r\n{length}\r\n".encode() + body


def chunked(number, body, size):
    head = f"POST /{number} HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
    chunks = [body[at : at + size] for at in range(0, len(body), size)]
    trailer = b"X: y\r\n" if number % 2 else b""
    return (
        head + b"".join(b"%x\r\n%b\r\n" % (len(each), each) for each in chunks) + b"0\r\n" + trailer + b"\r\n"
    )


def read(reader, pieces):
    requests, rest = [], b""
    for piece in pieces:
        data = rest + piece
        while data:
            data = reader.feed(data)
            if not reader.complete:
                break
            requests.append(reader.take("", False, None))
        rest = data
    return requests


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(st.tuples(bodies, st.integers(0, 5)), max_size=6), st.lists(st.integers(0, 400)), st.booleans()
)
def test_however_it_is_cut_the_requests_are_the_same(messages, cuts, blank_lines):
    sent = b"".join(
        (b"\r\n\r\n" if blank_lines else b"") + (chunked(n, body, size) if size else plain(n, body))
        for n, (body, size) in enumerate(messages)
    )
    places = sorted({min(cut, len(sent)) for cut in cuts} | {0, len(sent)})
    pieces = [sent[a:b] for a, b in pairwise(places)]
    room = Room(10**6)
    requests = read(Reader(Limits(), room), pieces)
    assert [(r.path, r.body) for r in requests] == [(f"/{n}", body) for n, (body, _) in enumerate(messages)]
    assert room.left == 10**6


def test_byte_by_byte_as_well():
    sent = plain(0, b"\r\n\r\n") + chunked(1, b"\r\n\r\n\r\n0\r\n\r\n", 2) + plain(2, b"")
    requests = read(Reader(Limits(), Room(0)), [sent[i : i + 1] for i in range(len(sent))])
    assert [r.body for r in requests] == [b"\r\n\r\n", b"\r\n\r\n\r\n0\r\n\r\n", b""]


def test_names_of_headers_are_not_remembered_without_end():
    reader = Reader(Limits(), Room(0))
    for number in range(500):
        head = f"GET / HTTP/1.1\r\nHost: h\r\nX-{number}: y\r\nX-{'long' * 20}{number}: y\r\n\r\n".encode()
        (request,) = read(reader, [head])
        assert request.headers[f"x-{number}"] == "y"
    assert len(_names) <= 256


def test_room_is_given_back_when_a_body_does_not_come():
    room = Room(100_000)
    reader = Reader(Limits(), room)
    reader.feed(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 90000\r\n\r\n" + b"x" * 50_000)
    assert room.left < 100_000
    reader.close()
    assert room.left == 100_000


def test_a_second_request_in_one_piece_would_be_noticed():
    """No piece that the parser is given has two; should it ever see ends elsewhere, nothing is mixed up."""

    class Careless(Reader):
        def _cut(self, data):
            return data, b""

    reader = Careless(Limits(), Room(0))
    with pytest.raises(RequestRefused, match="begins where none should"):
        reader.feed(plain(0, b"") * 2)
