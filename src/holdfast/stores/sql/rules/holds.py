"""The holds of a key inside a transaction: where they are kept, and what they say together.

The only hold of a lock, if it is on plain terms, is in the lock's own row; all others are in their table.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

from holdfast.core.data import data, replace
from holdfast.core.family import PLAIN, Terms, dump, load_terms
from holdfast.core.requests import Client, Holder
from holdfast.stores.base import place_of
from holdfast.stores.sql.rules.columns import Row
from holdfast.stores.sql.rules.runner import Fetch, Runner, json_lists


@data
class Hold:
    """One entry into a lock. All that have one token are one lease."""

    attempt: str
    owner: str
    token: int
    terms: Terms
    claimed: bool
    end: int
    granted_at: int  # when its lease began
    instance: str
    host: str
    pid: int

    def confirmed(self, end: int, client: Client) -> Hold:
        """Return it as claimed until *end*, by who is where *client* is now."""
        return replace(self, claimed=True, end=end, **place_of(client))

    def holder(self, now: int, *, claimed: bool) -> Holder:
        """Return who has it, as others are told; *claimed* is about the whole lease."""
        held_for = (now - self.granted_at) / 1e6
        take = self.terms.take if self.terms.mode == "permits" else 1
        return Holder(self.owner, self.host, self.pid, self.token, held_for, claimed, take)


class Holds:
    """The holds of one key, in the order of their tokens. The table is read when somebody asks."""

    def __init__(self, run: Runner, key: str, in_table: int, in_row: Hold | None) -> None:
        self._run = run
        self._key = key
        self._in_table = in_table
        self._all = None if in_table else [in_row] if in_row else []
        self._read: dict[str, Hold] = {}  # what the table has

    @property
    def all(self) -> list[Hold]:
        """All of them, those whose end has come too."""
        if self._all is None:
            self._all = read_holds(self._run, self._key)
            self._read = {hold.attempt: hold for hold in self._all}
        return self._all

    def find(self, attempt: str) -> Hold | None:
        """Return the hold of an attempt."""
        return next((hold for hold in self.all if hold.attempt == attempt), None)

    def lease(self, token: int) -> list[Hold]:
        """Return all holds of a lease."""
        return [hold for hold in self.all if hold.token == token]

    def put(self, hold: Hold) -> None:
        """Add a hold, or change one."""
        others = [each for each in self.all if each.attempt != hold.attempt]
        self._all = sorted([*others, hold], key=lambda each: (each.token, each.attempt))

    def remove(self, holds: Iterable[Hold]) -> None:
        """Remove some of them."""
        gone = {hold.attempt for hold in holds}
        self._all = [hold for hold in self.all if hold.attempt not in gone]

    def count_in_table(self) -> int:
        """Return how many belong into the table."""
        if self._all is None:
            return self._in_table
        return 0 if self.in_row() else len(self._all)

    def in_row(self) -> Hold | None:
        """Return the one that belongs into the lock's row, if it does."""
        alone = self._all is not None and len(self._all) == 1
        return self.all[0] if alone and is_plain(self.all[0].terms) else None

    def write(self) -> None:
        """Bring the table up to what is here."""
        if self._all is None:
            return
        wanted = {} if self.in_row() else {hold.attempt: hold for hold in self._all}
        # One that has expired and was granted again to the same attempt is another hold.
        gone = [hold for hold in self._read.values() if not _is_among(hold, wanted)]
        if gone and not wanted:
            self._run.later("delete_holds", key=self._key)
        else:
            for hold in gone:
                self._run.later("delete_hold", key=self._key, attempt=hold.attempt)
        for attempt, hold in wanted.items():
            read = self._read.get(attempt)
            if hold is not read and hold != read:
                self._write(hold)
        self._read = wanted

    def _write(self, hold: Hold) -> None:
        named = {"key": self._key, "attempt": hold.attempt, "owner": hold.owner, "token": hold.token}
        terms, claimed = write_terms(hold.terms), int(hold.claimed)
        times = {"expires_at": hold.end, "granted_at": hold.granted_at}
        self._run.later("write_hold", terms=terms, claimed=claimed, **named, **times, **place_of(hold))


def is_plain(terms: Terms) -> bool:
    """Tell whether terms are plain, which they nearly always are."""
    return terms is PLAIN or terms == PLAIN


@lru_cache(256)
def write_terms(terms: Terms) -> str | None:
    """Return terms as a table keeps them; None if they are plain."""
    return None if is_plain(terms) else dump(terms)


def read_holds(fetch: Fetch, key: str) -> list[Hold]:
    """Return the holds of a key that are in their table, those that were granted first before others."""
    return [_hold(row) for row in fetch("read_holds", key=key)]


def read_holds_of(fetch: Fetch, keys: Sequence[str]) -> dict[str, list[Hold]]:
    """Return the holds of many keys, as `read_holds` does of one."""
    found: dict[str, list[Hold]] = {key: [] for key in keys}
    for some in json_lists(keys):
        for key, *row in fetch("read_holds_of", keys=some):
            found[key].append(_hold(tuple(row)))
    return found


def leases(holds: Iterable[Hold]) -> list[Hold]:
    """Return the first hold of each lease; it is claimed if any of the lease is."""
    firsts: dict[int, Hold] = {}
    for hold in holds:
        first = firsts.setdefault(hold.token, hold)
        if hold.claimed and not first.claimed:
            firsts[hold.token] = replace(first, claimed=True)
    return list(firsts.values())


def _is_among(hold: Hold, others: Mapping[str, Hold]) -> bool:
    other = others.get(hold.attempt)
    return other is not None and other.token == hold.token


def _hold(row: Row) -> Hold:
    attempt, end, claimed, owner, token, terms, *rest = row
    return Hold(attempt, owner, token, load_terms(terms), bool(claimed), end, *rest)
