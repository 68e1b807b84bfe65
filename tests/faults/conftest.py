from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.processes import House


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    if not sys.platform.startswith("linux"):
        pytest.skip("missing: Linux, for /proc")
    house = House(tmp_path / "locks.db")
    yield house
    house.close()
