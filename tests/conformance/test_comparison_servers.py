"""Database servers answer as the memory store does, on random requests."""

from __future__ import annotations

import pytest

from holdfast.stores import open_store
from holdfast.stores.base import StoreOptions
from holdfast.stores.memory import MemoryStore
from holdfast.testing.compare import compare
from holdfast.testing.conformance import CLIENT
from tests.extent import first

SEEDS = 8
STEPS = 250


@pytest.mark.parametrize("history", ["all", "notable"])
@pytest.mark.parametrize("seed", first(3, range(SEEDS)))
@pytest.mark.parametrize("about", ["locks", "cluster"])
def test_postgres_answers_as_memory_does(postgres_locks: str, history, seed: int, about) -> None:
    """At the level all every grant takes the slow path, at notable the fast ones are taken."""
    options = StoreOptions(CLIENT, history)
    store = open_store(postgres_locks, options)
    store.open()
    try:
        compare(MemoryStore(options), store, seed=1000 + seed, steps=STEPS, client=CLIENT, about=about)
    finally:
        store.close()
