"""A few seeds of the simulated engines on each store. `make simulate FLEET=engines` runs many more."""

from __future__ import annotations

from collections import Counter

import pytest

from proof.simulation import Report
from proof.simulation.cluster import simulate_cluster
from tests.shared import once

MEMORY_SEEDS = range(60)
SQLITE_SEEDS = range(6)

HAPPENED = (
    "answers lost",
    "broken",
    "claims echoed",
    "crashes",
    "drained",
    "expired",
    "finish: NotHeld",
    "handed over",
    "in the end completed",
    "in the end failed",
    "instance dead",
    "instance left",
    "lost: broken",
    "lost: expired",
    "memberships lost",
    "offers known",
    "pauses",
    "requests late",
    "requests repeated",
    "signals lost",
    "swept",
    "work assigned → failed",
    "work assigned → offered",
    "work begun again",
    "writes refused",
    "writes that were done already",
)


@pytest.fixture(scope="module")
def on_memory(tmp_path_factory: pytest.TempPathFactory) -> list[Report]:
    return once(tmp_path_factory, "engines", lambda: [simulate_cluster(seed) for seed in MEMORY_SEEDS])


def test_every_invariant_holds_on_memory(on_memory: list[Report]):
    assert len(on_memory) == len(MEMORY_SEEDS)


def test_sqlite_does_the_same(on_memory: list[Report], tmp_path_factory: pytest.TempPathFactory):
    folder = tmp_path_factory.mktemp("engines")
    on_sqlite = [simulate_cluster(seed, store="sqlite", folder=folder) for seed in SQLITE_SEEDS]
    expected = [report.trace_hash for report in on_memory[: len(on_sqlite)]]
    assert [report.trace_hash for report in on_sqlite] == expected


def test_the_faults_bite_and_the_interesting_things_happen(on_memory: list[Report]):
    total: Counter[str] = Counter()
    for report in on_memory:
        total.update(report.counts)
    assert [happened for happened in HAPPENED if not total[happened]] == []
