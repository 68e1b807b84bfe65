"""The store for ``sqlite://``: locks in a file, which processes of one machine share."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast
from urllib.parse import parse_qsl, unquote

from holdfast.core.requests import Request
from holdfast.errors import SettingsError
from holdfast.stores.base import READS, StoreOptions, one_by_one
from holdfast.stores.sql.store import SqlStore
from holdfast.stores.sqlite.dialect import SQLiteDialect
from holdfast.stores.sqlite.sessions import FileSessions
from holdfast.stores.sqlite.signals import SUPPORTED, Doorbells

A = TypeVar("A")

_SYNCHRONOUS = ("normal", "full", "extra")
# In many urls, and about their own connections.
_LEFT_OUT = ("autocommit", "cached_statements", "check_same_thread", "detect_types", "isolation_level")


def from_url(url: str, options: StoreOptions) -> SQLiteStore:
    """Return the store for ``sqlite:///relative.db`` or ``sqlite:////absolute.db``.

    Options after ``?``: ``synchronous=full`` survives a power cut with every grant (the default,
    ``normal``, may forget the last ones, when every client of the file died with the machine too);
    ``busy_timeout=5`` is how many seconds to wait for whoever keeps the file locked.
    """
    place, _, query = url.partition("?")
    path = unquote(place.removeprefix("sqlite:///"))
    if not place.startswith("sqlite:///") or not path or path == ":memory:":
        raise SettingsError(
            f"{url!r} names no file: use sqlite:///relative.db, sqlite:////absolute/path.db, or memory://"
        )
    if "#" in url or any(sign < " " for sign in path):
        raise SettingsError(f"{url!r} has a # or a control character; a # in a name is written %23")
    given = dict(parse_qsl(query, keep_blank_values=True))
    for name in _LEFT_OUT:
        given.pop(name, None)
    synchronous = given.pop("synchronous", "normal").lower()
    if synchronous not in _SYNCHRONOUS:
        raise SettingsError(f"synchronous is {synchronous!r}; it must be one of {_SYNCHRONOUS}")
    try:
        busy_timeout = float(given.pop("busy_timeout", "5"))
        if not 0 <= busy_timeout < math.inf:
            raise ValueError
    except ValueError as error:
        raise SettingsError(f"busy_timeout in {url!r} must be a number of seconds") from error
    if given:
        raise SettingsError(
            f"{url!r} has unknown options: {', '.join(sorted(given))}; there are synchronous and busy_timeout"
        )
    return SQLiteStore(Path(path), options, synchronous=synchronous, busy_timeout=busy_timeout)


class SQLiteStore(SqlStore):
    """See the module."""

    sessions: FileSessions

    def __init__(
        self,
        path: Path,
        options: StoreOptions,
        *,
        synchronous: str = "normal",
        busy_timeout: float = 5.0,
        signals: Doorbells | None = None,
    ) -> None:
        self.path = path.absolute()
        signals = signals or Doorbells(self.path.resolve(), options.client.instance)
        sessions = FileSessions(self.path, signals, synchronous=synchronous, busy_timeout=busy_timeout)
        dialect = SQLiteDialect(sessions, options.history, signals)
        # Nothing is answered at once if each commit waits for the disk.
        can = {"groups": True, "enters": True, "at_once": synchronous == "normal"}
        super().__init__(options, dialect, signals=SUPPORTED, tells_watchers=SUPPORTED, **can)

    def execute_at_once(self, request: Request[A]) -> A | None:
        """Answer a request that is one statement, if it is our turn."""
        return cast("A | None", self._keys.at_once(request, self.sessions.at_once))

    def execute_many(self, requests: Sequence[Request[Any]]) -> list[Any]:
        """Answer *requests* one after the other in one transaction."""
        if len(requests) < 2 or all(type(request) in READS for request in requests):
            return one_by_one(self, requests)
        return self.sessions.group([partial(self.answer, request, self.sessions) for request in requests])

    def try_many(self, requests: Sequence[Request[Any]]) -> list[Any] | None:
        """Answer *requests* in one transaction, unless another connection is writing."""
        return self.sessions.try_group([partial(self.answer, request, self.sessions) for request in requests])
