"""Where sessions of MySQL and MariaDB come from: a url or an engine makes connections, set up here."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

from holdfast import errors
from holdfast.log import log
from holdfast.stores.mysql import connections, galera, variables
from holdfast.stores.mysql.schema import SCHEMA, SQL, named
from holdfast.stores.mysql.session import MySQLSession
from holdfast.stores.mysql.signals import REST
from holdfast.stores.mysql.statement import BLOCKS, Statement
from holdfast.stores.pool import Pool
from holdfast.stores.sql.options import ServerOptions

Connect = Callable[[float], Any]  # with how long an answer may take


class Source:
    """Makes sessions, and has them in a pool."""

    def __init__(self, server: ServerOptions, connect: Connect) -> None:
        self.server = server
        self.connect = connect
        self._said_refused = False
        self.node = ""  # of a Galera cluster
        self.tells_level = ""  # store_id for a caller's connection, once we know what this server can tell
        self.statements = {
            name: Statement(named(text, server), is_block=name in BLOCKS) for name, text in SQL
        }
        self.pool: Pool[MySQLSession] = Pool(self.new_session, server.pool_size, server.request_timeout)

    def new_session(self) -> MySQLSession:
        """Connect, and set up a session."""
        return self._set_up(self.connect(self.server.request_timeout))

    def new_listener(self, connect: Connect) -> MySQLSession:
        """Connect, and set up a session that waits for signals."""
        return self._set_up(connect(self.server.request_timeout + REST), patient=True)

    def _set_up(self, connection: Any, *, patient: bool = False) -> MySQLSession:
        settings = connections.settings(connection, patient=patient)
        session = MySQLSession(connection, self.statements, self._say_refused)
        self.tells_level = ""  # it may be another server
        try:
            if connections.check(session.script(settings)):
                self._use_node(session)
        except BaseException:
            session.break_off()
            raise
        return session

    def _use_node(self, session: MySQLSession) -> None:
        """Use the node of a Galera cluster that a session is on, or refuse to."""
        session.valid_until = time.monotonic() + galera.VALID
        try:
            self.node = galera.use(session, f"{self.server.prefix}locks")
        except galera.OtherNode as error:
            if not self.node:
                raise
            # While a cluster fails over. Clients that run ask again; who connects now is told what is wrong.
            raise errors.StoreUnavailable(str(error)) from error

    def remarks(self) -> list[str]:
        """Say what is odd about a session here: what we have to override."""
        connection = self.connect(self.server.request_timeout)
        session = MySQLSession(connection, self.statements, self._say_refused)
        try:
            kind, settings = connections.kind_of(connection), connections.settings(connection)
            found = variables.overridden(session, kind, settings)
        finally:
            session.break_off()
        return [f"{name} is {theirs}, holdfast uses {ours}" for name, (theirs, ours) in found.items()]

    def _say_refused(self) -> None:
        if not self._said_refused:
            self._said_refused = True
            log().warning(
                "a waiter could not be woken: it uses another account of the database, and that takes the"
                " privilege CONNECTION ADMIN (CONNECTION_ADMIN on MySQL). Till then such waiters learn of a"
                " hand-over by their heartbeat"
            )

    def check_schema(self, session: MySQLSession) -> None:
        """Create the tables if that is asked for, and raise `SchemaMismatch` if they are not ours."""
        SCHEMA.check(session, self.server)
        if self.server.apply_schema and session.valid_until < math.inf:
            self._use_node(session)  # before there were tables nothing could be noted
