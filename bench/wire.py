"""What clients and a database server say to each other, counted on the way between them.

A plain TCP proxy in a process of its own. So nothing has to be known of who asks, and nobody who asks does
more than usual. It keeps each answer for a moment: what a client sends until then was not sent because of the
answer, so that it belongs to the same round trip. Who counts does not time.
"""

from __future__ import annotations

import re
import selectors
import socket
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from urllib.parse import urlsplit

from bench.processes import meanwhile
from bench.servers import POSTGRES, Kind
from tests.servers.ports import HOST

KEPT = 0.001  # seconds that an answer is kept
VERSION_3 = 196608  # what a PostgreSQL client says first, once it asks no more for encryption

Counter = Callable[[int, int], tuple[int, int]]  # round trips and statements, from and to monotonic ns


@contextmanager
def counted(kind: Kind, url: str) -> Iterator[tuple[str, Counter]]:
    """Give a URL that leads to the same database, and what counts who took it."""
    parts = urlsplit(url)
    talk = Postgres if kind is POSTGRES else MySQL
    with meanwhile(_pass_on, (HOST, parts.port), talk) as (line, port):

        def count(start: int, stop: int) -> tuple[int, int]:
            line.send((start, stop))
            return line.recv()

        yield parts._replace(netloc=f"{parts.username}@{HOST}:{port}").geturl(), count


@dataclass
class Postgres:
    """Sees the statements in what a client of PostgreSQL sends."""

    rest: bytes = b""
    begun: bool = False

    def statements(self, data: bytes) -> int:
        self.rest += data
        found = 0
        while len(self.rest) >= 8 or (self.begun and len(self.rest) >= 5):
            kind, start = (self.rest[:1], 1) if self.begun else (b"", 0)  # the first message has no kind
            size = start + int.from_bytes(self.rest[start : start + 4])
            if len(self.rest) < size:
                break
            message, self.rest = self.rest[start + 4 : size], self.rest[size:]
            if not self.begun:
                self.begun = int.from_bytes(message[:4]) == VERSION_3
            elif kind == b"E":
                found += 1
            elif kind == b"Q":
                found += _statements(message.rstrip(b"\0"))
        return found


@dataclass
class MySQL:
    """Sees the statements in what a client of MySQL or MariaDB sends."""

    rest: bytes = b""

    def statements(self, data: bytes) -> int:
        self.rest += data
        found = 0
        while len(self.rest) >= 4:
            size = 4 + int.from_bytes(self.rest[:3], "little")
            if len(self.rest) < size:
                break
            number, message, self.rest = self.rest[3], self.rest[4:size], self.rest[size:]
            if number == 0 and message[:1] == b"\x03":  # a command, and not a part of signing in
                found += _statements(message[1:])
            elif number == 0 and message[:1] == b"\x17":
                found += 1
        return found


def _statements(text: bytes) -> int:
    return len([part for part in re.sub(rb"'[^']*'", b"''", text).split(b";") if part.strip()])


@dataclass
class Line:
    """One connection of a client."""

    client: socket.socket
    server: socket.socket
    talk: Postgres | MySQL
    trips: list[list[int]] = field(default_factory=list)  # when it began, and its statements
    answered: bool = True

    def ask(self) -> bool:
        """Pass on what the client says, and count; tell whether it is still there."""
        data = _read(self.client)
        if data:
            if self.answered:
                self.trips.append([time.monotonic_ns(), 0])
                self.answered = False
            self.trips[-1][1] += self.talk.statements(data)
            self.server.sendall(data)
        return bool(data)

    def answer(self, data: bytes) -> None:
        """Pass on what the server said."""
        self.answered = True
        with suppress(OSError):  # the client has gone meanwhile
            self.client.sendall(data)

    def close(self) -> None:
        self.client.close()
        self.server.close()


def _read(source: socket.socket) -> bytes:
    try:
        return source.recv(65536)
    except ConnectionError:
        return b""


def _pass_on(orders: Connection, target: tuple[str, int], talk: type[Postgres] | type[MySQL]) -> None:
    lines: list[Line] = []
    kept: deque[tuple[float, Line, bytes]] = deque()  # answers, and when to pass them on
    wait = selectors.DefaultSelector()
    with socket.create_server((HOST, 0), backlog=500) as entrance:
        wait.register(entrance, selectors.EVENT_READ)
        wait.register(orders, selectors.EVENT_READ)
        orders.send(entrance.getsockname()[1])
        while True:
            for key, _ in wait.select(max(kept[0][0] - time.monotonic(), 0) if kept else None):
                line = key.data
                if key.fileobj is orders:
                    start, stop = orders.recv()
                    trips = [trip for each in lines for trip in each.trips if start <= trip[0] < stop]
                    seen = [said for _, said in trips if said]  # preparing and leaving do not count
                    orders.send((len(seen), sum(seen)))
                elif key.fileobj is entrance:
                    line = Line(entrance.accept()[0], socket.create_connection(target), talk())
                    lines.append(line)
                    for each in (line.client, line.server):
                        each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                        wait.register(each, selectors.EVENT_READ, line)
                elif line.client.fileno() >= 0:
                    if key.fileobj is line.server and (data := _read(line.server)):
                        kept.append((time.monotonic() + KEPT, line, data))
                    elif key.fileobj is line.server or not line.ask():
                        for each in (line.client, line.server):
                            wait.unregister(each)
                        line.close()
            while kept and kept[0][0] <= time.monotonic():
                _, line, data = kept.popleft()
                line.answer(data)
