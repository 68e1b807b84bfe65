"""Claims: what is due is looked at, and what is offered is taken. See Cluster in the protocol.

Work whose lock is free is taken all at once, by two statements; whatever else there is about its lock is
decided piece by piece. No claim waits for work or for a lock that somebody else is at: it passes over the
work, or puts it off.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from holdfast.core import cluster as c
from holdfast.core.requests import Busy
from holdfast.stores.base import micros, place_of
from holdfast.stores.sql.rules.columns import Row
from holdfast.stores.sql.rules.deal import Deal, PendingAnswer, listed, wanted_as
from holdfast.stores.sql.rules.instances import InstanceRow, find_instance
from holdfast.stores.sql.rules.runner import Soon
from holdfast.stores.sql.rules.work import assigned_to, grant, look_at
from holdfast.stores.sql.rules.work_row import WIDTH, WorkRow

PUT_OFF = micros(c.PUT_OFF)


def claim(deal: Deal, request: c.Claim) -> PendingAnswer:
    """Take what can be had."""
    types = listed(request.types)
    named: dict[str, Any] = {"types": types, "now": deal.given}
    found = find_instance(deal.run, request.id, deal.given)
    looked_at = deal.run.soon("due_assigned", limit=c.MOST_LOOKED_AT, **named)
    picked = deal.run("pick_work", limit=request.limit, **named)
    who = InstanceRow(found.rows)
    if who.seen() != "alive":
        return who.beat()
    if request.number <= who.claims:
        return _claimed_before(request, who.now)
    if abandoned := _look(deal, looked_at.rows):
        picked = deal.run("pick_work", limit=request.limit, **named)  # now that it is offered
        who.assigned -= sum(work.instance == request.id for work in abandoned)
    return Taking(deal, request, who, types).take(picked)


def _claimed_before(request: c.Claim, now: int) -> PendingAnswer:
    """Return what the instance has of an earlier claim, for an answer that was lost."""

    def conclude(rows: list[Row]) -> c.Claimed:
        works = [
            c.Assigned(key, attempt, token, data, tries, (end - now) / 1e6, now / 1e6)
            for key, attempt, token, data, tries, end, now in rows
        ]
        return c.Claimed(in_order(works), 0.0)  # what there is beside them was not looked for

    asked = {"id": request.id, "number": request.number, "now": now}
    # Not lazily: the first one may have been answered with a commit that had not reached a standby yet.
    return PendingAnswer(("claimed_before", asked), conclude)


def _look(deal: Deal, rows: Iterable[Row]) -> list[WorkRow]:
    """See which of the work that is assigned and due still has its lease; return what has not."""
    alive, others = [], []
    now = 0
    for row in rows:
        work = WorkRow(row)
        attempt, end, holds, waiters, plain, now = row[WIDTH:]
        if attempt == work.attempt and end > now and not holds and not waiters and plain:
            alive.append({"key": work.key, "due": end})
        else:
            others.append(work)
    if alive:
        deal.run.later("move_due", works=json.dumps(alive))
    to_be_had = _to_be_had(deal, [work.key for work in others])
    for work in others:
        if to_be_had.get(work.key, True):
            lock = deal.lock(work.key)
            look_at(deal.run, work, lock)
            lock.write()
        else:  # somebody is at it: later
            work.due_at = now + PUT_OFF
        work.write(deal.run)
    return [work for work in others if work.state != "assigned"]


def _to_be_had(deal: Deal, keys: list[str]) -> dict[str, bool]:
    """Tell which of these locks are ours to decide about now. What has no row is not among them."""
    if not keys:
        return {}
    return {key: bool(mine) for key, mine in deal.run("try_lock_rows", keys=json.dumps(keys))}


class Taking:
    """A claim of an instance that is alive and may take work."""

    def __init__(self, deal: Deal, request: c.Claim, who: InstanceRow, types: str) -> None:
        self._deal = deal
        self._request = request
        self._who = who
        self._types = types
        self._spread = micros(request.spread)
        self._assigned = who.assigned  # before
        self._wanted = min(request.limit, who.capacity - who.assigned)
        self._one_by_one: list[c.Assigned] = []
        self._keys: list[str] = []
        self._at_once: Soon | None = None
        self._postponed = deal.postponed

    def take(self, picked: list[Row]) -> PendingAnswer:
        """Take of what was picked what is for this instance, and note the claim."""
        at_once, slowly = [], []
        for key, attempt, free in self._fitting(picked):
            if free and self._deal.level != "all":
                at_once.append({"key": key, "attempt": attempt})
            else:
                slowly.append((key, attempt))
        self._take_slowly(slowly)
        if at_once:
            self._keys = [each["key"] for each in at_once]
            self._take_at_once(json.dumps(at_once))
        count = len(at_once) + len(self._one_by_one)
        self._who.assigned += count
        is_full = count >= self._wanted
        self._note(None if is_full or count else wanted_as(*self._request.types))
        asked = {"types": self._types, "now": self._who.now}
        self._deal.lazily = not count  # then nothing was changed that must not be lost
        return PendingAnswer(None if is_full else ("next_due", asked), self._conclude)

    def _fitting(self, picked: list[Row]) -> Iterator[tuple[str, str, bool]]:
        """Yield the keys of what this instance may take, with the attempts, and whether they seem free."""
        had, capacity, place = self._assigned, self._who.capacity, 0
        for key, due, free, now in picked:
            # If one is to be left to others, so are all of its type after it: they have waited less.
            if place < self._wanted and c.may_take(
                place, now - due, assigned=had, capacity=capacity, spread=self._spread
            ):
                yield key, f"{self._request.attempt}.{place}", bool(free)
                place += 1

    def _take_at_once(self, works: str) -> None:
        request, run, now = self._request, self._deal.run, self._deal.given
        lease = {"owner": request.id, "ttl": micros(request.ttl), **place_of(request.client)}
        run.later("take_locks", works=works, now=now, **lease)
        self._at_once = run.soon("take_works", works=works, id=request.id, number=request.number, now=now)

    def _take_slowly(self, works: list[tuple[str, str]]) -> None:
        request, run = self._request, self._deal.run
        to_be_had = _to_be_had(self._deal, [key for key, _ in works])
        for key, attempt in works:
            found = run.soon("lock_work", key=key)
            if not to_be_had.get(key, True):  # somebody is at it, and has it or will have it
                run.later("move_due", works=json.dumps([{"key": key, "due": self._who.now + PUT_OFF}]))
                continue
            lock = self._deal.lock(key)
            work = WorkRow(found.rows[0])
            given = grant(lock, attempt, request.id, request.client, request.ttl)
            if isinstance(given, Busy):
                work.due_at = lock.now + max(micros(given.expires_in), PUT_OFF)
            else:
                self._one_by_one.append(assigned_to(work, lock, given, request.id, request.number))
            lock.write()
            work.write(run)

    def _note(self, wants: str | None) -> None:
        who, client = self._who, self._request.client
        who.claims, who.asked_at, who.wants = self._request.number, who.now, wants
        who.address, who.host, who.pid = client.instance, client.host, client.pid
        who.write(self._deal.run, self._request.id)

    def _conclude(self, rows: list[Row]) -> c.Claimed:
        taken = self._one_by_one
        for key, attempt, token, data, tries, now, end in self._at_once.rows if self._at_once else ():
            taken.append(c.Assigned(key, attempt, token, data, tries, (end - now) / 1e6, now / 1e6))
        works = in_order(taken)
        got = {work.key for work in works}
        self._postponed += [key for key in self._keys if key not in got]
        if not rows or self._postponed:  # it has enough; or there may be other work, with this put off
            return c.Claimed(works, 0.0)
        had, capacity = self._assigned, self._who.capacity
        again = again_in(rows[0], len(works), assigned=had, capacity=capacity, spread=self._spread)
        return c.Claimed(works, again)


def again_in(row: Row, taken: int, *, assigned: int, capacity: int, spread: int) -> float | None:
    """Return in how long more may be had, by the row of ``next_due``, of who has taken so much."""
    now, offered, to_be_looked_at = row
    if offered is not None:
        offered += c.held_back(taken, assigned=assigned, capacity=capacity, spread=spread)
    instants = [due for due in (offered, to_be_looked_at) if due is not None]
    return max(min(instants) - now, 0) / 1e6 if instants else None


def put_off(deal: Deal, key: str) -> None:
    """Leave work alone for a while, because somebody else is at its lock."""
    found = deal.run.soon("lock_work", key=key)
    ((now,),) = deal.run("now", now=deal.given)
    for work in map(WorkRow, found.rows):
        if work.state == "offered" and work.due_at <= now:
            work.due_at = now + PUT_OFF
            work.write(deal.run)


def in_order(works: Iterable[c.Assigned]) -> tuple[c.Assigned, ...]:
    """Return the works of a claim in the order of their places."""
    return tuple(sorted(works, key=lambda work: int(work.attempt.rpartition(".")[2])))
