"""Many leases renewed in one transaction: those with holds in their table, and those that need no change.

It does what `decisions.renew_alive` does of one. A row that somebody else has locked is passed over: it must
not hold up all others, and is asked for by itself.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from holdfast.core.requests import LeaseAnswer, RenewLease
from holdfast.stores.base import micros
from holdfast.stores.sql.rules.deal import Deal
from holdfast.stores.sql.rules.runner import Deals

Changes = list[dict[str, Any]]


class Found(NamedTuple):
    """A hold that is there, alive or not."""

    end: int
    in_table: bool


def renew(
    deal: Deal, leases: Mapping[int, RenewLease], write: Callable[[Deals, Changes, Changes], None]
) -> dict[int, LeaseAnswer | None]:
    """Renew leases, given and answered by their places. None: it is over. Without an answer: undecided.

    *write* is given what changes about holds, and what about the rows of their locks.
    """
    run = deal.run
    keys = list(dict.fromkeys(lease.key for lease in leases.values()))
    named = [
        {"place": place, "key": lease.key, "attempt": lease.attempt, "token": lease.token}
        for place, lease in leases.items()
    ]
    locked = run.soon("try_lock_rows", keys=json.dumps(keys))
    clock = run.soon("now", now=deal.given)
    # A statement of its own, after the locks: it sees what those who had them before have committed.
    rows = run("read_leases", leases=json.dumps(named))
    ours: dict[str, bool] = {key: bool(mine) for key, mine in locked.rows}
    now: int = clock.rows[0][0]
    found = {place: Found(end, bool(in_table)) for place, end, in_table in rows}
    answers: dict[int, LeaseAnswer | None] = {}
    holds: dict[tuple[str, str], int] = {}  # the new ends
    locks: dict[str, int] = {}
    for place, lease in leases.items():
        hold = found.get(place)
        # Without a row there is nothing to lock. If somebody has made it since, it is not ours.
        if not ours.get(lease.key, hold is None):
            continue
        before = 0 if hold is None else holds.get((lease.key, lease.attempt), hold.end)
        end = now + micros(lease.ttl)
        if hold is None or before <= now:
            answers[place] = None
        elif before > end:
            answers[place] = LeaseAnswer("held", (before - now) / 1e6)
        elif hold.in_table:
            answers[place] = LeaseAnswer("renewed", (end - now) / 1e6)
            holds[lease.key, lease.attempt] = end
            locks[lease.key] = max(end, locks.get(lease.key, 0))
    if holds:
        write(
            run,
            [{"key": key, "attempt": attempt, "end": end} for (key, attempt), end in holds.items()],
            [{"key": key, "end": end} for key, end in locks.items()],
        )
    return answers
