"""Requests inside a caller's transaction: fences, releases and grants that take effect with their commit.

The rules are the same as ever, with three differences. Nothing is handed over: the winner would have to claim
what nobody can see yet, so the lock is only freed, and the next one who asks settles it. Nobody waits. And
whatever is refused leaves nothing locked, because that would last as long as their transaction does: so each
request is rehearsed first, by the same rules and without a lock.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from holdfast.core.family import PLAIN
from holdfast.core.requests import Acquire, Fence, Fenced, Granted, NotHeld, Release, Released, Request
from holdfast.errors import SettingsError
from holdfast.stores.base import instant
from holdfast.stores.sql.callers.connections import Caller
from holdfast.stores.sql.callers.rehearsal import Foreseen, Rule, pinned
from holdfast.stores.sql.dialect import Dialect
from holdfast.stores.sql.rules import decisions, settlement
from holdfast.stores.sql.rules.columns import KeyRead, LockColumns, Row
from holdfast.stores.sql.rules.lock import LockRow
from holdfast.stores.sql.rules.runner import Post, read_lock
from holdfast.stores.sql.transactions.session import Conflict, RowLocked

ELSEWHERE = "the connection is to another database than the one that has the locks"
TOO_OLD = (
    "the transaction does not see the lease: it began before it, and may have read what another holder has"
    " changed since. Begin it after acquiring, or use READ COMMITTED. After a failover: it is elsewhere"
)
NESTED = (
    "this is inside a savepoint: ROLLBACK TO SAVEPOINT would undo it while the transaction goes on (and on"
    " SQLite the end of the savepoint may commit it). Do it before the savepoint: outside of begin_nested(),"
    " a transaction() in a transaction(), or an inner atomic()"
)
NO_OUTCOME = "the outcome of an operation cannot be part of a transaction: commit first, then tell it"
ONLY_PLAIN = "only a plain exclusive lock can be acquired as part of a transaction"
CHANGED_MEANWHILE = (
    "somebody else has changed {key!r} at this very moment, and now your transaction has it locked, which"
    " keeps them from renewing: roll back, and try again"
)

# How often a row is tried that was locked and is free again. Most locks last for a moment. The renewal of a
# lease that is over, for example, locks its row twice.
TRIES = 8

# What nobody can change while the row is locked, and their transaction does not change itself.
_FROM_OUTSIDE = {"read_lock", "queue_head", "find_ticket", "all_tickets", "live_instances", "tickets_before"}


class Within:
    """Runs named statements in a caller's transaction."""

    def __init__(self, caller: Caller, home: Dialect[Any], *, patient: bool, sure: bool) -> None:
        self._caller = caller
        self._home = home
        self._patient = patient
        self.changed_by_them = not sure  # or may be; where reads may be old, it shows with the lock
        self._held: list[str] = []  # the attempts that the table of holds has

    def __call__(self, name: str, /, **parameters: Any) -> list[Row]:
        """Run one statement, and return its rows."""
        rows = self._run(name, parameters)
        if name == "read_holds":
            self._held = [row[0] for row in rows]
        return rows

    def _run(self, name: str, parameters: dict[str, Any]) -> list[Row]:
        if self._home.reads_may_be_old:
            # Where they have changed the key themselves, only a look that locks shows both that and what
            # others have committed; and it locks the gaps beside it.
            if name in _FROM_OUTSIDE or (name == "read_holds" and not self.changed_by_them):
                rows: list[Row] = self._home.sessions.read(name, **parameters)
                return rows
            if name == "read_holds":
                # All of them, whatever the caller has for sql_select_limit.
                return self._caller.execute(
                    f"{self._home.sql(name)} LIMIT {2**64 - 1} FOR UPDATE", parameters
                )
        return self._caller.execute(self._home.sql(name), parameters)

    def later(self, name: str, /, **parameters: Any) -> None:
        """Run one statement."""
        if name == "delete_holds" and self._home.reads_may_be_old:  # by whole keys, so that no gap is locked
            for attempt in self._held:
                self("delete_hold", key=parameters["key"], attempt=attempt)
            return
        self(name, **parameters)

    def lock(self, key: str, attempt: str, now: int | None) -> KeyRead:
        """Lock the row of a key for as long as their transaction lasts, and read it."""
        if self._patient:
            self("lock_row", key=key)
        elif not self("lock_row_at_once", key=key):
            raise RowLocked(f"somebody else's transaction has the row of {key!r}")
        if not self._home.reads_may_be_old:
            probe = self("probe_pin", key=key)
            return pinned(read_lock(self, key, attempt, now), fenced=not probe)
        # With what their transaction has changed about it.
        (newest,) = map(LockColumns._make, self("newest_row", key=key))
        probe = self("probe_token", key=key, token=newest.token)
        row = read_lock(self, key, attempt, now)
        seen = newest._replace(events=row.lock.events) if newest.events is None else newest
        self.changed_by_them = seen != row.lock
        return pinned(row._replace(lock=seen), fenced=not probe)


