"""The tables in a database server, for those who look after them: made, shown, dropped."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from holdfast import errors
from holdfast.stores.base import UP_TO_DATE, not_made_yet
from holdfast.stores.sql.options import ServerOptions

if TYPE_CHECKING:
    from holdfast.stores.sql.server import ServerStore


class Schema(Protocol):
    """What a database's own module knows about them."""

    VERSION: int

    def script(self, server: ServerOptions, since: int = 0) -> str: ...

    def version(self, session: Any, server: ServerOptions) -> int | None: ...

    def apply(self, session: Any, server: ServerOptions) -> tuple[int | None, int]: ...

    def drop(self, session: Any, server: ServerOptions) -> int: ...


class Granting(Protocol):
    """What a database's own module knows about rights."""

    def grants(self, server: ServerOptions, role: str, *, serving: bool, database: str) -> list[str]: ...

    def grant(self, session: Any, server: ServerOptions, role: str, *, serving: bool) -> None: ...


def check(schema: Schema, session: Any, server: ServerOptions) -> None:
    """Raise `SchemaMismatch` unless the tables are of our version."""
    found = schema.version(session, server)
    if found is None:
        raise not_made_yet(
            errors.SchemaMismatch(
                f"the database has no holdfast tables ({server.prefix}*) that this account can see."
                " Run: holdfast schema apply URL; or put apply_schema=yes into the url"
            )
        )
    if found != schema.VERSION:
        raise mismatch(found, schema.VERSION)


def mismatch(found: int, ours: int) -> errors.SchemaMismatch:
    """Return the error for tables of a version that is not ours."""
    older = 1 <= found < ours
    hint = "run: holdfast schema apply URL" if older else "use the release that made them"
    error = errors.SchemaMismatch(
        f"the database has holdfast tables of version {found}; this release needs {ours}: {hint}"
    )
    return not_made_yet(error) if older else error


class ServerTables:
    """The tables that *store* uses."""

    def __init__(self, store: ServerStore, schema: Schema, granting: Granting, server: ServerOptions) -> None:
        self._store = store
        self._schema = schema
        self._granting = granting
        self._server = server

    def status(self) -> str:
        """Return the version in words."""
        ours = self._schema.VERSION
        found = self._store.use(lambda session: self._schema.version(session, self._server))
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
        self._store.use(lambda session: self._schema.apply(session, self._server))

    def grants(self, role: str, *, serving: bool) -> str:
        """Return the SQL that lets *role* use them. Asks nobody."""
        found = self._granting.grants(
            self._server, _name(role), serving=serving, database=self._store.in_database
        )
        return "".join(f"{statement};\n" for statement in found)

    def grant(self, role: str, *, serving: bool) -> None:
        """Let *role* use them."""
        name = _name(role)
        self._store.use(lambda session: self._granting.grant(session, self._server, name, serving=serving))

    def held(self) -> int:
        """Return how many locks are held, as far as there are tables."""
        try:
            return int(self._store.use(lambda session: session.fetch("count_held", {"now": None}))[0][0])
        except errors.SchemaMismatch:
            return 0

    def drop(self) -> int:
        """Remove the tables; return how many there were."""
        return self._store.use(lambda session: self._schema.drop(session, self._server))


def _name(role: str) -> str:
    if not role.strip() or not role.isprintable():
        raise errors.SettingsError(f"the role is {role!r}; it must be a name")
    return role
