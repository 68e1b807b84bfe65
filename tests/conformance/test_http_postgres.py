"""A part of the suite, put to a lock server over Postgres, through the HTTP store."""

from collections.abc import Callable, Iterator

import pytest

from holdfast.stores.base import Store
from holdfast.testing.conformance import AsyncAdapter, MakeStore
from tests.conformance.serving import ServedByADatabase, stores_behind


class TestHTTPPostgres(ServedByADatabase):
    @pytest.fixture
    def way(self) -> Callable[[Store], Store]:
        """By way of an event loop; see `test_http_mysql`."""
        return AsyncAdapter

    @pytest.fixture
    def make_store(self, way: Callable[[Store], Store], postgres_locks: str) -> Iterator[MakeStore]:
        yield from stores_behind(postgres_locks, way)
