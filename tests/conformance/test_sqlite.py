"""The suite, put to the SQLite store."""

import sqlite3
from pathlib import Path

import pytest

from holdfast.testing.conformance import MakeStore, StoreConformance


class TestSQLite(StoreConformance):
    @pytest.fixture
    def make_store(self, sqlite_stores: MakeStore) -> MakeStore:
        return sqlite_stores

    @pytest.fixture
    def connect(self, tmp_path: Path):
        return lambda: sqlite3.connect(tmp_path / "locks.db")
