"""What a store answers to a request on one key, once it has the key's row. See the protocol's tables."""

from __future__ import annotations

import json

from holdfast.core.data import as_dict, replace
from holdfast.core.deadlocks import Deadlock
from holdfast.core.family import LARGEST_ERROR, Outcome
from holdfast.core.requests import (
    Acquire,
    Break,
    Broken,
    Busy,
    Deadlocked,
    Done,
    Downgrade,
    Failed,
    Granted,
    LeaseAnswer,
    NotHeld,
    Queued,
    Refused,
    Release,
    Released,
    RenewLease,
    Resize,
    Resized,
    Signal,
    TooManyHolds,
    Withdraw,
    Withdrawn,
)
from holdfast.errors import SettingsError
from holdfast.stores.base import micros
from holdfast.stores.sql import operations, settling
from holdfast.stores.sql.holds import Hold
from holdfast.stores.sql.row import PINNED_FOR, LockRow

Acquired = Granted | Queued | Busy | TooManyHolds | NotHeld | Refused | Done | Failed | Deadlocked

NOT_EXCLUSIVE = "a lease that is not exclusive cannot be fenced: no token says who of its holders is right"


def acquire(lock: LockRow, request: Acquire) -> Acquired:
    """Grant, queue or refuse."""
    if lock.find_alive() is None:
        settling.settle(lock)
    if told := lock.ended.what_we_waited_for():
        return told
    if ended := lock.how_it_ended():
        return ended
    if (hold := lock.find_alive()) is not None:  # maybe because settling has just handed it to us
        return _confirm(lock, request, hold)
    if request.terms.operation and (done := lock.find_kept(request.seen)):
        if lock.tickets.mine is not None:
            settling.remove_ticket(lock, lock.tickets.mine)
        return done
    if entered := _enter_again(lock, request):
        return entered
    if refused := _refuse_terms(lock, request):
        return refused
    if not lock.tickets.count and lock.fits(request.terms):
        _note_permits(lock, request)
        operations.begin(lock)
        return _granted(lock, settling.grant(lock, request))
    if not request.wait:
        return Busy(lock.holder(), lock.expires_in(request.terms))
    return Queued(_queue(lock, request), lock.holder(), lock.expires_in(request.terms))


def _granted(lock: LockRow, hold: Hold) -> Granted:
    failures = lock.notes.failures if hold.terms.operation else ()
    return Granted(hold.token, (hold.end - lock.now) / 1e6, len(lock.holds.lease(hold.token)), failures)


def _confirm(lock: LockRow, request: Acquire, hold: Hold) -> Granted:
    """Claim our hold, or ask for it again."""
    end = lock.now + micros(request.ttl)
    confirmed = replace(
        hold,
        claimed=True,
        end=max(hold.end, end) if hold.claimed else end,
        instance=request.client.instance,
        host=request.client.host,
        pid=request.client.pid,
    )
    lock.put_hold(confirmed)
    if not hold.claimed and request.ttl < request.claim:
        settling.tell_head(lock)  # it ends sooner than the head was told, or will be
    return _granted(lock, confirmed)


def _enter_again(lock: LockRow, request: Acquire) -> Granted | TooManyHolds | Refused | None:
    """Add a hold to a lease that the owner has, if there is one that can be entered again."""
    ours = [hold for hold in lock.holds.all if hold.owner == request.owner]
    if not ours or lock.notes.mode == "permits":
        return None
    if lock.notes.mode == "shared" and request.terms.mode != "shared":
        return Refused("upgrade") if request.terms.mode == "exclusive" else None
    if len(ours) >= request.limit:
        return TooManyHolds(len(ours))
    entered = settling.enter(lock, request, ours[0])
    if lock.tickets.mine is not None:
        settling.remove_ticket(lock, lock.tickets.mine)
    return _granted(lock, entered)


def _refuse_terms(lock: LockRow, request: Acquire) -> Refused | None:
    """Refuse who believes in another number of permits, or wants more than there are.

    Whoever waits already was right when it came.
    """
    if request.terms.mode != "permits" or lock.tickets.mine is not None:
        return None
    believed = request.terms.permits
    permits = lock.notes.permits or believed
    if not permits or believed not in (0, permits):
        return Refused("capacity", lock.notes.permits)
    return Refused("take", permits) if request.terms.take > permits else None


