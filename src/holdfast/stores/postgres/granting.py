"""What a role may have to do with the tables: enough for every request, and no more."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.stores.postgres.session import PostgresSession
from holdfast.stores.sql.options import ServerOptions

PUBLIC = "public"  # where the tables are, unless somebody says otherwise

# Partitions are read and written through their table, and so need nothing of their own; but for the rest,
# where sweeps delete row by row.
CLIENTS = {
    "SELECT, UPDATE": ("meta", "feed"),
    "SELECT, INSERT, UPDATE, DELETE": (
        *("locks", "holds", "tickets", "ended", "outcomes"),
        *("instances", "work"),
    ),
    "SELECT, INSERT, UPDATE": ("history",),
    "SELECT, UPDATE, DELETE": ("history_rest",),
}
SERVERS = {"SELECT, INSERT, UPDATE, DELETE": ("access",)}


def grants(server: ServerOptions, role: str, *, serving: bool, database: str, schema: str = "") -> list[str]:
    """Return what grants *role* what a client needs; if it is *serving*, what a lock server does.

    *schema*: where the tables are, if the url does not say so.
    """
    return list(_grants(server, quoted(role), serving=serving, database=database, schema=schema))


def _grants(server: ServerOptions, role: str, *, serving: bool, database: str, schema: str) -> Iterator[str]:
    if database:
        yield f"GRANT CONNECT ON DATABASE {quoted(database)} TO {role}"
    yield f"GRANT USAGE ON SCHEMA {quoted(server.schema or schema or PUBLIC)} TO {role}"
    where = f"{quoted(server.schema)}." if server.schema else ""
    for rights in (CLIENTS, SERVERS) if serving else (CLIENTS,):
        for verbs, tables in rights.items():
            names = ", ".join(f"{where}{server.prefix}{table}" for table in tables)
            yield f"GRANT {verbs} ON {names} TO {role}"


def grant(session: PostgresSession, server: ServerOptions, role: str, *, serving: bool) -> None:
    """Grant it, in one transaction."""
    ((database, schema),) = session.script("SELECT current_database(), current_schema()")
    statements = grants(
        server,
        role,
        serving=serving,
        database=(database or b"").decode(),
        schema=(schema or b"").decode(),
    )
    session.script("; ".join(["BEGIN", *statements, "COMMIT"]))


def quoted(name: str) -> str:
    """Return an identifier as it is, whatever is in it."""
    return '"' + name.replace('"', '""') + '"'
