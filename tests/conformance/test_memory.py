"""The suite, put to the memory store."""

import pytest

from holdfast.testing.conformance import MakeStore, StoreConformance


class TestMemory(StoreConformance):
    @pytest.fixture
    def make_store(self, memory_stores: MakeStore) -> MakeStore:
        return memory_stores
