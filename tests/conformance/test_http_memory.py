"""The suite, put to a lock server over Memory, through the HTTP store."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast.stores.base import Store
from holdfast.testing.conformance import AsyncAdapter, MakeStore
from tests.conformance.serving import ServedConformance, stores_behind


class TestHTTPMemory(ServedConformance):
    @pytest.fixture
    def way(self) -> Callable[[Store], Store]:
        """By way of an event loop; see `test_http_sqlite`."""
        return AsyncAdapter

    @pytest.fixture
    def make_store(self, way: Callable[[Store], Store], tmp_path: Path) -> Iterator[MakeStore]:
        yield from stores_behind(f"memory://{tmp_path.name}", way)
