"""A lock server answers and signals as the memory store does, on random requests, whatever is behind it."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.stores import open_store
from holdfast.stores.base import StoreOptions
from holdfast.stores.memory import MemoryStore
from holdfast.testing.compare import compare
from holdfast.testing.conformance import CLIENT
from holdfast.testing.server import ServerThread, settled
from tests.conformance.serving import settings
from tests.extent import first

SEEDS = 3
STEPS = 200


def compare_behind(url: str, history, seed: int, about) -> None:
    options = StoreOptions(CLIENT, history)
    with ServerThread(settings(url, history)) as serving:
        store = settled(open_store(serving.server.url, options))
        store.open()
        try:
            compare(MemoryStore(options), store, seed=seed, steps=STEPS, client=CLIENT, about=about)
        finally:
            store.close()


@pytest.mark.parametrize("history", ["all", "notable"])
@pytest.mark.parametrize("about", ["locks", "cluster"])
@pytest.mark.parametrize("seed", first(1, range(2000, 2000 + SEEDS)))
class TestAServerAnswersAsMemoryDoes:
    def test_over_memory(self, history, seed: int, about) -> None:
        compare_behind(f"memory://compared-{history}-{seed}-{about}", history, seed, about)

    def test_over_sqlite(self, tmp_path: Path, history, seed: int, about) -> None:
        compare_behind(f"sqlite:///{tmp_path}/locks.db", history, seed, about)

    def test_over_postgres(self, postgres_locks: str, history, seed: int, about) -> None:
        compare_behind(postgres_locks, history, seed, about)

    def test_over_mysql(self, mariadb_locks: str, history, seed: int, about) -> None:
        compare_behind(mariadb_locks, history, seed, about)
