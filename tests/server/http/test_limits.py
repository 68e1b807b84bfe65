"""Who sends too much, too slowly, or nonsense, gets a clear answer and is closed; others do not notice."""

from contextlib import ExitStack

import pytest

from holdfast.server.http import door

HEAD = b"GET / HTTP/1.1\r\nHost: h\r\n"
CHUNKED = b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"


def refused(peer, status):
    answer = peer.answer()
    assert answer.status == status
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.headers["connection"] == "close"
    assert answer.headers["holdfast-request-id"]
    assert (answer.json["status"], answer.json["error"]) == (status, "RequestRefused")
    assert peer.is_closed()
    return answer.json["detail"]


def test_a_head_may_be_only_so_large(serve):
    site = serve(head=1000)
    with site.connect() as peer:
        assert peer.ask("/", headers=f"X: {'x' * 900}\r\n").status == 200
        peer.get("/", headers=f"X: {'x' * 1000}\r\n")
        assert "1000 bytes" in refused(peer, 431)
    with site.connect() as peer:
        peer.send(HEAD + b"X: " + b"x" * 980)
        assert "1000 bytes" in refused(peer, 431)
    assert site.listener.refused == {431: 2}
    assert len(site.desk.seen) == 1


def test_a_body_may_be_only_so_large(serve):
    site = serve(body=1000)
    with site.connect() as peer:
        assert peer.ask("/", "POST", body=b"x" * 1000).status == 200
        peer.send(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1001\r\n\r\n")
        assert "1000" in refused(peer, 413)
    with site.connect() as peer:
        peer.send(b"POST / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 1001\r\n\r\n")
        refused(peer, 413)


def test_a_body_in_chunks_may_be_only_so_large(serve):
    site = serve(body=1000)
    with site.connect() as peer:
        peer.send(CHUNKED + b"3e8\r\n" + b"x" * 1000 + b"\r\n0\r\n\r\n")
        assert peer.answer().status == 200
        peer.send(CHUNKED + b"3e8\r\n" + b"x" * 1000 + b"\r\n1\r\nx\r\n")
        assert "1000" in refused(peer, 413)


@pytest.mark.parametrize("endless", [b"1;" + b"x" * 40_000, b"0\r\nX: " + b"x" * 40_000])
def test_what_frames_chunks_may_be_only_so_large(serve, endless):
    site = serve(head=1000)
    with site.connect() as peer:
        peer.send(CHUNKED)
        peer.send(endless)
        assert "extensions and trailers" in refused(peer, 413)


def test_a_refused_peer_sees_the_answer_though_it_is_still_sending(serve):
    """Closed at once, with bytes unread, the kernel would reset the connection and the answer with it."""
    site = serve(body=1000)
    with site.connect() as peer:
        peer.send(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000\r\n\r\n")
        peer.send(b"x" * 1_000_000)
        refused(peer, 413)


def test_a_head_has_to_be_there_in_time(serve):
    site = serve(head_time=1.0)
    with site.connect() as peer:
        peer.send(HEAD)
        assert "within 1 s" in refused(peer, 408)


def test_a_body_has_to_be_there_in_time(serve):
    site = serve(body_time=0.3)
    with site.connect() as peer:
        peer.send(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nab")
        assert "body was not there within 0.3 s" in refused(peer, 408)


def test_a_drop_now_and_then_does_not_win_time(serve):
    site = serve(head_time=1.0)
    with site.connect() as peer:
        peer.sock.settimeout(0.05)
        peer.send(HEAD)
        answer = b""
        for _ in range(500):
            try:
                answer = peer.sock.recv(1000)
                break
            except TimeoutError:
                peer.send(b"X: y\r\n")
        assert answer.startswith(b"HTTP/1.1 408 ")


def test_who_says_nothing_is_closed_without_a_word(serve):
    site = serve(head_time=0.3)
    with site.connect() as peer:
        assert peer.is_closed()


def test_an_idle_connection_is_closed_after_a_while(serve):
    site = serve(idle=0.3)
    with site.connect() as peer:
        assert peer.ask("/").status == 200
        assert peer.is_closed()


def test_a_handler_may_take_its_time(serve):
    site = serve(body_time=0.1, idle=0.1, write_time=0.1)
    with site.connect() as peer:
        peer.get("/wait", "POST", body=b"x")
        assert site.desk.waiting.wait(30)
        with site.connect() as other:
            assert other.ask("/").status == 200
            assert other.is_closed()  # the deadlines have been looked at
        site.call(site.desk.go_on.set)
        assert peer.answer().json == "waited"


def test_others_are_served_while_hundreds_send_very_slowly(serve):
    site = serve(head_time=3.0)
    with site.connect() as peer:
        assert peer.ask("/").status == 200
        slow = []
        for _ in range(200):
            slow.append(site.connect())
            slow[-1].send(HEAD)
        for each in slow:
            each.send(b"X: y\r\n")
            assert peer.ask("/").status == 200
        for each in slow:
            assert each.answer().status == 408
            assert each.is_closed()
            each.close()
        assert peer.ask("/").status == 200
    assert site.listener.refused == {408: 200}


def test_connections_beyond_the_limit_are_told_so(serve):
    site = serve(connections=2)
    with site.connect() as one, site.connect() as two:
        assert (one.ask("/").status, two.ask("/").status) == (200, 200)
        with site.connect() as three:
            assert "as many connections" in refused(three, 503)
        assert one.ask("/").status == 200
        two.close()
        site.until(lambda: len(site.listener.connections) == 1)
        with site.connect() as four:
            assert four.ask("/").status == 200


def test_a_crowd_beyond_the_limit_is_not_even_told(serve):
    site = serve(connections=1)
    with site.connect() as one:
        assert one.ask("/").status == 200
        crowd = [site.connect() for _ in range(100)]
        told = [each for each in crowd if not each.is_closed()]
        assert len(told) <= 64
        for each in crowd:
            each.close()
        assert one.ask("/").status == 200


def test_large_bodies_share_a_room(serve):
    """Who has had some for longest makes room for who needs it; small ones always have some."""
    site = serve(body=100_000)
    site.listener.room.left = 120_000
    with site.connect() as one, site.connect() as two, site.connect() as three:
        for peer in (one, two):
            peer.send(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 100000\r\n\r\n")
        one.send(b"x" * 90_000)
        site.until(lambda: site.listener.room.left < 50_000)
        two.send(b"x" * 90_000)
        assert "large bodies" in refused(one, 503)
        assert three.ask("/", "POST", body=b"x" * 10_000).status == 200
        two.send(b"x" * 10_000)
        assert two.answer().status == 200
    assert site.listener.room.left == 120_000
    site.listener.room.left = site.listener.limits.body * 64


def test_bodies_that_never_end_do_not_keep_others_out(serve):
    site = serve(body=100_000)
    site.listener.room.left = 150_000
    with ExitStack() as stack:
        for _ in range(3):
            peer = stack.enter_context(site.connect())
            peer.send(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 100000\r\n\r\n" + b"x" * 99_999)
        site.until(lambda: site.listener.room.left < 100_000)
        assert stack.enter_context(site.connect()).ask("/", "POST", body=b"x" * 100_000).status == 200
    site.until(lambda: site.listener.room.left == 150_000)
    site.listener.room.left = site.listener.limits.body * 64


def test_answers_that_nobody_reads_are_bounded_together(serve, monkeypatch):
    monkeypatch.setattr(door, "UNREAD", 20_000_000)
    site = serve(write_time=60.0)
    with ExitStack() as stack:
        for _ in range(6):
            stack.enter_context(site.connect(receive_buffer=4096)).get("/big?15000000")
        site.until(lambda: site.listener.dropped >= 4)
        assert stack.enter_context(site.connect()).ask("/").status == 200


def test_who_does_not_read_its_answer_is_cut_off(serve):
    site = serve(write_time=0.3)
    with site.connect(receive_buffer=4096) as peer, site.connect() as other:
        peer.get("/big?30000000")
        assert other.ask("/").status == 200
        site.until(lambda: site.listener.dropped == 1)
        with pytest.raises((ConnectionResetError, AssertionError)):
            assert len(peer.rest()) > 30_000_000


def test_who_reads_slowly_but_steadily_gets_its_answer(serve):
    site = serve(write_time=1.0)
    with site.connect(receive_buffer=4096) as peer:
        peer.get("/big?3000000")
        assert len(peer.answer().body) == 3_000_000
        assert peer.ask("/").status == 200
