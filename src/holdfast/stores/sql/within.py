"""Requests inside a caller's transaction: fences, releases and grants that take effect with their commit.

The rules are the same as ever, with two differences. Nothing is handed over: the winner would have to claim
what nobody can see yet, so the lock is only freed, and the next one who asks settles it. And nobody waits.
"""

from __future__ import annotations

from typing import Any, Protocol

from holdfast.core.events import HistoryLevel
from holdfast.core.family import PLAIN
from holdfast.core.requests import Acquire, Fence, Fenced, NotHeld, Release, Request
from holdfast.errors import SettingsError
from holdfast.stores.base import instant
from holdfast.stores.sql import deciding, settling
from holdfast.stores.sql.callers import Caller
from holdfast.stores.sql.row import LockRow, Post
from holdfast.stores.sql.run import Row

ELSEWHERE = "the connection is to another database than the one that has the locks"
TOO_OLD = (
    "the transaction does not see the lease: it began before it, and may have read what another holder has"
    " changed since. Begin it after acquiring, or use READ COMMITTED. After a failover: it is elsewhere"
)

NO_OUTCOME = "the outcome of an operation cannot be part of a transaction: commit first, then tell it"
ONLY_PLAIN = "only a plain exclusive lock can be acquired as part of a transaction"


# What nobody can change while the row is locked, and their transaction does not change itself.
_FROM_OUTSIDE = {"read_lock", "queue_head", "find_ticket", "all_tickets", "live_instances", "tickets_before"}


class Within:
    """Runs named statements in a caller's transaction."""

    def __init__(self, caller: Caller, home: Home, *, handing_over: bool) -> None:
        self._caller = caller
        self._home = home
        self._handing_over = handing_over

    def __call__(self, name: str, /, **parameters: Any) -> list[Row]:
        """Run one statement, and return its rows."""
        if self._home.reads_may_be_old and name in _FROM_OUTSIDE:
            return self._home.look(name, **parameters)
        return self._caller.execute(self._home.sql(name), parameters)

    def later(self, name: str, /, **parameters: Any) -> None:
        """Run one statement."""
        self(name, **parameters)

    def lock(self, key: str, attempt: str, now: int | None) -> Row:
        """Lock the row of a key for as long as their transaction lasts, and read it."""
        self("lock_row", key=key)
        pinned = not self("probe_pin", key=key)
        row = self("read_lock", key=key, attempt=attempt, now=now)[0]
        if self._home.reads_may_be_old:
            for newest in self("newest_row", key=key):  # with what their transaction has changed about it
                events = row[16] if newest[13] is None else newest[13]
                row = (*row[:3], *newest[:13], events, newest[14], *row[18:])
        return (row[0], pinned or not self._handing_over or bool(row[14]), *row[2:])


class Home(Protocol):
    """The store that a caller's transaction has to do with."""

    # Whether a transaction may read what was there when it began, and write as if that was still so.
    reads_may_be_old: bool

    def sql(self, name: str, /) -> str:
        """Return a statement of this database's."""

    def look(self, name: str, /, **parameters: Any) -> list[Row]:
        """Run a statement that reads, outside of their transaction."""

    def explain(self, request: Fence, caller: Caller, /) -> NotHeld | None:
        """Say why a lease is not alive, by the newest there is; None if it is.

        Where their transaction may not see that, the look is from outside.
        """

    def store_id(self) -> str:
        """Return what tells our tables from all others."""


def answer(caller: Caller, request: Request[Any], home: Home, level: HistoryLevel) -> tuple[Any, Post]:
    """Answer *request*; the signals are to be sent with their commit, if the database can."""
    caller.check()
    post: Post = []
    if isinstance(request, Fence):
        return fence(caller, request, home), post
    _check_database(caller, home)
    if isinstance(request, Release):
        if request.outcome is not None:
            raise SettingsError(NO_OUTCOME)
        lock = _lock(caller, request, home, level, post, handing_over=False)
        released: Any = deciding.release(lock, request)
        settling.call_head(lock)
        lock.write()
        return released, post
    if isinstance(request, Acquire) and not request.wait:
        if request.terms != PLAIN:
            raise SettingsError(ONLY_PLAIN)
        lock = _lock(caller, request, home, level, post, handing_over=True)
        granted: Any = deciding.acquire(lock, request)
        lock.write()
        return granted, post
    raise SettingsError(f"{type(request).__name__} cannot be part of a transaction")


def fence(caller: Caller, request: Fence, home: Home) -> Fenced | NotHeld:
    """Lock the lease against whoever would take it over, and see that it is alive."""
    named = {"key": request.key, "token": request.token}
    asked = {**named, "attempt": request.attempt, "now": instant(request.now)}
    if not caller.execute(home.sql("fence"), named):
        _check_database(caller, home)
        if (lost := home.explain(request, caller)) is None:  # only they cannot see it
            raise SettingsError(TOO_OLD)
        return lost
    if not caller.execute(home.sql("fence_seen"), named):
        # They read by a snapshot from before the grant, which they have just locked.
        raise SettingsError(TOO_OLD)
    # By such a snapshot a renewal may be out of sight as well: then look from outside.
    if caller.execute(home.sql("fence_alive"), asked):
        return Fenced(request.token)
    return home.explain(request, caller) or Fenced(request.token)


def _lock(
    caller: Caller,
    request: Acquire | Release,
    home: Home,
    level: HistoryLevel,
    post: Post,
    *,
    handing_over: bool,
) -> LockRow:
    run = Within(caller, home, handing_over=handing_over)
    return LockRow(run, request.key, instant(request.now), level, post, request.attempt)


def _check_database(caller: Caller, home: Home) -> None:
    if caller.execute(home.sql("store_id"), {}) != [(home.store_id(),)]:
        raise SettingsError(ELSEWHERE)
