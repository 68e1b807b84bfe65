"""Lines of a log that anybody can cause without being let in: some of each kind, and how many more."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

AT_ONCE = 10.0  # lines of one kind
REFILL = 1.0  # and so many more each second
SUMMARY = 10.0  # seconds until it is told how many were left out


class Sparing:
    """Decides which lines are written. Kinds are our own words, and few."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._mutex = threading.Lock()
        self._left: dict[str, tuple[float, float]] = {}  # how many more, at what time
        self._left_out: dict[str, tuple[int, float]] = {}  # how many were not, since when

    @property
    def pending(self) -> bool:
        """Whether there is something to be told later."""
        return bool(self._left_out)

    def admit(self, kind: str) -> bool:
        """Tell whether one more line of this *kind* is written; else it is counted."""
        with self._mutex:
            now = self._clock()
            left, then = self._left.get(kind, (AT_ONCE, now))
            left = min(AT_ONCE, left + max(0.0, now - then) * REFILL)
            admitted = left >= 1
            self._left[kind] = left - admitted, now
            if not admitted:
                count, since = self._left_out.get(kind, (0, now))
                self._left_out[kind] = count + 1, since
            return admitted

    def left_out(self, *, all: bool = False) -> list[tuple[str, int]]:
        """Return how many of what were left out, once for each; only after a while, unless *all* is set."""
        with self._mutex:
            now = self._clock()
            due = [
                (kind, count)
                for kind, (count, since) in self._left_out.items()
                if all or not 0 <= now - since < SUMMARY
            ]
            for kind, _ in due:
                del self._left_out[kind]
            return due
