"""The invariants of the simulation, with books that can be copied: one set of them for every state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from holdfast.core.keeper import Kept
from proof.simulation.beliefs import Beliefs, Believer
from proof.simulation.invariants import Checker
from proof.simulation.step import Books

AllBooks = dict[str, Books]  # by key
Ends = dict[str, int]  # attempt → the last end of its hold, in microseconds of the store's clock


class StoreClock:
    """Tells the time of the store by a client's clock. All run alike, and the store's may be set."""

    __slots__ = ("ahead",)

    def __init__(self, ahead: int) -> None:
        self.ahead = ahead

    def true_time(self, local: float) -> float:
        """Return what the store's clock shows when the client's shows *local*."""
        return local + self.ahead


class Trust(Beliefs):
    """Who trusts which lease in one state. The *excused* hold one that was cut short, and may not know."""

    def __init__(
        self, kept: Iterable[tuple[str, Kept]], clock: Believer, ends: Ends, excused: frozenset[str]
    ) -> None:
        super().__init__()
        self._ends = ends
        self._broken.update(excused)
        for context, each in kept:
            self._believers.setdefault(each.grant.key, {})[each.grant.attempt] = clock, each, context

    @property
    def ends(self) -> Ends:
        """The last end of each attempt's hold."""
        return self._ends


class Judge(Checker):
    """All invariants, for one move. Without *trust* what clients believe is left to another one."""

    def __init__(self, counts: Counter[str], books: AllBooks, trust: Beliefs | None = None) -> None:
        super().__init__(counts)
        self._books = books
        if trust is not None:
            self._beliefs = trust


def copied(books: Books) -> Books:
    """Return a copy of the books of one key. Operations, and thus outcomes, are not explored."""
    return Books(books.highest, books.arrivals.copy(), books.arrived, books.over.copy())
