"""A few seeds of the simulation on each store. `make simulate` runs as many as you like."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from proof.simulation import Report, simulate
from tests.shared import once

MEMORY_SEEDS = range(120)
SQLITE_SEEDS = range(15)

FAULTS = (
    "answers lost",
    "answers slow",
    "crashes",
    "echoes",
    "pauses",
    "requests late",
    "requests lost",
    "requests refused",
    "requests repeated",
    "signals late",
    "signals lost",
    "signals repeated",
)
FAMILY = (
    "deadlocked",
    "done",
    "downgraded",
    "ended: CapacityMismatch",
    "ended: DeadlockDetected",
    "ended: Done",
    "ended: OperationFailed",
    "ended: UpgradeRefused",
    "failed",
    "handed over together",
    "operations done",
    "operations given up",
    "permits together",
    "refused: capacity",
    "refused: holds",
    "refused: take",
    "refused: upgrade",
    "resized",
    "shared together",
    "shut",
)
OUTCOMES = (
    "abandoned",
    "asked again",
    "broken",
    "claimed",
    "ended: LockTimeout",
    "ended: OutcomeUnknown",
    "ended: ReentryLimit",
    "ended: StoreUnavailable",
    "expired",
    "grants",
    "leases passed on",
    "handed over",
    "lost: broken",
    "lost: expired",
    "lost: max_hold reached",
    "lost: store unreachable",
    "re-entered",
    "released in vain",
    "successors",
    "swept",
    "tickets died",
    "unclaimed",
)


@pytest.fixture(scope="module")
def on_memory(tmp_path_factory: pytest.TempPathFactory) -> list[Report]:
    return once(tmp_path_factory, "seeds", lambda: [simulate(seed) for seed in MEMORY_SEEDS])


@pytest.fixture(scope="module")
def on_sqlite(tmp_path_factory: pytest.TempPathFactory) -> list[Report]:
    folder = tmp_path_factory.mktemp("simulation")
    return once(
        tmp_path_factory,
        "seeds-on-sqlite",
        lambda: [simulate(seed, store="sqlite", folder=folder) for seed in SQLITE_SEEDS],
    )


def test_every_invariant_holds_on_memory(on_memory: list[Report]):
    assert len(on_memory) == len(MEMORY_SEEDS)


def test_every_invariant_holds_on_sqlite(on_sqlite: list[Report]):
    assert len(on_sqlite) == len(SQLITE_SEEDS)


def test_the_faults_bite_and_the_interesting_things_happen(on_memory: list[Report]):
    total: Counter[str] = Counter()
    for report in on_memory:
        total.update(report.counts)
    assert [happened for happened in FAULTS + FAMILY + OUTCOMES if not total[happened]] == []


def test_both_stores_do_the_same(on_memory: list[Report], on_sqlite: list[Report]):
    """The memory store is the reference: from the same seed, the same requests, answers and signals."""
    expected = [report.trace_hash for report in on_memory[: len(on_sqlite)]]
    assert [report.trace_hash for report in on_sqlite] == expected


def test_some_seeds_are_calm_enough_for_the_strict_checks(on_memory: list[Report]):
    attentive = [report for report in on_memory if report.profile.attentive]
    assert any(report.counts["signals lost"] for report in attentive)
    assert any(report.counts["handed over"] for report in attentive)


def test_the_same_seed_gives_the_same_trace():
    assert simulate(7).trace_hash == simulate(7).trace_hash
    assert simulate(7).trace_hash != simulate(8).trace_hash


@pytest.mark.parametrize("hash_seed", ["1", "2"])
def test_a_trace_does_not_depend_on_the_process(hash_seed: str):
    """Nothing is iterated in the order of hashes, so a seed can be replayed anywhere."""
    command = [
        sys.executable,
        "-m",
        "proof.simulation",
        "--start=3",
        "--seeds=1",
        "--store=memory",
    ]
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    said = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    assert f"trace {simulate(3).trace_hash}" in said


def test_more_clients_than_usual_on_one_key():
    for seed in range(3):
        report = simulate(seed, clients=12, keys=1, duration=40.0)
        assert report.counts["grants"] > 0


def test_sqlite_without_a_folder_cleans_up_after_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    simulate(0, store="sqlite", duration=5.0)
    assert list(tmp_path.iterdir()) == []
