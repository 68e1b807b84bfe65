"""How the rules talk to a database: named statements inside one transaction."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Protocol

from holdfast.core.requests import EVENTS, WATCHERS, Signal
from holdfast.stores.sql.rules.columns import KeyRead, Row, read_key

Post = list[tuple[str, Signal]]  # signals to send after the commit: (instance, signal)
TO_WATCHERS = WATCHERS, EVENTS
Statement = tuple[str, dict[str, Any]]  # its name and its parameters


class Fetch(Protocol):
    """Runs a named statement and returns its rows."""

    def __call__(self, name: str, /, **parameters: Any) -> list[Row]: ...


class Soon:
    """The rows of a statement, once it has run."""

    __slots__ = ("rows",)

    def __init__(self, rows: list[Row] | None = None) -> None:
        self.rows: list[Row] = [] if rows is None else rows


class Runner(Fetch, Protocol):
    """Runs named statements inside one transaction."""

    def later(self, name: str, /, **parameters: Any) -> None:
        """Run a statement nobody waits for: before the next one that is, or with the commit."""

    def lock(self, key: str, attempt: str, now: int | None) -> KeyRead:
        """Keep everybody else from changing a key, and return what it has for an attempt."""


class Deals(Runner, Protocol):
    """Runs the statements of a request, which may need more rows than a lock's, and ends its transaction."""

    def soon(self, name: str, /, **parameters: Any) -> Soon:
        """Run a statement before the next one that is waited for, or with it; its rows can be read then."""

    def commit(self, signals: Post, *, lazily: bool = False, read: Statement | None = None) -> list[Row]:
        """Commit, then read. *signals* that the commit can send along are sent: the others are to be told."""


def tell_watchers(post: Post) -> None:
    """Have those told who watch, once: an event is written."""
    if TO_WATCHERS not in post:
        post.append(TO_WATCHERS)


def json_lists(values: Iterable[Any], size: int = 500) -> list[str]:
    """Return values as JSON, in lists that are good for one statement."""
    chosen = list(values)
    return [json.dumps(chosen[start : start + size]) for start in range(0, len(chosen), size)]


def read_lock(fetch: Fetch, key: str, attempt: str, now: int | None) -> KeyRead:
    """Read what a key has for an attempt."""
    return read_key(fetch("read_lock", key=key, attempt=attempt, now=now)[0])


class Peek:
    """Reads a key without locking it."""

    def __init__(self, fetch: Fetch) -> None:
        self._fetch = fetch

    def __call__(self, name: str, /, **parameters: Any) -> list[Row]:
        """Run a statement that reads."""
        return self._fetch(name, **parameters)

    def later(self, name: str, /, **parameters: Any) -> None:
        """Refuse: whoever peeks changes nothing."""
        raise AssertionError(f"{name} in a peek")

    def lock(self, key: str, attempt: str, now: int | None) -> KeyRead:
        """Read a key."""
        return read_lock(self._fetch, key, attempt, now)
