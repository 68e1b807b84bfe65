"""What every part of the memory store has: a world, a clock, and the history that is kept of a key."""

from __future__ import annotations

import time

from holdfast.clock import boot_time
from holdfast.core.events import Event, EventKind, HistoryLevel, is_kept
from holdfast.stores.base import micros
from holdfast.stores.memory.state import Lock, Shard, World

# Epoch time that neither steps nor stands still in suspend: tokens and leases need no more than that.
_EPOCH = micros(time.time() - boot_time())


def store_time(given: float | None) -> int:
    """Return the instant a request is about, in microseconds: now, unless it says another."""
    return micros(boot_time()) + _EPOCH if given is None else micros(given)


class Recording:
    """Writes down what happens."""

    _world: World
    _level: HistoryLevel

    def _record(
        self,
        shard: Shard,
        lock: Lock,
        kind: EventKind,
        now: int,
        *,
        owner: str | None,
        token: int | None = None,  # None: the highest there is
        by: str | None = None,
        reason: str | None = None,
        operation: bool = False,
    ) -> None:
        if is_kept(kind, self._level, operation=operation):
            if token is None:
                token = lock.token
            events = shard.history.setdefault(lock.key, [])
            lock.events += 1
            events.append(Event(lock.key, lock.events, kind, now / 1e6, token, owner, by, reason))
            shard.unplaced.add(lock.key)
