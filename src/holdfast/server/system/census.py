"""How many instances there are and how much work, for whoever looks at the figures.

The store is asked only when somebody looks, and not again within some seconds, however many do. If it does
not answer in time there are no such figures this time, and all others are told as ever.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter

from holdfast.core.cluster import INSTANCE_STATES, CountWork, ListInstances
from holdfast.core.plans import Clock
from holdfast.errors import StoreError
from holdfast.server.backend import Backend
from holdfast.server.system.instruments import OTHER
from holdfast.server.system.metrics import Metrics

FRESH = 5.0  # seconds
WITHIN = 2.0  # seconds for the store to answer
PAGE = 1000  # instances
MOST_TYPES = 50  # that are told apart; the rest is told together
LONGEST_TYPE = 60  # characters


class Census:
    """See the module. To be used from one event loop."""

    def __init__(self, backend: Backend, metrics: Metrics, *, clock: Clock = time.monotonic) -> None:
        self._backend = backend
        self._metrics = metrics
        self._clock = clock
        self._asked = -1e9
        self._asking = asyncio.Lock()

    async def take(self) -> None:
        """Have the figures be those of now, or of a moment ago. Never raises."""
        async with self._asking:
            if self._clock() - self._asked < FRESH:
                return
            self._asked = self._clock()
            instances: dict[tuple[str, ...], float] = {}
            work: dict[tuple[str, ...], float] = {}
            waiting: dict[tuple[str, ...], float] = {}
            try:
                async with asyncio.timeout(WITHIN):
                    instances = await self._instances()
                    work, waiting = await self._work()
            except (StoreError, TimeoutError):
                pass  # what was true a while ago is not told as if it were now
            self._metrics.instances.tell(instances)
            self._metrics.work.tell(work)
            self._metrics.work_waiting.tell(waiting)

    async def _instances(self) -> dict[tuple[str, ...], float]:
        states: Counter[str] = Counter(dict.fromkeys(INSTANCE_STATES, 0))
        after: str | None = ""
        while after is not None:
            page = await self._backend.ask(ListInstances(after, PAGE))
            states.update(each.state for each in page.instances)
            after = page.after
        return {(state,): count for state, count in states.items()}

    async def _work(self) -> tuple[dict[tuple[str, ...], float], dict[tuple[str, ...], float]]:
        counts = await self._backend.ask(CountWork())
        # Types are somebody's choice: those with the most work are told apart.
        by_size = sorted(counts, key=lambda each: -(each.offered + each.assigned + each.failed))
        work: Counter[tuple[str, ...]] = Counter()
        waiting: dict[tuple[str, ...], float] = {}
        for place, each in enumerate(by_size):
            type = each.type if place < MOST_TYPES and len(each.type) <= LONGEST_TYPE else OTHER
            for state in ("offered", "assigned", "failed"):
                work[type, state] += getattr(each, state)
            waiting[type,] = max(waiting.get((type,), 0.0), each.waiting)
        return dict(work), waiting