def check_nesting(connection: Any, request: Request[Any], home: Dialect[Any]) -> None:
    """Raise `SettingsError` if SQLAlchemy knows of a savepoint that what is asked would end with."""
    may_be_undone = isinstance(request, Release) and not home.savepoints_may_commit
    if not may_be_undone and in_savepoint(connection):
        raise SettingsError(NESTED)


def in_savepoint(connection: Any) -> bool:
    """Tell whether a connection, or a session, is inside a savepoint that SQLAlchemy knows of."""
    if not hasattr(connection, "in_nested_transaction"):
        return False
    nested: bool = connection.in_nested_transaction()
    if any(each.__name__ == "Session" for each in type(connection).__mro__):
        # It may have been given a connection that is in one already. One of asyncio's cannot be asked here.
        nested = nested or connection.connection().in_nested_transaction()
    return nested


def answer(caller: Caller, request: Request[Any], home: Dialect[Any]) -> tuple[Any, Post]:
    """Answer *request*; the signals are to be sent with their commit, if the database can."""
    caller.check()
    if isinstance(request, Fence):
        home.enter(caller, request)
        return fence(caller, request, home), []
    if isinstance(request, Release):
        if request.outcome is not None:
            raise SettingsError(NO_OUTCOME)
    elif not isinstance(request, Acquire) or request.wait:
        raise SettingsError(f"{type(request).__name__} cannot be part of a transaction")
    elif request.terms != PLAIN:
        raise SettingsError(ONLY_PLAIN)
    home.enter(caller, request)
    home.check_level(_check_database(caller, home))
    return _change(caller, request, home)


def _change(caller: Caller, request: Acquire | Release, home: Dialect[Any]) -> tuple[Any, Post]:
    for _ in range(TRIES):
        foreseen = home.foresee(caller, request, _rule(request))
        if foreseen.sure and foreseen.answer is not None:
            return foreseen.answer, []
        with suppress(RowLocked):
            return _lock_and_change(caller, request, home, foreseen)
        try:
            home.wait_for_row(request.key)
        except RowLocked:
            break
    return home.put_off(request) if isinstance(request, Acquire) else foreseen.answer, []


def _lock_and_change(
    caller: Caller, request: Acquire | Release, home: Dialect[Any], foreseen: Foreseen
) -> tuple[Any, Post]:
    post: Post = []
    releasing = isinstance(request, Release)
    run = Within(caller, home, patient=releasing and foreseen.answer is None, sure=foreseen.sure)
    if home.can_unlock:
        run("mark")
    try:
        lock = LockRow(run, request.key, instant(request.now), home.level, post, request.attempt)
    except RowLocked:
        if home.can_unlock:
            run("forget_mark")
        raise
    answer = _rule(request)(lock)
    done = isinstance(answer, Granted | Released)
    if home.can_unlock:
        nested = done and not releasing and _is_nested(run, request.key)
        if nested or not done:
            run("back_to_mark")
        run("forget_mark")
        if nested:
            raise SettingsError(NESTED)
    elif not done and not run.changed_by_them:
        raise Conflict(CHANGED_MEANWHILE.format(key=request.key))
    if not done:
        return answer, []
    if releasing:
        settlement.call_head(lock)
    lock.write()
    return answer, post


def _is_nested(run: Within, key: str) -> bool:
    run("mark")
    outermost = run("is_outermost", key=key)[0][0]
    run("back_to_mark")
    run("forget_mark")
    return not outermost


def _rule(request: Acquire | Release) -> Rule:
    if isinstance(request, Release):
        return lambda lock: decisions.release(lock, request)
    return lambda lock: decisions.acquire(lock, request)


def fence(caller: Caller, request: Fence, home: Dialect[Any]) -> Fenced | NotHeld:
    """Lock the lease against whoever would take it over, and see that it is alive.

    That it is alive is seen before: then nobody who is refused has locked anything. If it ends before it is
    locked, nobody has been granted the lock since, because that would have changed the token.
    """
    named = {"key": request.key, "token": request.token}
    lost = home.explain(request, caller)
    if lost is not None:
        if lost.why != "unknown":
            return lost
        _check_database(caller, home)
        if not caller.execute(home.sql("fence_seen"), named):  # otherwise it was granted in this one
            return lost
    if not caller.execute(home.sql("fence"), named):
        _check_database(caller, home)
        if (lost := home.explain(request, caller)) is None:  # only they cannot see it
            raise SettingsError(TOO_OLD)
        return lost
    seen = caller.execute(home.sql("fence_seen"), named)
    if not seen:
        # They read by a snapshot from before the grant, which they have just locked.
        raise SettingsError(TOO_OLD)
    if not seen[0][0]:
        raise SettingsError(NESTED)
    return Fenced(request.token)


def _check_database(caller: Caller, home: Dialect[Any]) -> Row:
    """Raise `SettingsError` unless they are where our tables are; return what else the look has told."""
    rows = caller.execute(home.sql("store_id"), {})
    if not rows or rows[0][0] != home.sessions.store_id():
        raise SettingsError(ELSEWHERE)
    return rows[0]
