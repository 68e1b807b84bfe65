"""What an account may have to do with the tables: enough for every request, and no more."""

from __future__ import annotations

from holdfast.stores.mysql.session import MySQLSession
from holdfast.stores.sql.options import ServerOptions

CLIENTS = {
    "meta": "SELECT, UPDATE",
    "feed": "SELECT, UPDATE",
    "locks": "SELECT, INSERT, UPDATE, DELETE",
    "holds": "SELECT, INSERT, UPDATE, DELETE",
    "tickets": "SELECT, INSERT, UPDATE, DELETE",
    "ended": "SELECT, INSERT, UPDATE, DELETE",
    "outcomes": "SELECT, INSERT, UPDATE, DELETE",
    "history": "SELECT, INSERT, UPDATE, DELETE",
    "signals": "SELECT, INSERT, DELETE",
    "instances": "SELECT, INSERT, UPDATE, DELETE",
    "work": "SELECT, INSERT, UPDATE, DELETE",
}
SERVERS = {"access": "SELECT, INSERT, UPDATE, DELETE"}

# Without it MariaDB makes an account that is misspelt, with no password. MySQL never does.
_CAREFULLY = "SET @holdfast_mode = @@sql_mode /*M! , sql_mode = 'NO_AUTO_CREATE_USER' */"
_AS_BEFORE = "SET sql_mode = @holdfast_mode"


def grants(server: ServerOptions, role: str, *, serving: bool, database: str) -> list[str]:
    """Return what grants *role*, an account, what a client needs; if it is *serving*, a lock server."""
    rights = CLIENTS | SERVERS if serving else CLIENTS
    to = account(role)
    where = quoted(database)
    return [f"GRANT {verbs} ON {where}.{server.prefix}{table} TO {to}" for table, verbs in rights.items()]


def grant(session: MySQLSession, server: ServerOptions, role: str, *, serving: bool) -> None:
    """Grant it."""
    ((database,),) = session.script("SELECT database()")
    session.script(_CAREFULLY)
    try:
        for statement in grants(server, role, serving=serving, database=str(database)):
            session.script(statement)
    finally:
        session.script(_AS_BEFORE)


def account(text: str) -> str:
    """Return the name of an account, quoted; *text* is ``user@host``, or a user from anywhere, or a role."""
    user, at, host = text.rpartition("@")
    return f"{quoted(user)}@{quoted(host)}" if at else quoted(text)


def quoted(name: str) -> str:
    """Return an identifier as it is, whatever is in it."""
    return "`" + name.replace("`", "``") + "`"
