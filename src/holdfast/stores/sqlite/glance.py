"""A look at the file by a connection of its own, for a caller whose transaction is not to be touched.

The store's own connection will not do: a request may be under way there that waits until the caller commits.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import AbstractContextManager, closing
from pathlib import Path
from typing import Any, TypeVar

from holdfast.stores.sql.callers.connections import Caller
from holdfast.stores.sql.callers.rehearsal import Foreseen
from holdfast.stores.sql.rules.runner import Fetch
from holdfast.stores.sqlite.database import SQL, Transaction, is_busy

T = TypeVar("T")

PATIENCE = 0.01  # with a writer: a request of ours is done by then, and a caller's transaction is not
_COMMITS = "PRAGMA data_version"  # changes with every commit of another connection


def glance(path: Path, look: Callable[[Fetch], T]) -> T:
    """Return what *look* finds, all of it as of one moment."""
    with _connected(path) as connection:
        connection.execute("BEGIN")
        return look(Transaction(connection))


def foresee(path: Path, theirs: Caller, rehearse: Callable[[Fetch], Any]) -> Foreseen:
    """Rehearse while nobody writes: then the caller has not changed anything either.

    Raise that the file is busy while somebody else writes. No question tells who does. But if the caller
    writes, they can write on at once. And if they could not before, somebody else has committed meanwhile;
    only of a writer that has rolled back, just between two statements here, there is no trace.
    """
    with _connected(path) as connection:
        (commits,) = connection.execute(_COMMITS)
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            if not is_busy(error):
                raise
            _write_at_once(theirs)
            (now,) = connection.execute(_COMMITS)
            return Foreseen(None, sure=now != commits)
        return Foreseen(rehearse(Transaction(connection)), sure=True)


def _write_at_once(theirs: Caller) -> None:
    """Become the writer, or raise without waiting."""
    ((timeout,),) = theirs.execute("PRAGMA busy_timeout", {})
    try:
        theirs.execute("PRAGMA busy_timeout = 0", {})
        theirs.execute(SQL["lock_row"], {"key": ""})
    except Exception as error:
        if isinstance(cause := getattr(error, "orig", None), sqlite3.Error):  # SQLAlchemy has wrapped it
            raise cause from error
        raise
    finally:
        theirs.execute(f"PRAGMA busy_timeout = {timeout}", {})


def _connected(path: Path) -> AbstractContextManager[sqlite3.Connection]:
    return closing(sqlite3.connect(path, timeout=PATIENCE, isolation_level=None))
