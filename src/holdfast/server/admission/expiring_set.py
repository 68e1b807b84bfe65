"""Names that end by themselves, counted."""

from __future__ import annotations

from heapq import heapify, heappop, heappush, heapreplace

SOME = 64  # ended names that are dropped in one step
MANY = 5000  # and when it matters how many there are
SLACK = 64


class ExpiringSet:
    """Some names, each until its time.

    Each is in a heap once, at the time it was first given: when that comes, it is either over or moved to the
    time it has now. So a name can be put off any number of times for nothing. Names that were dropped stay in
    the heap until they are half of it.
    """

    __slots__ = ("_ends", "_heap")

    def __init__(self) -> None:
        self._ends: dict[str, float] = {}
        self._heap: list[tuple[float, str]] = []

    def __len__(self) -> int:
        """Return how many there are, with some that have ended already."""
        return len(self._ends)

    def __contains__(self, name: str) -> bool:
        return name in self._ends

    def put(self, name: str, end: float) -> None:
        """Have *name* until *end*; one that is there already, until the later of the two."""
        known = self._ends.get(name)
        if known is None:
            heappush(self._heap, (end, name))
        self._ends[name] = end if known is None else max(end, known)

    def drop(self, name: str) -> None:
        """Have it no more."""
        if self._ends.pop(name, None) is not None and len(self._heap) > 2 * len(self._ends) + SLACK:
            self._heap = [(end, name) for name, end in self._ends.items()]
            heapify(self._heap)

    def count(self, now: float) -> int:
        """Drop some that have ended, and return how many are left."""
        self._prune(now, SOME)
        return len(self._ends)

    def is_full(self, most: int, now: float) -> bool:
        """Tell whether there are *most* or more that have not ended."""
        self._prune(now, SOME)
        if len(self._ends) >= most:
            self._prune(now, MANY)
        return len(self._ends) >= most

    def _prune(self, now: float, most: int) -> None:
        heap, ends = self._heap, self._ends
        while heap and heap[0][0] <= now and most:
            most -= 1
            name = heap[0][1]
            end = ends.get(name)
            if end is not None and end > now:
                heapreplace(heap, (end, name))
            else:
                heappop(heap)
                ends.pop(name, None)
