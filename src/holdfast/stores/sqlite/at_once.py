"""Answers without waiting, for an event loop's thread: one statement on a free lock, if it is our turn.

By a connection of its own, so that no mutex is waited for that somebody keeps who waits. It makes no
checkpoints: they wait for the disk. Every so often it leaves a request to the other connection, whose commit
makes one if the log is long. Decision 0048 has the reasons, and what is left that takes time.
"""

from __future__ import annotations

import threading

from holdfast.core import requests as r
from holdfast.stores.base import instant
from holdfast.stores.sql.dialect import asked
from holdfast.stores.sqlite.database import CHECKPOINT, SQL, Database

_ACQUIRE, _RELEASE = SQL.acquire, SQL.release

# Answers until one is left to others: a statement writes some pages.
MOST_ANSWERS = CHECKPOINT // 4


class AtOnce:
    """See the module. Its mutex is for more than one event loop, for forks, and for closing."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.mutex = threading.Lock()
        self.is_due = False  # somebody who may wait has to see to the log, and to us
        self._left = 0

    def open(self) -> None:
        """Connect, unless we are; and answer for a while. May wait."""
        with self.mutex:
            self.is_due = False
            if not self.database.is_open:
                self.database.open()
            self._left = MOST_ANSWERS

    def acquire(self, request: r.Acquire) -> r.Granted | None:
        """Take a free lock, or claim what was handed to us."""
        rows = self._fetch(_ACQUIRE, asked(request))
        return r.Granted(rows[0][0], rows[0][1] / 1e6) if rows else None

    def release(self, request: r.Release) -> r.Released | None:
        """Release a lock that nobody waits for."""
        key, attempt, now = request.key, request.attempt, instant(request.now)
        named = {"key": key, "attempt": attempt, "token": request.token, "now": now}
        return r.Released() if self._fetch(_RELEASE, named) else None

    def _fetch(self, statement: str, parameters: dict[str, object]) -> list[tuple[int, ...]] | None:
        if self.mutex.locked():
            return None
        if self._left <= 0 or not self.database.is_open:
            self._left, self.is_due = 0, True
            return None
        with self.mutex:  # not by trying to have it: an interrupt could come before we knew that we had
            self._left -= 1
            return self.database.try_fetch(statement, parameters)
