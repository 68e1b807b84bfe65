"""Where sessions of PostgreSQL come from: a url, somebody's pool or an engine makes their connections."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict

from holdfast import errors
from holdfast.log import log
from holdfast.stores.pool import Pool
from holdfast.stores.postgres import failures, variables
from holdfast.stores.postgres.schema import SQL, named
from holdfast.stores.postgres.session import NotPrepared, PostgresSession
from holdfast.stores.postgres.statement import Statement
from holdfast.stores.sql.options import ServerOptions
from holdfast.stores.sql.transactions import sessions

Connect = Callable[[], "psycopg.Connection[Any]"]

# What libpq is told unless the url says otherwise. A line that silently went away is noticed within a minute,
# not after the two hours of most systems: till then no notification would arrive.
_LINE = {"keepalives_idle": 20, "keepalives_interval": 10, "keepalives_count": 3}
_SHORTEST_CONNECT = 2  # libpq takes less for this


class Source:
    """Makes sessions, and has them in a pool."""

    def __init__(
        self, server: ServerOptions, connect: Connect, give_back: Callable[[Any], None] | None
    ) -> None:
        self._server = server
        self._connect = connect
        self._lend_back = give_back
        self._said_encoding = False
        self.shared = bool(server.pooler) or give_back is not None  # others use the same sessions
        self._statements = {name: Statement(name, named(text, server)) for name, text in SQL}
        self.pool: Pool[PostgresSession] = Pool(
            self.new_session, server.pool_size, server.request_timeout, keep=give_back is None
        )

    def new_session(self) -> PostgresSession:
        """Connect, and set up a session."""
        session = self._session(shared=self.shared)
        try:
            if not session.shared and not variables.pin(session, keeps=self._server.pooler is False):
                self.shared = session.shared = True
            self._say_encoding(session.encoding)
        except psycopg.Error as error:  # the line was cut just now, and nothing was asked yet
            session.close()
            raise failures.lost(str(error), unknown=False) from error
        except BaseException:
            session.close()
            raise
        return session

    def _session(self, *, shared: bool) -> PostgresSession:
        give_back = self._lend_back
        try:
            connection = self._connect()
        except psycopg.Error as error:
            raise _refused(error) from error
        try:
            return PostgresSession(
                connection,
                self._statements,
                timeout=self._server.request_timeout,
                shared=shared,
                give_back=None if give_back is None else partial(give_back, connection),
            )
        except psycopg.Error as error:  # the line was cut just now
            self.close(connection)
            raise failures.lost(str(error), unknown=False) from error

    def _say_encoding(self, encoding: str) -> None:
        if not self._said_encoding and (remark := variables.encoding_remark(encoding)):
            log().warning("%s", remark)
        self._said_encoding = True

    def remarks(self) -> list[str]:
        """Say what is odd about a session here: what we have to override, and what cannot work."""
        session = self._session(shared=False)
        try:
            found = variables.overridden(session)
            remark = variables.encoding_remark(session.encoding)
        finally:
            session.close()
        said = [f"{name} is {theirs}, holdfast uses {ours}" for name, (theirs, ours) in found.items()]
        return [remark, *said] if remark else said

    def close(self, connection: psycopg.Connection[Any]) -> None:
        """Close a connection, or give it back to whom it belongs."""
        connection.close()
        if self._lend_back is not None:
            self._lend_back(connection)  # a pool replaces one that is closed

    def is_passing(self, error: BaseException) -> bool:
        """Tell whether trying again at once is likely to work."""
        if isinstance(error, NotPrepared):
            self.shared = True  # there is a pooler: go on without
            self.pool.close()
            self.pool.reopen()
            return True
        return sessions.is_passing(error)


def connect_to(address: str, timeout: float) -> psycopg.Connection[Any]:
    """Connect to an address, as libpq reads it."""
    given = conninfo_to_dict(address)
    defaults = {**_LINE, "connect_timeout": max(math.ceil(timeout), _SHORTEST_CONNECT)}
    missing: dict[str, Any] = {name: value for name, value in defaults.items() if name not in given}
    return psycopg.connect(
        address, autocommit=True, prepare_threshold=None, fallback_application_name="holdfast", **missing
    )


def _refused(error: psycopg.Error) -> errors.StoreError:
    state = error.sqlstate
    if state:
        return failures.translate(state, str(error).strip())
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
            return failures.translate(code, text)
    if isinstance(error, psycopg.ProgrammingError):
        return errors.StoreMisconfigured(f"PostgreSQL: the url is no good ({text})")
    return errors.StoreUnavailable(f"PostgreSQL: cannot connect ({text})")
