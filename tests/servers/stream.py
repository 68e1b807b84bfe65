"""Two sockets whose ends are joined: what a `Proxy` does for one connection. Nothing here waits."""

from __future__ import annotations

import math
import selectors
import socket
import time
from collections import deque
from collections.abc import Iterator

_LIMIT = 1 << 20  # bytes under way; who sends more has to wait, as with any network
_END = b""


class Stream:
    """One direction: pieces, each with the time when it may go on. An empty piece is the end."""

    def __init__(self, source: socket.socket, target: socket.socket) -> None:
        self.source, self.target = source, target
        self.pieces: deque[tuple[float, bytes]] = deque()
        self.size = 0
        self.ended = False  # the source will say no more
        self.finished = False  # and the target knows
        self.full = False  # the target takes nothing now

    @property
    def due(self) -> float:
        """Tell when the next piece may go on: never, if it is not time that it waits for."""
        return self.pieces[0][0] if self.pieces and not self.full else math.inf

    @property
    def hungry(self) -> bool:
        return not self.ended and self.size < _LIMIT

    def read(self) -> bytes | None:
        """Read a piece, or give None if there is nothing to read now."""
        try:
            piece = self.source.recv(1 << 16)
        except BlockingIOError:
            return None
        self.ended = piece == _END
        return piece

    def keep(self, piece: bytes, until: float) -> None:
        self.pieces.append((until, piece))
        self.size += len(piece)

    def write(self) -> None:
        """Pass on what is due, as much as the target takes."""
        now = time.monotonic()
        self.full = False
        while self.pieces and self.pieces[0][0] <= now:
            until, piece = self.pieces.popleft()
            if piece == _END:
                self.target.shutdown(socket.SHUT_WR)
                self.finished = True
                return
            try:
                sent = self.target.send(piece)
            except BlockingIOError:
                sent = 0
            self.size -= sent
            if sent < len(piece):
                self.pieces.appendleft((until, piece[sent:]))
                self.full = True
                return


class Pair:
    """One connection through the proxy: a client, the server, and a stream each way."""

    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        self.client, self.server = client, server
        self.up, self.down = Stream(client, server), Stream(server, client)
        self.lost = False  # the client missed something: this connection can never be made good
        self.broken = False  # one side was reset
        self.halving = False  # of what the server says next, only half is to be passed on
        self.halved = False  # that was done: there is nothing more to say

    @property
    def finished(self) -> bool:
        if self.halved:
            return self.down.finished
        return self.up.finished and (self.down.finished or (self.lost and self.down.ended))

    @property
    def due(self) -> float:
        return min(self.up.due, self.down.due)

    def serve(self, *, deaf: bool, losing: bool, delay: float) -> None:
        """Do everything that can be done now."""
        if deaf:
            return
        for stream in (self.down, self.up):
            try:
                self._read(stream, losing=losing and stream is self.down, delay=delay)
            except OSError:
                self._fail(stream.source, losing=losing)
            try:
                stream.write()
            except OSError:
                self._fail(stream.target, losing=losing)

    def wishes(self, *, deaf: bool) -> Iterator[tuple[socket.socket, int]]:
        """Tell what to wait for at either end."""
        for end, out, into in ((self.client, self.up, self.down), (self.server, self.down, self.up)):
            reading = selectors.EVENT_READ if out.hungry else 0
            writing = selectors.EVENT_WRITE if into.full else 0
            yield end, 0 if deaf else reading | writing

    def _read(self, stream: Stream, *, losing: bool, delay: float) -> None:
        while stream.hungry and (piece := stream.read()) is not None:
            if losing:
                self.lost = True
            elif self.halving and stream is self.down and piece != _END:
                # The client is to read half of it, and then that this was all.
                if half := piece[: len(piece) // 2]:
                    stream.keep(half, time.monotonic() + delay)
                stream.keep(_END, time.monotonic() + delay)
                stream.ended = self.halved = True
            else:
                stream.keep(piece, time.monotonic() + delay)

    def _fail(self, end: socket.socket, *, losing: bool) -> None:
        """Note that *end* was reset. If answers are lost, the client is not to know it of the server."""
        if end is self.client or not losing:
            self.broken = True
        else:
            self.lost = True
            for stream in (self.down, self.up):
                stream.ended = True
                stream.pieces.clear()
