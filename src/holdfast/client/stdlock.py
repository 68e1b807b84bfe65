"""Locks with the methods of the standard library's: the part that is the same for threads and tasks."""

from __future__ import annotations

from typing import Generic

from holdfast import errors, identity
from holdfast.client.engine import Engine
from holdfast.client.leases import L
from holdfast.core.settings import Seconds


class BaseLock(Generic[L]):
    """A lock that any thread or task may release, whichever has acquired it."""

    def __init__(self, engine: Engine, key: str, *, ttl: Seconds | None, limit: int | None) -> None:
        self._engine = engine
        self._ttl = ttl
        self._limit = limit
        self._leases: list[tuple[str, L]] = []  # each with the thread or task that took it
        self.key = key

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.key!r}>"

    def _last(self, leases: list[tuple[str, L]]) -> L:
        """Return what the current thread or task took last, otherwise what any other did.

        First its own: a thread that has lost its lease must not release that of the next.
        """
        me = identity.name()
        for taker, lease in reversed(leases):
            if taker == me:
                return lease
        for _, lease in reversed(leases):
            if lease.held:
                return lease
        raise errors.NotHeld(self.key, "nobody has acquired it with this object, or it was released already")
