"""Who held a key, who waited for it and who pinned it, and when: as far as asks and audit tell.

Everything here errs on one side: it is said of an attempt that it *may* have waited, and *by* when something
must have been over.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator

from proof.histories.records import Ask, Audit, Call

UNDER_WAY = 15.0  # seconds that a request may be under way after nobody waits for its answer any more


class Rows:
    """What the audit says of one key: who was given it, and by when."""

    def __init__(self, rows: list[Audit], asks: list[Ask]) -> None:
        rows = sorted(rows, key=lambda row: row.id)
        self._claimed: dict[tuple[str, int], int] = {}  # or entered: attempt and token → the first row
        self._gone: dict[str, int] = {}  # attempt that has held it → the row by which it does no more
        self._handed: set[str] = set()  # attempts
        entered = {(ask.attempt, ask.token) for ask in asks if ask.kind == "Enter"}
        in_row, in_table = "", set[str]()  # a hold that is alone is in the row of the lock, else in a table
        for place, row in enumerate(rows):
            if row.what in ("lock", "hold") and row.attempt:
                if row.claimed or (row.attempt, row.token) in entered:
                    self._claimed.setdefault((row.attempt, row.token), place)
                else:
                    self._handed.add(row.attempt)
            held = {row.attempt, in_row}
            if row.what == "lock":
                in_row = row.attempt
            elif row.what == "hold":
                in_table.add(row.attempt)
            elif row.what == "unhold":
                in_table.discard(row.attempt)
            else:
                continue
            for attempt in held - {""}:
                self._gone[attempt] = len(rows) if attempt == in_row or attempt in in_table else place
        self._tokens = dict(iter(self._claimed))
        self.is_missing = not any(row.what == "lock" for row in rows)
        # By when each row was there, and one more for what comes after them all.
        self._by = [math.inf] * (len(rows) + 1)
        for ask in asks:
            if ask.answer == "Granted" and (ask.attempt, ask.token) in self._claimed:
                place = self._claimed[ask.attempt, ask.token]
                self._by[place] = min(self._by[place], ask.returned)
        for place in reversed(range(len(rows))):
            self._by[place] = min(self._by[place], self._by[place + 1])

    def token_of(self, attempt: str) -> int:
        """Return the token that an attempt was granted; 0 if none."""
        return self._tokens.get(attempt, 0)

    def granted_by(self, attempt: str) -> float:
        """Return by when an attempt was granted it, and had claimed or entered it; -inf if it never was."""
        place = self._claimed.get((attempt, self.token_of(attempt)))
        return -math.inf if place is None else self._by[place]

    def was_handed(self, attempt: str) -> bool:
        """Tell whether an attempt was handed it, and did not enter by that."""
        return attempt in self._handed

    def gone_by(self, attempt: str) -> float:
        """Return by when an attempt that has held it did no more; -inf if it never has."""
        return self._by[self._gone[attempt]] if attempt in self._gone else -math.inf


class Spans:
    """Stretches of time, of which it can be told how many touch another one."""

    def __init__(self, spans: Iterable[tuple[float, float]] = ()) -> None:
        spans = list(spans)
        self._begins = sorted(began for began, _ in spans)
        self._ends = sorted(ended for _, ended in spans)

    def count(self, began: float, ended: float) -> int:
        """Return how many have an instant in common with this one."""
        return bisect_right(self._begins, ended) - bisect_left(self._ends, began)


class Waits:
    """Who may have been waiting when, or have been handed the lock and not claimed it: by the asks alone."""

    def __init__(self, asks: list[Ask], served_by: Callable[[Ask, float], float]) -> None:
        """*served_by* tells when the ticket that an ask has refreshed is over and done with.

        One that dies while nobody looks may be served at its last moment, and then has its claim window.
        """
        self._spans: dict[str, tuple[float, float]] = {}  # attempt → from when until when
        self._attempts: dict[str, list[str]] = defaultdict(list)  # of an owner
        over: dict[str, float] = {}
        for ask in asks:
            attempt = ask.attempt
            if ask.kind == "Acquire" and ask.wait and attempt not in self._spans:
                self._attempts[ask.owner].append(attempt)
                self._spans[attempt] = ask.called, -math.inf
            if attempt in self._spans and ask.kind in ("Acquire", "Refresh"):
                began, until = self._spans[attempt]
                heard = ask.returned if ask.outcome == "ok" else ask.called + UNDER_WAY
                self._spans[attempt] = began, max(until, served_by(ask, heard))
            if ask.answer in ("Granted", "NotHeld", "Withdrawn", "Deadlocked"):
                over.setdefault(attempt, ask.returned)
        for attempt, (began, until) in self._spans.items():
            self._spans[attempt] = began, min(until, over.get(attempt, math.inf))
        self._all = Spans(self._spans.values())

    def overlaps(self, called: float, returned: float, attempt: str, owner: str | None = None) -> bool:
        """Tell whether somebody else than *attempt* may have waited then; of one owner, if one is given."""
        if owner is not None:
            return any(
                self._spans[other][0] <= returned and called <= self._spans[other][1]
                for other in self._attempts.get(owner, ())
                if other != attempt
            )
        began, until = self._spans.get(attempt, (math.inf, -math.inf))
        return self._all.count(called, returned) > (began <= returned and called <= until)


def pins(updates: list[Call], asks: list[Ask]) -> Iterator[tuple[float, float]]:
    """Return when transactions may have been open that fence a lock.

    Of one that nobody saw the end of it is known that the next lease was granted after it.
    """
    grants = sorted((ask.token, ask.returned) for ask in asks if ask.answer == "Granted")
    for call in updates:
        ended = call.returned
        if call.outcome == "unknown" or ended == math.inf:
            later = grants[bisect_right(grants, (call.token, math.inf)) :] if call.token else []
            ended = min((returned for _, returned in later), default=math.inf)
        yield call.called, ended
