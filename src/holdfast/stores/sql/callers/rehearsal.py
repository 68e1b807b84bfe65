"""What a request in a caller's transaction would be answered, by a look that locks nothing.

A lock and its holds are read one after the other. Meanwhile the last hold may move from the table into the
lock's row: then the look would see it nowhere, and take a live lease for one that is over. So what was read
counts only if it is of one moment.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from holdfast.core.data import data
from holdfast.core.events import HistoryLevel
from holdfast.core.requests import Acquire, Fence, Granted, NotHeld, Release, Released
from holdfast.errors import StoreCorrupt, StoreUnavailable
from holdfast.stores.base import instant
from holdfast.stores.sql.rules import decisions
from holdfast.stores.sql.rules.columns import KeyRead, Row
from holdfast.stores.sql.rules.lock import LockRow
from holdfast.stores.sql.rules.runner import Fetch, Peek

T = TypeVar("T")

Rule = Callable[[LockRow], Any]

LOOKS = 50  # each takes less time than a change of the key does


@data
class Foreseen:
    """What a request would be answered, by a look without a lock; *answer* is None if it would be done.

    *sure*: their transaction cannot have changed anything about the key itself, unseen by that look.
    """

    answer: Any
    sure: bool


class Rehearsal(Peek):
    """Runs the statements that read, and none of those that write."""

    def __init__(self, fetch: Fetch) -> None:
        super().__init__(fetch)
        self._first: tuple[tuple[str, str, int | None], KeyRead] | None = None
        self._read_more = False
        self._has_all = True

    def __call__(self, name: str, /, **parameters: Any) -> list[Row]:
        """Run a statement that reads."""
        self._read_more = True
        rows = self._fetch(name, **parameters)
        if name == "read_holds" and self._first is not None:
            self._has_all = len(rows) == self._first[1].lock.holds
        return rows

    def later(self, name: str, /, **parameters: Any) -> None:
        """Change nothing."""

    def lock(self, key: str, attempt: str, now: int | None) -> KeyRead:
        """Read a key."""
        row = super().lock(key, attempt, now)
        if self._first is None:
            self._first = (key, attempt, now), row
        else:
            self._read_more = True
        return pinned(row)

    def is_of_one_moment(self) -> bool:
        """Tell whether nobody has changed the key between one statement and the next."""
        if self._first is None or not self._read_more:
            return True
        asked, row = self._first
        return self._has_all and super().lock(*asked).is_as(row)


def pinned(row: KeyRead, *, fenced: bool = False) -> KeyRead:
    """Return a key as pinned if it is fenced, or if anybody waits: nothing is handed over."""
    return row._replace(pinned=fenced or bool(row.lock.waiters))


def rehearse(fetch: Fetch, request: Acquire | Release, rule: Rule, level: HistoryLevel) -> tuple[Any, bool]:
    """Return what a request is refused with by a plain look, or None; and whether the key has a row."""

    def look(lock: LockRow) -> tuple[Any, bool]:
        answer = rule(lock)
        return None if isinstance(answer, Granted | Released) else answer, lock.is_row

    return _at_one_moment(fetch, request, level, look)


def explain(fetch: Fetch, request: Fence, level: HistoryLevel) -> NotHeld | None:
    """Say why a lease is not alive, by a plain look; None if it is."""
    return _at_one_moment(fetch, request, level, lambda lock: decisions.explain(lock, request.token))


def _at_one_moment(
    fetch: Fetch, request: Acquire | Release | Fence, level: HistoryLevel, look: Callable[[LockRow], T]
) -> T:
    for _ in range(LOOKS):
        run = Rehearsal(fetch)
        lock = LockRow(run, request.key, instant(request.now), level, [], request.attempt)
        try:
            found = look(lock)
        except StoreCorrupt:  # or only of two moments
            if run.is_of_one_moment():
                raise
        else:
            if run.is_of_one_moment():
                return found
    raise StoreUnavailable(f"{request.key!r} changes faster than it can be read: try again")
