"""Ports for servers that go away and come back."""

from __future__ import annotations

import errno
import random
import socket
from urllib.parse import urlsplit, urlunsplit

HOST = "127.0.0.1"

# Below the ports that the kernel gives to outgoing connections. From that range, whoever connects again and
# again to a server that is down may one day be given the server's own port, and then talks to itself.
_RANGE = range(20_000, 32_000)
_dice = random.SystemRandom()  # `random` is seeded alike in all workers of a test run


def free_port() -> int:
    """Tell a port that is free now. It may be taken a moment later, so who binds it tries again."""
    for _ in range(200):
        port = _dice.choice(_RANGE)
        if is_free(port):
            return port
    raise RuntimeError(f"no free port found between {_RANGE.start} and {_RANGE.stop}")


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            return False
    return True


def with_port(url: str, port: int) -> str:
    """Point *url* at *port* of this machine, and leave the user, the database and the options as they are."""
    parts = urlsplit(url)
    user, at, _ = parts.netloc.rpartition("@")
    return urlunsplit(parts._replace(netloc=f"{user}{at}{HOST}:{port}"))