def _note_permits(lock: LockRow, request: Acquire) -> None:
    """Remember how many permits there are, if we are the first to get one or to wait for it."""
    if request.terms.mode == "permits" and not lock.notes.permits:
        lock.notes = replace(lock.notes, permits=request.terms.permits)


def _queue(lock: LockRow, request: Acquire) -> int:
    """Give a request a ticket, or refresh the one it has; return its position."""
    if lock.tickets.mine is not None:
        return lock.tickets.refresh(request)
    _note_permits(lock, request)
    lock.tickets.add(lock.next_ticket, request)
    lock.next_ticket += 1
    lock.record("queued", owner=request.owner, operation=request.terms.operation)
    return lock.tickets.count


def refuse(lock: LockRow, request: Acquire) -> Busy | None:
    """Refuse a try on plain terms by what a plain read shows, if somebody clearly has the lock.

    Whoever tries in a loop would else hold up the holder's own renewals.
    """
    clear = lock.owner not in (None, request.owner) and not lock.holds.count_in_table()
    if clear and not lock.tickets.count and lock.expires_at > lock.now and not lock.how_it_ended():
        return None if lock.find_alive() else Busy(lock.holder(), lock.expires_in())
    return None


def explain(lock: LockRow, token: int) -> NotHeld | None:
    """Say why a lease is not alive, by a plain read; None if it is. Only an exclusive one can be fenced."""
    hold = lock.find_alive()
    if hold is None or hold.token != token:
        return lock.why_not_held(token)
    if hold.terms.mode != "exclusive":
        raise SettingsError(NOT_EXCLUSIVE)
    return None


def put_off(lock: LockRow, request: Acquire) -> Queued | Busy:
    """Refuse, or have asked again soon, because a transaction that is still open has the row.

    Without a ticket: there is none to be had while the row cannot be written.
    """
    if request.wait:
        return Queued(1, lock.holder(), PINNED_FOR / 1e6)
    return Busy(lock.holder(), lock.expires_in(request.terms))


def release(lock: LockRow, request: Release) -> Released | NotHeld | Refused:
    """Remove one hold; the last one of its lease ends that, and whoever is next may be granted."""
    settling.settle(lock)
    hold = lock.find_alive()
    if hold is None or hold.token != request.token:
        return lock.why_not_held(request.token)
    left = len(lock.holds.lease(hold.token)) - 1
    if left and request.outcome is not None and hold.terms.operation:
        return Refused("holds")
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
    return Released(left, settling.remove(lock, [hold]), told)


def _end_operation(lock: LockRow, hold: Hold, outcome: Outcome | None) -> int:
    if outcome is not None and outcome.succeeded:
        return operations.succeed(lock, hold, outcome)
    return operations.fail(lock, hold, outcome.text if outcome else "released without an outcome")


def withdraw(lock: LockRow, request: Withdraw) -> Withdrawn | NotHeld:
    """End an attempt, whatever it had."""
    settling.settle(lock)
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
        return Withdrawn(settling.remove(lock, [hold]))
    if lock.tickets.mine is not None:
        terms = lock.tickets.find_mine()[1]
        lock.record("withdrawn", owner=lock.tickets.my_owner, operation=terms.operation)
        settling.remove_ticket(lock, lock.tickets.mine)
    return Withdrawn()


def downgrade(lock: LockRow, request: Downgrade) -> Granted | NotHeld | Refused:
    """Make an exclusive lease a shared one, and let in the readers that are next."""
    settling.settle(lock)
    hold = lock.find_alive()
    if hold is None or hold.token != request.token:
        return lock.why_not_held(request.token)
    if hold.terms.mode == "permits":
        return NotHeld("unknown")  # there is nothing exclusive about it
    if hold.terms.mode == "exclusive":
        if len(lock.holds.lease(hold.token)) > 1:
            return Refused("holds")
        hold = replace(hold, terms=replace(hold.terms, mode="shared"))
        lock.put_hold(hold)
        lock.record("downgraded", owner=hold.owner, token=hold.token, operation=hold.terms.operation)
        settling.grant_head(lock)
    return _granted(lock, hold)


