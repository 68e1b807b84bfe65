"""Addresses as SQLAlchemy spells them, in our spelling: what people have in their settings already.

A url may name a driver, ``postgresql+psycopg://``. That says how to connect, not where: holdfast connects by
a driver of its own. Drivers that read a url in another way are not here, and are refused with the others.
"""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import quote, unquote

from holdfast.errors import SettingsError

_POSTGRES = frozenset({"asyncpg", "pg8000", "psycopg", "psycopg2", "psycopg2cffi", "psycopg_async"})
_MYSQL = frozenset(
    {"aiomysql", "asyncmy", "cymysql", "mariadbconnector", "mysqlconnector", "mysqldb", "pymysql"}
)
DRIVERS = {
    "mariadb": _MYSQL,
    "mysql": _MYSQL,
    "postgres": _POSTGRES,
    "postgresql": _POSTGRES,
    "sqlite": frozenset({"aiosqlite", "pysqlite"}),
}

# As SQLAlchemy reads it: a password ends at the first @, and may have anything else in it.
_ACCOUNT = re.compile(r"([^:/]*)(?::([^@]*))?@")
_ASYNCPG = ("prepared_statement_cache_size", "async_fallback")  # options about asyncpg's own connections


def without_driver(url: str) -> str:
    """Return *url* without the driver that it names, if that is one of those above."""
    scheme, _, rest = url.partition("://")
    database, _, driver = scheme.lower().partition("+")
    if driver not in DRIVERS.get(database, ()):
        return url
    if account := _ACCOUNT.match(rest):
        user, password = account[1], account[2]
        rest = f"{_account(unquote(user), password and unquote(password))}{rest[account.end() :]}"
    place, _, query = rest.partition("?")
    options = [option.replace("+", "%20") for option in query.split("&") if option]  # libpq reads + as a plus
    if driver == "asyncpg":  # what libpq calls sslmode, in the same words
        options = [re.sub("^ssl=", "sslmode=", option) for option in options]
        options = [option for option in options if option.partition("=")[0] not in _ASYNCPG]
    if any(option.startswith("ssl_ca=") for option in options):  # that is to check; ours is only to encrypt
        options = [option.replace("ssl_check_hostname=", "ssl_verify_identity=") for option in options]
        given = {option.partition("=")[0] for option in options}
        options += [f"{name}=yes" for name in ("ssl_verify_cert", "ssl_verify_identity") if name not in given]
    return f"{database}://{place}{'?' if options else ''}{'&'.join(options)}"


def of_parts(url: Any) -> str:
    """Return the text of an SQLAlchemy ``URL``, with its password, which ``str()`` hides."""
    account = _account(url.username, url.password) if url.username is not None else ""
    host = f"[{url.host}]" if ":" in (url.host or "") else url.host or ""
    port = f":{url.port}" if url.port is not None else ""
    path = f"/{quote(url.database)}" if url.database is not None else ""
    options = [
        f"{quote(name, safe='')}={quote(value, safe='')}"
        for name, values in url.query.items()
        for value in ([values] if isinstance(values, str) else values)
    ]
    query = f"?{'&'.join(options)}" if options else ""
    name = url.drivername
    if name in ("mysql", "mariadb"):  # what they say about TLS is in their terms, too
        name += "+mysqldb"
    return without_driver(f"{name}://{account}{host}{port}{path}{query}")


def of_file(engine: Any) -> str:
    """Return the address of the file that an SQLAlchemy engine for SQLite works on.

    The connections to it are ours: an engine's pool may have one only, and its settings are for other work.
    """
    path, driver = engine.url.database or ":memory:", engine.dialect.driver
    if driver not in DRIVERS["sqlite"]:
        raise SettingsError(
            f"the engine uses {driver!r}, whose files holdfast cannot open: keep the locks in a file of their"
            " own, 'sqlite:///locks.db'"
        )
    if path == ":memory:":
        raise SettingsError(
            f"the engine's database {engine.url} is in memory, where no other connection sees it: use an"
            " engine on a file, create_engine('sqlite:///app.db'), or 'memory://' for locks in this process"
        )
    if path.startswith("file:") or "uri" in engine.url.query:
        raise SettingsError(
            f"the engine names its file by a URI, {path!r}: give the file's path, 'sqlite:////path/to/app.db'"
        )
    return f"sqlite:///{quote(path)}"


def _account(user: str, password: Any) -> str:
    secret = f":{quote(str(password), safe='')}" if password is not None else ""
    return f"{quote(user, safe='')}{secret}@"
