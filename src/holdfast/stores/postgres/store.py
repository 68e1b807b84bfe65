"""The store for ``postgresql://``: where connections come from, and what is PostgreSQL's own."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from holdfast import errors
from holdfast.core.cluster import Assigned, Claim, Claimed
from holdfast.core.requests import (
    Acquire,
    Fence,
    Holder,
    NotHeld,
    Queued,
    Release,
    Released,
    Signal,
    addressed,
)
from holdfast.log import log
from holdfast.stores.base import StoreOptions, Traits, instant, micros

try:
    import psycopg
    from psycopg.conninfo import conninfo_to_dict
except ImportError as error:
    raise errors.StoreMisconfigured(
        "postgresql:// needs psycopg 3: pip install 'holdfast[postgres]'"
    ) from error

from holdfast.stores.pool import Pool
from holdfast.stores.postgres import failing, granting, partitions, pinning, schema
from holdfast.stores.postgres.session import (
    CHANNEL,
    END,
    NotPrepared,
    PostgresSession,
    Statement,
    notification,
)
from holdfast.stores.postgres.signals import Notifications
from holdfast.stores.sql import Statements, claiming, rehearsing, within
from holdfast.stores.sql.callers import Caller
from holdfast.stores.sql.dealing import listed, wanted_as
from holdfast.stores.sql.options import ServerOptions, split_url
from holdfast.stores.sql.run import Row
from holdfast.stores.sql.server import ServerStore
from holdfast.stores.sql.session import Batch
from holdfast.stores.sql.tables import ServerTables, check

Connect = Callable[[], "psycopg.Connection[Any]"]

PACKAGE = "holdfast.stores.postgres"
SQL = Statements(PACKAGE)
# What libpq is told unless the url says otherwise. A line that silently went away is noticed within a minute,
# not after the two hours of most systems: till then no notification would arrive.
_LINE = {"keepalives_idle": 20, "keepalives_interval": 10, "keepalives_count": 3}
_SHORTEST_CONNECT = 2  # libpq takes less for this

_TABLE = re.compile(r"\bholdfast_(?=" + "|".join(schema.TABLES) + ")")


def from_url(url: str, options: StoreOptions) -> PostgresStore:
    """Return the store for ``postgresql://user@host/database``.

    See `ServerOptions` for what may follow ``?``; everything else there is libpq's.
    """
    address, server = split_url(url)
    connect = partial(_connect, address, server.request_timeout)
    listen = None if server.pooler else connect
    if server.listen:
        listen = partial(_connect, server.listen, server.request_timeout)
    store = PostgresStore(options, server, connect, listen)
    with suppress(psycopg.Error):  # whoever connects is told
        store.in_database = str(conninfo_to_dict(address).get("dbname") or "")
    return store


def from_pool(pool: Any, options: StoreOptions) -> PostgresStore:
    """Return a store that borrows its connections from a ``psycopg_pool.ConnectionPool``."""
    return PostgresStore(options, ServerOptions(), pool.getconn, pool.getconn, pool.putconn)


def from_engine(engine: Any, options: StoreOptions) -> PostgresStore:
    """Return a store whose connections an SQLAlchemy engine makes, with its url, arguments and events."""
    if engine.dialect.driver != "psycopg":
        raise errors.SettingsError(
            f"the engine uses {engine.dialect.driver!r}, and holdfast psycopg 3: give the engine's url,"
            " engine.url, if that is all it takes to connect, or an engine for postgresql+psycopg://"
        )

    def connect() -> psycopg.Connection[Any]:
        borrowed = engine.raw_connection()
        borrowed.detach()  # it is ours now, and the engine's pool makes another one when it needs one
        connection: psycopg.Connection[Any] = borrowed.dbapi_connection
        connection.rollback()
        connection.autocommit = True
        return connection

    return PostgresStore(options, ServerOptions(), connect, connect)


class PostgresStore(ServerStore):
    """See the module."""

    database = "postgresql"
    can_unlock = True  # by a savepoint of ours

    def __init__(
        self,
        options: StoreOptions,
        server: ServerOptions,
        connect: Connect,
        listen: Connect | None,
        give_back: Callable[[Any], None] | None = None,
    ) -> None:
        self.server = server
        self.traits = Traits(
            durable=True,
            signals=server.signals and listen is not None,
            blocking=True,
            repeats=False,
            lanes=server.pool_size,
            transactions=True,
            pins=True,
        )
        self._connect = connect
        self._lend_back = give_back
        self._said_encoding = False
        self._shared = bool(server.pooler) or give_back is not None
        self._statements = {name: Statement(name, self.named(text)) for name, text in SQL}
        super().__init__(
            options,
            Pool(self._new_session, server.pool_size, server.request_timeout, keep=give_back is None),
            Notifications(
                listen if server.signals else None,
                options.client.instance,
                self._close,
                keeps=server.pooler is False,
            ),
        )

    def tables(self) -> ServerTables:
        """Return the tables, to look after them."""
        return ServerTables(self, schema, granting, self.server)

    def sql(self, name: str) -> str:
        """Return a statement for a caller's connection."""
        return self.named(SQL[name])

    def explain(self, request: Fence, caller: Caller) -> NotHeld | None:
        # First where they are: it may have been granted there; and a pool that we share may have no other
        # connection left.
        asked = {"key": request.key, "attempt": request.attempt, "token": request.token}
        if caller.execute(self.sql("fence_alive"), {**asked, "now": instant(request.now)}):
            return None
        return super().explain(request, caller)

    def check_level(self, level: Row) -> None:
        if level[1] not in ("read committed", "read uncommitted"):  # which are the same here
            raise errors.SettingsError(
                f"the transaction is {level[1].upper()}, and would fail as soon as the lease is renewed or"
                " somebody waits for it: use READ COMMITTED, or acquire before it and release after it"
            )

    def foresee(self, theirs: Caller, request: Acquire | Release, rule: rehearsing.Rule) -> within.Foreseen:
        # At READ COMMITTED they see what they have done themselves, and the newest there is beside it.
        def fetch(name: str, /, **parameters: Any) -> list[Row]:
            return theirs.execute(self.sql(name), parameters)

        return within.Foreseen(rehearsing.rehearse(fetch, request, rule, self._level)[0], sure=True)

    def _signal_within(self, theirs: Caller, instance: str, signal: Signal) -> None:
        if instance:
            theirs.execute(SQL.notify_within, notification(instance, signal))

    def _translate(self, error: Exception) -> errors.HoldfastError | None:
        cause = getattr(error, "orig", error)  # SQLAlchemy wraps what the driver raised
        if isinstance(cause, UnicodeEncodeError):  # nothing was sent
            return errors.SettingsError(
                f"the connection's client_encoding ({cause.encoding}) has no"
                f" {cause.object[cause.start : cause.end]!r}; set it to UTF8"
            )
        if isinstance(cause, psycopg.Error):
            state = cause.sqlstate
        elif type(cause).__module__.startswith("psycopg2."):
            state = getattr(cause, "pgcode", None)
        else:
            return None
        if state is None:
            return failing.lost(str(cause), unknown=False)
        return failing.translate(state, str(cause))

    def _queue_fast(self, request: Acquire) -> tuple[Queued, bool] | None:
        batch: Batch = [
            ("lock_row", {"key": request.key}),
            (
                "join_queue",
                {
                    "key": request.key,
                    "attempt": request.attempt,
                    "owner": request.owner,
                    "instance": request.client.instance,
                    "host": request.client.host,
                    "pid": request.client.pid,
                    "claim": micros(request.claim),
                    "patience": micros(request.patience),
                    "now": instant(request.now),
                },
            ),
            (END, {}),
            ("is_waited_for", {"owner": request.owner}),
            (END, {}),
        ]
        _, rows, _, waited_for, _ = self.use(lambda session: session.send(batch, commits=True))
        for owner, host, pid, token, granted_at, claimed, expires_at, waiters, now in rows:
            holder = Holder(owner, host, pid, token, (now - granted_at) / 1e6, bool(claimed))
            return Queued(waiters, holder, (expires_at - now) / 1e6), bool(waited_for)
        return None

    def _hand_over_fast(self, request: Release) -> Released | None:
        key, ours = request.key, self._client.instance
        now = instant(request.now)
        batch: Batch = [
            ("lock_row", {"key": key}),
            ("hand_over", {"key": key, "attempt": request.attempt, "token": request.token, "now": now}),
            (END, {}),
            ("notify_winner", {"key": key, "instance": ours, "channel": CHANNEL}),
        ]
        rows = self.use(lambda session: session.send(batch, commits=True))[1]
        for owner, instance, attempt in rows:
            home, signal = addressed(instance, Signal("granted", key, attempt))
            if home == ours:
                self._signals.deliver(signal)
            return Released(0, owner)
        return None

    def _claim_fast(self, request: Claim) -> Claimed | None:
        if request.spread and len(set(request.types)) > 1:
            return None  # where one type's share depends on the others', the rules have to see to it
        client, number = request.client, request.number
        types, now = listed(request.types), instant(request.now)
        rows = self._fetch(
            "claim_works",
            id=request.id,
            number=number,
            types=types,
            limit=request.limit,
            ttl=micros(request.ttl),
            spread=micros(request.spread),
            attempt=request.attempt,
            instance=client.instance,
            host=client.host,
            pid=client.pid,
            now=now,
        )
        if not rows:
            return None
        at, had, capacity = rows[0][:3]
        works = claiming.in_order(
            Assigned(key, attempt, token, data, tries, micros(request.ttl) / 1e6, at / 1e6)
            for _, _, _, key, attempt, token, data, tries, _ in rows
            if token is not None
        )
        if left := [row[3] for row in rows if row[3] is not None and row[5] is None]:
            self._put_off_work(left, request)
            return Claimed(works, 0.0)
        if len(works) >= min(request.limit, capacity - had):
            return Claimed(works, 0.0)
        batch: Batch = [("next_due", {"types": types, "now": now}), (END, {})]
        if not works:
            wants = {"id": request.id, "number": number, "wants": wanted_as(*request.types)}
            batch = [("want_work", wants), (END, {}), *batch]
        spread = micros(request.spread)
        try:
            (row,) = self.use(lambda session: session.send(batch, commits=True))[-2]
        except errors.StoreError:
            return Claimed(works, 0.0)  # what was taken is taken; the next claim says how the store is
        return Claimed(
            works, claiming.again_in(row, len(works), assigned=had, capacity=capacity, spread=spread)
        )

    def named(self, text: str) -> str:
        """Return a statement with the names that the tables have here."""
        where = f'"{self.server.schema}".' if self.server.schema else ""
        return _TABLE.sub(f"{where}{self.server.prefix}", text)

    def _new_session(self) -> PostgresSession:
        try:
            connection = self._connect()
        except psycopg.Error as error:
            raise _refused(error) from error
        session = self._session(connection, shared=self._shared)
        try:
            if not session.shared and not pinning.pin(session, keeps=self.server.pooler is False):
                self._shared = session.shared = True
        except BaseException:
            session.close()
            raise
        self._say_encoding(session.encoding)
        return session

    def _session(self, connection: psycopg.Connection[Any], *, shared: bool) -> PostgresSession:
        give_back = self._lend_back
        return PostgresSession(
            connection,
            self._statements,
            timeout=self.server.request_timeout,
            shared=shared,
            give_back=None if give_back is None else partial(give_back, connection),
        )

    def _say_encoding(self, encoding: str) -> None:
        if not self._said_encoding and (remark := pinning.encoding_remark(encoding)):
            log().warning("%s", remark)
        self._said_encoding = True

    def remarks(self) -> list[str]:
        """Say what is odd about a session here: what we have to override, and what cannot work."""
        try:
            session = self._session(self._connect(), shared=False)
        except psycopg.Error as error:
            raise _refused(error) from error
        try:
            found = pinning.overridden(session)
            remark = pinning.encoding_remark(session.encoding)
        finally:
            session.close()
        said = [f"{name} is {theirs}, holdfast uses {ours}" for name, (theirs, ours) in found.items()]
        return [remark, *said] if remark else said

    def _close(self, connection: psycopg.Connection[Any]) -> None:
        connection.close()
        if self._lend_back is not None:
            self._lend_back(connection)  # a pool replaces one that is closed

    def _check_schema(self, session: PostgresSession) -> None:
        if self.server.apply_schema:
            schema.apply(session, self.server)
        check(schema, session, self.server)

    def _again(self, error: BaseException) -> bool:
        if isinstance(error, NotPrepared):
            self._shared = True  # there is a pooler: go on without
            self._pool.close()
            self._pool.reopen()
            return True
        return super()._again(error)

    def _keep_partitions(self, now: int, forget_before: int) -> None:
        self.use(lambda session: partitions.keep(session, self.server, now, forget_before))


