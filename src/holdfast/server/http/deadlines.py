"""Deadlines of many connections: none of them has a timer, and one without a deadline costs nothing.

Time is cut into ticks, and each tick that something may end in has a set of connections. A deadline that
moves away stays filed where it is and is looked at when that tick comes: busy connections move theirs a lot.
"""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import Protocol

from holdfast.log import log

NEVER = float("inf")
TICK = 0.25


class Expiring(Protocol):
    """What has a deadline. Both fields belong to `Deadlines`."""

    deadline: float
    tick: int  # that it is filed under; 0: none

    def on_deadline(self) -> None: ...


class Deadlines:
    """Calls `on_deadline` of whatever is late."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._ticks: dict[int, set[Expiring]] = {}
        self._done = 0  # the last tick that was looked at
        self._timer: asyncio.TimerHandle | None = None

    def set(self, what: Expiring, after: float) -> None:
        """Let *what* be late in *after* seconds, give or take a tick; `NEVER` is allowed."""
        if after == NEVER:
            what.deadline = NEVER
            return
        what.deadline = deadline = monotonic() + after
        if what.tick == 0 or deadline < what.tick * TICK - TICK:
            self.forget(what)
            self._file(what)

    def forget(self, what: Expiring) -> None:
        """Leave *what* alone from now on."""
        if what.tick:
            self._ticks[what.tick].discard(what)
            what.tick = 0

    def close(self) -> None:
        """Stop looking."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _file(self, what: Expiring) -> None:
        if self._timer is None:
            self._done = int(monotonic() / TICK)
            self._timer = self._loop.call_later(TICK, self._look)
        tick = max(int(what.deadline / TICK) + 1, self._done + 1)
        what.tick = tick
        self._ticks.setdefault(tick, set()).add(what)

    def _look(self) -> None:
        now = monotonic()
        current = int(now / TICK)
        late: list[Expiring] = []
        for tick in range(self._done + 1, current + 1):
            late.extend(self._ticks.pop(tick, ()))
        self._done = current
        for what in late:
            what.tick = 0
        for what in late:
            if what.deadline <= now:
                what.deadline = NEVER
                try:
                    what.on_deadline()
                except Exception:  # noqa: BLE001 - the others have deadlines too
                    log().exception("%r did not meet its deadline well", what)
            elif what.deadline != NEVER and not what.tick:
                self._file(what)
        self._timer = self._loop.call_later(TICK, self._look) if self._ticks else None
