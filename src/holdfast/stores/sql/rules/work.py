"""What a store answers to requests about work, once it has the rows. See Cluster in the protocol."""

from __future__ import annotations

import json
from typing import Any

from holdfast.core import cluster as c
from holdfast.core.events import EventKind
from holdfast.core.family import PLAIN
from holdfast.core.requests import Busy, Client, NotHeld
from holdfast.stores.base import micros
from holdfast.stores.sql.rules import operations, settlement
from holdfast.stores.sql.rules.deal import Deal, PendingAnswer
from holdfast.stores.sql.rules.holds import Hold
from holdfast.stores.sql.rules.instances import InstanceRow, find_instance
from holdfast.stores.sql.rules.lock import LockRow
from holdfast.stores.sql.rules.runner import Runner, Soon
from holdfast.stores.sql.rules.work_row import WorkRow

AssignAnswer = c.Assigned | Busy | NotHeld | c.Full | c.NotDue | c.Ended


def offer(deal: Deal, request: c.Offer) -> c.Offered:
    """Offer all that is not known, or is to be done again."""
    works = {each.key: each for each in reversed(request.works)}  # of two with one key the first counts
    keys = sorted(works)  # so that two who offer the same do not wait for each other
    offered = json.dumps([_offered(works[key]) for key in keys])
    found = deal.run.soon("offer_works", works=offered, again=request.again, now=deal.given)
    states: dict[str, c.WorkState] = dict(deal.run("work_states", keys=json.dumps(keys)))
    new = {key for key, *_ in found.rows}
    deal.call_for(*(type for _, type, is_due in found.rows if is_due))
    is_new = []
    for each in request.works:
        is_new.append(each.key in new)
        new.discard(each.key)
    # What is known is not locked. If it was forgotten just now, it was offered before, or had ended before.
    return c.Offered(tuple(states.get(each.key, "offered") for each in request.works), tuple(is_new))


def _offered(work: c.OfferedWork) -> dict[str, Any]:
    named = {"key": work.key, "type": c.work_type(work.key), "data": work.data}
    at = None if work.at is None else micros(work.at)
    return {**named, "max_tries": work.max_tries, "delay": micros(work.delay), "at": at}


def assign(deal: Deal, request: c.Assign) -> AssignAnswer | PendingAnswer:
    """Take one piece of work, if it can be had."""
    run = deal.run
    instance = find_instance(run, request.id, deal.given) if request.id else None
    # So that there is a row to be locked. If this made it, and it comes to nothing, it is gone in the end.
    made = run.soon("new_work", key=request.key, type=c.work_type(request.key), now=deal.given)
    found = run.soon("lock_work", key=request.key)
    lock = deal.lock(request.key, request.attempt)
    work = WorkRow(found.rows[0])
    answer: AssignAnswer | PendingAnswer
    who = None if instance is None else InstanceRow(instance.rows)
    if who is not None and who.seen() != "alive":
        answer = who.beat()
    else:
        answer = _assign(run, request, who, work, lock, is_new=bool(made.rows))
    if who is not None and isinstance(answer, c.Assigned):
        # One more at most. Written in any case: a claim that counts at the same time sees the row change.
        who.assigned += 1
        who.write(run, request.id)
    lock.write()
    if isinstance(answer, c.Assigned) or not made.rows:
        work.write(run)
    else:
        run.later("delete_work", key=request.key)
    return answer


def _assign(
    run: Runner, request: c.Assign, who: InstanceRow | None, work: WorkRow, lock: LockRow, *, is_new: bool
) -> AssignAnswer:
    if before := _asked_before(request, work, lock):
        return before
    if who is not None and who.assigned >= who.capacity:
        return c.Full(who.capacity)
    if work.state == "assigned":
        look_at(run, work, lock)
    begins_again = work.state in ("completed", "failed")
    if begins_again and not request.again:
        return c.Ended(work.view())
    if work.state == "offered" and request.due and work.due_at > lock.now and not is_new:
        return c.NotDue((work.due_at - lock.now) / 1e6)
    given = grant(lock, request.attempt, request.owner, request.client, request.ttl)
    if isinstance(given, Busy):
        return given
    if begins_again:
        work.begin_again(lock.now)
    if is_new:
        work.due_at = work.offered_at = lock.now
    if request.data is not None:
        work.data = request.data
    return assigned_to(work, lock, given, request.id, 0)


def _asked_before(request: c.Assign, work: WorkRow, lock: LockRow) -> c.Assigned | NotHeld | None:
    """Answer an attempt that has the work already, or has ended."""
    hold = lock.find_alive()
    if work.state == "assigned" and work.attempt == request.attempt and hold is not None:
        hold = hold.confirmed(max(hold.end, lock.now + micros(request.ttl)), request.client)
        lock.put_hold(hold)
        return _told(work, lock, hold)
    settlement.settle(lock)
    return lock.how_it_ended()