def resize(lock: LockRow, request: Resize) -> Resized:
    """Set how many permits there are; whoever wants more than that need not wait any longer."""
    settling.settle(lock)
    lock.make()
    before = lock.notes.permits
    lock.notes = replace(lock.notes, permits=request.permits)
    lock.record("resized", owner=None, by=request.by, reason=str(request.permits))
    head = lock.tickets.head()
    if head and request.permits < before:
        _refuse_tickets(lock)
    settling.grant_head(lock, head_changed=lock.tickets.head() != head)
    return Resized(request.permits, before)


def _refuse_tickets(lock: LockRow) -> None:
    """End the tickets that can never be served, dead ones too: they could be refreshed."""
    permits = lock.notes.permits
    for number, attempt, instance, terms in lock.tickets.read_all():
        if terms.mode == "permits" and terms.take > permits:
            lock.ended.remember(attempt, "refused", lock.now, reason=str(permits))
            lock.signal(instance, Signal("granted", lock.key, attempt))
            lock.tickets.remove(number)


def break_(lock: LockRow, request: Break) -> Broken | NotHeld:
    """End all holds, or those of one lease; also what a lease that is over keeps others out with."""
    settling.settle(lock)
    holds = lock.holds.all if request.token is None else lock.holds.lease(request.token)
    opened, sooner = settling.break_open(lock, request.token)
    gone = lock.break_kept(request.token) or opened
    if gone is not None and not holds:
        lock.record("broken", owner=gone.owner, token=gone.token, by=request.by, reason=request.reason)
        return Broken(gone, settling.grant_head(lock, head_changed=sooner))
    if not holds:
        return NotHeld("taken over" if lock.holds.all else "free")
    first = holds[0]
    holder = first.holder(lock.now, claimed=any(hold.claimed for hold in lock.holds.lease(first.token)))
    for hold in holds:
        lock.ended.remember(hold.attempt, "broken", lock.now, request.by, request.reason)
        lock.signal(hold.instance, Signal("lost", lock.key, hold.attempt))
    for token in dict.fromkeys(hold.token for hold in holds):
        last = lock.holds.lease(token)[-1]
        lock.record("broken", owner=last.owner, token=token, by=request.by, reason=request.reason)
        if last.terms.operation and any(hold.claimed for hold in lock.holds.lease(token)):
            operations.fail(lock, last, f"broken by {request.by}: {request.reason}")
    return Broken(holder, settling.remove(lock, holds))


def break_deadlock(lock: LockRow, deadlock: Deadlock) -> bool:
    """End the ticket of our attempt, because it is the newest in a circle; False if it has gone already."""
    if lock.tickets.mine is None:
        return False
    cycle = deadlock.cycle
    instance, terms = lock.tickets.find_mine()
    lock.ended.remember(lock.asking, "deadlocked", lock.now, reason=json.dumps(as_dict(cycle)))
    lock.record(
        "deadlocked",
        owner=lock.tickets.my_owner,
        operation=terms.operation,
        reason="; ".join(map(str, cycle))[:LARGEST_ERROR],
    )
    lock.signal(instance, Signal("granted", lock.key, lock.asking))
    settling.remove_ticket(lock, lock.tickets.mine)
    return True


def renew_alive(lock: LockRow, lease: RenewLease) -> LeaseAnswer | None:
    """Renew one hold, if it is alive."""
    hold = lock.find_alive()
    if hold is None or hold.token != lease.token:
        return None
    end = lock.now + micros(lease.ttl)
    if hold.end > end:
        return LeaseAnswer("held", (hold.end - lock.now) / 1e6)
    lock.put_hold(replace(hold, end=end))
    return LeaseAnswer("renewed", (end - lock.now) / 1e6)


def explain_loss(lock: LockRow, lease: RenewLease) -> LeaseAnswer:
    """Say what became of a lease that is not alive."""
    settling.settle(lock)
    lost = lock.why_not_held(lease.token)
    return LeaseAnswer("lost", why=lost.why, by=lost.by, reason=lost.reason)
