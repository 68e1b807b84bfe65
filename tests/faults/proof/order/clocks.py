"""The store's clock, seen from that of the processes: between which two instants a moment was.

No look at a clock is exact, so nothing here is one number. A call that was answered with a grant began before
the store granted it and ended after: so the difference between the clocks lies between two bounds, and many
short calls together leave little between those. Where a fault steps the store's clock, what was written may
show `LARGEST` more or less than that.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable
from statistics import median

from tests.faults.proof.records import Clock, Injected

STEPPED = "belief"  # what a fault excuses that steps the store's clock
SETTLE = 1.0  # seconds before and after it, in which the clock may be the one or the other
LARGEST = 5.0  # seconds: no step is larger
LATE = 10.0  # seconds that a statement may be under way at most
SHORT = 0.25  # seconds: a longer call tells too little
TICK = 0.001  # seconds: SQLite's clock shows no less
LOOK = 0.05  # seconds by which a look at the store's clock may be wrong, if it agrees with the others
DRIFT = 0.002  # seconds by which clocks may drift apart between two looks
FAR = 30  # seconds: how far away another look may be

Bounds = tuple[float, float]
UNKNOWN: Bounds = (-math.inf, math.inf)


class Clocks:
    """Turns seconds of boot time into microseconds of the store's clock."""

    def __init__(
        self,
        looks: Iterable[Clock],
        grants: Iterable[tuple[float, float, int]],
        faults: Iterable[Injected],
    ) -> None:
        self.stepped = sorted(
            (fault.began - SETTLE, fault.ended + SETTLE) for fault in faults if STEPPED in fault.excuses
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
        self._known: dict[int, Bounds] = {}
        self._seconds = sorted(self._bounds)
        self._usual = median(sum(each) / 2 for each in self._bounds.values()) if self._bounds else 0.0

    @staticmethod
    def _look(bounds: dict[int, Bounds], looks: list[Clock]) -> None:
        """Use looks where there was no call, but for those that took too long to be of use."""
        differences = [look.store / 1e6 - look.boot for look in looks]
        usual = median(differences) if differences else 0.0
        for look, difference in zip(looks, differences, strict=True):
            if int(look.boot) not in bounds and abs(difference - usual) < 1.0:
                bounds[int(look.boot)] = (difference - LOOK, difference + LOOK)

    def steps(self, since: float, until: float) -> bool:
        """Tell whether the store's clock may have been stepped, or be so, between two instants."""
        return any(began <= until and since <= ended for began, ended in self.stepped)

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
        stepped = LARGEST if self.stepped and self.steps(boot, boot + LATE) else 0.0
        return (boot + self._difference(boot)[0] - stepped) * 1e6

    def latest(self, boot: float) -> float:
        """Return the most that it can have shown at *boot* or within `LATE` before it."""
        if not math.isfinite(boot):
            return boot
        stepped = LARGEST if self.stepped and self.steps(boot - LATE, boot) else 0.0
        return (boot + self._difference(boot)[1] + stepped) * 1e6

    def may_follow(self, at: int, boot: float) -> bool:
        """Tell whether what was written *at* may have been written after *boot*."""
        if not math.isfinite(boot):
            return boot < 0
        stepped = LARGEST if self.may_step(at) else 0.0
        return at >= (boot + self._difference(boot)[0] - stepped) * 1e6

    def may_step(self, at: int) -> bool:
        """Tell whether the store's clock may have been stepped when it showed *at*."""
        boot = at / 1e6 - self._usual
        return bool(self.stepped) and self.steps(boot - LARGEST, boot + LARGEST)

    def roughly(self, boot: float) -> float:
        """Return about what it showed, whatever was done to it."""
        return (boot + self._usual) * 1e6
