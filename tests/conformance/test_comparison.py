"""SQLite answers as the memory store does, on random requests; and the comparison would notice if not."""

from pathlib import Path

import pytest

from holdfast.core.cluster import Claim, Claimed
from holdfast.core.requests import Acquire, Granted, Release, Released
from holdfast.stores.base import Store, StoreOptions
from holdfast.stores.memory import MemoryStore
from holdfast.stores.sqlite import SQLiteStore
from holdfast.testing.compare import compare
from holdfast.testing.conformance import CLIENT
from tests.extent import first

SEEDS = 60
STEPS = 400
BLOCK = 10  # seeds a test: a file is made for each seed, a line of output is not


@pytest.mark.parametrize("history", ["all", "notable"])
@pytest.mark.parametrize("block", first(2, range(SEEDS // BLOCK)))
def test_sqlite_answers_as_memory_does(tmp_path: Path, history, block: int) -> None:
    """At the level all every grant takes the slow path, at notable the fast ones are taken."""
    options = StoreOptions(CLIENT, history)
    for seed in range(block * BLOCK, (block + 1) * BLOCK):
        sqlite = SQLiteStore(tmp_path / f"{seed}.db", options)
        sqlite.open()
        compare(MemoryStore(options), sqlite, seed=seed, steps=STEPS, client=CLIENT)
        sqlite.close()


@pytest.mark.parametrize("history", ["all", "notable"])
@pytest.mark.parametrize("block", first(1, range(SEEDS // BLOCK // 2)))
def test_sqlite_answers_groups_as_memory_answers_one_after_the_other(
    tmp_path: Path, history, block: int
) -> None:
    """A group is one transaction, and nobody can tell by its answers."""
    options = StoreOptions(CLIENT, history)
    for seed in range(block * BLOCK, (block + 1) * BLOCK):
        sqlite = SQLiteStore(tmp_path / f"{seed}.db", options)
        sqlite.open()
        compare(MemoryStore(options), sqlite, seed=seed, steps=STEPS // 8, client=CLIENT, groups=16)
        sqlite.close()


@pytest.mark.parametrize("groups", [1, 16])
@pytest.mark.parametrize("history", ["all", "notable"])
def test_sqlite_answers_about_clusters_as_memory_does(tmp_path: Path, history, groups: int) -> None:
    """Instances and their work, beside locks of the same keys."""
    options = StoreOptions(CLIENT, history)
    for seed in range(BLOCK):
        sqlite = SQLiteStore(tmp_path / f"{seed}.db", options)
        sqlite.open()
        steps = STEPS if groups == 1 else STEPS // 8
        memory = MemoryStore(options)
        compare(memory, sqlite, seed=seed, steps=steps, client=CLIENT, groups=groups, about="cluster")
        sqlite.close()


class Wrong(MemoryStore):
    """A store with a mistake in it."""

    def __init__(self, mistake: str) -> None:
        super().__init__(StoreOptions(CLIENT))
        self.mistake = mistake

    def execute(self, request):
        answer = super().execute(request)
        match self.mistake, request, answer:
            case "token", Acquire(), Granted(holds=2):
                return Granted(answer.token + 1, answer.expires_in, answer.holds)
            case "release", Release(), Released(next=None):
                return Released(answer.holds, next="nobody")
            case "claim", Claim(number=number), Claimed(works=works) if works and number > 1:
                return Claimed(works[:-1], answer.again_in)
        return answer

    def listen(self, listener) -> None:
        if self.mistake != "mute":
            super().listen(listener)


@pytest.mark.parametrize("mistake", ["token", "release", "mute"])
def test_a_difference_is_reported_with_what_it_takes_to_replay_it(mistake: str) -> None:
    reference: Store = MemoryStore(StoreOptions(CLIENT))
    with pytest.raises(AssertionError) as caught:
        compare(reference, Wrong(mistake), seed=7, steps=400, client=CLIENT, show=5)
    report = str(caught.value)
    assert report.startswith("seed 7, step ")
    assert "reference " in report
    assert "other " in report
    past = report.partition("the last steps")[2]
    assert 1 <= past.count(" -> ") <= 5


def test_a_difference_about_clusters_is_reported() -> None:
    with pytest.raises(AssertionError, match="the stores disagree"):
        compare(MemoryStore(StoreOptions(CLIENT)), Wrong("claim"), seed=7, client=CLIENT, about="cluster")


def test_a_difference_in_a_group_is_reported() -> None:
    with pytest.raises(AssertionError, match="the stores disagree"):
        compare(MemoryStore(StoreOptions(CLIENT)), Wrong("token"), seed=7, client=CLIENT, groups=8)


@pytest.mark.parametrize("about", ["locks", "cluster"])
def test_the_same_seed_asks_the_same_questions(about) -> None:
    """Else a difference could not be replayed."""
    asked: list[list[object]] = [[], []]
    for log in asked:
        store = MemoryStore(StoreOptions(CLIENT))
        execute = store.execute
        store.execute = lambda request, log=log, execute=execute: (log.append(request), execute(request))[1]
        compare(store, MemoryStore(StoreOptions(CLIENT)), seed=3, steps=200, client=CLIENT, about=about)
    assert asked[0] == asked[1]
