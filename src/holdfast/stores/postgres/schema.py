"""The tables in PostgreSQL."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial

from holdfast import errors
from holdfast.stores.postgres.session import PostgresSession
from holdfast.stores.sql import schema
from holdfast.stores.sql.files import SHARED, Statements
from holdfast.stores.sql.options import ServerOptions
from holdfast.stores.sql.schema import WEEK, Schema
from holdfast.stores.sql.transactions.session import RowLocked

PACKAGE = "holdfast.stores.postgres"
SQL = Statements(SHARED, PACKAGE)
PUBLIC = "public"  # where the tables are, unless somebody says otherwise

# What a client may have to call, with the types that tell it from others of that name.
FUNCTIONS = {
    "join": "text, text, text, text, text, bigint, bigint, bigint, bigint",
    "hand_over": "text, text, bigint, bigint",
    "join_full": "text, text, text, text, text, bigint, bigint, bigint, text, text, bigint",
    "pass_permit": "text, text, bigint, bigint, bigint",
}

_NAME = re.compile(
    r"\bholdfast_(?=" + "|".join((*schema.TABLES, *(f"{each}\\(" for each in FUNCTIONS))) + ")"
)
_LOCK = 7_205_759_403_792_794  # of those who apply the schema at the same moment; any number
_PATIENCE = "7s"  # less than a statement may take
# The default storage may have been changed to one that cannot lock rows as ours must be.
_APPLYING = (
    f"BEGIN; SET LOCAL lock_timeout = '{_PATIENCE}'; SET LOCAL default_table_access_method = 'heap';"
    f" SELECT pg_advisory_xact_lock({_LOCK})"
)


def named(text: str, server: ServerOptions) -> str:
    """Return a statement with the names that tables and functions have here."""
    return _NAME.sub(f"{_where(server)}{server.prefix}", text)


class PostgresSchema(Schema[PostgresSession]):
    """See the module. It is created in one transaction."""

    def __init__(self, package: str, rights: dict[str, str]) -> None:
        super().__init__(package, rights)
        self.oldest = 1  # without functions, which are not needed. So a release can be rolled out first

    def script(self, server: ServerOptions, since: int = 0) -> str:
        """Return what creates the tables, or brings them from the version *since* to ours."""
        where = ""
        if name := server.schema:
            where = f'CREATE SCHEMA IF NOT EXISTS "{name}";\nSET LOCAL search_path = "{name}";\n'
        return where + super().script(server, since)

    def find(self, session: PostgresSession, server: ServerOptions) -> int | None:
        """Return the version of the tables; None if there are none."""
        name = self.table(server, "meta")
        # By itself, to_regclass may tell what was there before we waited for an advisory lock. It is up to
        # date after a table has been opened.
        if not session.script(f"SELECT 1 FROM pg_class WHERE oid = to_regclass('{name}')"):  # noqa: S608
            return None
        rows = session.script(f"SELECT version FROM {name} WHERE id = 1")  # noqa: S608
        return int(rows[0][0] or 0) if rows else 0

    @contextmanager
    def alone(self, session: PostgresSession) -> Iterator[None]:
        """Be in a transaction that nobody else is in."""
        try:
            session.script(_APPLYING)
            yield
            session.script("COMMIT")
        except RowLocked as error:
            session.roll_back()
            raise errors.StoreUnavailable("somebody else is changing holdfast's tables; try again") from error
        except BaseException:
            session.roll_back()
            raise

    def table(self, server: ServerOptions, name: str) -> str:
        """Return the whole name of a table."""
        return f"{_where(server)}{server.prefix}{name}"

    def counting(self, tables: Sequence[str]) -> str:
        """Return the statement that counts which of these tables there are."""
        there = ", ".join(f"to_regclass('{table}')" for table in tables)
        return f"SELECT num_nonnulls({there})"

    def grants(
        self, server: ServerOptions, role: str, *, serving: bool, database: str, where: str = ""
    ) -> list[str]:
        """Return the statements. *where* the tables are, if the url does not say so."""
        to = quoted(role)
        connect = f"GRANT CONNECT ON DATABASE {quoted(database)} TO {to}"
        use = f"GRANT USAGE ON SCHEMA {quoted(server.schema or where or PUBLIC)} TO {to}"
        granted = [connect, use] if database else [use]
        for rights in (self.rights, schema.SERVERS) if serving else (self.rights,):
            for verbs in dict.fromkeys(rights.values()):
                tables = [self.table(server, table) for table, each in rights.items() if each == verbs]
                granted.append(f"GRANT {verbs} ON {', '.join(tables)} TO {to}")
        granted.append(f"GRANT EXECUTE ON FUNCTION {', '.join(self._functions(server))} TO {to}")
        return granted

    def _functions(self, server: ServerOptions) -> list[str]:
        return [f"{self.table(server, name)}({types})" for name, types in FUNCTIONS.items()]

    def drop(self, session: PostgresSession, server: ServerOptions) -> int:
        """Drop the functions as well. What they are about may be missing already."""
        session.script("; ".join(f"DROP FUNCTION IF EXISTS {each}" for each in self._functions(server)))
        return super().drop(session, server)

    def grant(self, session: PostgresSession, server: ServerOptions, role: str, *, serving: bool) -> None:
        """Grant it, in one transaction."""
        ((database, where),) = session.script("SELECT current_database(), current_schema()")
        statements = self.grants(
            server, role, serving=serving, database=(database or b"").decode(), where=(where or b"").decode()
        )
        session.script("; ".join(["BEGIN", *statements, "COMMIT"]))

    def partitions(self, session: PostgresSession, server: ServerOptions) -> list[str]:
        """Return the names of the history's partitions."""
        rows = session.script(
            "SELECT c.relname FROM pg_inherits AS i JOIN pg_class AS c ON c.oid = i.inhrelid"  # noqa: S608
            f" WHERE i.inhparent = '{self.table(server, 'history')}'::regclass"
        )
        return [name.decode() for (name,) in rows if name]

    def make_weeks(
        self, session: PostgresSession, server: ServerOptions, new: list[int], there: list[int]
    ) -> None:
        """Make partitions, if we may.

        They are attached and not created in place: that would lock out whoever reads or writes the history.
        """
        table = self.table(server, "history")
        for week in new:
            try:
                session.script(
                    f"BEGIN; CREATE TABLE {table}_w{week} (LIKE {table} INCLUDING ALL);"
                    f" ALTER TABLE {table} ATTACH PARTITION {table}_w{week}"
                    f" FOR VALUES FROM ({week * WEEK}) TO ({(week + 1) * WEEK}); COMMIT"
                )
            except errors.StoreError:  # no right to, somebody else has, or the rest has events of that week
                session.roll_back()

    def drop_weeks(self, session: PostgresSession, server: ServerOptions, over: list[int]) -> None:
        """Drop partitions, if we may."""
        for week in over:
            with suppress(errors.StoreMisconfigured, errors.StoreUnavailable):
                session.script(f"DROP TABLE IF EXISTS {self.table(server, 'history')}_w{week}")


quoted = partial(schema.quoted, mark='"')


def _where(server: ServerOptions) -> str:
    return f'"{server.schema}".' if server.schema else ""


# Partitions are read and written through their table, and so need nothing of their own; but for the rest,
# where sweeps delete row by row.
SCHEMA = PostgresSchema(
    PACKAGE, {"history": "SELECT, INSERT, UPDATE", "history_rest": "SELECT, UPDATE, DELETE"}
)
