"""All connections of a server: which of them there is a place for, and what they share."""

from __future__ import annotations

import asyncio
import ssl as tls
from collections.abc import Callable
from functools import cached_property
from typing import Literal

from holdfast.server.http.deadlines import Deadlines
from holdfast.server.http.message import Handler
from holdfast.server.http.reader import Room
from holdfast.server.http.strangers import Guest, Strangers
from holdfast.server.settings import Limits

READ = 16 * 1024  # bytes at once
LARGE_BODIES = 64  # as many as that of the largest kind may arrive at the same time
TOLD = 64  # connections beyond the limit that are told why; yet more are just closed
UNREAD = 64 * 1024 * 1024  # bytes of answers that wait for their readers, of all together
Cut = Literal["strangers", "full", "refused", "handshake", "unheard"]  # why a connection is cut off

OnCut = Callable[[Cut, str, str], None]  # is told why, from which address, and what there is to say


class Door:
    """Counts connections, and lets the oldest strangers make room. Each connection is told of its door."""

    loop: asyncio.AbstractEventLoop

    def __init__(self, handler: Handler, limits: Limits, on_cut: OnCut | None = None) -> None:
        self.handler = handler
        self.limits = limits
        self._on_cut = on_cut
        self.connections: set[Guest] = set()  # from the moment they are accepted
        self.strangers = Strangers()  # some of them
        self._going: set[Guest] = set()  # some of them, too: there is no place for them
        self.draining = False
        self.tls: tls.SSLContext | None = None
        self.refused: dict[int, int] = {}  # by status, those that no handler has seen
        self.dropped = 0  # peers that did not read
        self._unread: dict[Guest, int] = {}  # who has not read an answer yet, and how much of it
        self._unread_bytes = 0
        self.room = Room(LARGE_BODIES * limits.body)
        self.buffer = memoryview(bytearray(READ))
        self._empty: asyncio.Future[None] | None = None
        self._leaving: set[asyncio.Task[None]] = set()

    @cached_property
    def deadlines(self) -> Deadlines:
        """Those of all connections, from the start on."""
        return Deadlines(self.loop)

    def admit(self, connection: Guest, remote: str) -> bool:
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

    def _make_room(self, why: Cut, oldest: Guest | None, whom: str) -> None:
        if oldest is not None:
            self.strangers.drop(oldest)
            self._going.add(oldest)
            self.cut(why, oldest.remote, f"it made room for {whom}")
            oldest.make_room()

    def forget(self, connection: Guest) -> None:
        """For a connection that is closed."""
        self.connections.discard(connection)
        self.strangers.drop(connection)
        self._going.discard(connection)
        self.was_read(connection)
        if not self.connections and self._empty is not None and not self._empty.done():
            self._empty.set_result(None)

    def unread(self, connection: Guest, size: int) -> None:
        """Take note of an answer that waits for its reader. If all are too much, the oldest is cut off."""
        self._unread_bytes += size - self._unread.get(connection, 0)
        self._unread[connection] = size
        while self._unread_bytes > UNREAD and len(self._unread) > 1:
            oldest = next(iter(self._unread))
            self.was_read(oldest)
            self.dropped += 1
            oldest.abort()

    def was_read(self, connection: Guest) -> None:
        """For a connection whose answer is on its way, or that is closed."""
        self._unread_bytes -= self._unread.pop(connection, 0)

    def keep(self, task: asyncio.Task[None]) -> None:
        """For a task that was cancelled, and may have to tidy up."""
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)
