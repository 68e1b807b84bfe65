"""The way in: sockets that listen, and all connections that came in through them."""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl as tls
from collections.abc import Callable
from typing import Any, Literal, cast

from holdfast.server.http.connection import Connection
from holdfast.server.http.deadlines import Deadlines
from holdfast.server.http.limits import Limits
from holdfast.server.http.message import Handler
from holdfast.server.http.receiving import Room
from holdfast.server.http.strangers import Stranger, Strangers
from holdfast.server.http.tls import ServerContext

AT_ONCE = 64  # connections that are accepted before somebody else has a turn
BACKLOG = 1024
LOOK = 10.0  # seconds between looks for a new certificate
REST = 0.5  # seconds without accepting anybody, when there are no files left
SOON = 0.01  # the same, when strangers make room: their files are closed in the loop's next steps
FEW = 16  # strangers that make room then
READ = 16 * 1024  # bytes at once
LARGE_BODIES = 64  # as many as that of the largest kind may arrive at the same time
TOLD = 64  # connections beyond the limit that are told why; yet more are just closed
UNREAD = 64 * 1024 * 1024  # bytes of answers that wait for their readers, of all together
PATIENCE = 5.0  # seconds that handlers may take to tidy up after they were cut off
Cut = Literal["strangers", "full", "refused", "handshake", "unheard"]  # why a connection is cut off
STUCK = 60_000  # milliseconds without a sign of life, after which the kernel gives a silent peer up


class Listener:
    """Accepts connections and gives their requests to *handler*. Belongs to the loop that starts it."""

    def __init__(
        self,
        handler: Handler,
        limits: Limits,
        *,
        on_drain: Callable[[], None] | None = None,
        on_cut: Callable[[Cut, str, str], None] | None = None,
    ) -> None:
        self.handler = handler
        self.limits = limits
        self.on_drain = on_drain
        self._on_cut = on_cut  # is told why, from which address, and what there is to say
        self.connections: set[Connection] = set()  # from the moment they are accepted
        self.strangers = Strangers()  # some of them
        self._going: set[Connection] = set()  # some of them, too: there is no place for them
        self.draining = False
        self.tls: tls.SSLContext | None = None
        self.refused: dict[int, int] = {}  # by status, those that no handler has seen
        self.dropped = 0  # peers that did not read
        self._unread: dict[Connection, int] = {}  # who has not read an answer yet, and how much of it
        self._unread_bytes = 0
        self.room = Room(LARGE_BODIES * limits.body)
        self.buffer = memoryview(bytearray(READ))
        self.loop: asyncio.AbstractEventLoop
        self._deadlines: Deadlines | None = None
        self._sockets: list[socket.socket] = []
        self._empty: asyncio.Future[None] | None = None
        self._leaving: set[asyncio.Task[None]] = set()

    async def start(self, host: str, port: int, ssl: tls.SSLContext | None = None) -> int:
        """Listen on every address that *host* has; return the port, which is a free one for 0."""
        self.loop = asyncio.get_running_loop()
        if self._deadlines is None:
            self._deadlines = Deadlines(self.loop)
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
        """Let in some of those at the door. See `greeting` for why we do this ourselves."""
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
        """Have strangers make room where files are the limit; return when to accept again.

        Without any, those that end make room.
        """
        if error.errno in (errno.EMFILE, errno.ENFILE) and len(self.strangers):
            for _ in range(FEW):
                self._make_room("full", self.strangers.oldest(), f"others: {error.strerror}")
            return SOON
        self.cut("refused", "", f"no connection can be accepted: {error.strerror}")
        return REST

    def _accept_again(self, sock: socket.socket) -> None:
        if sock in self._sockets:
            self.loop.add_reader(sock, self._accept, sock)

    @property
    def deadlines(self) -> Deadlines:
        assert self._deadlines is not None
        return self._deadlines

    def admit(self, connection: Connection, remote: str) -> bool:
        """Count a connection that was accepted; False if there is no place for it, nor anybody to make room.

        An address with too many strangers makes room among its own, a full server among all.
        """
        strangers, limits = self.strangers, self.limits
        if strangers.count(remote) >= limits.strangers:
            self._make_room("strangers", strangers.oldest(remote), remote)
        if self._present >= limits.connections:
            self._make_room("full", strangers.oldest(), remote)
        full = self._present >= limits.connections
        self.connections.add(connection)
        if full:
            self._going.add(connection)
        else:
            strangers.add(connection, remote)
        return not full

    def cut(self, why: Cut, remote: str, detail: str) -> None:
        """Tell whoever runs the server of a connection that is not served."""
        if self._on_cut is not None:
            self._on_cut(why, remote, detail)

    @property
    def _present(self) -> int:
        return len(self.connections) - len(self._going)

    @property
    def overfull(self) -> bool:
        """Whether there are so many too many that there is not even time to tell the last one."""
        return len(self._going) > TOLD

    def _make_room(self, why: Cut, oldest: Stranger | None, whom: str) -> None:
        if oldest is not None:
            connection = cast("Connection", oldest)  # nothing else was added
            self.strangers.drop(connection)
            self._going.add(connection)
            self.cut(why, connection.remote, f"it made room for {whom}")
            connection.make_room()

    def forget(self, connection: Connection) -> None:
        """For a connection that is closed."""
        self.connections.discard(connection)
        self.strangers.drop(connection)
        self._going.discard(connection)
        self.was_read(connection)
        if not self.connections and self._empty is not None and not self._empty.done():
            self._empty.set_result(None)

    def unread(self, connection: Connection, size: int) -> None:
        """Take note of an answer that waits for its reader. If all are too much, the oldest is cut off."""
        self._unread_bytes += size - self._unread.get(connection, 0)
        self._unread[connection] = size
        while self._unread_bytes > UNREAD and len(self._unread) > 1:
            oldest = next(iter(self._unread))
            self.was_read(oldest)
            self.dropped += 1
            oldest.abort()

    def was_read(self, connection: Connection) -> None:
        """For a connection whose answer is on its way, or that is closed."""
        self._unread_bytes -= self._unread.pop(connection, 0)

    def keep(self, task: asyncio.Task[None]) -> None:
        """For a task that was cancelled, and may have to tidy up."""
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)

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
        if self._deadlines is not None:
            self._deadlines.close()

    async def _until_empty(self, timeout: float) -> None:  # noqa: ASYNC109
        if self.connections:
            self._empty = self.loop.create_future()
            await asyncio.wait([self._empty], timeout=timeout)

    def _watch(self, context: ServerContext) -> None:
        """Look for a new certificate now and then."""
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
