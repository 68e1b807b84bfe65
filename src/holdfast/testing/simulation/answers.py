"""What the tables of the protocol say of each request's answer, of the attempt it names, and of signals."""

from __future__ import annotations

from holdfast.core.requests import (
    Acquire,
    Broken,
    Busy,
    Granted,
    NotHeld,
    Queued,
    Release,
    Released,
    TooManyHolds,
    Withdraw,
    Withdrawn,
)
from holdfast.stores.base import micros
from holdfast.testing.simulation.step import Books, Step, require


def acquired(step: Step, books: Books) -> None:
    """Check an `Acquire`, its answer and the hold or ticket it names."""
    request, answer, after, now = step.request, step.answer, step.after, step.now
    if not isinstance(request, Acquire):
        return
    attempt = request.attempt
    old, new = step.before.holds.get(attempt), after.holds.get(attempt)
    if isinstance(answer, Granted):
        end = now + micros(request.ttl)
        if old is not None and old.end > now and old.claimed:
            end = max(old.end, end)
        right = new is not None and new.claimed and new.end == end and attempt not in after.tickets
        require(right, "answers", step, f"granted, and the hold is {new}")
        require(micros(answer.expires_in) == end - now, "answers", step, f"the wrong end: {answer}")
        return
    require(old is None or old.end <= now, "answers", step, f"it holds, and was answered {answer}")
    require(new is None, "answers", step, f"answered {answer}, and it holds")
    if isinstance(answer, Queued):
        place = list(after.tickets).index(attempt) + 1 if attempt in after.tickets else 0
        require(answer.position == place, "answers", step, f"it is number {place}, not {answer}")
        require(after.tickets[attempt].end >= now + micros(request.patience), "answers", step, "impatient")
    elif isinstance(answer, NotHeld):
        require(attempt in books.over or attempt in step.before.holds, "answers", step, "it never ended")
    elif isinstance(answer, TooManyHolds):
        require(len(after.holds) >= request.limit, "answers", step, "there are fewer holds")
    if isinstance(answer, Queued | Busy):
        require(after.owner != request.owner, "answers", step, "it waits for itself")
        require(any(hold.end > now for hold in after.holds.values()), "answers", step, "for nobody")


def let_go(step: Step) -> None:
    """Check a `Release` or `Withdraw`."""
    request, answer, before, after = step.request, step.answer, step.before, step.after
    if not isinstance(request, Release | Withdraw):
        return
    hold = before.holds.get(request.attempt)
    alive = hold is not None and hold.end > step.now
    if isinstance(answer, Released | Withdrawn):
        gone = request.attempt not in after.holds and request.attempt not in after.tickets
        require(gone, "answers", step, "let go, and still there")
    if isinstance(request, Release):
        ours = alive and before.token == request.token
        require(ours == isinstance(answer, Released), "answers", step, f"alive: {alive}, but {answer}")
    else:
        require(
            not (alive and isinstance(answer, NotHeld)), "answers", step, "it holds, and may not withdraw"
        )


def renewed(step: Step) -> None:
    """Check a `Renew`: the ends move forward, of what is alive and ours."""
    before, after, now = step.before, step.after, step.now
    for lease, said in step.leases():
        old, new = before.holds.get(lease.attempt), after.holds.get(lease.attempt)
        if old is None or old.end <= now or before.token != lease.token:
            require(said.outcome == "lost", "answers", step, f"it is lost, and was answered {said}")
            require(
                new is None or new == old,
                "answers",
                step,
                f"a lost lease was renewed from {old} to {new}",
            )
            continue
        end = max(old.end, now + micros(lease.ttl))
        outcome = "held" if end > now + micros(lease.ttl) else "renewed"
        require(said.outcome == outcome, "answers", step, f"not {outcome} but {said}")
        require(new == (end, old.claimed), "answers", step, f"renewed from {old} to {new}")
    for refresh, told in step.refreshed():
        attempt = refresh.attempt
        ticket = after.tickets.get(attempt)
        outcome = "handed" if attempt in after.holds else "gone" if ticket is None else "waiting"
        require(told.outcome == outcome, "answers", step, f"not {outcome} but {told}")
        if ticket is not None:
            require(told.head == (after.first() == attempt), "answers", step, f"head or not: {told}")
            require(
                ticket.end >= now + micros(refresh.patience), "answers", step, "its ticket ends too early"
            )


def signals(step: Step) -> None:
    """Check who is signalled: the winner of a hand-over, a head that has to hurry, and who was robbed."""
    before, after = step.before, step.after
    wanted: set[tuple[str, str]] = set()
    for attempt, hold in after.holds.items():
        if attempt in before.tickets and attempt not in before.holds and not hold.claimed:
            wanted.add(("granted", attempt))
    head = after.first()
    if head is not None and head != before.first() and head in before.tickets:
        lease_ends = max((hold.end for hold in after.holds.values()), default=step.now)
        if lease_ends - step.now < after.tickets[head].claim:
            wanted.add(("head", head))
    if isinstance(step.answer, Broken):
        wanted |= {("lost", a) for a, hold in before.holds.items() if hold.end > step.now}
    sent = {(signal.kind, signal.attempt) for _, signal in step.signals}
    require(wanted <= sent, "signals", step, f"not told: {sorted(wanted - sent)}")
    for instance, signal in step.signals:
        ticket = before.tickets.get(signal.attempt)
        known = signal.attempt in before.holds or (ticket is not None and ticket.instance == instance)
        require(known, "signals", step, f"{instance} was told {signal}")
    # Two a hand-over, at most two hand-overs (settling, then the request itself), and who was robbed.
    require(len(step.signals) <= 4 + len(before.holds), "signals", step, "a herd was woken")
