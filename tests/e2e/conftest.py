from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast import Holdfast
from tests.e2e.browsing import browser, page, server  # noqa: F401


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The address of a fresh file, which the command line uses if it is told no other."""
    url = f"sqlite:///{tmp_path / 'locks.db'}"
    monkeypatch.setenv("HOLDFAST_URL", url)
    return url


@pytest.fixture
def locks(url: str) -> Iterator[Holdfast]:
    with Holdfast(url) as locks:
        yield locks
