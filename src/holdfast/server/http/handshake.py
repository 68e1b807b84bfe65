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


def greet(
    connection: asyncio.BaseProtocol, remote: str, listener: Door, sock: socket.socket
) -> asyncio.Task[None]:
    """Give *connection* its transport, or tell it that it is lost; return the task that does so."""
    begun = False

    async def shake_hands() -> None:
        nonlocal begun
        begun = True
        secure = listener.tls is not None
        await listener.loop.connect_accepted_socket(
            lambda: connection,
            sock,
            ssl=listener.tls,
            # The connection's own deadline comes first.
            ssl_handshake_timeout=2 * listener.limits.head_time if secure else None,
            ssl_shutdown_timeout=LINGER if secure else None,
        )

    def done(task: asyncio.Task[None]) -> None:
        if not begun:  # cancelled before, and nobody else has the socket
            sock.close()
        error = None if task.cancelled() else task.exception()
        if isinstance(error, tls.SSLError):
            listener.cut("handshake", remote, error.reason or "it failed")
        elif error is not None and not isinstance(error, OSError):  # otherwise it has left
            log().error("a connection from %s could not begin", remote, exc_info=error)
        if error is not None or task.cancelled():
            connection.connection_lost(None)

    task = asyncio.Task(shake_hands(), loop=listener.loop, name="holdfast-greeting")
    task.add_done_callback(done)
    return task
