from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.stores import _BUILT_IN
from tests.faults.processes import House
from tests.servers.lock_server import LockServer

SERVERS = ["postgres", *(["mariadb"] if "mysql" in _BUILT_IN else [])]
STORES = ["sqlite", *SERVERS]

# What a process does when it is interrupted, forks or leaves does not depend on what is behind its server:
# these are tried with a server over SQLite. All others, with one over every store.
OF_THE_CLIENT = ("test_bad_moments", "test_forking", "test_interrupting", "test_leaving")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Try each test of processes on every store, directly and through a lock server."""
    if "url" in metafunc.fixturenames and not hasattr(metafunc.module, "url"):  # some have one of their own
        alike = metafunc.module.__name__.rpartition(".")[2] in OF_THE_CLIENT
        served = [f"http-{kind}" for kind in (STORES[:1] if alike else STORES)]
        metafunc.parametrize("url", [*STORES, *served], indirect=True)


def fresh(request: pytest.FixtureRequest, kind: str, folder: Path) -> str:
    """Return the address of a fresh store of that kind."""
    if kind == "sqlite":
        return f"sqlite:///{folder}/locks.db"
    url: str = request.getfixturevalue(f"{kind}_locks")
    return url


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of a fresh store that processes share."""
    return fresh(request, request.param, tmp_path)


@pytest.fixture
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The same, or the address of a lock server in front of one."""
    way, _, kind = request.param.rpartition("-")
    store = fresh(request, kind, tmp_path)
    if not way:
        yield store
        return
    with LockServer(store, tmp_path / "server.log", "--log-level", "warning") as server:
        yield server.url


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
