"""The suite, put to a lock server over Postgres, through the HTTP store."""

from collections.abc import Callable, Iterator

import pytest

from holdfast.stores.base import Store
from holdfast.testing.conformance import MakeStore
from tests.conformance.serving import ServedConformance, stores_behind


class TestHTTPPostgres(ServedConformance):
    @pytest.fixture
    def make_store(self, way: Callable[[Store], Store], postgres_locks: str) -> Iterator[MakeStore]:
        yield from stores_behind(postgres_locks, way)
