"""What a store answers to a request on one key, once it has the key's row. See the protocol's tables."""

from __future__ import annotations

import json

from holdfast.core import requests as r
from holdfast.core.data import as_dict, replace
from holdfast.core.deadlocks import Deadlock
from holdfast.core.family import LARGEST_ERROR, Outcome
from holdfast.errors import SettingsError
from holdfast.stores.base import micros
from holdfast.stores.sql.rules import operations, settlement
from holdfast.stores.sql.rules.holds import Hold
from holdfast.stores.sql.rules.lock import PINNED_FOR, LockRow

Acquired = (
    r.Granted | r.Queued | r.Busy | r.TooManyHolds | r.NotHeld | r.Refused | r.Done | r.Failed | r.Deadlocked
)

NOT_EXCLUSIVE = "a lease that is not exclusive cannot be fenced: no token says who of its holders is right"


def acquire(lock: LockRow, request: r.Acquire) -> Acquired:
    """Grant, queue or refuse."""
    if lock.find_alive() is None:
        settlement.settle(lock)
    if told := lock.ended.what_we_waited_for():
        return told
    if ended := lock.how_it_ended():
        return ended
    if (hold := lock.find_alive()) is not None:  # maybe because settling has just handed it to us
        return _confirm(lock, request, hold)
    if request.terms.operation and (done := lock.find_kept(request.seen)):
        if lock.tickets.mine is not None:
            settlement.remove_ticket(lock, lock.tickets.mine)
        return done
    if entered := _enter_again(lock, request):
        return entered
    if refused := _refuse_terms(lock, request):
        return refused
    if not lock.tickets.count and lock.fits(request.terms):
        _note_permits(lock, request)
        operations.begin(lock)
        return _granted(lock, settlement.grant(lock, request))
    if not request.wait:
        return r.Busy(lock.holder(), lock.expires_in(request.terms))
    return r.Queued(_queue(lock, request), lock.holder(), lock.expires_in(request.terms), lock.now / 1e6)


def _granted(lock: LockRow, hold: Hold) -> r.Granted:
    failures = lock.notes.failures if hold.terms.operation else ()
    return r.Granted(hold.token, (hold.end - lock.now) / 1e6, len(lock.holds.lease(hold.token)), failures)


def _confirm(lock: LockRow, request: r.Acquire, hold: Hold) -> r.Granted:
    """Claim our hold, or ask for it again."""
    end = lock.now + micros(request.ttl)
    confirmed = hold.confirmed(max(hold.end, end) if hold.claimed else end, request.client)
    lock.put_hold(confirmed)
    if not hold.claimed and request.ttl < request.claim:
        settlement.tell_head(lock)  # it ends sooner than the head was told, or will be
    return _granted(lock, confirmed)


def _enter_again(lock: LockRow, request: r.Acquire) -> r.Granted | r.TooManyHolds | r.Refused | None:
    """Add a hold to a lease that the owner has, if there is one that can be entered again."""
    ours = [hold for hold in lock.holds.all if hold.owner == request.owner]
    if not ours or lock.notes.mode == "permits":
        return None
    if lock.notes.mode == "shared" and request.terms.mode != "shared":
        return r.Refused("upgrade") if request.terms.mode == "exclusive" else None
    if len(ours) >= request.limit:
        return r.TooManyHolds(len(ours))
    entered = settlement.enter(lock, request, ours[0])
    if lock.tickets.mine is not None:
        settlement.remove_ticket(lock, lock.tickets.mine)
    return _granted(lock, entered)


def _refuse_terms(lock: LockRow, request: r.Acquire) -> r.Refused | None:
    """Refuse who believes in another number of permits, or wants more than there are.

    Whoever waits already was right when it came.
    """
    if request.terms.mode != "permits" or lock.tickets.mine is not None:
        return None
    believed = request.terms.permits
    permits = lock.notes.permits or believed
    if not permits or believed not in (0, permits):
        return r.Refused("capacity", lock.notes.permits)
    return r.Refused("take", permits) if request.terms.take > permits else None


def _note_permits(lock: LockRow, request: r.Acquire) -> None:
    """Remember how many permits there are, if we are the first to get one or to wait for it."""
    if request.terms.mode == "permits" and not lock.notes.permits:
        lock.notes = replace(lock.notes, permits=request.terms.permits)