def finish(deal: Deal, request: c.Finish) -> c.Finished | NotHeld:
    """End an assignment, and release its lock."""
    work, lock = _find(deal, request.key, request.attempt)
    named = work if work is not None and _names(work, request.attempt, request.token) else None
    reason = request.text if request.ending == "failed" else None
    successor = let_go(lock, request.token, request.ending, reason=reason, retire=request.retire)
    answer: c.Finished | NotHeld
    if isinstance(successor, NotHeld):
        answer = successor
        if named is not None:
            named.due_at = lock.now
            look_at(deal.run, named, lock)
    elif named is not None:
        named.end(deal.run, request, lock.now)
        answer = c.Finished(named.state, successor)
    else:
        answer = c.Finished("offered" if work is None else work.state, successor)
    if named is not None:
        if _can_be_claimed(named, lock.now):
            deal.call_for(named.type)
        named.write(deal.run)
    lock.write()
    return answer


def give_back(deal: Deal, id: str, key: str, attempt: str) -> str | None:
    """Take work back from an instance that leaves, if it still has it; return its type if it can be claimed.

    Nobody is called for it yet: the instance that leaves would be called as well.
    """
    work, lock = _find(deal, key, attempt)
    if work is None or (work.state, work.instance, work.attempt) != ("assigned", id, attempt):
        return None
    if isinstance(let_go(lock, work.token, "returned"), NotHeld):
        work.due_at = lock.now
        look_at(deal.run, work, lock)
    else:
        work.give_back(deal.run, lock.now)
    work.write(deal.run)
    lock.write()
    return work.type if _can_be_claimed(work, lock.now) else None


def forget(deal: Deal, request: c.Forget) -> c.Ended | Busy | None:
    """Forget work, unless it is assigned."""
    work, lock = _find(deal, request.key)
    if work is None:
        return None
    if work.state == "assigned":
        look_at(deal.run, work, lock)
        if work.state == "assigned":
            lock.write()
            work.write(deal.run)
            return Busy(lock.holder(), lock.expires_in())
    lock.record("forgotten", owner=None, token=work.token, by=request.by)
    if lock.is_row or lock.exists:  # otherwise nobody has used the lock, and there is still none
        lock.write()
    deal.run.later("delete_work", key=request.key)
    return c.Ended(work.view())


# What requests share.


def _find(deal: Deal, key: str, attempt: str = "") -> tuple[WorkRow | None, LockRow]:
    """Lock the row of some work, then that of its lock."""
    found: Soon = deal.run.soon("lock_work", key=key)
    lock = deal.lock(key, attempt)
    return next(map(WorkRow, found.rows), None), lock


def _names(work: WorkRow, attempt: str, token: int) -> bool:
    return work.state == "assigned" and (work.attempt, work.token) == (attempt, token)


def look_at(run: Runner, work: WorkRow, lock: LockRow) -> None:
    """See whether work that is assigned still has its lease; if not, it is abandoned."""
    settlement.settle(lock)
    if hold := lock.holds.find(work.attempt):
        work.due_at = hold.end
        return
    if not lock.exists:
        lock.make()
    lock.record("abandoned", owner=work.instance, token=work.token)
    work.abandon(run, lock.now)


def grant(lock: LockRow, attempt: str, owner: str, client: Client, ttl: float) -> Hold | Busy:
    """Grant the lock of some work, if nobody has it or waits for it."""
    settlement.settle(lock)
    if lock.holds.all or lock.tickets.count or lock.pinned or lock.is_shut:
        return Busy(lock.holder(), lock.expires_in())
    operations.begin(lock)
    hold = lock.begin_lease(attempt, owner, PLAIN, lock.now + micros(ttl), client)
    lock.record("assigned", owner=owner)
    return hold


def assigned_to(work: WorkRow, lock: LockRow, hold: Hold, id: str, claim: int) -> c.Assigned:
    """Write down that an instance has the work now, and return what it is told."""
    work.state = "assigned"
    work.instance, work.attempt, work.token, work.claim = id, hold.attempt, hold.token, claim
    work.tries += 1
    work.assigned_at, work.due_at = lock.now, hold.end
    return _told(work, lock, hold)


def _told(work: WorkRow, lock: LockRow, hold: Hold) -> c.Assigned:
    expires_in = (hold.end - lock.now) / 1e6
    return c.Assigned(work.key, hold.attempt, hold.token, work.data, work.tries, expires_in, lock.now / 1e6)


def let_go(
    lock: LockRow, token: int, kind: EventKind, *, reason: str | None = None, retire: bool = False
) -> str | NotHeld | None:
    """Release the lock of some work; return the owner who is next."""
    settlement.settle(lock)
    hold = lock.find_alive()
    if hold is None or hold.token != token:
        return lock.why_not_held(token)
    is_alone = len(lock.holds.all) == 1
    if retire or not is_alone:
        lock.ended.remember(hold.attempt, "released", lock.now)
    if is_alone:
        lock.last_attempt = hold.attempt
    if len(lock.holds.lease(hold.token)) == 1:
        lock.shut(hold)
    lock.record(kind, owner=hold.owner, token=hold.token, reason=reason)
    return settlement.remove(lock, [hold])


def _can_be_claimed(work: WorkRow, now: int) -> bool:
    return work.state == "offered" and work.due_at <= now
