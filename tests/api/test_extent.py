"""What is left out of a run is left out on purpose, and its turn comes."""

from __future__ import annotations

import itertools
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests import pythons, rotation
from tests.extent import choose

STORES = ("memory", "sqlite", "postgres", "mariadb")
SERVED = ("http-sqlite", "http-postgres", "http-mariadb")
NAMES = [f"test_{number}" for number in range(60)]


class Item(SimpleNamespace):
    """As much of a test as is looked at."""

    __hash__ = object.__hash__

    def get_closest_marker(self, name: str) -> object:
        return self.marks.get(name)


def item(name: str, *values: str, file: str = "test_file.py", **marks: bool) -> Any:
    nodeid = f"tests/{file}::{name}" + (f"[{'-'.join(values)}]" if values else "")
    callspec = SimpleNamespace(params=dict(enumerate(values)))
    return Item(nodeid=nodeid, path=Path(file), callspec=callspec, marks=marks, fixturenames=())


def matrix(names: list[str], **options: Any) -> list[Any]:
    """Return tests of each way on each store, and some behind servers."""
    pairs = [*itertools.product(("sync", "async"), STORES), *itertools.product(SERVED)]
    return [item(name, *pair, **options) for name in names for pair in pairs]


def values(items: set[Any]) -> list[tuple[str, ...]]:
    return sorted(tuple(item.callspec.params.values()) for item in items)


@pytest.mark.parametrize("name", NAMES[:5])
def test_a_test_is_usually_asked_both_ways_with_and_without_a_server(name: str) -> None:
    chosen = values(choose(matrix([name]), "usual"))
    assert len(chosen) == 2
    assert sum(pair[-1] in ("memory", "sqlite") for pair in chosen) == 1
    assert chosen[0][0] != chosen[1][0]  # one by threads, one by tasks; or behind a server


@pytest.mark.parametrize("extent", ["quick", "usual"])
def test_each_pair_has_its_share(extent: str) -> None:
    chosen = Counter(values(choose(matrix(NAMES), extent)))
    wanted = [pair for pair in Counter(values(set(matrix(["test"])))) if extent == "usual" or _local(pair)]
    assert set(chosen) == set(wanted)
    assert min(chosen.values()) > 2


def _local(pair: tuple[str, ...]) -> bool:
    return pair[-1] in ("memory", "sqlite")


def test_the_parts_are_all_that_is_usually_left_out_and_each_once() -> None:
    items = [*matrix(NAMES), item("test_long", full=True)]
    parts = [one for part in range(1, 7) for one in choose(items, f"{part}/6")]
    assert len(parts) == len(set(parts))
    assert set(parts) == set(items) - choose(items, "usual")
    assert len(set(items) - choose(items, "usual")) > len(NAMES)


def test_what_is_the_clients_own_needs_no_server_and_what_is_the_stores_own_is_asked_of_each() -> None:
    own = values(choose(matrix(["test_a"], file="test_bad_input.py"), "usual"))
    assert {pair[-1] for pair in own} <= {"memory", "sqlite"}
    stores = values(choose(matrix(["test_a"], file="test_fencing.py"), "usual"))
    assert Counter(pair[-1] for pair in stores) == dict.fromkeys((*STORES, *SERVED), 1)


def test_tests_that_differ_by_something_else_are_different_questions() -> None:
    items = [item("test_a", "3", store) for store in STORES] + [
        item("test_a", "4", store) for store in STORES
    ]
    assert {pair[0] for pair in values(choose(items, "quick"))} == {"3", "4"}


def test_everything_has_its_turn() -> None:
    turns = [
        " ".join(word for words in rotation.steps(turn).values() for word in words) for turn in range(12)
    ]
    for part in range(1, rotation.MATRIX_PARTS + 1):
        assert any(f"--extent {part}/{rotation.MATRIX_PARTS} " in turn for turn in turns)
    for part in range(1, rotation.MUTANT_PARTS + 1):
        assert any(f"--part={part}/{rotation.MUTANT_PARTS} " in turn for turn in turns)
    for store in rotation.PROOF_STORES:
        assert any(f"--stores {store} " in turn for turn in turns)


def test_the_pythons_are_those_that_the_project_claims() -> None:
    assert pythons.claimed()[0] == "3.11"
    assert pythons.OURS in pythons.claimed()
    found = pythons.find(pythons.OURS)
    assert found is None or pythons.OURS in str(found)
