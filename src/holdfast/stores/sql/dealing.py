"""A request about instances or work inside a transaction, and what is left to do behind its commit.

Rows are always locked in the same order: that of the instance, that of the work, that of the lock.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

from holdfast.core.events import EventKind, HistoryLevel, is_kept
from holdfast.core.requests import Signal, addressed
from holdfast.stores.sql.row import LockRow, Post
from holdfast.stores.sql.run import Deals, Row

Decide = Callable[["Deal", Any], Any]  # a request inside a transaction; answers, or returns a `Behind`
Call = tuple[str, int]  # a type of work, and how many instances are to know that there is some


class Deal:
    """One transaction. What it *calls* for and has *left* is seen to behind its commit."""

    def __init__(self, run: Deals, given: int | None, level: HistoryLevel, post: Post) -> None:
        self.run = run
        self.given = given  # None: the database's clock decides
        self.level: HistoryLevel = level
        self.post = post
        self.calls: list[Call] = []
        self.left: list[str] = []  # keys of work that was to be taken, but somebody else was at its lock

    def lock(self, key: str, attempt: str = "") -> LockRow:
        """Lock the row of a key, and read it."""
        return LockRow(self.run, key, self.given, self.level, self.post, attempt)

    def call_for(self, *offered: str) -> None:
        """Have instances called for work that can be claimed, given by its types: one more than there is."""
        self.calls += [(type, count + 1) for type, count in Counter(offered).items()]

    def note(self, key: str, kind: EventKind, at: int, owner: str) -> None:
        """Write an event of an instance, whose row is ours, if the history is to have it."""
        if is_kept(kind, self.level):
            self.run.later("note_instance", key=key, kind=kind, at=at, owner=owner)
            self.run.later("uncount_events", key=key)


class Behind:
    """An answer for which something has to be read once the transaction is over.

    Inside of it, what others commit meanwhile could be missed: who offers work would not see that somebody
    wants it, and who wants it would not see the work.
    """

    def __init__(
        self,
        name: str | None,
        parameters: dict[str, Any],
        conclude: Callable[[list[Row]], Any],
        *,
        lazily: bool = False,
    ) -> None:
        self.name = name  # of the statement; None: there is nothing to read but what was sent with the commit
        self.parameters = parameters
        self.conclude = conclude  # with its rows
        self.lazily = lazily  # nothing was changed that must not be lost


def call_parameters(call: Call, now: int | None) -> dict[str, Any]:
    """Return what the statement ``wanting`` is given."""
    type, count = call
    return {"wanted": wanted_as(type), "now": now, "limit": count}


def signals(call: Call, rows: Iterable[Row]) -> Post:
    """Return the signals for instances that want work of a type."""
    return [addressed(address, Signal("work", call[0], id)) for id, address in rows]


@lru_cache(256)
def listed(types: tuple[str, ...]) -> str:
    """Return types as statements are given them, each once."""
    return json.dumps(list(dict.fromkeys(types)))


def wanted_as(*types: str) -> str:
    """Return types as an instance's row has them. No key has a line break in it."""
    return "\n" + "".join(f"{type}\n" for type in types)
