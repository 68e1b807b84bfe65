"""A part of the suite, put to a lock server over MySQL, through the HTTP store."""

from collections.abc import Callable, Iterator

import pytest

from holdfast.stores.base import Store
from holdfast.testing.conformance import MakeStore
from tests.conformance.serving import ServedByADatabase, stores_behind


class TestHTTPMySQL(ServedByADatabase):
    @pytest.fixture
    def way(self) -> Callable[[Store], Store]:
        """Directly: how a client asks does not depend on what is behind the server. The other way is tried
        over memory and PostgreSQL.
        """
        return lambda store: store

    @pytest.fixture
    def make_store(self, way: Callable[[Store], Store], mariadb_locks: str) -> Iterator[MakeStore]:
        yield from stores_behind(mariadb_locks, way)
