"""A server on a real socket that answers what a test tells it to, or breaks off where it tells it to."""

from __future__ import annotations

import json
import os
import queue
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Self

_LINGER = struct.pack("ii", 1, 0)  # closing sends a reset, and drops what was not sent

CLOSE, RESET, HANG, DRIP = "close", "reset", "hang", "drip"
Act = bytes | str


@dataclass(frozen=True)
class Heard:
    """A request, as the server read it."""

    method: str
    path: str
    headers: dict[str, str]
    body: Any
    connection: int  # which one, counted from 1


def answer(body: Any, status: int = 200, kind: str = "application/json", more: str = "") -> bytes:
    """Return a whole answer with a JSON body."""
    text = json.dumps(body)
    return plain(text, status, "application/problem+json" if status >= 400 else kind, more)


def plain(text: str, status: int = 200, kind: str = "text/html", more: str = "") -> bytes:
    """Return a whole answer."""
    data = text.encode()
    return (
        f"HTTP/1.1 {status} Whatever\r\nContent-Type: {kind}\r\n{more}Content-Length: {len(data)}\r\n\r\n"
    ).encode() + data


def problem(error: str, status: int, detail: str = "said the server", **fields: Any) -> bytes:
    """Return an error as a lock server tells it."""
    told = {"type": f"urn:holdfast:error:{error}", "title": "", "status": status, "detail": detail}
    return answer({**told, "error": error, **fields}, status)


SERVER = {
    "answer": "server",
    "version": "1.0",
    "instance": "s1",
    "store": {"kind": "sqlite", "durable": True, "signals": True},
    "limits": {"body": 1024 * 1024},
}
GRANTED = {"answer": "granted", "token": 7, "expires_in": 30.0, "holds": 1, "failures": []}
RELEASED = {"answer": "released", "holds": 0, "next": None, "told": 0}
HOLDER = {"owner": "bob", "host": "h", "pid": 1, "token": 3, "held_for": 1.0, "claimed": True, "take": 1}
QUEUED = {"answer": "queued", "position": 1, "holder": HOLDER, "expires_in": 20.0}
STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"


def event(name: str, data: Any) -> bytes:
    """Return one event of a stream."""
    return f"event: {name}\ndata: {json.dumps(data)}\n\n".encode()


class Scripted:
    """Answers the requests for a path with the acts that were put there; a path without any is answered well.

    An act is bytes to send, `CLOSE`, `RESET`, or until the test ends `HANG`, or `DRIP`: a byte now and then.
    """

    def __init__(self, context: Any = None) -> None:
        self.heard: queue.Queue[Heard] = queue.Queue()
        self.acts: dict[str, queue.Queue[list[Act]]] = {}
        self.always: dict[str, Callable[[Heard], bytes]] = {}  # path's end → what to answer, each time
        self.connections = 0
        self.streams: queue.Queue[socket.socket] = queue.Queue()
        self._context = context
        self._over = threading.Event()
        self._open: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._threads: list[threading.Thread] = []
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def on(self, path: str, *acts: Act) -> None:
        """Do this for the next request whose path ends so."""
        self.acts.setdefault(path, queue.Queue()).put(list(acts))

    def next(self, path: str = "") -> Heard:
        """Return the next request whose path has *path* in it, and forget those before it."""
        while True:
            heard = self.heard.get(timeout=20)
            if path in heard.path:
                return heard

    def stop_listening(self) -> None:
        """Refuse connections from now on."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()

    def close_all(self) -> None:
        """Close all connections, as a server that ends does."""
        for connection in self._open:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.stop_listening()
        self.close_all()
        for thread in self._threads:
            thread.join()
        for connection in self._open:
            connection.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            self._open.append(connection)
            number = self.connections
            thread = threading.Thread(target=self._serve, args=(connection, number), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: socket.socket, number: int) -> None:
        with suppress(OSError):
            if self._context is not None:
                connection = self._context.wrap_socket(connection, server_side=True)
                self._open.append(connection)
            with connection.makefile("rb") as file:
                while heard := _read(file, number):
                    self.heard.put(heard)
                    if not self._do(connection, self._acts_for(heard, connection)):
                        return

    def _acts_for(self, heard: Heard, connection: socket.socket) -> list[Act]:
        path = heard.path.partition("?")[0]
        for end, acts in self.acts.items():
            if path.endswith(end):
                with suppress(queue.Empty):
                    return acts.get_nowait()
        for end, make in self.always.items():
            if path.endswith(end):
                return [make(heard)]
        if path.endswith("/v1/server"):
            return [answer(SERVER)]
        if path.endswith("/v1/signals"):
            self.streams.put(connection)
            return [STREAM + event("hello", {"address": f"s1/{heard.connection}", "server": "s1"}), HANG]
        if path.endswith("/acquire"):
            return [answer(GRANTED)]
        return [answer(RELEASED)]

    def _do(self, connection: socket.socket, acts: list[Act]) -> bool:
        for act in acts:
            if isinstance(act, bytes):
                connection.sendall(act)
            elif act == HANG:
                self._over.wait()
                return False
            elif act == DRIP:
                while not self._over.wait(0.01):
                    connection.sendall(b"x")
                return False
            else:
                if act == RESET:
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER)
                    os.close(connection.detach())  # a file of it is open, so that close() would wait
                else:
                    connection.shutdown(socket.SHUT_RDWR)
                return False
        return True


def _read(file: Any, number: int) -> Heard | None:
    first = file.readline()
    if not first:
        return None
    method, path, _ = first.decode().split(" ")
    headers: dict[str, str] = {}
    while (line := file.readline().decode().strip()) != "":
        name, _, value = line.partition(":")
        headers[name.lower()] = value.strip()
    body = file.read(int(headers.get("content-length", 0)))
    return Heard(method, path, headers, json.loads(body) if body else None, number)


@contextmanager
def answering(reply: bytes) -> Iterator[int]:
    """Answer the first who says something with *reply*, and hang up. Give the port."""

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(10_000)
            connection.sendall(reply)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        yield listener.getsockname()[1]
        thread.join()


def until(done: Callable[[], Any], timeout: float = 20.0) -> None:
    """Wait until something is true that no event tells."""
    deadline = threading.Event()
    for _ in range(int(timeout / 0.005)):
        if done():
            return
        deadline.wait(0.005)
    raise AssertionError("it did not come true")
