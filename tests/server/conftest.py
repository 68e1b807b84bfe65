"""Tests of the server: they may be coroutines, each with its own event loop; and the stores behind it."""

from __future__ import annotations

import asyncio
import inspect
from pathlib import Path

import pytest

from tests.server.streaming import STORES, fresh


@pytest.fixture(params=STORES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return fresh(request, tmp_path, request.param)


@pytest.fixture
def memory(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return fresh(request, tmp_path)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a coroutine function in a new loop; leave everything else to others."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    wanted = pyfuncitem._fixtureinfo.argnames
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in wanted}))
    return True
