"""Circles of owners that wait for each other: found by what the tables show, and ended."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from holdfast import errors
from holdfast.core import deadlocks
from holdfast.core.deadlocks import Deadlock, Held, KeyState, Waiting
from holdfast.core.family import load_terms
from holdfast.core.requests import Acquire, Deadlocked
from holdfast.stores.sql.rules.notes import read_notes
from holdfast.stores.sql.rules.runner import Fetch, json_lists


class WaitTables:
    """Who waits for whom, by what is committed at a time that was given, or now."""

    def __init__(self, fetch: Fetch, now: int | None) -> None:
        self._fetch = fetch
        self._now = now

    def is_waited_for(self, owner: str, /) -> bool:
        """Tell whether *owner* holds anything that somebody waits for."""
        return bool(self._fetch("is_waited_for", owner=owner)[0][0])

    def keys_wanted_by(self, owners: Iterable[str], /) -> Iterable[str]:
        """Return the keys that these owners have tickets for."""
        return {key for some in json_lists(owners) for (key,) in self._fetch("wanted_by", owners=some)}

    def states(self, keys: Iterable[str], /) -> dict[str, KeyState]:
        """Return what there is at these keys."""
        keys = list(keys)
        held: dict[str, list[Held]] = {key: [] for key in keys}
        waiting: dict[str, list[Waiting]] = {key: [] for key in keys}
        permits: dict[str, int] = {}
        for some in json_lists(keys):
            for key, notes in self._fetch("notes_at", keys=some):
                permits[key] = read_notes(notes)[0].permits
            holds = self._fetch("holds_at", keys=some, now=self._now)
            for key, owner, attempt, terms, _ in sorted(holds, key=lambda row: (row[4], row[2])):
                held[key].append(Held(owner, attempt, load_terms(terms)))
            for key, owner, attempt, terms, *rest in self._fetch("tickets_at", keys=some, now=self._now):
                waiting[key].append(Waiting(owner, attempt, load_terms(terms), *rest))
        return {key: KeyState(tuple(held[key]), tuple(waiting[key]), permits.get(key, 0)) for key in keys}


def end_circles(request: Acquire, look: WaitTables, end: Callable[[Deadlock], object]) -> Deadlocked | None:
    """Have *end* end the circles that a ticket has closed; answer it if it is the one that has to go."""
    try:
        while found := deadlocks.find(request.owner, look):
            end(found)
            if found.victim == (request.key, request.attempt):
                return Deadlocked(found.cycle)
    except errors.StoreError as error:  # but the ticket is written, and has to be withdrawn
        raise errors.OutcomeUnknown(str(error)) from error
    return None
