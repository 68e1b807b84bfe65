"""What growth in a file and on a server have in common: keys, a queue that is walked down, the comparison."""

from __future__ import annotations

import random
import secrets
from collections.abc import Callable
from itertools import count as numbers
from typing import Any

from bench.measure import Cost
from bench.report import Line, count, microseconds
from bench.sqlite_pair import CLIENT
from holdfast.core.requests import Acquire, Granted, Queued, Release, Released

KEY = "one"
LONG = 86400.0


def row_key(number: int) -> str:
    return f"workflow:{number:07d}"


def idle_key(rows: int) -> str:
    """Return the key of any lock that nobody holds."""
    return row_key(random.randrange(rows // 1000) * 1000 + random.randrange(999))


class Queue:
    """A key that has so many waiters, and hand-overs down its queue that leave it as long as it was."""

    def __init__(self, store: Any, waiters: int) -> None:
        self._key = f"{KEY}-0"
        self._execute: Callable[[Any], Any] = store.execute
        self._tickets = numbers(waiters + 1)
        self._holder, self._token = "holder", 1
        self._next = (f"t{number}" for number in numbers(1))

    def pass_on(self, times: int) -> None:
        for _ in range(times):
            released = self._execute(Release(self._key, self._holder, self._token))
            assert isinstance(released, Released), released
            self._holder = next(self._next)
            granted = self._execute(self._acquire(self._holder, released.next))
            assert isinstance(granted, Granted), granted
            self._token = granted.token
            queued = self._execute(self._acquire(f"t{next(self._tickets)}", secrets.token_hex(6)))
            assert isinstance(queued, Queued), queued

    def _acquire(self, attempt: str, owner: str) -> Acquire:
        return Acquire(self._key, attempt, owner, LONG, CLIENT, wait=True, patience=LONG, claim=LONG)


def compare(store: str, costs_of: dict[str, Cost], rows: int, waiters: int) -> list[Line]:
    """Put the full beside the empty."""
    cost = {name: 1 / each.rate for name, each in costs_of.items()}
    cases = [
        (f"a pair, {count(rows)} idle locks", "full", "empty", "empty", "Any lock of them, at random."),
        (
            f"a pair, {count(waiters)} waiters elsewhere",
            "waited",
            "empty",
            "empty",
            "For a hundred other locks.",
        ),
        (
            f"a hand-over, {count(waiters)} waiters",
            "many",
            "few",
            "10 waiters",
            "All on this key: release, claim by the winner, and a new waiter at the tail.",
        ),
    ]
    return [
        Line(
            f"{store}: {what}",
            microseconds(cost[name]),
            f"{words} {microseconds(cost[other])}",
            cost[name] / cost[other],
            1.5,
            least=False,
            means=f"At the store. {means}",
        )
        for what, name, other, words, means in cases
    ]
