"""What is MySQL's and MariaDB's own: their fast paths, and how a caller's transaction is part of them."""

from __future__ import annotations

import time
from typing import Any

from pymysql.err import MySQLError

from holdfast import errors
from holdfast.core.cluster import Claim, Claimed, Offer, OfferedWork
from holdfast.core.data import replace
from holdfast.core.events import HistoryLevel
from holdfast.core.requests import Acquire, Granted, Holder, Queued, Release, Released, Request, Sweep
from holdfast.stores.base import instant
from holdfast.stores.mysql import callers, claims, failures, galera
from holdfast.stores.mysql.schema import SCHEMA, SQL, named
from holdfast.stores.mysql.session import MySQLSession
from holdfast.stores.mysql.source import Source
from holdfast.stores.signals import Signals
from holdfast.stores.sql.callers import rehearsal
from holdfast.stores.sql.callers.connections import Caller
from holdfast.stores.sql.callers.rehearsal import Foreseen
from holdfast.stores.sql.dialect import Dialect, asked, joining, queueing
from holdfast.stores.sql.rules.columns import Row
from holdfast.stores.sql.transactions.session import Conflict, RowLocked
from holdfast.stores.sql.transactions.sessions import PooledSessions

KEEP_SIGNALS = 600_000_000  # microseconds; their listeners read them at once, or are dead
MOST_SIGNALS = 10_000
MOST_USED = 10_000
GLANCES, BETWEEN_GLANCES = 5, 0.01  # seconds
MOST_OFFERED = 2 * 1024 * 1024  # characters of data in one statement: quoted they must fit into a packet


class MySQLDialect(Dialect[PooledSessions]):
    """See the module."""

    database = "mysql"
    reads_may_be_old = True  # at REPEATABLE READ, the default: only what locks reads what is there now
    hands_over = True

    def __init__(
        self, sessions: PooledSessions, level: HistoryLevel, signals: Signals, source: Source
    ) -> None:
        super().__init__(sessions, level, signals)
        self._source = source
        self._used: set[str] = set()  # keys that have a row, unless it was swept since

    def sql(self, name: str) -> str:
        """Return a statement for a caller's connection."""
        return named(self._id_and_level() if name == "store_id" else SQL[name], self._source.server)

    def _id_and_level(self) -> str:
        if not (statement := self._source.tells_level):
            rows = self.sessions.use(lambda session: session.script(callers.VARIABLES))
            statement = callers.id_and_level(SQL.store_id, [row[0] for row in rows])
            self._source.tells_level = statement
        return statement

    def translate(self, error: Exception) -> errors.HoldfastError | None:
        """Return our error for one of a caller's driver."""
        if not isinstance(error, MySQLError) and type(error).__module__.partition(".")[0] != "MySQLdb":
            return None
        number, message = failures.told(error)
        if number in failures.LOST:
            return failures.lost(message, unknown=False)
        return failures.translate(number, message)

    def acquire(self, request: Acquire, *, is_queued: bool) -> Granted | None:
        """Take a free lock, or claim what was handed to us, in one round trip.

        A key that we have not used yet may have no row, so the statement that makes one goes along.
        """
        names = ["acquire"] if request.key in self._used else ["acquire", "acquire_new"]
        if is_queued:
            names = ["claim"]
        parameters = asked(request)
        rows = self.sessions.use(lambda session: _first(session, names, parameters))
        if len(self._used) >= MOST_USED:
            self._used.clear()
        self._used.add(request.key)
        return Granted(rows[0][0], request.ttl) if rows else None

    def queue(self, request: Acquire) -> tuple[Queued, bool] | None:
        """Join a queue in one round trip."""
        return _queued(self.sessions.fetch("join_queue", **queueing(request)))

    def join_full(self, request: Acquire) -> tuple[Queued, bool] | None:
        """Join the queue of a semaphore in one round trip."""
        return _queued(self.sessions.fetch("join_full", **joining(request)))

    def hand_over(self, request: Release) -> Released | None:
        """Release to the next in one round trip."""
        named = {"key": request.key, "attempt": request.attempt, "token": request.token}
        rows = self.sessions.fetch(
            "hand_over", instance=self.signals.instance, now=instant(request.now), **named
        )
        return self._handed(request.key, [_winner(told) for (told,) in rows])

    def pass_permit(self, request: Release) -> Released | None:
        """Release a permit to the next in one round trip."""
        named = {"key": request.key, "attempt": request.attempt, "token": request.token}
        rows = self.sessions.fetch(
            "pass_permit", instance=self.signals.instance, now=instant(request.now), **named
        )
        return self._passed(request.key, [_passed_on(told) for (told,) in rows])

    def claim(self, request: Claim) -> tuple[Claimed, list[str]] | None:
        """Claim in two round trips."""
        claimed = self.sessions.use(lambda session: claims.claim(session, request))
        return None if claimed is None else (claimed, [])

    def portions(self, request: Offer) -> list[Offer]:
        """Cut what would be too large for max_allowed_packet. Each part can be repeated."""
        portions: list[list[OfferedWork]] = [[]]
        size = 0
        for work in request.works:
            size += len(work.data)
            if size > MOST_OFFERED:
                portions.append([])
                size = len(work.data)
            portions[-1].append(work)
        return [replace(request, works=tuple(portion)) for portion in portions if portion]

    def tidy_up(self, request: Sweep, now: int, forget_before: int) -> None:
        """Delete signals that nobody has read, make the history's partitions ahead, and drop old ones."""
        if request.now is not None:
            return
        self.sessions.fetch("delete_signals", before=now - KEEP_SIGNALS, limit=MOST_SIGNALS)
        server = self._source.server
        self.sessions.use(lambda session: SCHEMA.keep_weeks(session, server, now, forget_before))

    # Requests inside a caller's transaction.

    def check_level(self, level: Row) -> None:
        """Refuse a level at which nothing can be written."""
        callers.check_level(level)

    def enter(self, caller: Caller, request: Request[Any]) -> None:
        """See that savepoints and first phases take no fence with them, and that it is the same node."""
        if self._source.node:
            galera.check_caller(caller, self._source.node)
        callers.check(caller, request)

    def foresee(self, caller: Caller, request: Acquire | Release, rule: rehearsal.Rule) -> Foreseen:
        """Rehearse a request by what is committed: what they see may be old, and to look may lock it."""
        for _ in range(GLANCES):
            refused, is_row = rehearsal.rehearse(self.sessions.read, request, rule, self.level)
            # If they have changed the row themselves, it is locked.
            if refused is None or not is_row or self.sessions.fetch("lock_row_at_once", key=request.key):
                return Foreseen(refused, sure=True)
            time.sleep(BETWEEN_GLANCES)  # it may be a renewal, which is over soon
        return Foreseen(refused, sure=False)


