from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.stores import _BUILT_IN
from tests.clients.support import Stage

_names = itertools.count()

STORES = ["memory", "sqlite", "postgres", *(["mariadb"] if "mysql" in _BUILT_IN else [])]


@pytest.fixture(params=STORES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of a fresh store."""
    if request.param == "memory":
        return f"memory://test-{next(_names)}"
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/locks.db"
    url: str = request.getfixturevalue(f"{request.param}_locks")
    return url


@pytest.fixture(params=["sync", "async"])
def stage(request: pytest.FixtureRequest, url: str) -> Iterator[Stage]:
    """Both clients, on every store."""
    stage = Stage(request.param, url)
    yield stage
    stage.end()


# What these are about is in the plans, and in what both kinds of clients share. Waiting, keeping, losing,
# closing and cancelling is what each kind does in its own way: that is asked both ways everywhere.
ONE_WAY = (
    *("test_bad_input", "test_cluster", "test_electing", "test_every", "test_guarded", "test_operations"),
    *("test_taking", "test_terms", "test_watching"),
)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Ask some things one way on each server, to save time; on memory and SQLite both ways."""
    spared = {item for item in items if _is_spared(item)}
    if spared:
        config.hook.pytest_deselected(items=list(spared))
        items[:] = [item for item in items if item not in spared]


def _is_spared(item: pytest.Item) -> bool:
    other_way = "[async-postgres" in item.name or "[sync-mariadb" in item.name
    return other_way and item.path.name.startswith(ONE_WAY)