def _connect(address: str, timeout: float) -> psycopg.Connection[Any]:
    given = conninfo_to_dict(address)
    defaults = {**_LINE, "connect_timeout": max(math.ceil(timeout), _SHORTEST_CONNECT)}
    missing: dict[str, Any] = {name: value for name, value in defaults.items() if name not in given}
    return psycopg.connect(
        address, autocommit=True, prepare_threshold=None, fallback_application_name="holdfast", **missing
    )


def _refused(error: psycopg.Error) -> errors.StoreError:
    state = error.sqlstate
    if state:
        return failing.translate(state, str(error).strip())
    text = str(error).strip()
    # libpq does not pass on the state of a refused log-in.
    for words, code in (
        ("password", "28P01"),
        ("no pg_hba.conf entry", "28000"),
        ('role "', "28000"),
        ("does not exist", "3D000"),
        ("permission denied for database", "42501"),
        ("too many c", "53300"),  # clients already, or connections for a role or a database
        ("connection slots", "53300"),
        ("the database system is", "57P03"),  # starting up, shutting down, in recovery
    ):
        if words in text:
            return failing.translate(code, text)
    if isinstance(error, psycopg.ProgrammingError):
        return errors.StoreMisconfigured(f"PostgreSQL: the url is no good ({text})")
    return errors.StoreUnavailable(f"PostgreSQL: cannot connect ({text})")
