"""When an instance asks for work, and for how much: not while it has no room, and not while there is nothing.

Pure bookkeeping. Several may wait for work of one instance; they share one `Demand`, and one of them asks
for all. What it is told by others (`signalled`, `made_room`) may come from any thread meanwhile.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from holdfast.core.cluster import MOST_CLAIMED, Claim, Claimed
from holdfast.core.membership import Membership
from holdfast.core.plans import Roll
from holdfast.core.settings import Settings

# Signals are hints: who hears nothing for this long asks all the same.
LOOK_AGAIN = 5.0

# Of the time until more can be had, so that a fleet does not ask at one instant.
JITTER = 0.1


class Demand:
    """What an instance knows about the work that there is for it."""

    def __init__(
        self, member: Membership, *, capacity: int, spread: float, settings: Settings, roll: Roll
    ) -> None:
        self.member = member
        self.capacity = capacity
        self.spread = spread
        self.settings = settings
        self.roll = roll
        self.look_again = LOOK_AGAIN
        self.unsure: Claim | None = None  # asked, and nobody knows what came of it
        self._number = 0
        self._asked: frozenset[str] = frozenset()  # the types that the store knows that we want
        self._ask_at = -math.inf
        self._empty = 0  # answers in a row that said "now", and gave nothing
        self._news = self._old_news = object()  # another one with each signal

    def due_at(self, types: Iterable[str], room: int) -> float:
        """Return when to ask for work of these types; infinity while there is no room for any."""
        if room <= 0:
            return math.inf
        if self.unsure is not None or not self._asked.issuperset(types):
            return -math.inf
        return self._ask_at

    def next(self, types: tuple[str, ...], room: int, *, attempt: str, ttl: float) -> Claim:
        """Return what to ask: for up to *room*, or once more what was not answered."""
        self._old_news = self._news
        if self.unsure is not None:
            return self.unsure
        self._number += 1
        limit = min(room, self.capacity, MOST_CLAIMED)
        spread = 0.0 if self.member.living == 1 else self.spread  # alone, we leave nothing to anybody
        return Claim(self.member.id, self._number, attempt, types, limit, ttl, self.member.client, spread)

    def answered(self, request: Claim, answer: Claimed, *, now: float) -> None:
        """Take in what was claimed, and when it is worth asking again."""
        self.unsure = None
        if len(answer.works) >= request.limit:
            self._asked, self._ask_at, self._empty = frozenset(), now, 0
            return
        self._asked = frozenset(request.types)
        self._ask_at = now + (self._after_some(answer) if answer.works else self._after_nothing(answer))
        if self._news is not self._old_news:  # a signal has overtaken the answer, which may not know of it
            self._ask_at = -math.inf

    def _after_some(self, answer: Claimed) -> float:
        """Return how long to wait once we got something, and have room for more.

        Who got something is not called for more: it may be busy with that, and then nobody would hear. If
        somebody here still waits, it asks once more, and is called from then on.
        """
        self._empty = 0
        return min(answer.again_in or 0.0, self.spread)

    def _after_nothing(self, answer: Claimed) -> float:
        again_in = self.look_again * (1.0 + JITTER * self.roll())
        if answer.again_in is not None:
            again_in = min(again_in, answer.again_in * (1.0 + JITTER * self.roll()))
        if again_in < self.settings.backoff.most:
            # Somebody else may be at it just now, for how long nobody knows: do not ask all the time.
            self._empty += 1
            again_in = max(again_in, self.settings.backoff.delay(self._empty, self.roll()))
        return again_in

    def signalled(self, type: str) -> None:
        """Ask at once, or as soon as there is room: there is work of this type."""
        self._news = object()
        if type in self._asked:
            self._ask_at, self._empty = -math.inf, 0

    def made_room(self, now: float) -> None:
        """Take in that an assignment has ended: with less to do, we need not leave fresh work to others."""
        if self._ask_at - now <= self.spread:
            self._ask_at = -math.inf