def _queue(lock: LockRow, request: r.Acquire) -> int:
    """Give a request a ticket, or refresh the one it has; return its position."""
    if lock.tickets.mine is not None:
        return lock.tickets.refresh(request)
    _note_permits(lock, request)
    lock.tickets.add(lock.next_ticket, request)
    lock.next_ticket += 1
    lock.record("queued", owner=request.owner, operation=request.terms.operation)
    return lock.tickets.count


def refuse(lock: LockRow, request: r.Acquire) -> r.Busy | None:
    """Refuse a try on plain terms by what a plain read shows, if somebody clearly has the lock.

    Otherwise a client that tries in a loop would hold up the holder's own renewals.
    """
    clear = lock.owner not in (None, request.owner) and not lock.holds.count_in_table()
    if clear and not lock.tickets.count and lock.expires_at > lock.now and not lock.how_it_ended():
        return None if lock.find_alive() else r.Busy(lock.holder(), lock.expires_in())
    return None


def explain(lock: LockRow, token: int) -> r.NotHeld | None:
    """Say why a lease is not alive, by a plain read; None if it is. Only an exclusive one can be fenced."""
    hold = lock.find_alive()
    if hold is None or hold.token != token:
        return lock.why_not_held(token)
    if hold.terms.mode != "exclusive":
        raise SettingsError(NOT_EXCLUSIVE)
    return None


def put_off(lock: LockRow, request: r.Acquire) -> r.Queued | r.Busy:
    """Refuse, or have asked again soon, because a transaction that is still open has the row.

    Without a ticket: there is none to be had while the row cannot be written.
    """
    if request.wait:
        return r.Queued(1, lock.holder(), PINNED_FOR / 1e6)
    return r.Busy(lock.holder(), lock.expires_in(request.terms))


def release(lock: LockRow, request: r.Release) -> r.Released | r.NotHeld | r.Refused:
    """Remove one hold; the last one of its lease ends that, and whoever is next may be granted."""
    settlement.settle(lock)
    hold = lock.find_alive()
    if hold is None or hold.token != request.token:
        return lock.why_not_held(request.token)
    left = len(lock.holds.lease(hold.token)) - 1
    if left and request.outcome is not None and hold.terms.operation:
        return r.Refused("holds")
    is_alone = len(lock.holds.all) == 1
    if request.retire or not is_alone:
        lock.ended.remember(request.attempt, "released", lock.now)
    if is_alone:
        lock.last_attempt = request.attempt
    told = 0
    if not left:
        lock.shut(hold)
    if not left and hold.terms.operation:
        told = _end_operation(lock, hold, request.outcome)
    elif not left:
        lock.record("released", owner=hold.owner, token=hold.token)
    return r.Released(left, settlement.remove(lock, [hold]), told)


def _end_operation(lock: LockRow, hold: Hold, outcome: Outcome | None) -> int:
    if outcome is not None and outcome.succeeded:
        return operations.succeed(lock, hold, outcome)
    return operations.fail(lock, hold, outcome.text if outcome else "released without an outcome")


def withdraw(lock: LockRow, request: r.Withdraw) -> r.Withdrawn | r.NotHeld:
    """End an attempt, whatever it had."""
    settlement.settle(lock)
    if ended := lock.how_it_ended():
        return ended
    lock.ended.remember(lock.asking, "withdrawn", lock.now)
    if (hold := lock.find_alive()) is not None:
        if len(lock.holds.lease(hold.token)) == 1:
            lock.record("withdrawn", owner=hold.owner, token=hold.token, operation=hold.terms.operation)
            if request.held and hold.claimed:
                lock.shut(hold)
            if hold.terms.operation and hold.claimed:
                operations.fail(lock, hold, "withdrawn")
        return r.Withdrawn(settlement.remove(lock, [hold]))
    if lock.tickets.mine is not None:
        terms = lock.tickets.find_mine()[1]
        lock.record("withdrawn", owner=lock.tickets.my_owner, operation=terms.operation)
        settlement.remove_ticket(lock, lock.tickets.mine)
    return r.Withdrawn()


def downgrade(lock: LockRow, request: r.Downgrade) -> r.Granted | r.NotHeld | r.Refused:
    """Make an exclusive lease a shared one, and let in the readers that are next."""
    settlement.settle(lock)
    hold = lock.find_alive()
    if hold is None or hold.token != request.token:
        return lock.why_not_held(request.token)
    if hold.terms.mode == "permits":
        return r.NotHeld("unknown")  # there is nothing exclusive about it
    if hold.terms.mode == "exclusive":
        if len(lock.holds.lease(hold.token)) > 1:
            return r.Refused("holds")
        hold = replace(hold, terms=replace(hold.terms, mode="shared"))
        lock.put_hold(hold)
        lock.record("downgraded", owner=hold.owner, token=hold.token, operation=hold.terms.operation)
        settlement.grant_head(lock)
    return _granted(lock, hold)


