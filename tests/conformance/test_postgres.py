"""The suite, put to PostgreSQL."""

from collections.abc import Callable

import psycopg
import pytest

from holdfast.stores.base import Store
from holdfast.stores.sql.options import split_url
from holdfast.testing.conformance import MakeStore, StoreConformance


class TestPostgres(StoreConformance):
    @pytest.fixture
    def way(self) -> Callable[[Store], Store]:
        """Directly; MariaDB is asked by way of an event loop, SQLite and memory both ways."""
        return lambda store: store

    @pytest.fixture
    def make_store(self, postgres_stores: MakeStore) -> MakeStore:
        return postgres_stores

    @pytest.fixture
    def connect(self, postgres_locks: str):
        return lambda: psycopg.connect(split_url(postgres_locks)[0])
