"""The `acquire` and `release` statements of the server stores, on their drivers, and nothing else."""

from __future__ import annotations

import re
from typing import Any

from bench import bare, servers
from holdfast.stores.sql.files import SHARED, Statements

TTL = 30_000_000


def acquiring(key: str, attempt: str) -> dict[str, Any]:
    """Return the parameters of `acquire`."""
    return {"key": key, "attempt": attempt, "owner": bare.OWNER, "ttl": TTL, "now": None, **bare.WHO}


def releasing(key: str, attempt: str, token: int) -> dict[str, Any]:
    """Return the parameters of `release`."""
    return {"key": key, "attempt": attempt, "token": token, "now": None}


class BarePostgres:
    """Prepared once and run through libpq, as directly as psycopg allows."""

    def __init__(self, url: str) -> None:
        from holdfast.stores.postgres.schema import SQL
        from holdfast.stores.postgres.session import Statement

        self._connection = servers.postgres(url)
        self._pg = self._connection.pgconn
        self._acquire = Statement("acquire", SQL.acquire)
        self._release = Statement("release", SQL.release)
        for statement in (self._acquire, self._release):
            self._pg.prepare(statement.name, statement.text)

    def pair(self, key: str) -> None:
        attempt = bare.new_attempt()
        execute = self._pg.exec_prepared
        granted = execute(self._acquire.name, self._acquire.values(acquiring(key, attempt)))
        token = int(granted.get_value(0, 0))
        released = execute(self._release.name, self._release.values(releasing(key, attempt, token)))
        assert released.ntuples == 1

    def close(self) -> None:
        self._connection.close()


class BareMariaDB:
    """Run through PyMySQL's cursor, which writes the parameters into the text."""

    def __init__(self, url: str) -> None:
        sql = mariadb_statements()
        self._connection = servers.mariadb(url)
        self._cursor = self._connection.cursor()
        self._acquire, self._acquire_new, self._release = (
            re.sub(r":([a-z_]+)", r"%(\1)s", sql[name].replace("%", "%%"))
            for name in ("acquire", "acquire_new", "release")
        )

    def pair(self, key: str) -> None:
        attempt = bare.new_attempt()
        cursor = self._cursor
        if not cursor.execute(self._acquire, acquiring(key, attempt)):
            cursor.execute(self._acquire_new, acquiring(key, attempt))
        assert cursor.execute(self._release, releasing(key, attempt, cursor.lastrowid)) == 1

    def fill(self, keys: list[str]) -> None:
        """Make sure that every key has its row."""
        self._connection.begin()
        for key in keys:
            self.pair(key)
        self._connection.commit()

    def close(self) -> None:
        self._connection.close()


def mariadb_statements() -> Statements:
    return Statements(SHARED, "holdfast.stores.mysql")
