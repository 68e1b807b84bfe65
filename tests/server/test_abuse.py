"""A server that a thousand connections try to exhaust goes on serving everybody else."""

from __future__ import annotations

import re
import resource
import socket
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from holdfast import Holdfast
from tests.clients.support import eventually
from tests.servers.lock_server import LockServer
from tests.servers.ports import HOST

MANY = 1000
HEAD = b"POST /v1/locks/x/acquire HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[LockServer]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 4 * MANY)), hard))
    limits = "--limit", "head_time=5", "--limit", "body_time=5", "--limit", "body=100000"
    url, log = f"sqlite:///{tmp_path}/locks.db", tmp_path / "server.log"
    with LockServer(url, log, "--log-level", "warning", *limits) as server:
        yield server
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_thousand_slow_senders_and_bodies_without_end_leave_it_serving(server: LockServer) -> None:
    """Half of them never end their head, the others their body; each is told, and closed."""
    with ExitStack() as stack, Holdfast(server.url) as locks:
        slow = [
            stack.enter_context(socket.create_connection((HOST, server.port), timeout=40))
            for _ in range(MANY)
        ]
        for number, each in enumerate(slow):
            each.sendall(HEAD if number % 2 else HEAD + b"Content-Length: 50000\r\n\r\n{")
            if number % 50 == 0:
                with locks.hold("served", timeout=0):
                    pass
        for _ in range(20):
            large = stack.enter_context(socket.create_connection((HOST, server.port), timeout=40))
            large.sendall(HEAD + b"Content-Length: 100000000\r\n\r\n")
            assert large.recv(100).startswith(b"HTTP/1.1 413 ")
        answers = {each.recv(100)[:13] for each in slow}
        assert answers == {b"HTTP/1.1 408 "}
        with locks.hold("served", timeout=0):
            pass
    assert server.is_ready()


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="nobody can lower its limit of files")
def test_strangers_make_room_where_files_are_the_limit(server: LockServer) -> None:
    """Each has asked something that everybody may ask, and so may stay for long."""
    few = 100
    with ExitStack() as stack, Holdfast(server.url) as before:
        lease = before.acquire("kept")
        resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (few, few))
        for _ in range(2 * few):
            each = stack.enter_context(socket.create_connection((HOST, server.port), timeout=40))
            with suppress(ConnectionError):  # it has made room already
                each.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        guest = stack.enter_context(socket.create_connection((HOST, server.port), timeout=20))
        guest.sendall(b"GET /v1/server HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert guest.recv(100).startswith(b"HTTP/1.1 200 ")
        lease.release()  # who was let in has stayed
    said = re.compile(r"made room for others: Too many open files +remote=127\.0\.0\.1")
    eventually(lambda: said.search(server.log.read_text()) is not None)


def test_streams_that_nobody_reads_cost_the_others_nothing(server: LockServer) -> None:
    """Whoever reads is told everything, in order."""
    with ExitStack() as stack, Holdfast(server.url, history="all") as locks:
        for _ in range(20):
            each = stack.enter_context(socket.socket())
            each.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            each.settimeout(40)
            each.connect((HOST, server.port))
            each.sendall(b"GET /v1/events HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n")
        watching = locks.watch("*", after=0, timeout=30)
        keys = [f"key-{number:02}" for number in range(100)]  # what happens at one moment is told by key
        for key in keys:
            with locks.hold(key, timeout=0, owner="o" * 200):
                pass
        seen = [next(watching).key for _ in range(200)]
        assert seen == [key for key in keys for _ in range(2)]
    assert server.is_ready()
