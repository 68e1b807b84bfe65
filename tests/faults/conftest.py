from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.stores import _BUILT_IN
from tests.faults.processes import House

SERVERS = ["postgres", *(["mariadb"] if "mysql" in _BUILT_IN else [])]


@pytest.fixture(params=["sqlite", *SERVERS])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of a fresh store that processes share."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/locks.db"
    url: str = request.getfixturevalue(f"{request.param}_locks")
    return url


@pytest.fixture
def house(url: str, tmp_path: Path) -> Iterator[House]:
    """Processes, on every store they can share."""
    yield from house_of(url, tmp_path)


@pytest.fixture
def file_house(tmp_path: Path) -> Iterator[House]:
    """Processes on an SQLite file, for what only a file can suffer."""
    yield from house_of(f"sqlite:///{tmp_path}/locks.db", tmp_path)


@pytest.fixture(params=SERVERS)
def server_house(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[House]:
    """Processes on a server, for what only a server can do."""
    yield from house_of(request.getfixturevalue(f"{request.param}_locks"), tmp_path)


def house_of(url: str, folder: Path) -> Iterator[House]:
    if not sys.platform.startswith("linux"):
        pytest.skip("missing: Linux, for /proc")
    house = House(url, folder)
    yield house
    house.close()
