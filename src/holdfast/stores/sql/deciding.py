"""What a store answers to a request on one key, once it has the key's row. See the protocol's tables."""

from __future__ import annotations

from holdfast.core.requests import (
    Acquire,
    Break,
    Broken,
    Busy,
    Granted,
    LeaseAnswer,
    NotHeld,
    Queued,
    Release,
    Released,
    RenewLease,
    TooManyHolds,
    Withdraw,
    Withdrawn,
)
from holdfast.stores.base import micros
from holdfast.stores.sql.row import PINNED_FOR, LockRow


def acquire(lock: LockRow, request: Acquire) -> Granted | Queued | Busy | TooManyHolds | NotHeld:
    """Grant, queue or refuse."""
    if (confirmed := lock.confirm_hold(request)) is not None:
        return Granted(lock.token, (confirmed - lock.now) / 1e6, lock.count_holds())
    lock.settle()
    if ended := lock.ended():
        return ended
    if (confirmed := lock.confirm_hold(request)) is not None:  # settling has just handed it to us
        return Granted(lock.token, (confirmed - lock.now) / 1e6)
    end = lock.now + micros(request.ttl)
    if lock.owner == request.owner:
        holds = lock.count_holds()
        if holds >= request.limit:
            return TooManyHolds(holds)
        lock.add_hold(end)
        lock.remove_ticket()
        return Granted(lock.token, request.ttl, holds + 1)
    if lock.grantable:
        lock.grant(request, end)
        return Granted(lock.token, request.ttl)
    if not request.wait:
        return Busy(lock.holder(), lock.expires_in())
    return Queued(lock.queue(request), lock.holder(), lock.expires_in())


def refuse(lock: LockRow, request: Acquire) -> Busy | None:
    """Refuse a try by what a plain read shows, if somebody clearly has the lock.

    Whoever tries in a loop would else hold up the holder's own renewals.
    """
    clear = lock.owner not in (None, request.owner) and not lock.holds and not lock.waiters
    if clear and lock.expires_at > lock.now and lock.attempt != request.attempt and not lock.ended():
        return Busy(lock.holder(), lock.expires_in())
    return None


def explain(lock: LockRow, token: int) -> NotHeld | None:
    """Say why a lease is not alive, by a plain read; None if it is."""
    if lock.token == token and lock.find_hold() is not None:
        return None
    return lock.why_not_held(token)


def put_off(lock: LockRow, request: Acquire) -> Queued | Busy:
    """Refuse, or have asked again soon, because a transaction that is still open has the row.

    Without a ticket: there is none to be had while the row cannot be written.
    """
    if request.wait:
        return Queued(1, lock.holder(), PINNED_FOR / 1e6)
    return Busy(lock.holder(), lock.expires_in())


def release(lock: LockRow, request: Release) -> Released | NotHeld:
    """Remove one hold; the last one frees the lock or hands it over."""
    lock.settle()
    if lock.token != request.token or lock.find_hold() is None:
        return lock.why_not_held(request.token)
    left = lock.remove_hold()
    if request.retire or left:
        lock.end_attempt("released")
    if left:
        return Released(left)
    lock.record("released")
    lock.last_attempt = request.attempt
    return Released(0, lock.free_and_hand_over())


def withdraw(lock: LockRow, _: Withdraw) -> Withdrawn | NotHeld:
    """End an attempt, whatever it had."""
    lock.settle()
    if ended := lock.ended():
        return ended
    lock.end_attempt("withdrawn")
    if lock.find_hold() is not None:
        if not lock.remove_hold():
            lock.record("withdrawn")
            return Withdrawn(lock.free_and_hand_over())
    elif owner := lock.remove_ticket():
        lock.record("withdrawn", owner=owner)
    return Withdrawn()


def break_(lock: LockRow, request: Break) -> Broken | NotHeld:
    """End all holds, whoever has them."""
    lock.settle()
    if lock.owner is None:
        return NotHeld("free")
    if request.token is not None and request.token != lock.token:
        return NotHeld("taken over")
    holder = lock.holder()
    lock.record("broken", by=request.by, reason=request.reason)
    lock.break_holds(request.by, request.reason)
    return Broken(holder, lock.free_and_hand_over())


def renew_alive(lock: LockRow, lease: RenewLease) -> LeaseAnswer | None:
    """Renew one lease, or one of its several holds, if it is alive."""
    end = lock.now + micros(lease.ttl)
    found = lock.find_hold() if lock.token == lease.token else None
    if found is None:
        return None
    if found[0] > end:
        return LeaseAnswer("held", (found[0] - lock.now) / 1e6)
    lock.move_hold(end, claimed=found[1])
    return LeaseAnswer("renewed", (end - lock.now) / 1e6)


def explain_loss(lock: LockRow, lease: RenewLease) -> LeaseAnswer:
    """Say what became of a lease that is not alive."""
    lock.settle()
    lost = lock.why_not_held(lease.token)
    return LeaseAnswer("lost", why=lost.why, by=lost.by, reason=lost.reason)
