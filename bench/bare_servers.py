"""The `acquire` and `release` statements of the server stores, on their drivers, and nothing else."""

from __future__ import annotations

import re
from typing import Any

from bench import bare, servers
from holdfast.stores.sql.files import SHARED, Statements

TTL = 30_000_000
PARAMETER = re.compile(r"(?<!:):([a-z_]+)")


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

        self._connection = servers.postgres(url)
        self._pg = self._connection.pgconn
        self._names = {name: self._prepare(name, getattr(SQL, name)) for name in ("acquire", "release")}

    def _prepare(self, name: str, text: str) -> list[str]:
        """Prepare a statement with numbered parameters; return their names in that order."""
        names = list(dict.fromkeys(PARAMETER.findall(text)))
        numbered = PARAMETER.sub(lambda found: f"${names.index(found[1]) + 1}", text)
        prepared = self._pg.prepare(name.encode(), numbered.encode())
        assert not prepared.error_message, prepared.error_message
        return names

    def _ask(self, name: str, given: dict[str, Any]) -> Any:
        values = [
            None if (value := given[each]) is None else str(value).encode() for each in self._names[name]
        ]
        return self._pg.exec_prepared(name.encode(), values)

    def pair(self, key: str) -> None:
        attempt = bare.new_attempt()
        token = int(self._ask("acquire", acquiring(key, attempt)).get_value(0, 0))
        assert self._ask("release", releasing(key, attempt, token)).ntuples == 1

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
