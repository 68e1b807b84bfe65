"""What tests of waiting, events and signals share: real backends, readers of streams, faults on demand."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.core.access import parse_right
from holdfast.core.requests import Acquire, Client, Granted, Inspect, Release, Signal
from holdfast.errors import StoreUnavailable
from holdfast.server.admission.access import Principal
from holdfast.server.backend import Backend
from holdfast.server.http.listener import Listener
from holdfast.server.http.message import HTTPRequest, Response, Stream
from holdfast.server.settings import Limits

if TYPE_CHECKING:
    import pytest

PATIENCE = 30.0  # seconds that a test waits for what comes in milliseconds


_names = itertools.count()


STORES = ["memory", "sqlite", "postgres", "mariadb"]


def fresh(request: pytest.FixtureRequest, tmp_path: Path, store: str = "memory") -> str:
    """The address of a fresh store of this kind."""
    if store == "memory":
        return f"memory://streams-{next(_names)}"
    if store == "sqlite":
        return f"sqlite:///{tmp_path}/locks.db"
    url: str = request.getfixturevalue(f"{store}_locks")
    return url


async def eventually(true: Callable[[], Any]) -> None:
    """Wait for what is about to be true, and tells nobody of it."""
    while not true():  # noqa: ASYNC110
        await asyncio.sleep(0.001)


class Faulty(Backend):
    """A real backend that counts what it is asked, can be cut off from its store, and made to pause."""

    def __init__(self, url: str, **options: Any) -> None:
        super().__init__(url, **options)
        self.asked: Counter[str] = Counter()
        self.cut = False
        self.deaf = False
        self.before: Callable[[Any], Coroutine[Any, Any, None]] | None = None
        self.after: Callable[[Any, Any], Coroutine[Any, Any, None]] | None = None

    async def ask(self, request: Any, history: Any = None) -> Any:
        self.asked[type(request).__name__] += 1
        if self.before is not None:
            await self.before(request)
        if self.cut:
            raise StoreUnavailable("the test has cut the store off")
        answer = await super().ask(request, history)
        if self.after is not None:
            await self.after(request, answer)
        return answer

    def listen(self, listener: Callable[[Signal], None]) -> None:
        super().listen(lambda signal: None if self.deaf else listener(signal))


@asynccontextmanager
async def opened(url: str, **options: Any) -> AsyncIterator[Faulty]:
    """A backend, for a test that takes milliseconds; one that hangs fails."""
    backend = Faulty(url, **{"history": "all", **options})
    await backend.open()
    try:
        async with asyncio.timeout(PATIENCE):
            yield backend
    finally:
        await backend.close()


def asking(backend: Backend, key: str, attempt: str, **more: Any) -> Acquire:
    """The acquire of somebody for whom the server waits."""
    client = Client(backend.instance, "somewhere", 1)
    return Acquire(key, attempt, **{"owner": attempt, "ttl": 60.0, "client": client, "wait": True, **more})


async def take(backend: Backend, key: str, attempt: str, **more: Any) -> Release:
    """Take a free lock; return how it is released."""
    answer = await backend.ask(asking(backend, key, attempt, wait=False, **more))
    assert isinstance(answer, Granted), answer
    return Release(key, attempt, answer.token)


async def waiting_for(backend: Backend, key: str) -> int:
    view = await backend.ask(Inspect(key))
    return 0 if view is None else view.waiting


def somebody(*rights: str, name: str = "somebody", token_id: str = "") -> Principal:
    return Principal(name, tuple(parse_right(right) for right in rights), token_id)


ANYTHING = somebody("admin:*", name="")


class Reader:
    """Reads server-sent events from bytes, as a browser does, and keeps the place for a reconnect."""

    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.beats = 0
        self.place: str | None = None
        self.ended = False
        self.changed = asyncio.Event()
        self._rest = b""

    def feed(self, data: bytes) -> None:
        *blocks, self._rest = (self._rest + data).split(b"\n\n")
        for block in blocks:
            kind, lines = "message", []
            for line in block.decode().split("\n"):
                name, _, value = line.partition(":")
                value = value.removeprefix(" ")
                if name == "id":
                    self.place = value
                elif name == "event":
                    kind = value
                elif name == "data":
                    lines.append(value)
                else:
                    assert name == "", f"no field of an event: {line!r}"
                    self.beats += 1
            if lines:
                self.events.append((kind, json.loads("\n".join(lines))))
        self.changed.set()

    async def until(self, condition: Callable[[Reader], Any]) -> None:
        while not condition(self):
            self.changed.clear()
            await self.changed.wait()

    async def next(self, kind: str) -> dict[str, Any]:
        """Wait for the first event of this kind."""
        await self.until(lambda _: any(k == kind for k, _ in self.events))
        return next(data for k, data in self.events if k == kind)

    @property
    def kinds(self) -> list[str]:
        return [kind for kind, _ in self.events]

    @property
    def ids(self) -> list[int]:
        return [data["id"] for kind, data in self.events if kind != "goodbye"]


class Peer(Reader):
    """A peer on the other side of a stream, without a socket between: it reads at once, or not at all."""

    def __init__(self, stream: Stream) -> None:
        super().__init__()
        self._stream = stream
        early, ended = stream.begin(self)
        self.feed(early)
        if ended:
            self.end_stream(b"")

    def send_stream(self, data: bytes) -> bool:
        self.feed(data)
        return True

    def end_stream(self, last: bytes) -> None:
        self.feed(last)
        self.ended = True
        self.changed.set()
        self._stream.drop()

    def backlog(self) -> int:
        return 0

    def leave(self) -> None:
        self._stream.drop()


class Socket(Reader):
    """A peer behind a real socket."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        super().__init__()
        self._reader = reader
        self._writer = writer
        self._task: asyncio.Task[None] | None = None
        self.status = 0

    async def start(self) -> None:
        """Read the head, and then go on reading."""
        head = await self._reader.readuntil(b"\r\n\r\n")
        self.status = int(head.split(b" ", 2)[1])
        self._task = asyncio.create_task(self._read())

    async def _read(self) -> None:
        with suppress(ConnectionError):
            while data := await self._reader.read(65536):
                self.feed(data)
        self.ended = True
        self.changed.set()

    async def leave(self) -> None:
        self._writer.transport.abort()
        with suppress(OSError):
            await self._writer.wait_closed()
        if self._task is not None:
            await asyncio.wait([self._task])


@asynccontextmanager
async def serving(
    handler: Callable[[HTTPRequest], Any], limits: Limits | None = None
) -> AsyncIterator[Callable[..., Coroutine[Any, Any, Socket]]]:
    """Serve *handler*; gives what connects to it and asks for a path."""

    async def handle(request: HTTPRequest) -> Response | Stream:
        return await handler(request)

    listener = Listener(handle, limits or Limits())
    port = await listener.start("127.0.0.1", 0)
    sockets: list[Socket] = []

    async def connect(path: str = "/", *, reads: bool = True, **headers: str) -> Socket:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**14)
        lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
        writer.write(f"GET {path} HTTP/1.1\r\nHost: here\r\n{lines}\r\n".encode())
        socket = Socket(reader, writer)
        sockets.append(socket)
        if reads:
            await socket.start()
        return socket

    try:
        yield connect
    finally:
        for socket in sockets:
            await socket.leave()
        await listener.drain(0)
