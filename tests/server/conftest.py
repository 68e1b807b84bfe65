"""Tests of the server: they may be coroutines, each with its own event loop; and the stores behind it."""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import os
import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from holdfast.core.access import GrantAccess
from holdfast.identity import new_client
from holdfast.server import ServerSettings
from holdfast.stores import open_store
from holdfast.stores.base import StoreOptions
from holdfast.testing.server import ServerThread
from tests.server.callers import Scene
from tests.server.streaming import STORES, fresh


@pytest.fixture(params=STORES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return fresh(request, tmp_path, request.param)


@pytest.fixture
def memory(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return fresh(request, tmp_path)


@pytest.fixture(scope="module", params=["memory", "sqlite"])
def scene(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    url = (
        f"memory://{os.urandom(4).hex()}"
        if request.param == "memory"
        else f"sqlite:///{tmp_path_factory.mktemp('rights')}/locks.db"
    )
    secret = "b" * 43
    settings = ServerSettings(url=url, port=0, auth="required", history="all", log_level="error")
    with closing(open_store(url, StoreOptions(new_client()))) as store, ServerThread(settings) as thread:
        # The first token is made in the store itself, as ``holdfast token create`` does.
        store.open()
        digest = hashlib.sha256(secret.encode()).hexdigest()
        store.execute(GrantAccess("b" * 12, "boss", digest, ("admin:*",)))
        found = re.search(r":(\d+)/?$", thread.server.url)
        assert found is not None
        scene = Scene(int(found[1]), f"hf_{'b' * 12}_{secret}")
        scene.stage()
        yield scene


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a coroutine function in a new loop; leave everything else to others."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    wanted = pyfuncitem._fixtureinfo.argnames
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in wanted}))
    return True
