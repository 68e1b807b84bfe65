"""From a socket that was accepted to a transport, with TLS if there is any.

An asyncio server tells of a connection when its handshake is done, and so never of most that are up to no
good. Here it counts before, and its deadline runs. (`start_tls` on a transport that is there will not do: on
uvloop it reads after `connection_made`, whatever was paused, and may lose the client's first message.)
"""

from __future__ import annotations

import asyncio
import socket
import ssl as tls

from holdfast.log import log
from holdfast.server.http.door import Door

LINGER = 2.0  # seconds that a peer may go on sending: closed at once, it might never see the answer


class Handshake:
    """Gives *connection* its transport, or tells it that it is lost."""

    __slots__ = ("_connection", "_listener", "_remote", "_sock", "_task")

    def __init__(
        self, connection: asyncio.BaseProtocol, remote: str, listener: Door, sock: socket.socket
    ) -> None:
        self._connection = connection
        self._remote = remote
        self._listener = listener
        self._sock: socket.socket | None = sock  # until somebody has it
        self._task = asyncio.Task(self._run(), loop=listener.loop, name="holdfast-greeting")
        self._task.add_done_callback(self._done)

    def cancel(self) -> None:
        """Do not go on."""
        self._task.cancel()

    async def _run(self) -> None:
        sock, self._sock = self._sock, None
        assert sock is not None
        secure = self._listener.tls is not None
        await self._listener.loop.connect_accepted_socket(
            lambda: self._connection,
            sock,
            ssl=self._listener.tls,
            # The connection's own deadline comes first.
            ssl_handshake_timeout=2 * self._listener.limits.head_time if secure else None,
            ssl_shutdown_timeout=LINGER if secure else None,
        )

    def _done(self, task: asyncio.Task[None]) -> None:
        if self._sock is not None:  # cancelled before it began
            self._sock.close()
        error = None if task.cancelled() else task.exception()
        if isinstance(error, tls.SSLError):
            self._listener.cut("handshake", self._remote, error.reason or "it failed")
        elif error is not None and not isinstance(error, OSError):  # otherwise it has left
            log().error("a connection from %s could not begin", self._remote, exc_info=error)
        if error is not None or task.cancelled():
            self._connection.connection_lost(None)
