"""The store for ``mysql://`` and ``mariadb://``: of what it is put together.

Where connections come from is in `connections`, what is made of them in `source`.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import Any

from holdfast.errors import SettingsError, StoreError, StoreMisconfigured
from holdfast.stores.base import StoreOptions

try:
    import pymysql  # noqa: F401
except ImportError as error:
    raise StoreMisconfigured("mysql:// needs PyMySQL: pip install 'holdfast[mysql]'") from error

from holdfast.stores.mysql import connections
from holdfast.stores.mysql.dialect import MySQLDialect
from holdfast.stores.mysql.schema import SCHEMA
from holdfast.stores.mysql.signals import Doorbell
from holdfast.stores.mysql.source import Connect, Source
from holdfast.stores.sql.options import ServerOptions, split_url
from holdfast.stores.sql.servers import ServerStore
from holdfast.stores.sql.transactions.sessions import PooledSessions, is_passing


def from_url(url: str, options: StoreOptions) -> MySQLStore:
    """Return the store for ``mysql://user:password@host:port/database``.

    See `ServerOptions` and `connections.OPTIONS` for what may follow ``?``.
    """
    address, server = split_url(url)
    if server.schema is not None:
        raise SettingsError("MySQL has no schemas: name the database in the url, mysql://host/database")
    if server.pooler:
        raise SettingsError("pooler=yes is for PostgreSQL; use a pooler that keeps sessions apart")
    connect = connections.by_url(address)
    store = MySQLStore(
        options, server, connect, connections.by_url(server.listen) if server.listen else connect
    )
    store.in_database = connections.database_of(address)
    return store


def from_engine(engine: Any, options: StoreOptions) -> MySQLStore:
    """Return a store whose connections an SQLAlchemy engine makes, with its url, arguments and events."""
    connect = connections.by_engine(engine)
    return MySQLStore(options, ServerOptions(), connect, connect)


class MySQLStore(ServerStore):
    """See the module."""

    schema = SCHEMA

    def __init__(
        self, options: StoreOptions, server: ServerOptions, connect: Connect, listen: Connect
    ) -> None:
        source = Source(server, connect)
        listener = partial(source.new_listener, listen) if server.signals else None
        signals = Doorbell(listener, options.client.instance, self._hang_up)
        sessions = PooledSessions(source.pool, signals, source.check_schema, is_passing)
        dialect = MySQLDialect(sessions, options.history, signals, source)
        super().__init__(options, server, source, dialect, signals=server.signals)

    def _hang_up(self, instance: str, connection: int) -> None:
        with suppress(StoreError):
            self.sessions.fetch("hang_up", instance=instance, connection=connection)
