"""Virtual time, dice and a trace: what a run is made of, and what makes it repeatable."""

from __future__ import annotations

import hashlib
import heapq
import random
from collections import Counter, deque
from collections.abc import Callable
from typing import Any

from proof.simulation.step import Violation

TRACE_SHOWN = 40
BUSY = 10_000  # so many calls in less than a second are a busy loop


class World:
    """Calls things at their time. The same seed makes the same calls in the same order."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.now = 0.0  # true time; the store's clock shows it
        self.dice = random.Random(seed)
        self.counts: Counter[str] = Counter()
        self.calm = False  # from now on no faults and no new work
        self._events: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._scheduled = 0
        self._recent: deque[str] = deque(maxlen=TRACE_SHOWN)
        self._hash = hashlib.blake2b(digest_size=8)

    def at(self, when: float, call: Callable[..., None], *args: Any) -> None:
        """Call at a time, after everything that was scheduled for that time before."""
        self._scheduled += 1
        heapq.heappush(self._events, (max(when, self.now), self._scheduled, call, args))

    def later(self, delay: float, call: Callable[..., None], *args: Any) -> None:
        """Call after a while."""
        self.at(self.now + delay, call, *args)

    def run(self, until: float) -> None:
        """Let time pass."""
        events = self._events
        calls, looked_at = 0, self.now
        while events and events[0][0] <= until:
            self.now, _, call, args = heapq.heappop(events)
            call(*args)
            calls += 1
            if calls % BUSY == 0:
                if self.now - looked_at < 1.0:
                    raise Violation("P8 liveness", f"{BUSY} things happened since {looked_at:.4f}")
                looked_at = self.now
        self.now = until

    def log(self, text: str) -> None:
        """Add a line to the trace."""
        line = f"{self.now:9.4f} {text}"
        self._recent.append(line)
        self._hash.update(line.encode())

    def trace(self) -> list[str]:
        """Return the last lines of the trace."""
        return list(self._recent)

    def trace_hash(self) -> str:
        """Return a hash of the whole trace: equal for equal runs."""
        return self._hash.hexdigest()
