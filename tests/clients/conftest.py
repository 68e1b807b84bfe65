from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.support import Stage

_names = itertools.count()


def _url(store: str, folder: Path) -> str:
    return f"memory://test-{next(_names)}" if store == "memory" else f"sqlite:///{folder}/locks.db"


@pytest.fixture(params=["memory", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of a fresh store."""
    return _url(request.param, tmp_path)


@pytest.fixture(params=["sync", "async"])
def stage(request: pytest.FixtureRequest, url: str) -> Iterator[Stage]:
    """Both clients, on both stores."""
    stage = Stage(request.param, url)
    yield stage
    stage.end()
