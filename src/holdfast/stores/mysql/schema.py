"""The tables in MySQL and MariaDB.

Ranges of the history have no gaps between them: what happened before the first week is in ``p_old``, what
comes after the last one in ``p_rest``, and a new week is split off that while it is still empty.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from holdfast import errors
from holdfast.stores.mysql.session import MySQLSession
from holdfast.stores.sql import schema
from holdfast.stores.sql.files import SHARED, Statements
from holdfast.stores.sql.options import ServerOptions
from holdfast.stores.sql.schema import WEEK, Schema

PACKAGE = "holdfast.stores.mysql"
SQL = Statements(SHARED, PACKAGE)
TABLES = (*schema.TABLES, "signals")

_TABLE = re.compile(r"\bholdfast_(?=(?:" + "|".join(TABLES) + r")\b)")
# Of those who apply the schema at the same moment. Such names are the whole server's, and have 64 characters.
_LOCK = "concat('holdfast:schema:', left(sha1(database()), 32))"
_PATIENCE = 8

# Without it MariaDB makes an account that is misspelt, with no password. MySQL never does.
_CAREFULLY = "SET @holdfast_mode = @@sql_mode /*M! , sql_mode = 'NO_AUTO_CREATE_USER' */"
_AS_BEFORE = "SET sql_mode = @holdfast_mode"


def named(text: str, server: ServerOptions) -> str:
    """Return a statement with the names that the tables have here."""
    return _TABLE.sub(server.prefix, text)


class MySQLSchema(Schema[MySQLSession]):
    """See the module. No change of tables is rolled back: who is interrupted leaves it to the next one."""

    tables = TABLES

    def find(self, session: MySQLSession, server: ServerOptions) -> int | None:
        """Return the version of the tables; None if there are none."""
        table = self.table(server, "meta")
        if not session.script(f"SELECT 1 FROM {_listed([table])}"):  # noqa: S608
            # Tables on which one has no right are not in that list. To read one says which it is.
            with suppress(errors.SchemaMismatch):
                session.script(f"SELECT 1 FROM {table} LIMIT 0")  # noqa: S608
            return None
        rows = session.script(f"SELECT version FROM {table} WHERE id = 1")  # noqa: S608
        return int(rows[0][0]) if rows else None  # without the row somebody was interrupted

    @contextmanager
    def alone(self, session: MySQLSession) -> Iterator[None]:
        """Have a lock of the server's."""
        if session.script(f"SELECT GET_LOCK({_LOCK}, {_PATIENCE})") != [(1,)]:
            raise errors.StoreUnavailable("somebody else is changing holdfast's tables; try again")
        try:
            yield
        finally:
            with suppress(errors.StoreError):
                session.script(f"SELECT RELEASE_LOCK({_LOCK})")

    def counting(self, tables: Sequence[str]) -> str:
        """Return the statement that counts which of these tables there are."""
        return f"SELECT count(*) FROM {_listed(tables)}"  # noqa: S608

    def grants(self, server: ServerOptions, role: str, *, serving: bool, database: str) -> list[str]:
        """Return the statements; *role* is an account."""
        to, where = account(role), schema.quoted(database, "`")
        rights = self.rights | schema.SERVERS if serving else self.rights
        return [f"GRANT {verbs} ON {where}.{server.prefix}{table} TO {to}" for table, verbs in rights.items()]

    def grant(self, session: MySQLSession, server: ServerOptions, role: str, *, serving: bool) -> None:
        """Grant it."""
        ((database,),) = session.script("SELECT database()")
        session.script(_CAREFULLY)
        try:
            for statement in self.grants(server, role, serving=serving, database=str(database)):
                session.script(statement)
        finally:
            session.script(_AS_BEFORE)

    def partitions(self, session: MySQLSession, server: ServerOptions) -> list[str]:
        """Return the names of the history's partitions."""
        rows = session.script(
            "SELECT partition_name FROM information_schema.partitions"  # noqa: S608
            f" WHERE table_schema = database() AND table_name = '{self.table(server, 'history')}'"
        )
        return [name for (name,) in rows if name]

    def make_weeks(
        self, session: MySQLSession, server: ServerOptions, new: list[int], there: list[int]
    ) -> None:
        """Make partitions, if we may: those after the last one there is."""
        last = there[-1] if there else -1
        made = [f"PARTITION p_w{w} VALUES LESS THAN ({(w + 1) * WEEK})" for w in new if w > last]
        if made:
            rest = ", ".join([*made, "PARTITION p_rest VALUES LESS THAN MAXVALUE"])
            self._change(session, server, f"REORGANIZE PARTITION p_rest INTO ({rest})")

    def drop_weeks(self, session: MySQLSession, server: ServerOptions, over: list[int]) -> None:
        """Drop partitions, if we may."""
        self._change(session, server, f"DROP PARTITION {', '.join(f'p_w{week}' for week in over)}")

    def _change(self, session: MySQLSession, server: ServerOptions, change: str) -> None:
        # No right to, or somebody else is at it, or somebody reads the history and would have to wait for us.
        with suppress(errors.StoreError):
            session.script(f"ALTER TABLE {self.table(server, 'history')} {change}")


def account(text: str) -> str:
    """Return the name of an account, quoted; *text* is ``user@host``, or a user from anywhere, or a role."""
    user, at, host = text.rpartition("@")
    return "@".join(schema.quoted(part, "`") for part in ((user, host) if at else (text,)))


def _listed(tables: Sequence[str]) -> str:
    names = ", ".join(f"'{name}'" for name in tables)
    return f"information_schema.tables WHERE table_schema = database() AND table_name IN ({names})"


SCHEMA = MySQLSchema(PACKAGE, {"signals": "SELECT, INSERT, DELETE"})
