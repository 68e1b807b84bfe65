"""What the stores in database servers have in common: options, connections from a pool, and tables.

The tables are for those who look after them: made, shown, dropped.
"""

from __future__ import annotations

from typing import Any

from holdfast import errors
from holdfast.stores.base import UP_TO_DATE, StoreOptions
from holdfast.stores.sql.dialect import Dialect
from holdfast.stores.sql.options import ServerOptions
from holdfast.stores.sql.schema import Schema
from holdfast.stores.sql.store import SqlStore
from holdfast.stores.sql.transactions.sessions import PooledSessions


class ServerStore(SqlStore):
    """A store in a database server. *source* makes its sessions."""

    sessions: PooledSessions
    schema: Schema[Any]

    def __init__(
        self, options: StoreOptions, server: ServerOptions, source: Any, dialect: Dialect[Any], **traits: Any
    ) -> None:
        super().__init__(options, dialect, lanes=server.pool_size, pins=True, **traits)
        self.server = server
        self.source = source
        self.in_database = ""  # which of the server's, as far as a url says so

    def tables(self) -> ServerTables:
        """Return the tables, to look after them."""
        return ServerTables(self)

    def remarks(self) -> list[str]:
        """Say what is odd about a session here: what we have to override, and what cannot work."""
        remarks: list[str] = self.source.remarks()
        return remarks


class ServerTables:
    """The tables that a store uses."""

    def __init__(self, store: ServerStore) -> None:
        self._schema, self._server = store.schema, store.server
        self._use = store.sessions.use
        self._database = store.in_database

    def status(self) -> str:
        """Return the version in words."""
        ours = self._schema.version
        found = self._use(lambda session: self._schema.find(session, self._server))
        if found is None:
            return f"no holdfast tables ({self._server.prefix}*); make them with: holdfast schema apply URL"
        if found == ours:
            return f"version {found}, {UP_TO_DATE}"
        if found < ours:
            return f"version {found}; this release needs {ours}: holdfast schema apply URL"
        return f"version {found}; this release knows {ours} at most: use a newer one"

    def script(self) -> str:
        """Return the SQL that makes them."""
        return self._schema.script(self._server)

    def apply(self) -> None:
        """Make them, or bring them up to this release's version."""
        self._use(lambda session: self._schema.apply(session, self._server))

    def grants(self, role: str, *, serving: bool) -> str:
        """Return the SQL that lets *role* use them. Asks nobody."""
        found = self._schema.grants(self._server, _name(role), serving=serving, database=self._database)
        return "".join(f"{statement};\n" for statement in found)

    def grant(self, role: str, *, serving: bool) -> None:
        """Let *role* use them."""
        name = _name(role)
        self._use(lambda session: self._schema.grant(session, self._server, name, serving=serving))

    def held(self) -> int:
        """Return how many locks are held, as far as there are tables."""
        try:
            return int(self._use(lambda session: session.fetch("count_held", {"now": None}))[0][0])
        except errors.SchemaMismatch:
            return 0

    def drop(self) -> int:
        """Remove the tables; return how many there were."""
        return self._use(lambda session: self._schema.drop(session, self._server))


def _name(role: str) -> str:
    if not role.strip() or not role.isprintable():
        raise errors.SettingsError(f"the role is {role!r}; it must be a name")
    return role
