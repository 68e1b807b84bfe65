"""Bringing a lock up to now: what is over ends, and whoever is next and fits is granted."""

from __future__ import annotations

from holdfast.core.data import replace
from holdfast.core.requests import Acquire, Holder, Signal
from holdfast.stores.base import is_soon, micros, place_of
from holdfast.stores.sql.rules import operations
from holdfast.stores.sql.rules.holds import Hold
from holdfast.stores.sql.rules.lock import LockRow


def settle(lock: LockRow) -> bool:
    """End what is over, then grant the head of the queue as long as it fits; tell whether a hold was over."""
    over = [hold for hold in lock.holds.all if hold.end <= lock.now]
    if over:
        _expire(lock, over)
    if 0 < lock.notes.shut_until <= lock.now:
        lock.open()
    lock.forget_kept()
    grant_head(lock)
    return bool(over)


def settle_for_waiters(lock: LockRow) -> dict[str, int]:
    """Settle, and return which attempts may be granted before the last hold has ended, and when."""
    settle(lock)
    if lock.notes.mode != "permits":
        return {}
    tickets = [(attempt, terms) for _, attempt, _, terms in lock.tickets.read_all()]
    return {attempt: lock.end_for(terms) for attempt, terms in tickets if terms.mode == "permits"}


def _expire(lock: LockRow, over: list[Hold]) -> None:
    for hold in over:
        if hold.claimed or hold.terms.enters:  # otherwise its attempt may ask again, and joins at the tail
            lock.ended.remember(hold.attempt, "expired", hold.end)
    ended = [lease for token in dict.fromkeys(hold.token for hold in over) if (lease := _over(lock, token))]
    for last in ended:
        if last.claimed:
            lock.shut(last, expired=True)
    lock.remove_holds(over)
    for last in ended:
        lock.record("expired", owner=last.owner, token=last.token, operation=last.terms.operation)
        if last.terms.operation and last.claimed:
            operations.fail(lock, last, "the lease expired")


def _over(lock: LockRow, token: int) -> Hold | None:
    """Return the hold of a lease that ended last, if its end has come."""
    last = max(lock.holds.lease(token), key=lambda hold: (hold.end, hold.claimed))
    return last if last.end <= lock.now else None


def grant(lock: LockRow, request: Acquire) -> Hold:
    """Give the lock to a request."""
    if request.terms.operation:
        lock.keep(None)  # it is being done again
    end = lock.now + micros(request.ttl)
    hold = lock.begin_lease(request.attempt, request.owner, request.terms, end, request.client)
    lock.record("granted", owner=request.owner, operation=request.terms.operation)
    return hold


def enter(lock: LockRow, request: Acquire, lease: Hold) -> Hold:
    """Add a hold to a lease of the same owner, on the terms of the lease: what is exclusive stays so.

    All of them stay taken for as long as the one who says most: whichever is left last.
    """
    if request.terms.at_least > lease.terms.at_least:
        for each in lock.holds.lease(lease.token):
            terms = replace(each.terms, at_least=request.terms.at_least)
            lock.put_hold(replace(each, terms=terms))
        lease = replace(lease, terms=terms)
    end, place = lock.now + micros(request.ttl), place_of(request.client)
    hold = Hold(request.attempt, lease.owner, lease.token, lease.terms, True, end, lease.granted_at, **place)
    lock.put_hold(hold)
    return hold


def grant_head(lock: LockRow, *, head_changed: bool = False) -> str | None:
    """Grant the head of the queue as long as it fits; return the owner of who was first.

    A lock that is pinned stays free until the pin is gone. *head_changed*: another one is head than before,
    or what it waits for has changed, so that it may have to know.
    """
    tickets = lock.tickets
    if not tickets.count or (lock.pinned and lock.owner is None and not head_changed):
        return None
    before, winner = tickets.count, None
    while (head := tickets.prune()) and lock.fits(head.terms):
        tickets.remove(head.number)
        if head.terms.operation:
            lock.keep(None)
        end = lock.now + head.claim
        lock.begin_lease(head.attempt, head.owner, head.terms, end, head, claimed=False)
        lock.record("handed_over", owner=head.owner, operation=head.terms.operation)
        handed = Signal("granted", lock.key, head.attempt)
        if head.terms.enters:
            handed = replace(handed, expires_in=head.claim / 1e6, token=lock.token, at=lock.now / 1e6)
        lock.signal(head.instance, handed)
        winner = winner or head.owner
    if head_changed or tickets.count < before:
        tell_head(lock)
    return winner


def remove(lock: LockRow, holds: list[Hold]) -> str | None:
    """Remove holds, and grant the head as long as it fits; return the owner of who was first."""
    watched = _head_watches(lock)
    lock.remove_holds(holds)
    return grant_head(lock, head_changed=lock.owner is not None and _head_watches(lock) < watched)


def break_open(lock: LockRow, token: int | None) -> tuple[Holder | None, bool]:
    """Have it shut no more because of a lease with this token. Return whose it was, if it was.

    And tell whether the head of the queue has less to wait for than it was told.
    """
    watched = _head_watches(lock)
    gone = lock.break_open(token)
    return gone, lock.owner is not None and _head_watches(lock) < watched


def _head_watches(lock: LockRow) -> int:
    """Return the instant that the head of the queue waits for; 0 if nobody waits."""
    head = lock.tickets.head()
    return lock.end_for(head.terms) if head else 0


def remove_ticket(lock: LockRow, number: int) -> None:
    """Remove a ticket; the next one may fit."""
    head = lock.tickets.head()
    lock.tickets.remove(number)
    if head and head.number == number:
        grant_head(lock, head_changed=True)


def drop_dead_tickets(lock: LockRow, limit: int) -> int:
    """Remove at most *limit* dead tickets, wherever in the queue; return how many there were."""
    head = lock.tickets.head()
    if head is None:  # they have left since somebody looked
        return 0
    dead = lock.tickets.find_dead(limit)
    for number in dead:
        lock.tickets.remove(number)
    if head.number in dead:
        grant_head(lock, head_changed=True)
    return len(dead)


def tell_head(lock: LockRow) -> None:
    """Tell the head to watch what is held, if it ends before the head's next heartbeat can tell it."""
    head = lock.tickets.head()
    if head and is_soon(lock.end_for(head.terms) - lock.now, head.claim):
        expires_in = lock.expires_in(head.terms)
        lock.signal(head.instance, Signal("head", lock.key, head.attempt, expires_in))


def call_head(lock: LockRow) -> None:
    """Have the head ask, where there is room for it now but it cannot be granted yet."""
    head = lock.tickets.head()
    if head and lock.has_room_for(head.terms):
        lock.signal(head.instance, Signal("granted", lock.key, head.attempt))
