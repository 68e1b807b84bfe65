"""Load on an HTTP server: many connections that are kept, each with one request under way.

One process with epoll and plain sockets. It knows as much HTTP as a fast answer needs: who answers sends the
whole of it at once, and it ends with a brace. What the generator itself costs is measured and told.
"""

from __future__ import annotations

import os
import select
import socket
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from statistics import median
from typing import NoReturn

from bench import bare
from tests.servers.ports import HOST

CONNECTIONS = 32
KEYS = 20  # of one connection
PATIENCE = 30.0

Talk = Generator[bytes, bytes, None]  # yields requests, is sent the answers


@dataclass(frozen=True)
class Load:
    """What came of a round: requests a second, and the processor seconds that one takes on either side."""

    rate: float
    server: float
    generator: float
    busy: float  # part of a core that the generator used


def middle(loads: list[Load]) -> Load:
    """Return the median of each figure."""
    return Load(*(median(getattr(load, name) for load in loads) for name in Load.__match_args__))


class Connections:
    """Open connections to one server, and what is said on them."""

    def __init__(self, port: int, pid: int, talk: Callable[[int], Talk], count: int = CONNECTIONS) -> None:
        self._pid = pid
        self._poll = select.epoll()
        self._talks: dict[int, tuple[socket.socket, Talk]] = {}
        for index in range(count):
            line = socket.create_connection((HOST, port))
            line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._talks[line.fileno()] = (line, talk(index))
        self._next = {fileno: next(said) for fileno, (_, said) in self._talks.items()}

    def run(self, seconds: float) -> Load:
        """Ask as fast as answers come."""
        talks, poll = self._talks, self._poll.poll
        used, theirs = time.process_time(), cpu(self._pid)
        began = time.perf_counter()
        for fileno, (line, _) in talks.items():
            self._poll.register(fileno, select.EPOLLIN)
            line.send(self._next[fileno])
        stop = began + seconds
        done, more, under_way = 0, True, len(talks)
        while under_way:
            for fileno, _ in poll(PATIENCE) or _nobody_answers():
                line, talk = talks[fileno]
                answer = line.recv(65536)
                while not answer.endswith((b"}", b"}\n")):
                    answer += _some(line)
                if not answer.startswith(b"HTTP/1.1 200"):
                    raise RuntimeError(f"the server answered {answer[:500]!r}")
                request = talk.send(answer)
                done += 1
                if more:
                    line.send(request)
                else:
                    self._next[fileno] = request
                    self._poll.unregister(fileno)
                    under_way -= 1
            more = time.perf_counter() < stop
        took = time.perf_counter() - began
        used, theirs = time.process_time() - used, cpu(self._pid) - theirs
        return Load(done / took, theirs / done, used / done, used / took)

    def close(self) -> None:
        self._poll.close()
        for line, _ in self._talks.values():
            line.close()


def _nobody_answers() -> NoReturn:
    raise TimeoutError(f"no answer within {PATIENCE:g} s")


def _some(line: socket.socket) -> bytes:
    received = line.recv(65536)
    if not received:
        raise ConnectionError("the server closed the connection")
    return received


@contextmanager
def connected(
    servers: Mapping[str, tuple[int, int, Callable[..., Talk]] | tuple[int, int, Callable[..., Talk], int]],
) -> Iterator[dict[str, Connections]]:
    """Connect to each server of name → (port, process, what to say, and on how many connections)."""
    made: dict[str, Connections] = {}
    try:
        for name, server in servers.items():
            made[name] = Connections(*server)
        yield made
    finally:
        for each in made.values():
            each.close()


def cpu(pid: int) -> float:
    """Return the processor seconds that a process has used so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")  # user and system


def post(path: str, body: str, *headers: str) -> bytes:
    lines = [f"POST {path} HTTP/1.1", f"Host: {HOST}", "Content-Type: application/json", *headers]
    return "\r\n".join([*lines, f"Content-Length: {len(body)}", "", body]).encode()


def pairs(index: int, *headers: str) -> Talk:
    """Take a lock and give it back, on keys of our own, with everything that a client says."""
    attempts = bare.new_attempt
    who = '"client":{"instance":"","host":"bench","pid":1}'
    rest = f'"owner":"{bare.OWNER}","ttl":30.0,"wait":true,{who},"limit":1,"patience":15.0,"claim":5.0'
    for key in cycle([f"key-{index}-{number}" for number in range(KEYS)]):
        attempt = attempts()
        answer = yield post(f"/v1/locks/{key}/acquire", f'{{"attempt":"{attempt}",{rest}}}', *headers)
        began = answer.index(b'"token":') + 8
        token = int(answer[began : answer.index(b",", began)])
        body = f'{{"attempt":"{attempt}","token":{token},"retire":false}}'
        yield post(f"/v1/locks/{key}/release", body, *headers)
