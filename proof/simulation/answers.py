"""What the tables of the protocol say of each request's answer, of the attempt it names, and of signals."""

from __future__ import annotations

from holdfast.core.requests import (
    Acquire,
    Broken,
    Busy,
    Deadlocked,
    Done,
    Downgrade,
    Failed,
    Granted,
    NotHeld,
    Queued,
    Refused,
    Release,
    Released,
    Resize,
    Resized,
    Signal,
    TooManyHolds,
    Withdraw,
    Withdrawn,
)
from holdfast.stores.base import micros
from proof.simulation.step import Books, Step, require


def acquired(step: Step, books: Books) -> None:
    """Check an `Acquire`, its answer and the hold or ticket it names."""
    request, answer, after, now = step.request, step.answer, step.after, step.now
    if not isinstance(request, Acquire) or not step.direct:
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
    # It was queued, and then somebody before it was the victim of a circle that it closed: it has moved up.
    moved_up = isinstance(answer, Queued) and bool(step.told)
    if moved_up and new is not None:
        require(not new.claimed, "answers", step, f"answered {answer}, and it holds")
        return
    require(new is None, "answers", step, f"answered {answer}, and it holds")
    if isinstance(answer, Queued):
        place = list(after.tickets).index(attempt) + 1 if attempt in after.tickets else 0
        right = answer.position == place or (moved_up and answer.position > place > 0)
        require(right, "answers", step, f"it is number {place}, not {answer}")
        require(after.tickets[attempt].end >= now + micros(request.patience), "answers", step, "impatient")
    elif isinstance(answer, NotHeld):
        require(attempt in books.over or attempt in step.before.holds, "answers", step, "it never ended")
    elif isinstance(answer, TooManyHolds):
        mine = [hold for hold in after.holds.values() if hold.owner == request.owner]
        require(len(mine) >= request.limit, "answers", step, "there are fewer holds")
    elif isinstance(answer, Refused):
        _refused(step, request, answer)
    elif isinstance(answer, Done | Failed | Deadlocked):
        require(attempt not in after.tickets, "answers", step, f"answered {answer}, and it waits")
    if isinstance(answer, Queued | Busy):
        own = {hold.terms.mode for hold in after.live(now).values() if hold.owner == request.owner}
        enters = "exclusive" in own or ("shared" in own and request.terms.mode == "shared")
        require(not enters, "answers", step, "it waits for itself")
        held = after.live(now) or after.shut_until > now
        require(bool(held), "answers", step, "for nobody")


def _refused(step: Step, request: Acquire, answer: Refused) -> None:
    terms, after = request.terms, step.after
    if answer.why == "upgrade":
        modes = {hold.terms.mode for hold in after.holds.values() if hold.owner == request.owner}
        right = terms.mode == "exclusive" and modes == {"shared"}
    elif answer.why == "capacity":
        right = terms.mode == "permits" and (terms.permits != after.permits or not after.permits)
    else:
        right = terms.mode == "permits" and answer.why == "take"
    require(right, "answers", step, f"it was refused for nothing: {answer}")


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
        ours = alive and hold is not None and hold.token == request.token
        right = ours == isinstance(answer, Released | Refused)
        require(right, "answers", step, f"alive: {alive}, but {answer}")
        if isinstance(answer, Refused) and hold is not None:
            others = sum(each.token == hold.token for each in after.holds.values()) > 1
            right = request.outcome is not None and hold.terms.operation and others
            require(right, "answers", step, "an outcome was refused for nothing")
    else:
        require(
            not (alive and isinstance(answer, NotHeld)), "answers", step, "it holds, and may not withdraw"
        )


def changed(step: Step) -> None:
    """Check a `Downgrade` or `Resize`."""
    request, answer, after = step.request, step.answer, step.after
    if isinstance(request, Downgrade):
        old, new = step.before.holds.get(request.attempt), after.holds.get(request.attempt)
        ours = old is not None and old.end > step.now and old.token == request.token
        require(ours != isinstance(answer, NotHeld), "answers", step, f"{old} was answered {answer}")
        if isinstance(answer, Granted):
            right = new is not None and old is not None and new.terms.mode == "shared" and new.end == old.end
            require(right, "answers", step, f"downgraded, and the hold is {new}")
    elif isinstance(request, Resize):
        right = answer == Resized(request.permits, step.before.permits) and after.permits == request.permits
        require(right, "answers", step, f"resized, and there are {after.permits}")


def renewed(step: Step) -> None:
    """Check a `Renew`: the ends move forward, of what is alive and ours."""
    before, after, now = step.before, step.after, step.now
    for lease, said in step.leases():
        old, new = before.holds.get(lease.attempt), after.holds.get(lease.attempt)
        if old is None or old.end <= now or old.token != lease.token:
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
        claimed = old.claimed or outcome == "renewed"
        right = new == old._replace(end=end, claimed=claimed)
        require(right, "answers", step, f"renewed from {old} to {new}")
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


def _can_be_entered(step: Step, signal: Signal) -> None:
    """Check what the winner of a hand-over is told: its token, and how long that lasts from when on."""
    won = step.granted.get(signal.attempt) if signal.kind == "granted" else None
    if won is None:
        require(not signal.token or signal.attempt not in step.after.holds, "signals", step, f"{signal}")
        return
    token = won.token if won.terms.enters else 0
    lasts = micros(signal.at) + micros(signal.expires_in)
    right = signal.token == token and (not token or (won.claimed or lasts == won.end))
    require(right, "signals", step, f"it won {won}, and was told {signal}")


def signals(step: Step) -> None:
    """Check who is signalled: winners, a head that has to hurry, who was robbed, and whose wait is over."""
    before, after = step.before, step.after
    wanted: set[tuple[str, str]] = set()
    for attempt, hold in after.holds.items():
        if attempt in before.tickets and attempt not in before.holds and not hold.claimed:
            wanted.add(("granted", attempt))
    head = after.first()
    told_by_its_answer = head is not None and step.rejoins(head)  # all were dead, and it asked
    if head in before.tickets and head != before.first() and not told_by_its_answer:
        waits = after.tickets[head]
        if 10 * (after.ask_again_at(waits.terms) - step.now) < 9 * waits.claim:  # heartbeats: 0.9 at most
            wanted.add(("head", head))
    if isinstance(step.answer, Broken):
        wanted |= {("lost", a) for a, hold in before.live(step.now).items() if a in step.named}
    sent = {(signal.kind, signal.attempt) for _, signal in step.signals}
    require(wanted <= sent, "signals", step, f"not told: {sorted(wanted - sent)}")
    for instance, signal in step.signals:
        ticket = before.tickets.get(signal.attempt)
        known = signal.attempt in before.holds or (ticket is not None and ticket.instance == instance)
        known |= signal.kind == "over" and any(before.tickets[a].instance == instance for a in step.told)
        known |= isinstance(step.answer, Deadlocked | Queued) and signal.attempt in step.named
        require(known, "signals", step, f"{instance} was told {signal}")
        _can_be_entered(step, signal)
    overs = [instance for instance, signal in step.signals if signal.kind == "over"]
    require(len(overs) == len(set(overs)), "signals", step, "told more than once that it is over")
    # Two a hand-over (settling, then the request itself), who was robbed, and whose wait is over.
    most = 4 + len(before.holds) + 2 * len(step.granted) + len(step.told)
    require(len(step.signals) <= most, "signals", step, "a herd was woken")
