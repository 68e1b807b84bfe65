"""A look at the file by a connection of its own, for a caller whose transaction is not to be touched.

The store's own connection will not do: a request may be under way there that waits until the caller commits.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar

from holdfast.stores.sql.run import Fetch, Row
from holdfast.stores.sqlite.database import SQL

T = TypeVar("T")

PATIENCE = 0.01  # for whoever writes: a request of ours is done by then, and a caller's transaction is not


def glance(path: Path, look: Callable[[Fetch], T], *, alone: bool = False) -> T:
    """Return what *look* finds, all of it as of one moment.

    *alone*: nobody writes meanwhile, the caller included; else it raises.
    """

    def fetch(name: str, /, **parameters: Any) -> list[Row]:
        return connection.execute(SQL[name], parameters).fetchall()

    with closing(sqlite3.connect(path, timeout=PATIENCE, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE" if alone else "BEGIN")
        return look(fetch)
