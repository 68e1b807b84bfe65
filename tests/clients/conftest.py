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
