"""Other libraries' locks. Each is opened for one process, and then taken and released by key."""

from __future__ import annotations

import importlib.util
import socket
import subprocess
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tests.servers.binaries import find
from tests.servers.ports import HOST, free_port

Release = Callable[[], object]
Take = Callable[[str], Release]  # take the lock of a key; return what releases it
Open = Callable[[str], Take]


def dlock(url: str) -> Take:
    """Open sqlalchemy-dlock: advisory locks of PostgreSQL, GET_LOCK of MariaDB, on a connection kept open."""
    from sqlalchemy import create_engine
    from sqlalchemy_dlock import create_sadlock

    scheme, rest = url.split("://")
    driver = {"postgresql": "postgresql+psycopg", "mysql": "mysql+pymysql"}[scheme]
    # No reset: that would complain of a server that is gone when we are.
    connection = create_engine(f"{driver}://{rest}", pool_reset_on_return=None).connect()
    # Without a timeout it asks for -1 seconds, which MySQL takes for ever and MariaDB for an error. On
    # PostgreSQL a timeout would make it poll.
    timeout = None if scheme == "postgresql" else 60.0

    def take(key: str) -> Release:
        lock = create_sadlock(connection, key)
        if not lock.acquire(timeout=timeout):
            raise TimeoutError(key)
        return lock.release

    return take


def tooz(url: str) -> Take:
    """Open tooz, which connects anew for each lock."""
    from tooz.coordination import get_coordinator

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its PostgreSQL driver is deprecated
        coordinator = get_coordinator(url, b"bench")
        coordinator.start()

    def take(key: str) -> Release:
        lock = coordinator.get_lock(key.encode())
        lock.acquire()
        return lock.release

    return take


def redis_py(url: str) -> Take:
    """Open redis-py's Lock with its defaults: a poll every 100 ms."""
    import redis

    client = redis.Redis.from_url(url)

    def take(key: str) -> Release:
        lock = client.lock(key, timeout=30)
        lock.acquire()
        return lock.release

    return take


def python_redis_lock(url: str) -> Take:
    """Open python-redis-lock, whose waiters block in BLPOP."""
    import redis
    import redis_lock

    client = redis.StrictRedis.from_url(url)

    def take(key: str) -> Release:
        lock = redis_lock.Lock(client, key, expire=30)
        lock.acquire()
        return lock.release

    return take


def missing(name: str, scheme: str) -> str | None:
    """Say what a peer lacks on this machine; None if it can be measured."""
    needs = {
        "sqlalchemy-dlock": ("sqlalchemy_dlock",),
        "tooz": ("tooz", "psycopg2" if scheme == "postgresql" else "pymysql"),
        "redis-py": ("redis",),
        "python-redis-lock": ("redis", "redis_lock"),
    }[name]
    if "redis" in name and find("redis-server") is None:
        return "there is no redis-server"
    lacks = [module for module in needs if importlib.util.find_spec(module) is None]
    return f"Python lacks {', '.join(lacks)}" if lacks else None


OPEN: dict[str, Open] = {
    "sqlalchemy-dlock": dlock,
    "tooz": tooz,
    "redis-py": redis_py,
    "python-redis-lock": python_redis_lock,
}


@contextmanager
def at_hand(url: str, *names: str) -> Iterator[tuple[dict[str, Callable[[], Take]], dict[str, str]]]:
    """Give what opens each peer on the server of *url*, or on a Redis, and say why some are not here."""
    scheme = url.partition("://")[0]
    absent = {name: why for name in names if (why := missing(name, scheme))}
    here = [name for name in names if name not in absent]
    with redis() if any("redis" in name for name in here) else _nothing() as redis_url:
        yield (
            {name: (lambda name=name: OPEN[name](redis_url if "redis" in name else url)) for name in here},
            absent,
        )


@contextmanager
def redis() -> Iterator[str]:
    """Start a private Redis as it comes: it keeps nothing on the disk."""
    program, port = find("redis-server"), free_port()
    command: list[Any] = [program, "--port", port, "--bind", HOST, "--save", "", "--appendonly", "no"]
    server = subprocess.Popen([str(part) for part in command], stdout=subprocess.DEVNULL)
    try:
        _until_ready(port)
        yield f"redis://{HOST}:{port}"
    finally:
        server.terminate()
        server.wait()


def _until_ready(port: int) -> None:
    for _ in range(200):
        try:
            socket.create_connection((HOST, port)).close()
            return
        except ConnectionRefusedError:
            time.sleep(0.05)
    raise TimeoutError("redis did not start")


@contextmanager
def _nothing() -> Iterator[str]:
    yield ""
