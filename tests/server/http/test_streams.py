"""Streams: anybody may send at any time, nobody waits, and whoever does not read is dropped."""

import logging

import pytest

from holdfast.server.http.message import Stream

GOODBYE = b'event: goodbye\ndata: {"reason":"slow",'


def begin(site, path="/stream", **how):
    peer = site.connect(**how)
    peer.get(path)
    answer = peer.head()
    assert answer.status == 200
    assert answer.headers["content-type"] == "text/event-stream"
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["connection"] == "close"
    assert answer.headers["holdfast-request-id"] == site.desk.seen[-1].id
    assert "content-length" not in answer.headers
    assert peer.read(13) == b"data: first\n\n"
    return peer, site.desk.streams[-1]


def test_what_is_sent_arrives_at_once(site):
    peer, stream = begin(site)
    for number in range(10):
        event = f"data: {number}\n\n".encode()
        assert site.call(stream.send, event)
        assert peer.read(len(event)) == event
    site.call(stream.end, b"data: last\n\n")
    assert peer.rest() == b"data: last\n\n"
    assert site.desk.gone.wait(30)
    assert stream.gone
    assert not site.call(stream.send, b"more")
    peer.close()


def test_a_stream_may_end_before_it_begins(site):
    peer, stream = begin(site, "/stream?ended")
    assert peer.rest() == b"data: last\n\n"
    assert not site.call(stream.send, b"more")
    site.call(stream.end, b"more")
    assert site.desk.gone.wait(30)
    peer.close()


def test_head_of_a_stream_has_no_events(site):
    with site.connect() as peer:
        peer.get("/stream", "HEAD")
        assert peer.head().status == 200
        assert peer.is_closed()
    assert site.desk.gone.wait(30)


def test_a_peer_that_leaves_is_noticed_though_nothing_is_sent(site):
    peer, stream = begin(site)
    peer.close()
    assert site.desk.gone.wait(30)
    assert stream.gone
    assert not site.call(stream.send, b"x")


def test_what_a_peer_sends_to_a_stream_is_ignored(site):
    peer, stream = begin(site)
    peer.get("/other")
    peer.send(b"x" * 100_000)
    assert site.call(stream.send, b"data: x\n\n")
    assert peer.read(9) == b"data: x\n\n"
    peer.close()
    assert site.desk.gone.wait(30)
    assert len(site.desk.seen) == 1


def test_a_stream_begins_behind_requests_that_came_too_early(site):
    with site.connect() as peer:
        peer.get("/wait")
        assert site.desk.waiting.wait(30)
        peer.get("/stream")
        peer.send(b"GET /lost HTTP/1.1\r\nHost: h\r\n\r\n" * 1000)
        site.call(site.desk.go_on.set)
        assert peer.answer().json == "waited"
        assert peer.head().status == 200
        assert peer.read(13) == b"data: first\n\n"
    assert site.desk.gone.wait(30)
    assert len(site.desk.seen) == 2


def test_who_does_not_read_is_dropped_with_a_goodbye_and_costs_others_nothing(serve):
    site = serve(slow_reader=100_000)
    slow, stream = begin(site, receive_buffer=4096)
    good, other = begin(site)
    event = b"data: " + b"x" * 1000 + b"\n\n"
    sent = 0
    while site.call(stream.send, event):
        sent += 1
        assert site.call(other.send, event)
        assert good.read(len(event)) == event
    assert site.desk.gone.is_set()
    assert stream.gone
    assert site.listener.dropped == 1
    *events, goodbye, end = slow.rest().split(b"\n\n")
    assert end == b""
    assert (goodbye + b"\n\n").startswith(GOODBYE)
    assert events == [event.removesuffix(b"\n\n")] * (sent + 1)  # the one that was too much as well
    assert site.call(other.send, event)
    for each in (slow, good):
        each.close()


def test_who_never_reads_is_cut_off(serve):
    site = serve(slow_reader=100_000, write_time=0.3)
    peer, stream = begin(site, receive_buffer=4096)
    while site.call(stream.send, b"x" * 10_000):
        pass
    site.until(lambda: not site.listener.connections)
    peer.close()


def test_who_stops_reading_is_dropped_even_if_little_waits(serve):
    site = serve(slow_reader=100_000_000, write_time=0.3)
    peer, stream = begin(site, receive_buffer=4096)
    while not site.call(lambda: stream.backlog):
        assert site.call(stream.send, b"x" * 10_000)
    assert site.desk.gone.wait(30)
    site.until(lambda: not site.listener.connections)
    peer.close()


def test_a_sender_is_told_when_there_is_room_again(site):
    peer, stream = begin(site, receive_buffer=4096)
    assert site.call(lambda: stream.backlog) == 0
    rooms = []
    stream.on_room = lambda: rooms.append(stream.backlog)
    size = 0
    while not site.call(lambda: stream.backlog):
        assert site.call(stream.send, b"x" * 10_000)
        size += 10_000
    assert rooms == []
    peer.read(size)
    site.until(lambda: rooms)
    assert rooms == [0]
    peer.close()


def test_too_much_before_the_beginning_is_too_much(serve):
    site = serve(slow_reader=1000)
    original = site.desk._stream

    async def huge(request):
        stream = await original(request)
        stream.send(b"x" * 30_000_000)
        return stream

    site.desk._stream = huge
    with site.connect(receive_buffer=4096) as peer:
        peer.get("/stream")
        assert site.desk.gone.wait(30)
        assert peer.rest().rpartition(b"event: ")[2].startswith(b"goodbye")


def test_a_stream_without_a_connection_keeps_what_is_sent():
    stream = Stream()
    assert stream.backlog == 0
    assert stream.send(b"ab")
    assert stream.backlog == 2
    stream.drop()
    assert stream.gone
    assert not stream.send(b"c")


def test_a_callback_that_fails_costs_nobody_anything(caplog):
    stream = Stream()
    stream.on_gone = lambda: 1 / 0
    with caplog.at_level(logging.ERROR, "holdfast"):
        stream.drop()
        stream.drop()
    assert caplog.text.count("on_gone has failed") == 1


@pytest.mark.parametrize("leave", ["close", "stay"])
def test_hundreds_of_streams(serve, leave):
    site = serve()
    peers = [begin(site)[0] for _ in range(300)]
    for stream in site.desk.streams:
        assert site.call(stream.send, b"data: all\n\n")
    for peer in peers:
        assert peer.read(11) == b"data: all\n\n"
    if leave == "close":
        for peer in peers:
            peer.close()
        site.until(lambda: all(stream.gone for stream in site.desk.streams))
    else:
        site.run(site.listener.drain(0.0))
        assert all(peer.is_closed() for peer in peers)
        for peer in peers:
            peer.close()
