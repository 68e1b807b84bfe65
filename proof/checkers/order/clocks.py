"""The store's clock, seen from that of the processes: between which two instants a moment was.

No look at a clock is exact, so nothing here is one number. A call that was answered with a grant began before
the store granted it and ended after: so the difference between the clocks lies between two bounds, and many
short calls together leave little between those. Where a fault steps the store's clock, what was written may
show as much more or less than that as the fault says.

The store's clock is the host's wall clock, but for those steps: if the difference moves otherwise, somebody
has set the host's clock during the run, and what is compared by it shows nothing; see `moved`.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections.abc import Iterable
from statistics import median
from typing import NamedTuple

from proof.histories.records import Clock, Injected

STEPPED = "belief"  # what a fault excuses that steps the store's clock
SETTLE = 1.0  # seconds before and after it, in which the clock may be the one or the other
LARGEST = 5.0  # seconds: a step that does not say how large it is
LATE = 10.0  # seconds that a statement may be under way at most
SHORT = 0.25  # seconds: a longer call tells too little
TICK = 0.001  # seconds: SQLite's clock shows no less
LOOK = 0.05  # seconds by which a look at the store's clock may be wrong, if nobody noted how long it took
DRIFT = 0.002  # seconds by which clocks may drift apart between two looks
FAR = 30  # seconds: how far away another look may be
SLEWED = 0.01  # seconds by which the host's clock may be corrected during a run; leases are for 0.6 s or more

Bounds = tuple[float, float]
UNKNOWN: Bounds = (-math.inf, math.inf)


class Step(NamedTuple):
    """A time in which the store's clock may have been set to something else, and by how much at most."""

    began: float
    ended: float
    size: float


class Clocks:
    """Turns seconds of boot time into microseconds of the store's clock."""

    def __init__(
        self,
        looks: Iterable[Clock],
        grants: Iterable[tuple[float, float, int]],
        faults: Iterable[Injected],
    ) -> None:
        self.stepped = sorted(
            Step(fault.began - SETTLE, fault.ended + SETTLE, size_of(fault))
            for fault in faults
            if STEPPED in fault.excuses
        )
        bounds: dict[int, Bounds] = {}  # second of boot time → of the difference, in seconds
        for called, returned, at in grants:
            if returned - called < SHORT and not self.steps(called, returned):
                low, high = bounds.get(int(called), UNKNOWN)
                bounds[int(called)] = max(low, at / 1e6 - returned), min(high, at / 1e6 + TICK - called)
        self._look(bounds, [look for look in looks if not self.steps(look.boot, look.boot)])
        # Bounds that contradict each other are of an answer that is wrong, and tell nothing of the clocks.
        self._bounds = {second: each for second, each in bounds.items() if each[0] <= each[1]}
        self.contradictions = len(bounds) - len(self._bounds)
        # How far the difference has certainly moved: from the least that it was once to the most that it was.
        lows, highs = zip(*self._bounds.values(), strict=True) if self._bounds else ((0.0,), (0.0,))
        self.moved = max(0.0, max(lows) - min(highs))
        self._known: dict[int, Bounds] = {}
        self._seconds = sorted(self._bounds)
        self._usual = median(sum(each) / 2 for each in self._bounds.values()) if self._bounds else 0.0

    @staticmethod
    def _look(bounds: dict[int, Bounds], looks: list[Clock]) -> None:
        """Use looks where there was no call, but for those that took too long to be of use."""
        differences = [look.store / 1e6 - look.boot for look in looks]
        usual = median(differences) if differences else 0.0
        for look, difference in zip(looks, differences, strict=True):
            # The answer was given at some instant of the look, and the middle of it is what is noted.
            wrong = getattr(look, "took", 2 * LOOK) / 2 + TICK
            if int(look.boot) not in bounds and abs(difference - usual) < 1.0:
                bounds[int(look.boot)] = (difference - wrong, difference + wrong)

    def steps(self, since: float, until: float) -> float:
        """Return by how much the store's clock may have been stepped between two instants; 0: it was not."""
        return max(
            (each.size for each in self.stepped if each.began <= until and since <= each.ended), default=0.0
        )

    def _difference(self, boot: float) -> Bounds:
        known = self._known.get(second := int(boot))
        if known is None:
            known = self._known[second] = self._find(second)
        return known

    def _find(self, second: int) -> Bounds:
        """Return the bounds at a second: by what is known of it, and of the next ones before and after."""
        place = bisect_left(self._seconds, second)
        near = [each for each in self._seconds[max(0, place - 1) : place + 2] if abs(each - second) <= FAR]
        if not near:
            return UNKNOWN
        low = max(self._bounds[each][0] for each in near) - DRIFT
        high = min(self._bounds[each][1] for each in near) + DRIFT
        return (low, high) if low <= high else (high - DRIFT, low + DRIFT)  # they have drifted

    def at(self, boot: float) -> Bounds:
        """Return the least and the most that it showed, in microseconds, if it was not stepped just then."""
        low, high = self._difference(boot)
        return (boot + low) * 1e6, (boot + high) * 1e6

    def earliest(self, boot: float) -> float:
        """Return the least that it can have shown at *boot* or within `LATE` after it."""
        if not math.isfinite(boot):
            return boot
        stepped = self.steps(boot, boot + LATE)
        return (boot + self._difference(boot)[0] - stepped) * 1e6

    def latest(self, boot: float) -> float:
        """Return the most that it can have shown at *boot* or within `LATE` before it."""
        if not math.isfinite(boot):
            return boot
        stepped = self.steps(boot - LATE, boot)
        return (boot + self._difference(boot)[1] + stepped) * 1e6

    def may_follow(self, at: int, boot: float) -> bool:
        """Tell whether what was written *at* may have been written after *boot*."""
        if not math.isfinite(boot):
            return boot < 0
        stepped = self.stepped_by(at)
        return at >= (boot + self._difference(boot)[0] - stepped) * 1e6

    def stepped_by(self, at: float) -> float:
        """Return by how many seconds the store's clock may have been stepped when it showed *at*."""
        boot = at / 1e6 - self._usual
        return max(
            (s.size for s in self.stepped if s.began - s.size <= boot <= s.ended + s.size), default=0.0
        )

    def roughly(self, boot: float) -> float:
        """Return about what it showed, whatever was done to it."""
        return (boot + self._usual) * 1e6


def size_of(fault: Injected) -> float:
    """Return by how many seconds a fault steps the clock, as it says."""
    number = re.search(r"[-+]?\d+(\.\d+)?", fault.detail)
    return abs(float(number.group())) if number else LARGEST
