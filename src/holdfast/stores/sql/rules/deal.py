"""One transaction as the rules see it: what runs its statements, its time, and what it leaves for later.

What it leaves for the time after its commit is seen to by `transactions.transactor`.
Rows are always locked in the same order: that of the instance, that of the work, that of the lock.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from holdfast.core.events import EventKind, HistoryLevel, is_kept
from holdfast.stores.sql.rules.columns import Row
from holdfast.stores.sql.rules.lock import LockRow
from holdfast.stores.sql.rules.runner import Deals, Post, Statement, tell_watchers

Call = tuple[str, int]  # tells of work of a type, and how many instances are to know
# A request inside a transaction; answers, or returns a `PendingAnswer`.
Decide = Callable[["Deal", Any], Any]


class PendingAnswer:
    """An answer for which something has to be read once the transaction is over.

    Inside of it, what others commit meanwhile could be missed: who offers work would not see that somebody
    wants it, and who wants it would not see the work.
    """

    def __init__(self, read: Statement | None, conclude: Callable[[list[Row]], Any]) -> None:
        self.read = read  # None: there is nothing to read but what was sent with the commit
        self.conclude = conclude  # with the rows of that


def wanted_as(*types: str) -> str:
    """Return types as an instance's row has them. No key has a line break in it."""
    return "\n" + "".join(f"{type}\n" for type in types)


class Deal:
    """See the module."""

    def __init__(self, run: Deals, given: int | None, level: HistoryLevel) -> None:
        self.run = run
        self.given = given  # None: the database's clock decides
        self.level: HistoryLevel = level
        # For the time after the commit, and how soon that has to be on the disk.
        self.signals: Post = []  # whom to wake
        self.calls: list[Call] = []  # for instances that want work
        self.postponed: list[str] = []  # keys of work that was to be taken, but somebody else was at its lock
        self.lazily = False  # the commit need not have reached the disk: to lose it would only delay somebody

    def lock(self, key: str, attempt: str = "") -> LockRow:
        """Lock the row of a key, and read it."""
        return LockRow(self.run, key, self.given, self.level, self.signals, attempt)

    def call_for(self, *offered: str) -> None:
        """Have instances called for work that can be claimed, given by its types: one more than there is."""
        self.calls += [(type, count + 1) for type, count in Counter(offered).items()]

    def note(self, key: str, kind: EventKind, at: int, owner: str) -> None:
        """Write an event of an instance, whose row is ours, if the history is to have it."""
        if is_kept(kind, self.level):
            self.run.later("note_instance", key=key, kind=kind, at=at, owner=owner)
            self.run.later("uncount_events", key=key)
            tell_watchers(self.signals)


@lru_cache(256)
def listed(types: tuple[str, ...]) -> str:
    """Return types as statements are given them, each once."""
    return json.dumps(list(dict.fromkeys(types)))
