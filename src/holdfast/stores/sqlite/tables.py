"""The tables in an SQLite file, for those who look after them: made, shown, dropped."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from urllib.parse import quote

from holdfast.errors import SettingsError, StoreMisconfigured
from holdfast.stores.base import UP_TO_DATE, StoreOptions
from holdfast.stores.sqlite.database import SCHEMA, SQL, VERSION
from holdfast.stores.sqlite.store import from_url


class SQLiteTables:
    """The tables in an SQLite file. Looking at them does not make the file."""

    def __init__(self, url: str, options: StoreOptions) -> None:
        self._store = from_url(url, options)
        self.path = self._store.path

    def apply(self) -> None:
        """Make them, or bring them up to this release's version: what every client does."""
        self._store.open()
        self._store.close()

    def script(self) -> str:
        """Return the SQL of all versions."""
        return "\n".join(f"-- version {version}\n{text}" for version, text in SCHEMA)

    def status(self) -> str:
        """Return the version in words."""
        if not self.path.exists():
            return f"{self.path}: no file yet; the first client makes it"
        with self._connected("ro") as connection:
            if not self._tables(connection):
                return f"{self.path}: no holdfast tables; the first client makes them (version {VERSION})"
            found = connection.execute(SQL.schema_version).fetchone()
        version = found[0] if found else None
        if version == VERSION:
            return f"{self.path}: version {version}, {UP_TO_DATE}"
        return f"{self.path}: version {version}; this release has {VERSION}"

    def grants(self, role: str, *, serving: bool) -> str:
        """Refuse: who may read and write the file may use the locks."""
        raise SettingsError(
            f"{self.path} is a file, and files have no roles: let {role!r} read and write it and its folder,"
            " by owner, group and mode (chmod g+rwX)"
        )

    def grant(self, role: str, *, serving: bool) -> None:
        """Refuse."""
        self.grants(role, serving=serving)

    def held(self) -> int:
        """Return how many locks are held, as far as there are tables."""
        if not self.path.exists():
            return 0
        with self._connected("ro") as connection:
            if "holdfast_locks" not in self._tables(connection):
                return 0
            now = connection.execute(SQL.now, {"now": None}).fetchone()
            (held,) = connection.execute(
                "SELECT count(*) FROM holdfast_locks WHERE owner IS NOT NULL AND expires_at > ?", now
            ).fetchone()
        return int(held)

    def drop(self) -> int:
        """Remove the tables; return how many there were."""
        if not self.path.exists():
            return 0
        with self._connected("rw") as connection:
            connection.execute("BEGIN IMMEDIATE")
            tables = self._tables(connection)
            for name in tables:
                connection.execute(f'DROP TABLE "{name}"')
            connection.execute("COMMIT")
        return len(tables)

    @contextmanager
    def _connected(self, mode: str) -> Iterator[sqlite3.Connection]:
        try:
            address = f"file:{quote(str(self.path))}?mode={mode}"
            with closing(sqlite3.connect(address, uri=True, isolation_level=None)) as connection:
                yield connection
        except sqlite3.Error as error:
            raise StoreMisconfigured(f"{self.path}: {error}") from error

    @staticmethod
    def _tables(connection: sqlite3.Connection) -> list[str]:
        rows = connection.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table' AND name GLOB 'holdfast_*' ORDER BY name"
        )
        return [name for (name,) in rows]
