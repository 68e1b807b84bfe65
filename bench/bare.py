"""What there is to compare with: the same statements without us, a dictionary, a ping."""

from __future__ import annotations

import sqlite3
import threading
import time
from itertools import count
from pathlib import Path

from holdfast import Holdfast
from holdfast.stores.sqlite import database
from holdfast.stores.sqlite.database import SQL

TTL = 30.0
OWNER = "bench-0123456789ab"
WHO = {"instance": "0123456789abcdef", "host": "bench", "pid": 1}


_attempts = count(1)


def new_attempt() -> str:
    """Return an id of the same length as a client's."""
    return f"0123456789abcdef0123456789abcdef-{next(_attempts)}"


def create(file: Path, synchronous: str = "normal") -> str:
    """Make the tables as we make them; return the URL of the file."""
    url = f"sqlite:///{file}?synchronous={synchronous}"
    with Holdfast(url):
        pass
    return url


def connect(file: Path, synchronous: str = "normal", timeout: float = 5.0) -> sqlite3.Connection:
    """Connect as a program would that has only sqlite3, with the pragmas that we use."""
    connection = sqlite3.connect(file, timeout=timeout, isolation_level=None, cached_statements=256)
    connection.execute(f"PRAGMA page_size = {database.PAGE_SIZE}")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute(f"PRAGMA synchronous = {synchronous}")
    connection.execute(f"PRAGMA wal_autocheckpoint = {database.CHECKPOINT}")
    return connection


class BareSQLite:
    """The `acquire` and `release` statements of the store, with the same parameters, and nothing else."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._execute = connection.execute

    def acquire(self, key: str) -> tuple[str, int]:
        attempt = new_attempt()
        rows = self._execute(
            SQL.acquire,
            {
                "key": key,
                "attempt": attempt,
                "owner": OWNER,
                "ttl": 30_000_000,
                "instance": "0123456789abcdef",
                "host": "bench",
                "pid": 1,
                "long": True,
                "now": None,
            },
        ).fetchall()
        return attempt, rows[0][0]

    def release(self, key: str, attempt: str, token: int) -> None:
        rows = self._execute(
            SQL.release, {"key": key, "attempt": attempt, "token": token, "now": None}
        ).fetchall()
        assert rows

    def pair(self, key: str) -> None:
        self.release(key, *self.acquire(key))


class BareDict:
    """A lock with lease, token and owner check in 64 dictionaries: what memory can do in Python."""

    def __init__(self) -> None:
        self._shards = [(threading.Lock(), {}) for _ in range(64)]

    def acquire(self, key: str, owner: str, ttl: float) -> int | None:
        mutex, locks = self._shards[hash(key) % 64]
        with mutex:
            now = time.monotonic()
            held = locks.get(key)
            if held is not None and held[0] is not None and held[2] > now:
                return None
            token = 1 if held is None else held[1] + 1
            locks[key] = (owner, token, now + ttl)
            return token

    def release(self, key: str, owner: str, token: int) -> bool:
        mutex, locks = self._shards[hash(key) % 64]
        with mutex:
            held = locks.get(key)
            if held is None or held[0] != owner or held[1] != token or held[2] <= time.monotonic():
                return False
            locks[key] = (None, token, 0.0)
            return True
