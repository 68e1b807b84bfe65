"""Who is not let in cannot keep out who would be: with no connections, and with no handshakes."""

import socket
import ssl
from contextlib import ExitStack, contextmanager, suppress

import pytest

from holdfast.server.http.strangers import Strangers, neighbourhood
from holdfast.server.http.tls import make_context
from tests.server.http.test_tls import Certificates, trusting


@contextmanager
def silent(site, count):
    """Connections that say nothing."""
    with ExitStack() as stack:
        yield [
            stack.enter_context(socket.create_connection(("127.0.0.1", site.port), timeout=30))
            for _ in range(count)
        ]


def makes_room(peer):
    """Tell whether we were sent away: with a word, unless it was in the same moment as we came."""
    return peer.recv(13) in (b"HTTP/1.1 503 ", b"")


@pytest.fixture
def certificates(tmp_path):
    return Certificates(tmp_path)


@pytest.fixture
def cuts():
    return []


@pytest.fixture
def options(cuts):
    return {"on_cut": lambda *told: cuts.append(told[:2])}


def test_the_oldest_stranger_makes_room_when_the_server_is_full(serve, options, cuts):
    site = serve(options=options, connections=5)
    with silent(site, 5) as strangers:
        site.until(lambda: len(site.listener.connections) == 5)
        with site.connect() as guest:
            assert guest.ask("/").status == 200
            assert makes_room(strangers[0])
            site.until(lambda: len(site.listener.connections) == 5)
            assert len(site.listener.strangers) == 4
    assert cuts == [("full", "127.0.0.1")]


def test_who_was_let_in_does_not_make_room(serve, options, cuts):
    site = serve(options=options, connections=3)
    with site.connect() as one, site.connect() as two, site.connect() as waiting:
        assert [one.ask("/").status, two.ask("/").status] == [200, 200]
        waiting.get("/wait")
        assert site.desk.waiting.wait(30)
        with silent(site, 5) as strangers:
            for each in strangers:
                assert each.recv(100).startswith(b"HTTP/1.1 503 ")
        assert [one.ask("/").status, two.ask("/").status] == [200, 200]
        site.call(site.desk.go_on.set)
        assert waiting.answer().status == 200
    assert {why for why, _ in cuts} == {"refused"}


def test_who_is_not_let_in_any_more_is_a_stranger_again(serve):
    site = serve(connections=1)
    with site.connect() as guest:
        assert guest.ask("/").status == 200
        assert len(site.listener.strangers) == 0
        assert guest.ask("/public/unknown").status == 401
        site.until(lambda: len(site.listener.strangers) == 1)
        with site.connect() as other:
            assert other.ask("/").status == 200


def test_who_has_left_is_not_kept_as_a_stranger(serve):
    """It was let in, then not any more, and did not stay for the answer."""
    site = serve()
    with site.connect() as guest:
        guest.get("/late")
        assert site.desk.waiting.wait(30)
    assert site.desk.cancelled.wait(30)
    site.until(lambda: not site.listener.connections)
    assert site.call(lambda: len(site.listener.strangers)) == 0


def test_an_address_has_so_many_strangers_and_the_oldest_of_them_goes(serve, options, cuts):
    site = serve(options=options, strangers=3)
    with site.connect() as guest:
        assert guest.ask("/").status == 200
        with silent(site, 3) as strangers, site.connect() as late:
            assert late.ask("/public").status == 200
            assert makes_room(strangers[0])
            site.until(lambda: len(site.listener.strangers) == 3)
            assert late.ask("/").status == 200
            assert len(site.listener.strangers) == 2
        assert guest.ask("/").status == 200
    assert cuts == [("strangers", "127.0.0.1")]


def test_strangers_that_are_answered_make_room_last(serve):
    site = serve(connections=2)
    with site.connect() as probe, silent(site, 1) as (stranger,):
        probe.get("/public/wait")
        assert site.desk.waiting.wait(30)
        with site.connect() as guest:
            assert guest.ask("/").status == 200
            assert makes_room(stranger)
            with site.connect() as other:  # now there is nobody else
                assert other.ask("/").status == 200
                assert site.desk.cancelled.wait(30)


