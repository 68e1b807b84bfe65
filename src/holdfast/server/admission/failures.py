"""How often an address may show access tokens that are not valid, before it is told to go away.

Nobody can guess 32 random bytes. This is for programs with an old token that ask again and again: each time
costs somebody a look into the store, and a line in the log. Valid tokens are never refused, whatever else
comes from the same address: it may be that of a proxy.
"""

from __future__ import annotations

from collections import OrderedDict

from holdfast.core.plans import Clock
from holdfast.errors import TooManyRequests
from holdfast.server.http.strangers import neighbourhood

AT_ONCE = 20.0  # failures
REFILL = 0.5  # and so many more each second
MOST = 10_000  # addresses; the one that was quiet for longest is forgotten first


class Failures:
    """See the module."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()  # how many more, at what time

    def __len__(self) -> int:
        return len(self._left)

    def count(self, remote: str) -> None:
        """Take note of a failure; raise `TooManyRequests` when there were too many."""
        now = self._clock()
        address = neighbourhood(remote)
        left, then = self._left.pop(address, (AT_ONCE, now))
        left = min(AT_ONCE, left + (now - then) * REFILL)
        if left < 1:
            self._left[address] = left, now
            raise TooManyRequests(
                (1 - left) / REFILL, "too many requests from here had access tokens that are not valid"
            )
        self._left[address] = left - 1, now
        if len(self._left) > MOST:
            self._left.popitem(last=False)
