"""The suite, put to PostgreSQL."""

import pytest

from holdfast.testing.conformance import MakeStore, StoreConformance


class TestPostgres(StoreConformance):
    @pytest.fixture
    def make_store(self, postgres_stores: MakeStore) -> MakeStore:
        return postgres_stores
