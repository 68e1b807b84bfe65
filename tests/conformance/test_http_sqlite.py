"""The suite, put to a lock server over SQLite, through the HTTP store."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast.stores.base import Store
from holdfast.testing.conformance import MakeStore
from tests.conformance.serving import ServedConformance, stores_behind


class TestHTTPSQLite(ServedConformance):
    @pytest.fixture
    def way(self) -> Callable[[Store], Store]:
        """Directly: over HTTP each store is asked one way, to save time."""
        return lambda store: store

    @pytest.fixture
    def make_store(self, way: Callable[[Store], Store], tmp_path: Path) -> Iterator[MakeStore]:
        yield from stores_behind(f"sqlite:///{tmp_path}/locks.db?busy_timeout=60", way)