def _winner(told: str) -> Row:
    """Read what ``hand_over`` says."""
    numbers, attempt, instance, owner = told.split("\n", 3)
    return (owner, instance, attempt, *map(int, numbers.split()))


def _queued(rows: list[Row]) -> tuple[Queued, bool] | None:
    """Read what ``join_queue`` says, if it says anything."""
    for (told,) in rows:
        numbers, host, owner = told.split("\n", 2)
        pid, token, granted_at, claimed, end, place, now, is_waited_for = map(int, numbers.split())
        holder = Holder(owner, host, pid, token, (now - granted_at) / 1e6, bool(claimed))
        return Queued(place, holder, (end - now) / 1e6, now / 1e6), bool(is_waited_for)
    return None


def _passed_on(told: str) -> Row:
    """Read what ``pass_permit`` says."""
    numbers, attempt, instance, next_attempt, head, owner = told.split("\n", 5)
    token, now, lasts, end, claim = map(int, numbers.split())
    return owner, instance, attempt, token, now, lasts, end, head or None, next_attempt, claim


def _first(session: MySQLSession, names: list[str], parameters: dict[str, Any]) -> list[Row]:
    """Run statements, and return the rows of the first that has any."""
    try:
        rows = session.first([(name, parameters) for name in names])
    except RowLocked:
        raise
    except Conflict:  # somebody else has just made that row
        return []
    if rows and not rows[0][0]:
        # A trigger on the table (somebody's audit, or a schema change on line) takes the insert id out of the
        # server's answer. The session still has it. Whatever happens to this question, the lock is taken.
        try:
            return session.script("SELECT LAST_INSERT_ID()")
        except errors.StoreUnavailable as error:
            raise errors.OutcomeUnknown(str(error)) from error
    return rows
