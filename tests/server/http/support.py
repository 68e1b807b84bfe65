"""A listener in a thread of its own, a handler that does what its paths say, and peers on plain sockets."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

import uvloop

from holdfast.server.http.listener import Listener
from holdfast.server.http.message import HTTPRequest, Response, Stream
from holdfast.server.settings import Limits

T = TypeVar("T")
LONG = 30.0  # seconds, after which a test has failed


class Desk:
    """Handles requests as their paths say."""

    def __init__(self) -> None:
        self.seen: list[HTTPRequest] = []
        self.streams: list[Stream] = []
        self.waiting = threading.Event()
        self.cancelled = threading.Event()
        self.gone = threading.Event()
        self.go_on: asyncio.Event

    async def handle(self, request: HTTPRequest) -> Response | Stream:
        self.seen.append(request)
        if not request.path.startswith("/public"):
            request.let_in()
        what = request.path.rpartition("/")[2]
        return await getattr(self, f"_{what}", self._echo)(request)

    async def _echo(self, request: HTTPRequest) -> Response:
        fields = {name: getattr(request, name) for name in ("method", "path", "query", "headers", "id")}
        return Response(200, json.dumps({**fields, "body": request.body.decode("latin-1")}).encode())

    async def _wait(self, request: HTTPRequest) -> Response:
        self.waiting.set()
        try:
            await self.go_on.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return Response(200, b'"waited"')

    async def _late(self, request: HTTPRequest) -> Response:
        with suppress(asyncio.CancelledError):  # as if it had been done in the same moment
            await self._wait(request)
        return Response(401)

    async def _unknown(self, request: HTTPRequest) -> Response:
        return Response(401)

    async def _fail(self, request: HTTPRequest) -> Response:
        raise RuntimeError("the secret reason")

    async def _big(self, request: HTTPRequest) -> Response:
        return Response(200, b"x" * int(request.query), "text/plain")

    async def _nothing(self, request: HTTPRequest) -> Response:
        return Response(204)

    async def _cached(self, request: HTTPRequest) -> Response:
        return Response(200, b"{}", headers=(("Cache-Control", "max-age=60"), ("X-Other", "yes")))

    async def _inject(self, request: HTTPRequest) -> Response:
        return Response(200, b"{}", headers=(("X-Bad", "a\r\nSet-Cookie: b"),))

    async def _none(self, request: HTTPRequest) -> Any:
        return None

    async def _stream(self, request: HTTPRequest) -> Stream:
        stream = Stream()
        stream.on_gone = self.gone.set
        stream.send(b"data: first\n\n")
        if request.query == "ended":
            stream.end(b"data: last\n\n")
        if request.query == "bad":
            stream.headers = (("X-Bad", "\n"),)
        self.streams.append(stream)
        self.waiting.set()
        return stream


class Site:
    """A listener that runs."""

    def __init__(
        self, loop_kind: str, limits: Limits, context: ssl.SSLContext | None, **options: Any
    ) -> None:
        self.desk = Desk()
        self.listener = Listener(self.desk.handle, limits, **options)
        self.loop = uvloop.new_event_loop() if loop_kind == "uvloop" else asyncio.new_event_loop()
        self.faults: list[dict[str, Any]] = []
        self.loop.set_exception_handler(lambda _, fault: self.faults.append(fault))
        self._thread = threading.Thread(target=self.loop.run_forever)
        self._thread.start()
        self.port = self.run(self._start(context))

    async def _start(self, context: ssl.SSLContext | None) -> int:
        self.desk.go_on = asyncio.Event()
        return await self.listener.start("127.0.0.1", 0, context)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(LONG)

    def call(self, function: Callable[..., T], *args: Any) -> T:
        """Call *function* in the loop's thread."""

        async def call() -> T:
            return function(*args)

        return self.run(call())

    def until(self, condition: Callable[[], object]) -> None:
        """Wait for something that nobody tells of."""
        deadline = time.monotonic() + LONG
        while not self.call(condition):
            assert time.monotonic() < deadline
            time.sleep(0.01)

    def connect(self, receive_buffer: int = 0, context: ssl.SSLContext | None = None) -> Peer:
        raw = socket.socket()
        raw.settimeout(LONG)
        if receive_buffer:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        try:
            raw.connect(("127.0.0.1", self.port))
            return Peer(context.wrap_socket(raw, server_hostname="127.0.0.1") if context else raw)
        except BaseException:
            raw.close()
            raise

    def stop(self) -> None:
        self.run(self.listener.drain(0.0))
        self.call(self.listener.close)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(LONG)
        self.loop.close()
        assert self.faults == [], self.faults
        assert self.listener.connections == set()
        assert self.listener.room.left == self.listener.limits.body * 64


class Answer:
    """A status, headers and a body."""

    def __init__(self, head: bytes) -> None:
        first, *lines = head.decode("latin-1").split("\r\n")
        self.status = int(first.split(" ")[1])
        self.headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
        self.body = b""

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Peer:
    """A client's connection, with nothing between it and the bytes."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._file = sock.makefile("rb")

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def send(self, data: bytes) -> None:
        self.sock.sendall(data)

    def get(self, path: str, method: str = "GET", headers: str = "", body: bytes = b"") -> None:
        length = f"Content-Length: {len(body)}\r\n" if body else ""
        self.send(f"{method} {path} HTTP/1.1\r\nHost: here\r\n{headers}{length}\r\n".encode() + body)

    def head(self) -> Answer:
        lines = []
        while (line := self._file.readline()) not in (b"\r\n", b""):
            lines.append(line)
        assert lines, "the connection was closed without an answer"
        return Answer(b"".join(lines).removesuffix(b"\r\n"))

    def answer(self, to: str = "GET") -> Answer:
        answer = self.head()
        if to != "HEAD":
            answer.body = self._file.read(int(answer.headers.get("content-length", 0)))
        return answer

    def ask(self, path: str, method: str = "GET", headers: str = "", body: bytes = b"") -> Answer:
        self.get(path, method, headers, body)
        return self.answer(to=method)

    def read(self, size: int) -> bytes:
        return self._file.read(size)

    def rest(self) -> bytes:
        """Read until the other side closes."""
        return self._file.read()

    def is_closed(self) -> bool:
        """Wait until the other side closes; there must be nothing more to read."""
        try:
            return self.rest() == b""
        except ConnectionResetError:
            return True

    def close(self) -> None:
        self._file.close()
        self.sock.close()
