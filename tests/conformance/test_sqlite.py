"""The suite, put to the SQLite store."""

import pytest

from holdfast.testing.conformance import MakeStore, StoreConformance


class TestSQLite(StoreConformance):
    @pytest.fixture
    def make_store(self, sqlite_stores: MakeStore) -> MakeStore:
        return sqlite_stores
