"""Thousands who only listen, and a thousand who wait: what do they cost a lock server, and those who work?"""

from __future__ import annotations

import os
import resource
import socket
import time
from pathlib import Path

from bench import contest, serving
from bench.load import cpu, post
from bench.measure import folder
from bench.report import Line, milliseconds
from holdfast import Holdfast
from tests.servers.lock_server import LockServer
from tests.servers.ports import HOST

TITLE = "Lock server: thousands of idle streams"
STREAMS, WAITERS = 5000, 1000
MOST = 13.0  # KiB of a stream
SPARE = 500  # files beside those
WORKERS = 4
KIB = 1024

LISTEN = (
    f"GET /v1/events?prefix=elsewhere: HTTP/1.1\r\nHost: {HOST}\r\nAccept: text/event-stream\r\n\r\n"
).encode()


def run(quick: bool) -> list[Line]:
    streams, waiters = (1000, 200) if quick else (STREAMS, WAITERS)
    seconds, idle = (0.7, 3.0) if quick else (2.0, 10.0)
    streams, waiters = _make_room(streams, waiters)
    lines: list[socket.socket] = []
    with folder() as place, serving.lock_server(f"sqlite:///{place}/locks.db", place) as server:
        alone = contest.contest(contest.holdfast_worker, seconds, server.url, workers=WORKERS)
        _open(server, 200, LISTEN, lines)  # whatever is made only once is there now
        before = resident(server.pid)
        _open(server, streams - 200, LISTEN, lines)
        listening = resident(server.pid)
        with Holdfast(server.url) as locks, locks.hold("held", ttl=300.0):
            wait = post("/v1/locks/held/acquire", '{"timeout":240,"patience":60}')
            _open(server, waiters, wait, lines, answered=False)
            while (view := locks.inspect("held")) is None or view.waiting < waiters:
                time.sleep(0.05)
            waiting = resident(server.pid)
            used = cpu(server.pid)
            time.sleep(idle)
            used = (cpu(server.pid) - used) / idle
            among = contest.contest(contest.holdfast_worker, seconds, server.url, workers=WORKERS)
        for line in lines:
            line.close()
    return [
        Line(
            f"memory of one of {streams:,} streams",
            f"{(listening - before) / (streams - 200) / KIB:.1f} KiB",
            "of the server; the kernel's is not in it",
            (listening - before) / (streams - 200) / KIB,
            MOST,
            least=False,
            unit="KiB",
            means="Resident memory of the server with that many streams of `GET /v1/events` that see nothing,"
            " less that with 200 of them.",
            label="server: memory of an idle stream",
        ),
        Line(
            f"memory of one of {waiters:,} waiters",
            f"{(waiting - listening) / waiters / KIB:.1f} KiB",
            means="The same, for long polls of `acquire` in one queue.",
        ),
        Line(
            "processor time while nothing happens",
            f"{used * 1e3:.1f} ms/s",
            f"{streams:,} streams and {waiters:,} waiters",
            means="A heartbeat for each stream every 15 s, and one request that keeps all waiters waiting.",
        ),
        Line(
            "hand-over meanwhile, p99",
            milliseconds(among.p99),
            f"before they came {milliseconds(alone.p99)}",
            among.p99 / alone.p99,
            means=f"{WORKERS} processes take turns at another key of the same server.",
        ),
        Line(
            "… p50",
            milliseconds(among.p50),
            f"before they came {milliseconds(alone.p50)}",
            among.p50 / alone.p50,
            means=f"{WORKERS} processes take turns at another key of the same server.",
        ),
    ]


def _make_room(streams: int, waiters: int) -> tuple[int, int]:
    """Have as many files as we need, and the server after us; fewer streams if we may not."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = streams + waiters + SPARE
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    return max(min(streams, most - waiters - SPARE), 400), waiters


def _open(
    server: LockServer, count: int, message: bytes, lines: list[socket.socket], *, answered: bool = True
) -> None:
    """Open connections and say something on each; wait until it is answered, if it is."""
    made = []
    for _ in range(count):
        line = socket.create_connection((HOST, server.port))
        line.sendall(message)
        made.append(line)
        if answered:
            assert line.recv(4096).startswith(b"HTTP/1.1 200")
    lines += made


def resident(pid: int) -> int:
    """Return the memory that a process has, in bytes."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
