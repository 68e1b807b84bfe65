"""HTTP servers that do nothing: they answer everything with the same JSON. ``python -m bench.bare_http raw``.

``framework`` is the server's own HTTP layer, with a handler that has nothing to do; ``raw`` is a parser and a
write, which nobody could serve anything with. Both use the event loop that ``holdfast serve`` uses.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import httptools

from holdfast.cli.server_process import _loop_factory
from holdfast.server.http.listener import Listener
from holdfast.server.http.message import HTTPRequest, Response
from holdfast.server.settings import Limits
from tests.servers.ports import HOST

BODY = (
    b'{"answer":"granted","token":1700000000000000,"expires_in":30.0,"holds":1,"failures":[],"key":"key-0-0",'
    b'"attempt":"0123456789abcdef0123456789abcdef-1","owner":"bench-0123456789ab"}\n'
)
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (
    len(BODY),
    BODY,
)


async def framework() -> int:
    constant = Response(200, BODY)

    async def handle(request: HTTPRequest) -> Response:  # noqa: ARG001
        return constant

    return await Listener(handle, Limits()).start(HOST, 0)


class Raw(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._parser = httptools.HttpRequestParser(self)

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_message_complete(self) -> None:
        self._transport.write(ANSWER)


async def raw() -> int:
    server = await asyncio.get_running_loop().create_server(Raw, HOST, 0)
    return server.sockets[0].getsockname()[1]


KINDS = {"framework": framework, "raw": raw}


async def main(kind: str) -> None:
    print(await KINDS[kind](), flush=True)
    await asyncio.Event().wait()


@contextmanager
def running(kind: str) -> Iterator[tuple[int, int]]:
    """Start a server; give its port and its process."""
    command = [sys.executable, "-m", "bench.bare_http", kind]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            yield int(server.stdout.readline()), server.pid
        finally:
            server.terminate()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(main(sys.argv[1]))
