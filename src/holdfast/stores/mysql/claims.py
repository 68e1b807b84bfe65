"""Claims in two round trips, for the case that happens most: nothing to look at, and all locks free.

The first picks the work, and locks its rows and those of its locks; what others have locked is passed over.
The second takes all of it. Both are few small statements: what the general way does with JSON and joins takes
the server as long as all of that.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Set
from typing import Any, NamedTuple

from holdfast.core import cluster as c
from holdfast.stores.base import instant, micros
from holdfast.stores.mysql.session import MySQLSession
from holdfast.stores.sql.rules.claims import again_in
from holdfast.stores.sql.rules.columns import Row
from holdfast.stores.sql.rules.deal import wanted_as
from holdfast.stores.sql.transactions.session import Batch, Conflict


def claim(session: MySQLSession, request: c.Claim) -> c.Claimed | None:
    """Take what can be had; None, and nothing was done: the general way."""
    try:
        claimed = FastClaim(session, request).claim()
    except Conflict:  # the row of a lock was made just now, or somebody keeps it locked
        claimed = None
    if claimed is None:
        session.roll_back()
    return claimed


class Picked(NamedTuple):
    """Work that is offered and due."""

    now: int
    looked_at_from: int | None  # when the first of this type that is assigned is due
    floor: int  # of tokens
    due_at: int
    tries: int
    token: int  # that it had last; 0: it was never assigned, and most likely its lock has no row
    key: str
    data: str


class FastClaim:
    """One claim on one connection."""

    def __init__(self, session: MySQLSession, request: c.Claim) -> None:
        self._session = session
        self._request = request
        self._types = list(dict.fromkeys(request.types))
        client = request.client
        named = {"id": request.id, "number": request.number, "attempt": request.attempt}
        place = {"address": client.instance, "host": client.host, "pid": client.pid}
        terms = {"limit": request.limit, "ttl": micros(request.ttl), "now": instant(request.now)}
        self._given: dict[str, Any] = {**named, **place, **terms, "types": json.dumps(self._types)}

    def claim(self) -> c.Claimed | None:
        """Take what can be had; None: the general way."""
        given = self._given
        _, noted, rows = self._session.send([("begin", {}), ("claim_note", given), ("claim_pick", given)])
        picked = [_picked(text) for (text,) in rows]
        # A capacity is never 0: then a trigger on the table has taken the insert id out of the answer.
        if not noted or not noted[0][0] or self._is_to_look(picked):
            return None
        assigned, capacity = divmod(noted[0][0], 1 << 32)
        counts = {"assigned": assigned, "capacity": capacity, "spread": micros(self._request.spread)}
        wanted = min(self._request.limit, capacity - assigned)
        taken: list[Picked] = []
        for work in picked:
            # If one is to be left to others, so are all of its type after it: they have waited less.
            if len(taken) < wanted and c.may_take(len(taken), work.now - work.due_at, **counts):
                taken.append(work)
        free = self._free(taken)
        if free is None:
            return None
        due = self._take(taken, free, is_full=len(taken) >= wanted)
        again = again_in(due[0], len(taken), **counts) if due else 0.0
        return c.Claimed(tuple(self._assigned(taken)), again)

    def _is_to_look(self, picked: list[Picked]) -> bool:
        """Tell whether any work is assigned and due; types of which nothing was picked are asked for."""
        if any(work.looked_at_from is not None and work.looked_at_from <= work.now for work in picked):
            return True
        found = {c.work_type(work.key) for work in picked}
        if found.issuperset(self._types):
            return False
        ((now, _, looked_at_from),) = self._session.send([("next_due", self._given)])[0]
        return looked_at_from is not None and looked_at_from <= now

    def _free(self, taken: list[Picked]) -> Set[str] | None:
        """Lock the locks that should have a row, and return their keys; None if any cannot be had.

        Or if its next token were not the time: if that was set back.
        """
        tokens: dict[str, int] = {}
        keys = [work.key for work in taken if work.token]
        if keys:
            tokens = dict(self._session.send([("claim_locks", {"keys": keys})])[0])
        at = taken[0].now if taken else 0
        if len(tokens) < len(keys) or any(not 0 < token < at for token in tokens.values()):
            return None
        return None if any(work.floor >= at for work in taken) else tokens.keys()

    def _take(self, taken: list[Picked], free: Set[str], *, is_full: bool) -> list[Row]:
        """Take it; return when more is due, if it is less than was wanted."""
        given, batch = self._given, Batch()
        if taken:
            at = taken[0].now
            given = {**given, "keys": [work.key for work in taken], "free": list(free), "at": at}
            attempts = [(work.key, f"{self._request.attempt}.{place}") for place, work in enumerate(taken)]
            new = [(key, attempt) for key, attempt in attempts if key not in free]
            if new:
                batch.append(("claim_new", {**given, "rows": new}))
            if free:
                batch.append(("claim_free", given))
            batch.append(("claim_works", given))
        if is_full:
            self._session.write(batch)
            return []
        if not taken:
            batch.append(("claim_want", {**given, "wants": wanted_as(*self._types)}))
        results = self._session.send([*batch, ("commit", {}), ("next_due", given)], commits=True)
        return results[-1] if len(results) == len(batch) + 2 else []

    def _assigned(self, taken: list[Picked]) -> Iterator[c.Assigned]:
        attempt, ttl = self._request.attempt, self._given["ttl"] / 1e6
        at = taken[0].now if taken else 0
        for place, work in enumerate(taken):
            yield c.Assigned(work.key, f"{attempt}.{place}", at, work.data, work.tries + 1, ttl, at / 1e6)


def _picked(text: str) -> Picked:
    """Read what ``claim_pick`` says. There is no line break in a key."""
    now, looked_at_from, *numbers, key, data = text.split("\n", 7)
    floor, due_at, tries, token = map(int, numbers)
    return Picked(int(now), int(looked_at_from or 0) or None, floor, due_at, tries, token, key, data)