def test_strangers_that_keep_themselves_busy_make_room_as_others_do(serve):
    """Else a caller that has not asked yet would be the only one to go."""
    site = serve(connections=4)

    def busy():
        return sum(request.path == "/public/wait" for request in site.desk.seen)

    with ExitStack() as stack:
        oldest, guest, *others = (stack.enter_context(site.connect()) for _ in range(4))
        for each in (oldest, *others):
            assert each.ask("/public").status == 200
            each.get("/public/wait")
        site.until(lambda: busy() == 3)
        late = stack.enter_context(site.connect())
        late.get("/public/wait")
        site.until(lambda: busy() == 4)
        assert guest.ask("/").status == 200
        assert oldest.is_closed()


def test_sockets_that_never_finish_their_handshake_are_counted_and_make_room(
    serve, certificates, options, cuts
):
    ca = certificates.install("x")
    context = make_context(str(certificates.cert), str(certificates.key))
    site = serve(context, options, connections=3)
    with silent(site, 3) as strangers:
        site.until(lambda: len(site.listener.connections) == 3)
        strangers[1].send(b"\x16\x03\x01")  # as a handshake begins
        with site.connect(context=trusting(ca)) as guest:
            assert guest.ask("/").status == 200
            assert strangers[0].recv(1) == b""
    assert cuts == [("full", "127.0.0.1")]


def test_a_handshake_that_does_not_come_is_told_and_so_is_one_that_is_none(
    serve, certificates, options, cuts
):
    certificates.install("x")
    context = make_context(str(certificates.cert), str(certificates.key))
    site = serve(context, options, head_time=1.0)
    with silent(site, 2) as (late, wrong):
        wrong.send(b"GET / HTTP/1.1\r\n\r\n")
        assert late.recv(1) == b""
        while wrong.recv(100):
            pass
        site.until(lambda: not site.listener.connections)
    assert cuts == [("handshake", "127.0.0.1")] * 2


def test_a_client_that_sends_its_request_with_the_end_of_its_handshake_is_heard(serve, certificates):
    """The request arrives before anybody is told that the handshake is done."""
    ca = certificates.install("x")
    site = serve(make_context(str(certificates.cert), str(certificates.key)))
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = trusting(ca).wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
    with silent(site, 1) as (peer,):
        while True:
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                peer.sendall(outgoing.read())
                incoming.write(peer.recv(65536))
        tls.write(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n")
        peer.sendall(outgoing.read())  # the client's last message of the handshake, and the request
        answer = b""
        while not answer:
            incoming.write(peer.recv(65536))
            with suppress(ssl.SSLWantReadError):
                answer = tls.read(100)
    assert answer.startswith(b"HTTP/1.1 200 ")


def test_handshakes_under_way_end_with_the_server(serve, certificates):
    certificates.install("x")
    site = serve(make_context(str(certificates.cert), str(certificates.key)))
    with silent(site, 3) as strangers:
        site.until(lambda: len(site.listener.connections) == 3)
        site.run(site.listener.drain(30.0))
        assert [each.recv(1) for each in strangers] == [b""] * 3


class Somebody:
    def __init__(self, is_first=False):
        self.is_first = is_first


def test_first_requests_are_spared_for_who_is_nearly_as_old_and_not_for_who_has_just_come():
    """They may be slow, all of them: a write that hangs, tokens that nobody knows."""
    strangers = Strangers()
    slow = [Somebody(is_first=True) for _ in range(10)]
    for each in slow:
        strangers.add(each, "10.0.0.1")
    newcomer = Somebody()
    strangers.add(newcomer, "10.0.0.1")
    assert strangers.oldest() is strangers.oldest("10.0.0.1") is slow[0]
    slow[4].is_first = False
    assert strangers.oldest() is slow[4]


def test_networks_of_the_sixth_version_are_one_address():
    strangers = Strangers()
    one, two, other = Somebody(), Somebody(), Somebody()
    strangers.add(one, "2001:db8::1")
    strangers.add(two, "2001:db8::ffff%eth0")
    strangers.add(other, "2001:db8:0:1::1")
    assert (strangers.count("2001:db8::7"), len(strangers)) == (2, 3)
    assert strangers.oldest("2001:db8:0:1::2") is other
    strangers.drop(one)
    strangers.drop(one)
    assert strangers.oldest("2001:db8::1") is two
    assert neighbourhood("::ffff:10.0.0.1") != neighbourhood("::ffff:10.0.0.2")