def resize(lock: LockRow, request: r.Resize) -> r.Resized:
    """Set how many permits there are; whoever wants more than that need not wait any longer."""
    settlement.settle(lock)
    lock.make()
    before = lock.notes.permits
    lock.notes = replace(lock.notes, permits=request.permits)
    lock.record("resized", owner=None, by=request.by, reason=str(request.permits))
    head = lock.tickets.head()
    if head and request.permits < before:
        _refuse_tickets(lock)
    settlement.grant_head(lock, head_changed=lock.tickets.head() != head)
    return r.Resized(request.permits, before)


def _refuse_tickets(lock: LockRow) -> None:
    """End the tickets that can never be served, dead ones too: they could be refreshed."""
    permits = lock.notes.permits
    for number, attempt, instance, terms in lock.tickets.read_all():
        if terms.mode == "permits" and terms.take > permits:
            lock.ended.remember(attempt, "refused", lock.now, reason=str(permits))
            lock.signal(instance, r.Signal("granted", lock.key, attempt))
            lock.tickets.remove(number)


def break_(lock: LockRow, request: r.Break) -> r.Broken | r.NotHeld:
    """End all holds, or those of one lease; also what a lease that is over keeps others out with."""
    settlement.settle(lock)
    holds = lock.holds.all if request.token is None else lock.holds.lease(request.token)
    opened, sooner = settlement.break_open(lock, request.token)
    gone = lock.break_kept(request.token) or opened
    if gone is not None and not holds:
        lock.record("broken", owner=gone.owner, token=gone.token, by=request.by, reason=request.reason)
        return r.Broken(gone, settlement.grant_head(lock, head_changed=sooner))
    if not holds:
        return r.NotHeld("taken over" if lock.holds.all else "free")
    first = holds[0]
    holder = first.holder(lock.now, claimed=any(hold.claimed for hold in lock.holds.lease(first.token)))
    for hold in holds:
        lock.ended.remember(hold.attempt, "broken", lock.now, request.by, request.reason)
        lock.signal(hold.instance, r.Signal("lost", lock.key, hold.attempt))
    for token in dict.fromkeys(hold.token for hold in holds):
        last = lock.holds.lease(token)[-1]
        lock.record("broken", owner=last.owner, token=token, by=request.by, reason=request.reason)
        if last.terms.operation and any(hold.claimed for hold in lock.holds.lease(token)):
            operations.fail(lock, last, f"broken by {request.by}: {request.reason}")
    return r.Broken(holder, settlement.remove(lock, holds))


def break_deadlock(lock: LockRow, deadlock: Deadlock) -> bool:
    """End the ticket of our attempt, because it is the newest in a circle; False if it has gone already."""
    if lock.tickets.mine is None:
        return False
    cycle = deadlock.cycle
    instance, terms = lock.tickets.find_mine()
    lock.ended.remember(lock.asking, "deadlocked", lock.now, reason=json.dumps(as_dict(cycle)))
    told = "; ".join(map(str, cycle))[:LARGEST_ERROR]
    lock.record("deadlocked", owner=lock.tickets.my_owner, operation=terms.operation, reason=told)
    lock.signal(instance, r.Signal("granted", lock.key, lock.asking))
    settlement.remove_ticket(lock, lock.tickets.mine)
    return True


def renew_alive(lock: LockRow, lease: r.RenewLease) -> r.LeaseAnswer | None:
    """Renew one hold, if it is alive."""
    hold = lock.find_alive()
    if hold is None or hold.token != lease.token:
        return None
    end = lock.now + micros(lease.ttl)
    if hold.end > end:
        return r.LeaseAnswer("held", (hold.end - lock.now) / 1e6)
    lock.put_hold(replace(hold, end=end, claimed=True))
    return r.LeaseAnswer("renewed", (end - lock.now) / 1e6)


def explain_loss(lock: LockRow, lease: r.RenewLease) -> r.LeaseAnswer:
    """Say what became of a lease that is not alive."""
    settlement.settle(lock)
    lost = lock.why_not_held(lease.token)
    return r.LeaseAnswer("lost", why=lost.why, by=lost.by, reason=lost.reason)
