"""Claims on SQLite, for the case that happens most: nothing to look at, and all locks free."""

from __future__ import annotations

from holdfast.core import cluster as c
from holdfast.stores.base import micros, place_of
from holdfast.stores.sql.rules import claims
from holdfast.stores.sql.rules.columns import Row
from holdfast.stores.sql.rules.deal import listed, wanted_as
from holdfast.stores.sqlite.database import Transaction

Picked = list[tuple[str, Row]]  # attempts, and what was picked for them


def claim_fast(run: Transaction, request: c.Claim, given: int | None) -> c.Claimed | None:
    """Claim by few statements; None: nothing was changed, and the rules are needed."""
    types = listed(request.types)
    for now, state, end, capacity, last_claim, load, floor, is_due in run(
        "begin_claim", id=request.id, types=types, now=given
    ):
        if state != "alive" or end <= now or request.number <= last_claim or is_due:
            return None
        had = load
        # Otherwise it need not be known how much it has.
        if request.spread or load + request.limit > capacity:
            ((had,),) = run("count_assigned", id=request.id)
        picked = _pick(run, request, now, had, capacity)
        if picked is None:
            return None
        works = _take(run, request, picked, now, floor)
        is_full = len(works) >= min(request.limit, capacity - had)
        client, wants = request.client, None if is_full or works else wanted_as(*request.types)
        place = {"address": client.instance, "host": client.host, "pid": client.pid}
        noted = {"number": request.number, "load": had + len(works), "wants": wants}
        run.later("end_claim", id=request.id, now=now, **noted, **place)
        if is_full:
            return c.Claimed(works, 0.0)
        (row,) = run("next_due", types=types, now=now)
        spread = micros(request.spread)
        again = claims.again_in(row, len(works), assigned=had, capacity=capacity, spread=spread)
        return c.Claimed(works, again)
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
    ttl = micros(request.ttl)
    shared = {"owner": request.id, "number": request.number, "now": now, "end": now + ttl}
    shared |= place_of(request.client)
    taken, works = [], []
    for attempt, (row, key, _, data, tries, last, _) in picked:
        token = max((floor if last is None else last) + 1, now)
        taken.append({**shared, "row": row, "key": key, "attempt": attempt, "token": token})
        works.append(c.Assigned(key, attempt, token, data, tries + 1, ttl / 1e6, now / 1e6))
    if taken:
        run.many("take_lock", taken)
        run.many("take_work", taken)
    return tuple(works)
