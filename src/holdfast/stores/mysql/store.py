"""The store for ``mysql://`` and ``mariadb://``: what is these databases' own.

Where connections come from is in `connecting`.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from holdfast import errors
from holdfast.core.cluster import Claim, Claimed, Offer, Offered, OfferedWork
from holdfast.core.data import replace
from holdfast.core.requests import Acquire, Granted, Release, Released, Request, Signal, addressed
from holdfast.stores.base import StoreOptions, Traits, instant, micros

try:
    from pymysql.err import MySQLError
except ImportError as error:
    raise errors.StoreMisconfigured("mysql:// needs PyMySQL: pip install 'holdfast[mysql]'") from error

from holdfast.stores.mysql import (
    calling,
    claiming,
    connecting,
    failing,
    galera,
    granting,
    partitions,
    pinning,
    schema,
)
from holdfast.stores.mysql.session import MySQLSession, Statement, log_refused
from holdfast.stores.mysql.signals import SLEEP, Doorbell
from holdfast.stores.pool import Pool
from holdfast.stores.sql import Statements, rehearsing, within
from holdfast.stores.sql.callers import Caller
from holdfast.stores.sql.options import ServerOptions, split_url
from holdfast.stores.sql.run import Row
from holdfast.stores.sql.server import ServerStore
from holdfast.stores.sql.session import Conflict, RowLocked
from holdfast.stores.sql.tables import ServerTables, check

Connect = Callable[[float], Any]  # with how long an answer may take

SQL = Statements("holdfast.stores.mysql")
KEEP_SIGNALS = 600_000_000  # microseconds; their listeners read them at once, or are dead
MOST_SIGNALS = 10_000
MOST_USED = 10_000
GLANCES, BETWEEN_GLANCES = 5, 0.01  # seconds
MOST_OFFERED = 2 * 1024 * 1024  # characters of data in one statement: quoted they must fit into a packet

_TABLE = re.compile(r"\bholdfast_(?=(?:" + "|".join(schema.TABLES) + r")\b)")


def from_url(url: str, options: StoreOptions) -> MySQLStore:
    """Return the store for ``mysql://user:password@host:port/database``.

    See `ServerOptions` and `connecting.OPTIONS` for what may follow ``?``.
    """
    address, server = split_url(url)
    if server.schema is not None:
        raise errors.SettingsError(
            "MySQL has no schemas: name the database in the url, mysql://host/database"
        )
    if server.pooler:
        raise errors.SettingsError("pooler=yes is for PostgreSQL; use a pooler that keeps sessions apart")
    connect = connecting.by_url(address)
    store = MySQLStore(
        options, server, connect, connecting.by_url(server.listen) if server.listen else connect
    )
    store.in_database = connecting.database_of(address)
    return store


def from_engine(engine: Any, options: StoreOptions) -> MySQLStore:
    """Return a store whose connections an SQLAlchemy engine makes, with its url, arguments and events."""
    connect = connecting.by_engine(engine)
    return MySQLStore(options, ServerOptions(), connect, connect)


class MySQLStore(ServerStore):
    """See the module."""

    database = "mysql"
    reads_may_be_old = True  # at REPEATABLE READ, the default: only what locks reads what is there now

    def __init__(
        self, options: StoreOptions, server: ServerOptions, connect: Connect, listen: Connect
    ) -> None:
        self.server = server
        self.traits = Traits(
            durable=True,
            signals=server.signals,
            blocking=True,
            repeats=False,
            lanes=server.pool_size,
            transactions=True,
            pins=True,
        )
        self._connect = connect
        self._said_refused = False
        self._node = ""  # of a Galera cluster
        self._tells_level = ""  # store_id for a caller's connection, once we know what this server can tell
        self._used: set[str] = set()  # keys that have a row, unless it was swept since
        self._statements = {name: Statement(self.named(text)) for name, text in SQL}
        super().__init__(
            options,
            Pool(self._new_session, server.pool_size, server.request_timeout),
            Doorbell(
                partial(self._new_listener, listen) if server.signals else None,
                options.client.instance,
                self._hang_up,
            ),
        )

    def named(self, text: str) -> str:
        """Return a statement with the names that the tables have here."""
        return _TABLE.sub(self.server.prefix, text)

    def tables(self) -> ServerTables:
        """Return the tables, to look after them."""
        return ServerTables(self, schema, granting, self.server)

    def sql(self, name: str) -> str:
        """Return a statement for a caller's connection."""
        return self.named(self._id_and_level() if name == "store_id" else SQL[name])

    def _id_and_level(self) -> str:
        if not (statement := self._tells_level):
            rows = self.use(lambda session: session.script(calling.VARIABLES))
            self._tells_level = statement = calling.id_and_level(SQL.store_id, [row[0] for row in rows])
        return statement

    def check_level(self, level: Row) -> None:
        calling.check_level(level)

    def enter(self, theirs: Caller, request: Request[Any]) -> None:
        """See that savepoints and first phases take no fence with them, and that it is the same node."""
        if self._node:
            galera.check_caller(theirs, self._node)
        calling.check(theirs, request)

    def foresee(self, theirs: Caller, request: Acquire | Release, rule: rehearsing.Rule) -> within.Foreseen:
        """Rehearse a request by what is committed: what they see may be old, and to look may lock it."""
        for _ in range(GLANCES):
            refused, is_row = rehearsing.rehearse(self._read, request, rule, self._level)
            # If they have changed the row themselves, it is locked.
            if refused is None or not is_row or self._fetch("lock_row_at_once", key=request.key):
                return within.Foreseen(refused, sure=True)
            time.sleep(BETWEEN_GLANCES)  # it may be a renewal, which is over soon
        return within.Foreseen(refused, sure=False)

    def _new_session(self) -> MySQLSession:
        connection = self._connect(self.server.request_timeout)
        return self._set_up(connection, connecting.settings(connection))

    def _new_listener(self, connect: Connect) -> MySQLSession:
        connection = connect(self.server.request_timeout + SLEEP)
        return self._set_up(connection, connecting.settings(connection, patient=True))

    def _set_up(self, connection: Any, settings: str) -> MySQLSession:
        session = MySQLSession(connection, self._statements, self._say_refused)
        self._tells_level = ""  # it may be another server
        try:
            if connecting.check(session.script(settings)):
                self._use_node(session)
        except BaseException:
            session.break_off()
            raise
        return session

    def _use_node(self, session: MySQLSession) -> None:
        """Use the node of a Galera cluster that a session is on, or refuse to."""
        session.valid_until = galera.until()
        try:
            self._node = galera.use(session, f"{self.server.prefix}locks")
        except galera.OtherNode as error:
            if not self._node:
                raise
            # While a cluster fails over. Clients that run ask again; who connects anew is told what is wrong.
            raise errors.StoreUnavailable(str(error)) from error

    def remarks(self) -> list[str]:
        """Say what is odd about a session here: what we have to override."""
        connection = self._connect(self.server.request_timeout)
        session = MySQLSession(connection, self._statements, self._say_refused)
        try:
            kind, settings = connecting.kind_of(connection), connecting.settings(connection)
            found = pinning.overridden(session, kind, settings)
        finally:
            session.break_off()
        return [f"{name} is {theirs}, holdfast uses {ours}" for name, (theirs, ours) in found.items()]

    def _say_refused(self) -> None:
        if not self._said_refused:
            self._said_refused = True
            log_refused()

    def _hang_up(self, instance: str) -> None:
        with suppress(errors.StoreError):
            self._fetch("hang_up", instance=instance)

    def _check_schema(self, session: MySQLSession) -> None:
        if self.server.apply_schema:
            schema.apply(session, self.server)
            if session.valid_until < math.inf:  # before there were tables nothing could be noted
                self._use_node(session)
        check(schema, session, self.server)

    def _acquire_fast(self, request: Acquire) -> Granted | None:
        """Take a free lock, or claim what was handed to us, in one round trip; None: the slow path.

        A key that we have not used yet may have no row, so the statement that makes one goes along.
        """
        last_queued = self._contended.get(request.key)
        if last_queued not in (None, request.attempt):
            return None
        names = ["acquire"] if request.key in self._used else ["acquire", "acquire_new"]
        if last_queued is not None:
            names = ["claim"]
        parameters = {
            "key": request.key,
            "attempt": request.attempt,
            "owner": request.owner,
            "ttl": micros(request.ttl),
            "instance": request.client.instance,
            "host": request.client.host,
            "pid": request.client.pid,
            "long": request.ttl >= request.claim,
            "now": instant(request.now),
        }
        rows = self.use(lambda session: _first(session, names, parameters))
        if len(self._used) >= MOST_USED:
            self._used.clear()
        self._used.add(request.key)
        return Granted(rows[0][0], request.ttl) if rows else None

    def _hand_over_fast(self, request: Release) -> Released | None:
        rows = self._fetch(
            "hand_over",
            key=request.key,
            attempt=request.attempt,
            token=request.token,
            instance=self._client.instance,
            now=instant(request.now),
        )
        for owner, instance, attempt in rows:
            home, signal = addressed(instance, Signal("granted", request.key, attempt))
            if home == self._client.instance:
                self._signals.deliver(signal)
            return Released(0, owner)
        return None

    def _cluster_answers(self) -> dict[type, Callable[[Any], Any]]:
        answers = super()._cluster_answers()
        offer = answers[Offer]
        return {**answers, Offer: lambda request: _in_portions(offer, request)}

    def _claim_fast(self, request: Claim) -> Claimed | None:
        return self.use(lambda session: claiming.claim(session, request))

    def _keep_partitions(self, now: int, forget_before: int) -> None:
        self._fetch("delete_signals", before=now - KEEP_SIGNALS, limit=MOST_SIGNALS)
        self.use(lambda session: partitions.keep(session, self.server, now, forget_before))

    def _translate(self, error: Exception) -> errors.HoldfastError | None:
        cause = getattr(error, "orig", error)  # SQLAlchemy wraps what the driver raised
        driver = type(cause).__module__.partition(".")[0]
        if not isinstance(cause, MySQLError) and driver != "MySQLdb":
            return None
        number, message = failing.told(cause)
        if number in failing.LOST:
            return failing.lost(message, unknown=False)
        return failing.translate(number, message)


def _in_portions(offer: Callable[[Offer], Offered], request: Offer) -> Offered:
    """Offer what would be too large for max_allowed_packet one part after the other. It can be repeated."""
    portions: list[list[OfferedWork]] = [[]]
    size = 0
    for work in request.works:
        size += len(work.data)
        if size > MOST_OFFERED:
            portions.append([])
            size = len(work.data)
        portions[-1].append(work)
    answers = [offer(replace(request, works=tuple(portion))) for portion in portions if portion]
    return Offered(
        tuple(state for answer in answers for state in answer.states),
        tuple(new for answer in answers for new in answer.new),
    )


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
