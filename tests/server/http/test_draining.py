"""Draining: nothing new, what is under way finishes, and what does not is cut off."""

import asyncio
import threading

import pytest


def start_draining(site, timeout):
    return asyncio.run_coroutine_threadsafe(site.listener.drain(timeout), site.loop)


def test_what_is_under_way_finishes(site):
    with site.connect() as busy, site.connect() as late, site.connect() as idle, site.connect() as silent:
        assert idle.ask("/").status == 200
        busy.get("/wait")
        late.send(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\na")
        assert site.desk.waiting.wait(30)
        site.until(lambda: len(site.listener.connections) == 4)
        draining = start_draining(site, 30)
        assert idle.is_closed()
        assert silent.is_closed()
        with pytest.raises(ConnectionRefusedError):
            site.connect()
        late.send(b"bc")
        answer = late.answer()
        assert (answer.json["body"], answer.headers["connection"]) == ("abc", "close")
        assert late.is_closed()
        site.call(site.desk.go_on.set)
        answer = busy.answer()
        assert (answer.json, answer.headers["connection"]) == ("waited", "close")
        assert busy.is_closed()
        draining.result(30)
    assert site.listener.connections == set()


def test_what_does_not_finish_is_cut_off(site):
    with site.connect() as peer:
        peer.get("/wait")
        assert site.desk.waiting.wait(30)
        start_draining(site, 0.1).result(30)
        assert site.desk.cancelled.is_set()
        assert peer.is_closed()


def test_streams_are_told_goodbye(serve):
    site = serve(options={"on_drain": lambda: [stream.end(b"bye\n\n") for stream in site.desk.streams]})
    with site.connect() as peer:
        peer.get("/stream")
        assert site.desk.waiting.wait(30)
        peer.head()
        start_draining(site, 30).result(30)
        assert peer.rest().endswith(b"bye\n\n")


def test_an_answer_that_waits_for_its_reader_is_the_last(site):
    with site.connect(receive_buffer=4096) as peer:
        peer.get("/big?10000000")
        peer.get("/second")
        site.until(lambda: site.desk.seen and all(each._pending for each in site.listener.connections))
        draining = start_draining(site, 30)
        assert len(peer.answer().body) == 10_000_000
        assert peer.is_closed()
        draining.result(30)
    assert len(site.desk.seen) == 1


def test_a_handler_may_tidy_up_before_the_end(site):
    tidy = threading.Event()

    async def slow_to_leave(request):
        site.desk.waiting.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.05)
            tidy.set()

    site.desk._tidy = slow_to_leave
    peer = site.connect()
    peer.get("/tidy")
    assert site.desk.waiting.wait(30)
    peer.close()
    start_draining(site, 30).result(30)
    assert tidy.is_set()


def test_a_listener_that_never_listened_can_be_closed(site):
    site.call(site.listener.close)
    site.call(site.listener.close)
    start_draining(site, 1).result(30)
