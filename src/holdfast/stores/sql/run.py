"""How the rules talk to a database: named statements inside one transaction."""

from __future__ import annotations

from typing import Any, Protocol

Row = tuple[Any, ...]


class Fetch(Protocol):
    """Runs a named statement and returns its rows."""

    def __call__(self, name: str, /, **parameters: Any) -> list[Row]: ...


class Soon:
    """The rows of a statement, once it has run."""

    __slots__ = ("rows",)

    def __init__(self, rows: list[Row] | None = None) -> None:
        self.rows: list[Row] = [] if rows is None else rows


class Run(Fetch, Protocol):
    """Runs named statements inside one transaction."""

    def later(self, name: str, /, **parameters: Any) -> None:
        """Run a statement nobody waits for: before the next one that is, or with the commit."""

    def lock(self, key: str, attempt: str, now: int | None) -> Row:
        """Keep everybody else from changing a key, and return the one row of ``read_lock``.

        It has the time, whether somebody's open transaction pins the lease, the floor of tokens, the lock,
        how the attempt ended, the attempt's ticket, and the two tickets at the head.
        """


class Deals(Run, Protocol):
    """Runs the statements of a request about work or an instance, which has more rows than a lock's."""

    def soon(self, name: str, /, **parameters: Any) -> Soon:
        """Run a statement before the next one that is waited for, or with it; its rows can be read then."""
