"""Claims on SQLite, for the case that happens most: nothing to look at, and all locks free."""

from __future__ import annotations

from typing import Any

from holdfast.core import cluster as c
from holdfast.stores.base import micros
from holdfast.stores.sql import claiming
from holdfast.stores.sql.dealing import Behind, Deal, listed, wanted_as
from holdfast.stores.sql.run import Row
from holdfast.stores.sqlite.database import Transaction

Picked = list[tuple[str, Row]]  # attempts, and what was picked for them


def claim(deal: Deal, request: c.Claim) -> c.Claimed | Behind:
    """Take what can be had: fast, or else as the rules say."""
    claimed = None
    if deal.level != "all" and isinstance(deal.run, Transaction):
        claimed = _claim_fast(deal.run, request, deal.given)
    return claimed or claiming.claim(deal, request)


def _claim_fast(run: Transaction, request: c.Claim, given: int | None) -> c.Claimed | None:
    """Claim by few statements; None: nothing was changed, and the rules are needed."""
    types = listed(request.types)
    for now, state, end, capacity, claims, load, floor, is_due in run(
        "begin_claim", id=request.id, types=types, now=given
    ):
        if state != "alive" or end <= now or request.number <= claims or is_due:
            return None
        had = load
        if request.spread or load + request.limit > capacity:  # else it need not be known how much it has
            ((had,),) = run("count_assigned", id=request.id)
        picked = _pick(run, request, now, had, capacity)
        if picked is None:
            return None
        works = _take(run, request, picked, now, floor)
        is_full = len(works) >= min(request.limit, capacity - had)
        client = request.client
        run.later(
            "end_claim",
            id=request.id,
            number=request.number,
            now=now,
            load=had + len(works),
            wants=None if is_full or works else wanted_as(*request.types),
            address=client.instance,
            host=client.host,
            pid=client.pid,
        )
        if is_full:
            return c.Claimed(works, 0.0)
        (row,) = run("next_due", types=types, now=now)
        spread = micros(request.spread)
        return c.Claimed(
            works, claiming.again_in(row, len(works), assigned=had, capacity=capacity, spread=spread)
        )
    return None


def _pick(run: Transaction, request: c.Claim, now: int, had: int, capacity: int) -> Picked | None:
    """Return what the instance may take; None if a lock of that is not free."""
    wanted, spread = min(request.limit, capacity - had), micros(request.spread)
    picked: Picked = []
    for type in dict.fromkeys(request.types):
        left = wanted - len(picked)
        if left <= 0:
            break
        for row in run("pick_free", type=type, now=now, limit=left):
            if not c.may_take(len(picked), now - row[2], assigned=had, capacity=capacity, spread=spread):
                break
            if not row[-1]:
                return None
            picked.append((f"{request.attempt}.{len(picked)}", row))
    return picked


def _take(run: Transaction, request: c.Claim, picked: Picked, now: int, floor: int) -> tuple[c.Assigned, ...]:
    client, ttl = request.client, micros(request.ttl)
    shared: dict[str, Any] = {
        "owner": request.id,
        "number": request.number,
        "now": now,
        "end": now + ttl,
        "instance": client.instance,
        "host": client.host,
        "pid": client.pid,
    }
    taken, works = [], []
    for attempt, (row, key, _, data, tries, last, _) in picked:
        token = max((floor if last is None else last) + 1, now)
        taken.append({**shared, "row": row, "key": key, "attempt": attempt, "token": token})
        works.append(c.Assigned(key, attempt, token, data, tries + 1, ttl / 1e6, now / 1e6))
    if taken:
        run.many("take_lock", taken)
        run.many("take_work", taken)
    return tuple(works)
