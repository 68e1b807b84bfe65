"""A plain TCP balancer: each new connection goes to the next server, and knows nothing of what is said."""

from __future__ import annotations

import asyncio
import itertools
import threading
from contextlib import suppress
from typing import Self

from tests.servers.ports import HOST


class Balancer:
    """Spread connections over the servers at *ports*, in turn. A context manager."""

    def __init__(self, *ports: int) -> None:
        self._turns = itertools.cycle(ports)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="balancer", daemon=True)
        self._ready = threading.Event()
        self._ending = asyncio.Event()
        self.served: dict[int, int] = dict.fromkeys(ports, 0)
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._pass_on, HOST, 0, backlog=1000)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._ending.wait()
        server.close()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        port = next(self._turns)
        self.served[port] += 1
        try:
            to_server, from_server = None, None
            from_server, to_server = await asyncio.open_connection(HOST, port)
            async with asyncio.TaskGroup() as group:
                group.create_task(_pump(reader, to_server))
                group.create_task(_pump(from_server, writer))
        except (OSError, asyncio.CancelledError, ExceptionGroup):
            pass  # it is down, or we are: the client sees its connection close
        finally:
            for each in (writer, to_server):
                if each is not None:
                    each.close()

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._ending.set)
        self._thread.join(10)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        writer.write_eof()
