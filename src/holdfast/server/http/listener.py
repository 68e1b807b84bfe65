"""The way in: sockets that listen, and all connections that came in through them."""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl as tls
from collections.abc import Callable
from typing import Any

from holdfast.server.http.connection import Connection
from holdfast.server.http.door import Door, OnCut
from holdfast.server.http.message import Handler
from holdfast.server.http.tls import ServerContext
from holdfast.server.settings import Limits

AT_ONCE = 64  # connections that are accepted before somebody else has a turn
BACKLOG = 1024
LOOK = 10.0  # seconds between looks for a new certificate
REST = 0.5  # seconds without accepting anybody, when there are no files left
SOON = 0.01  # the same, when strangers make room: their files are closed in the loop's next steps
FEW = 16  # strangers that make room then
PATIENCE = 5.0  # seconds that handlers may take to tidy up after they were cut off
STUCK = 60_000  # milliseconds without a sign of life, after which the kernel gives a silent peer up


class Listener(Door):
    """Accepts connections and gives their requests to *handler*. Belongs to the loop that starts it."""

    def __init__(
        self,
        handler: Handler,
        limits: Limits,
        *,
        on_drain: Callable[[], None] | None = None,
        on_cut: OnCut | None = None,
    ) -> None:
        super().__init__(handler, limits, on_cut)
        self.on_drain = on_drain
        self._sockets: list[socket.socket] = []

    async def start(self, host: str, port: int, ssl: tls.SSLContext | None = None) -> int:
        """Listen on every address that *host* has; return the port, which is a free one for 0."""
        self.loop = asyncio.get_running_loop()
        self.tls = ssl
        found = await self.loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for each in _listen_on([(family, address) for family, _, _, _, address in found], port):
            port = each.getsockname()[1]
            self._sockets.append(each)
            self.loop.add_reader(each, self._accept, each)
        if isinstance(ssl, ServerContext):
            self._watch(ssl)
        return port

    def _accept(self, sock: socket.socket) -> None:
        """Let in some of those at the door. See `handshake` for why we do this ourselves."""
        for _ in range(AT_ONCE):
            try:
                accepted, address = sock.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self.loop.remove_reader(sock)
                self.loop.call_later(self._make_files(error), self._accept_again, sock)
                return
            accepted.setblocking(False)
            Connection(self, str(address[0])).begin(accepted)

    def _make_files(self, error: OSError) -> float:
        """Have strangers, if any, make room where files are the limit; return when to accept again."""
        if error.errno in (errno.EMFILE, errno.ENFILE) and len(self.strangers):
            for _ in range(FEW):
                self._make_room("full", self.strangers.oldest(), f"others: {error.strerror}")
            return SOON
        self.cut("refused", "", f"no connection can be accepted: {error.strerror}")
        return REST

    def _accept_again(self, sock: socket.socket) -> None:
        if sock in self._sockets:
            self.loop.add_reader(sock, self._accept, sock)

    async def drain(self, timeout: float) -> None:  # noqa: ASYNC109 - it ends well then
        """Accept nothing more, let what is under way finish, and cut off what has not after *timeout*."""
        self._stop()
        if self.on_drain is not None:
            self.on_drain()
        for connection in list(self.connections):
            connection.drain()
        await self._until_empty(timeout)
        self.close()
        await self._until_empty(PATIENCE)
        if self._leaving:
            await asyncio.wait(self._leaving, timeout=PATIENCE)

    def close(self) -> None:
        """Cut everybody off. Their handlers are cancelled in the loop's next steps."""
        self._stop()
        for connection in list(self.connections):
            connection.abort()
        self.deadlines.close()

    async def _until_empty(self, timeout: float) -> None:  # noqa: ASYNC109
        if self.connections:
            self._empty = self.loop.create_future()
            await asyncio.wait([self._empty], timeout=timeout)

    def _watch(self, context: ServerContext) -> None:
        """Look for a new certificate now and then: not everybody sends a signal when it is renewed."""
        if not self.draining:
            self.loop.call_later(LOOK, self._watch, context)
            context.reload_if_changed()

    def _stop(self) -> None:
        self.draining = True
        for each in self._sockets:
            self.loop.remove_reader(each)
            each.close()
        self._sockets.clear()


def _listen_on(addresses: list[tuple[int, Any]], port: int) -> list[socket.socket]:
    """Listen on all *addresses*, on the same port. One that this machine does not have is left out."""
    sockets: list[socket.socket] = []
    missing: OSError | None = None
    try:
        for family, address in dict.fromkeys(addresses):
            try:
                sockets.append(_listen(family, (address[0], port, *address[2:])))
            except OSError as error:  # such as ::1 in the file of hosts, on a machine without IPv6
                if error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                    raise
                missing = error
            else:
                port = sockets[0].getsockname()[1]
        if missing is not None and not sockets:
            raise missing
    except BaseException:
        for each in sockets:
            each.close()
        raise
    return sockets


def _listen(family: int, address: tuple[object, ...]) -> socket.socket:
    """Return a socket that listens. What is set here, each connection inherits."""
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        # A peer that is gone without a word, and one that does not read, are noticed sooner.
        for name, value in (("TCP_USER_TIMEOUT", STUCK), ("TCP_NOTSENT_LOWAT", 64 * 1024)):
            if hasattr(socket, name):
                sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
        sock.bind(address)
        sock.listen(BACKLOG)
        sock.setblocking(False)
    except BaseException:
        sock.close()
        raise
    return sock
