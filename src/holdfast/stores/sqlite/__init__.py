"""Locks in an SQLite file: the embedded default. Processes on one machine share it by its path."""

from holdfast.stores.sqlite.store import SQLiteStore, from_url

__all__ = ["SQLiteStore", "from_url"]
