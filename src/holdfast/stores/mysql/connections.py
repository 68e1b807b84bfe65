"""Connections to MySQL and MariaDB: made from a url or by an engine, and set up to our needs."""

from __future__ import annotations

import re
import ssl
import struct
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import pymysql
from pymysql.constants import CLIENT, COMMAND
from pymysql.err import MySQLError

from holdfast.errors import SettingsError, StoreMisconfigured
from holdfast.stores.base import YES
from holdfast.stores.mysql import failures, galera, variables
from holdfast.stores.sql.options import ServerOptions
from holdfast.stores.sql.rules.columns import Row

OLDEST = {variables.MARIADB: (10, 6), variables.MYSQL: (8, 0)}  # can skip locked rows, and read JSON
CONNECT_TIMEOUT = 10.0

# What may follow ? in the url, besides ours, and is the driver's business.
OPTIONS: dict[str, Callable[[str], Any]] = {
    **dict.fromkeys(("unix_socket", "bind_address"), str),
    "connect_timeout": float,
    **dict.fromkeys(("ssl_ca", "ssl_cert", "ssl_key"), str),
    **dict.fromkeys(
        ("ssl_disabled", "ssl_verify_cert", "ssl_verify_identity"), lambda text: YES.get(text.lower(), False)
    ),
}
LEFT_OUT = ("charset", "use_unicode")  # in many urls, and about their own connections: ours speak utf8mb4

_CLOCK = "SELECT SYSDATE(6), SLEEP(0.001), SYSDATE(6)"
_IS_GALERA = {variables.MARIADB: galera.IS_ON, variables.MYSQL: "NULL"}


class _Connection(pymysql.Connection):
    """A connection that is made quickly: PyMySQL would read all certificates of the machine for each.

    That is where the url says nothing about TLS. Then it is used if the server can, and nothing is verified.
    """

    _unverified: ssl.SSLContext | None = None

    def _create_ssl_ctx(self, options: Any) -> ssl.SSLContext:
        if options:
            return super()._create_ssl_ctx(options)  # type: ignore[no-any-return, misc]
        if _Connection._unverified is None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
            _Connection._unverified = context
        return _Connection._unverified


_VERSION = re.compile(r"(?:5\.5\.5-)?(\d+)\.(\d+)")  # MariaDB hides behind an old version of MySQL


def by_url(url: str) -> Callable[[float], Any]:
    """Return what connects to ``mysql://user:password@host:port/database``."""
    parts = urlsplit(url)
    database = database_of(url)
    if not database:
        raise SettingsError("the url names no database; write mysql://user@host/database")
    options: dict[str, Any] = {}
    try:
        for name, value in parse_qsl(parts.query, keep_blank_values=True):
            if name not in LEFT_OUT:
                options[name] = OPTIONS[name](value)
        port = parts.port or 3306
    except KeyError as error:
        known = ", ".join((*ServerOptions.__match_args__, *OPTIONS))
        raise SettingsError(f"the url has an unknown option {error}; there are {known}") from error
    except ValueError as error:
        raise SettingsError(f"an option in the url is no good: {error}") from error
    arguments: dict[str, Any] = {
        "host": parts.hostname or "localhost",
        "port": port,
        "user": unquote(parts.username) if parts.username else None,
        "password": unquote(parts.password or "").encode(),  # text would have to be Latin-1
        "database": database,
        "connect_timeout": CONNECT_TIMEOUT,
        **options,
    }

    def connect(timeout: float) -> Any:
        return _connected(
            lambda: _Connection(
                **arguments,
                charset="utf8mb4",
                autocommit=True,
                client_flag=CLIENT.MULTI_STATEMENTS,  # and not FOUND_ROWS
                read_timeout=timeout,
                write_timeout=timeout,
                program_name="holdfast",
            )
        )

    return connect


def database_of(url: str) -> str:
    """Return the name of the database that a url names."""
    return unquote(urlsplit(url).path.strip("/"))


def by_engine(engine: Any) -> Callable[[float], Any]:
    """Return what takes connections from an SQLAlchemy engine for good."""
    if engine.dialect.driver != "pymysql":
        raise SettingsError(
            f"the engine uses {engine.dialect.driver!r}, and holdfast PyMySQL: give the engine's url,"
            " engine.url, if that is all it takes to connect, or an engine for mysql+pymysql://"
        )

    def take() -> Any:
        borrowed = engine.raw_connection()
        borrowed.detach()  # it is ours now, and the engine's pool makes another one when it needs one
        connection = borrowed.dbapi_connection
        connection.rollback()
        connection.set_character_set("utf8mb4")
        # What else is asked for when connecting: leave to send several statements at once.
        connection._execute_command(COMMAND.COM_SET_OPTION, struct.pack("<H", 0))  # noqa: SLF001
        connection._read_packet()  # noqa: SLF001
        return connection

    def connect(timeout: float) -> Any:
        connection = _connected(take)
        connection._read_timeout = connection._write_timeout = timeout  # noqa: SLF001
        return connection

    return connect


def settings(connection: Any, *, patient: bool = False) -> str:
    """Return what sets a session up, for this kind of server; the last statement is for `check`.

    *patient*: a statement may take as long as it likes.
    """
    told = connection.get_server_info()
    kind = kind_of(connection)
    match = _VERSION.match(told)
    version = (int(match[1]), int(match[2])) if match else (0, 0)
    if version < OLDEST[kind]:
        connection.close()
        oldest = ".".join(map(str, OLDEST[kind]))
        raise StoreMisconfigured(f"the server is {kind} {told}; holdfast needs {kind} {oldest} or later")
    database = connection.db.decode() if isinstance(connection.db, bytes) else connection.db
    return f"{variables.text(kind, database, listening=patient)}{_CLOCK}, {_IS_GALERA[kind]}"


def kind_of(connection: Any) -> str:
    """Tell MariaDB from MySQL."""
    return variables.MARIADB if "mariadb" in connection.get_server_info().lower() else variables.MYSQL


def check(rows: list[Row]) -> bool:
    """Raise `StoreMisconfigured` if the server's clock stands still while a statement runs.

    And tell whether the server is a node of a Galera cluster.
    """
    ((before, _, after, is_galera),) = rows
    if before == after:
        raise StoreMisconfigured(
            "the server runs with sysdate-is-now, so a lease could begin in the past: remove that option from"
            " its configuration and restart it"
        )
    return bool(is_galera == "ON")


def _connected(connect: Callable[[], Any]) -> Any:
    try:
        return connect()
    except MySQLError as error:
        raise failures.refused(*failures.told(error)) from error
    except (RuntimeError, ValueError) as error:  # the driver lacks a package for this log-in, or an argument
        raise StoreMisconfigured(f"MySQL: cannot connect ({error})") from error
    except Exception as error:  # SQLAlchemy wraps what the driver raised
        cause = getattr(error, "orig", None)
        if not isinstance(cause, MySQLError):
            raise
        raise failures.refused(*failures.told(cause)) from error
