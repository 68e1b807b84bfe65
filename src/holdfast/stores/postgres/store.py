"""The store for ``postgresql://``: where its connections come from, and of what it is put together."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from holdfast.errors import SettingsError, StoreMisconfigured
from holdfast.stores.base import StoreOptions

try:
    import psycopg
    from psycopg.conninfo import conninfo_to_dict
except ImportError as error:
    raise StoreMisconfigured("postgresql:// needs psycopg 3: pip install 'holdfast[postgres]'") from error

from holdfast.stores.postgres.dialect import PostgresDialect
from holdfast.stores.postgres.schema import SCHEMA
from holdfast.stores.postgres.signals import Notifications
from holdfast.stores.postgres.source import Connect, Source, connect_to
from holdfast.stores.sql.options import ServerOptions, split_url
from holdfast.stores.sql.servers import ServerStore
from holdfast.stores.sql.transactions.sessions import PooledSessions


def from_url(url: str, options: StoreOptions) -> PostgresStore:
    """Return the store for ``postgresql://user@host/database``.

    See `ServerOptions` for what may follow ``?``; everything else there is libpq's.
    """
    address, server = split_url(url)
    connect = partial(connect_to, address, server.request_timeout)
    listen = None if server.pooler else connect
    if server.listen:
        listen = partial(connect_to, server.listen, server.request_timeout)
    store = PostgresStore(options, server, connect, listen)
    with suppress(psycopg.Error):  # whoever connects is told
        store.in_database = str(conninfo_to_dict(address).get("dbname") or "")
    return store


def from_pool(pool: Any, options: StoreOptions) -> PostgresStore:
    """Return a store that borrows its connections from a ``psycopg_pool.ConnectionPool``."""
    return PostgresStore(options, ServerOptions(), pool.getconn, pool.getconn, pool.putconn)


def from_engine(engine: Any, options: StoreOptions) -> PostgresStore:
    """Return a store whose connections an SQLAlchemy engine makes, with its url, arguments and events."""
    if engine.dialect.driver != "psycopg":
        raise SettingsError(
            f"the engine uses {engine.dialect.driver!r}, and holdfast psycopg 3: give the engine's url,"
            " engine.url, if that is all it takes to connect, or an engine for postgresql+psycopg://"
        )

    def connect() -> psycopg.Connection[Any]:
        borrowed = engine.raw_connection()
        borrowed.detach()  # it is ours now, and the engine's pool makes another one when it needs one
        connection: psycopg.Connection[Any] = borrowed.dbapi_connection
        connection.rollback()
        connection.autocommit = True
        return connection

    return PostgresStore(options, ServerOptions(), connect, connect)


class PostgresStore(ServerStore):
    """See the module."""

    schema = SCHEMA

    def __init__(
        self,
        options: StoreOptions,
        server: ServerOptions,
        connect: Connect,
        listen: Connect | None,
        give_back: Callable[[Any], None] | None = None,
    ) -> None:
        source = Source(server, connect, give_back)
        listen = listen if server.signals else None
        keeps = server.pooler is False
        signals = Notifications(listen, options.client.instance, source.close, keeps=keeps)
        check = partial(SCHEMA.check, server=server)
        sessions = PooledSessions(source.pool, signals, check, source.is_passing)
        dialect = PostgresDialect(sessions, options.history, signals, server)
        told = listen is not None
        can = {"signals": told, "tells_watchers": told, "tells_holders": False, "enters": True}
        super().__init__(options, server, source, dialect, **can)
