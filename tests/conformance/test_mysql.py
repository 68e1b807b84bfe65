"""The suite, put to MySQL; the server is MariaDB."""

from collections.abc import Callable
from urllib.parse import urlsplit

import pymysql
import pytest

from holdfast.stores.base import Store
from holdfast.testing.conformance import AsyncAdapter, MakeStore, StoreConformance


class TestMySQL(StoreConformance):
    @pytest.fixture
    def way(self) -> Callable[[Store], Store]:
        """By way of an event loop; PostgreSQL is asked directly, SQLite and memory both ways."""
        return AsyncAdapter

    @pytest.fixture
    def make_store(self, mysql_stores: MakeStore) -> MakeStore:
        return mysql_stores

    @pytest.fixture
    def connect(self, mariadb_locks: str):
        url = urlsplit(mariadb_locks)
        return lambda: pymysql.connect(
            host=url.hostname, port=url.port, user=url.username, database=url.path[1:], ssl_disabled=True
        )
