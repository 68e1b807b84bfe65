"""The holder is killed: when is the next one in?"""

from __future__ import annotations

import os
import signal
import time

from bench import bare
from bench.measure import folder
from bench.processes import Ready, mixed
from bench.report import Line, milliseconds
from bench.servers import on_each
from holdfast import Holdfast

TITLE = "Crash of the holder"
TTL = 1.0

clock = time.monotonic_ns


def run(quick: bool) -> list[Line]:
    times = 1 if quick else 3
    with folder() as place:
        lines = _measure("SQLite", bare.create(place / "locks.db"), times)
    return lines + on_each(lambda place: _measure(place.kind.name, place.database(), times))


def _measure(store: str, url: str, times: int) -> list[Line]:
    late = max(_once(url, f"key-{number}") for number in range(times))
    return [
        Line(
            f"{store}: next holder after a crash",
            f"ttl + {milliseconds(late)}",
            f"ttl {TTL:g} s",
            late * 1e3,
            200.0,
            least=False,
            unit="ms",
            means="A process is killed with SIGKILL right after it was granted the lock; how much more than"
            " the ttl after its asking the process that waits is in, at worst.",
            label=f"{store}: next holder after a crash",
        )
    ]


def _once(url: str, key: str) -> float:
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        locks = Holdfast(url)
        asked = clock()
        lease = locks.acquire(key, ttl=TTL)
        os.write(write, f"{asked} {lease.token}".encode())
        time.sleep(60)
        os._exit(0)
    asked, token = (int(part) for part in os.read(read, 100).split())
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    os.close(read)
    os.close(write)
    [(entered, next_token)] = mixed([(_next, (0, url, key))], 0.1)
    assert next_token > token
    return (entered - asked) / 1e9 - TTL


def _next(index: int, ready: Ready, url: str, key: str) -> tuple[int, int]:  # noqa: ARG001
    with Holdfast(url) as locks:
        ready()
        with locks.hold(key) as lease:
            return clock(), lease.token
