"""The tables of a database server: created, upgraded, dropped; what a role needs; the history by weeks.

What all servers have in common is here, what one of them says in its own words is in its ``schema`` module.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, Generic, TypeVar

from holdfast import errors
from holdfast.stores.base import not_made_yet
from holdfast.stores.sql.files import schema_versions
from holdfast.stores.sql.options import ServerOptions

S = TypeVar("S")  # a session

ALL = "SELECT, INSERT, UPDATE, DELETE"
# What a client may have to do with the tables: enough for every request, and no more.
LOCKS = {
    "meta": "SELECT, UPDATE",
    "feed": "SELECT, UPDATE",
    **dict.fromkeys(("locks", "holds", "tickets", "ended", "outcomes", "history"), ALL),
}
CLUSTER = {"instances": ALL, "work": ALL}
SERVERS = {"access": ALL}  # of a lock server only
TABLES = (*LOCKS, *CLUSTER, *SERVERS)

WEEK = 7 * 86_400_000_000  # microseconds; weeks are counted since the epoch
AHEAD = 2  # weeks that have a partition before they begin

_OURS = re.compile(r"\bholdfast_")


class Schema(ABC, Generic[S]):
    """See the module. *rights* are those of clients where they are others here, on tables of its own too."""

    tables: tuple[str, ...] = TABLES

    def __init__(self, package: str, rights: dict[str, str]) -> None:
        self._steps = schema_versions(package)
        self.rights = LOCKS | rights | CLUSTER
        self.version = self._steps[-1][0]
        self.oldest = self.version  # that clients of this release can use

    def script(self, server: ServerOptions, since: int = 0) -> str:
        """Return what creates the tables, or brings them from the version *since* to ours."""
        return "\n".join(_OURS.sub(server.prefix, text) for number, text in self._steps if number > since)

    @abstractmethod
    def find(self, session: S, server: ServerOptions) -> int | None:
        """Return the version of the tables; None if there are none."""

    @abstractmethod
    def alone(self, session: S) -> AbstractContextManager[None]:
        """Let nobody else change the tables meanwhile."""

    def apply(self, session: Any, server: ServerOptions) -> None:
        """Create or upgrade the tables."""
        if self.find(session, server) == self.version:
            return
        with self.alone(session):
            found = self.find(session, server)
            if found is not None and not 1 <= found <= self.version:
                raise mismatch(found, self.version)
            if found != self.version:
                session.script(self.script(server, found or 0).strip().removesuffix(";"))

    def check(self, session: S, server: ServerOptions) -> None:
        """Create the tables if that is asked for; raise `SchemaMismatch` unless we can use them."""
        if server.apply_schema:
            self.apply(session, server)
        found = self.find(session, server)
        if found is None:
            raise not_made_yet(
                errors.SchemaMismatch(
                    f"the database has no holdfast tables ({server.prefix}*) that this account can see."
                    " Run: holdfast schema apply URL; or put apply_schema=yes into the url"
                )
            )
        if not self.oldest <= found <= self.version:
            raise mismatch(found, self.version)

    def drop(self, session: Any, server: ServerOptions) -> int:
        """Drop the tables, and with them every lock. Return how many there were."""
        tables = [self.table(server, name) for name in self.tables]
        found = session.script(self.counting(tables))
        session.script(f"DROP TABLE IF EXISTS {', '.join(tables)}")
        return int(found[0][0] or 0)

    def table(self, server: ServerOptions, name: str) -> str:
        """Return the whole name of a table."""
        return server.prefix + name

    @abstractmethod
    def counting(self, tables: Sequence[str]) -> str:
        """Return the statement that counts which of these tables there are."""

    # What a role needs.

    @abstractmethod
    def grants(self, server: ServerOptions, role: str, *, serving: bool, database: str) -> list[str]:
        """Return what grants *role* what a client needs; if it is *serving*, what a lock server does."""

    @abstractmethod
    def grant(self, session: S, server: ServerOptions, role: str, *, serving: bool) -> None:
        """Grant it."""

    # The history by weeks: partitions are made ahead, and dropped as a whole when they are over.

    def keep_weeks(self, session: S, server: ServerOptions, now: int, forget_before: int) -> None:
        """Make this week's partition and the next ones, and drop those that ended before *forget_before*.

        Whoever may not change tables leaves that to somebody who may; until then events go into the rest.
        """
        there = self.weeks(session, server)
        wanted = range(now // WEEK, now // WEEK + AHEAD + 1)
        if new := [week for week in wanted if week not in there]:
            self.make_weeks(session, server, new, there)
        if over := [week for week in there if (week + 1) * WEEK <= forget_before]:
            self.drop_weeks(session, server, over)

    def weeks(self, session: S, server: ServerOptions) -> list[int]:
        """Return the weeks that have a partition."""
        found = (re.search(r"_w(\d+)$", name) for name in self.partitions(session, server))
        return sorted(int(match[1]) for match in found if match)

    @abstractmethod
    def partitions(self, session: S, server: ServerOptions) -> list[str]:
        """Return the names of the history's partitions."""

    @abstractmethod
    def make_weeks(self, session: S, server: ServerOptions, new: list[int], there: list[int]) -> None:
        """Make partitions, if we may."""

    @abstractmethod
    def drop_weeks(self, session: S, server: ServerOptions, over: list[int]) -> None:
        """Drop partitions, if we may."""


def quoted(name: str, mark: str) -> str:
    """Return an identifier as it is, whatever is in it."""
    return mark + name.replace(mark, mark * 2) + mark


def mismatch(found: int, ours: int) -> errors.SchemaMismatch:
    """Return the error for tables of a version that is not ours."""
    older = 1 <= found < ours
    hint = "run: holdfast schema apply URL" if older else "use the release that made them"
    error = errors.SchemaMismatch(
        f"the database has holdfast tables of version {found}; this release needs {ours}: {hint}"
    )
    return not_made_yet(error) if older else error
