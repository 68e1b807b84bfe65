"""Opening a store that may come up later than we do: what is worth waiting for, and for how long.

Worth it is what passes by itself: a server that is not there yet, or starts up. And what somebody may be
about to make: the database, the tables, a grant. A wrong password is not: to try it again and again would
lock the account.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TypeVar

from holdfast import errors
from holdfast.clock import boot_time
from holdfast.core.backoff import Backoff
from holdfast.log import log
from holdfast.stores.base import is_not_made_yet

T = TypeVar("T")

PASSING = (errors.StoreUnavailable, errors.OutcomeUnknown)
BACKOFF = Backoff(first=0.1, most=2.0)


class Opening:
    """Decides after each failure whether to try again. It does not wait itself."""

    def __init__(
        self,
        patience: float,
        *,
        clock: Callable[[], float] = boot_time,
        roll: Callable[[], float] = random.random,
    ) -> None:
        self._clock = clock
        self._roll = roll
        self._until = clock() + patience
        self._failures = 0
        self._said = ""

    def pause(self, error: errors.StoreError) -> float:
        """Return how long to wait before the next try. Raise *error* if there is to be none."""
        left = self._until - self._clock()
        if left <= 0 or not (isinstance(error, PASSING) or is_not_made_yet(error)):
            raise error
        self._failures += 1
        if str(error) != self._said:
            self._said = str(error)
            log().warning("the store is not ready, trying for another %.0f s: %s", left, error)
        return min(BACKOFF.delay(self._failures, self._roll()), left)


def when_ready(open: Callable[[], T], patience: float) -> T:
    """Call *open* until it works, for about *patience* seconds; then raise what it raises."""
    opening = Opening(patience)
    while True:
        try:
            return open()
        except errors.StoreError as error:
            pause = opening.pause(error)
        time.sleep(pause)
