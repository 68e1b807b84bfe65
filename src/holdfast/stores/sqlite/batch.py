"""Requests about many keys: renewals, and sweeping. Each is one transaction."""

from __future__ import annotations

from typing import cast

from holdfast.core.events import HistoryLevel
from holdfast.core.requests import (
    LeaseAnswer,
    RefreshTicket,
    Renew,
    Renewed,
    RenewLease,
    Sweep,
    Swept,
    TicketAnswer,
)
from holdfast.stores.base import micros
from holdfast.stores.sqlite.database import SQL, Run
from holdfast.stores.sqlite.row import LockRow, Post


def renew(run: Run, request: Renew, level: HistoryLevel, post: Post) -> Renewed:
    """Renew all leases and refresh all tickets of a client."""
    now = _now(run, request.now)
    return Renewed(
        _renew_leases(run, request.leases, now, level, post),
        _refresh_tickets(run, request.tickets, now, level, post),
    )


def _renew_leases(
    run: Run, leases: tuple[RenewLease, ...], now: int, level: HistoryLevel, post: Post
) -> tuple[LeaseAnswer, ...]:
    batch = [
        {
            "key": lease.key,
            "attempt": lease.attempt,
            "token": lease.token,
            "end": now + micros(lease.ttl),
            "now": now,
        }
        for lease in leases
    ]
    if batch and run.many(SQL.renew_lease, batch) == len(batch):  # as good as always
        return tuple(LeaseAnswer("renewed", micros(lease.ttl) / 1e6) for lease in leases)
    # First all that are alive, then what became of the others: settling their keys depends on the first.
    alive = [_renew_alive(run, lease, now, level, post) for lease in leases]
    return tuple(
        answer or _explain_loss(run, lease, now, level, post)
        for answer, lease in zip(alive, leases, strict=True)
    )


def _renew_alive(
    run: Run, lease: RenewLease, now: int, level: HistoryLevel, post: Post
) -> LeaseAnswer | None:
    """Renew one lease, or one of its several holds, if it is alive."""
    lock = LockRow(run, lease.key, now, level, post)
    end = now + micros(lease.ttl)
    found = lock.find_hold(lease.attempt) if lock.token == lease.token else None
    if found is None:
        return None
    if found[0] > end:
        return LeaseAnswer("held", (found[0] - now) / 1e6)
    lock.move_hold(lease.attempt, end, claimed=found[1])
    lock.write()
    return LeaseAnswer("renewed", (end - now) / 1e6)


def _explain_loss(run: Run, lease: RenewLease, now: int, level: HistoryLevel, post: Post) -> LeaseAnswer:
    lock = LockRow(run, lease.key, now, level, post)
    lock.settle()
    lock.write()
    lost = lock.why_not_held(lease.attempt, lease.token)
    return LeaseAnswer("lost", why=lost.why, by=lost.by, reason=lost.reason)


def _refresh_tickets(
    run: Run, tickets: tuple[RefreshTicket, ...], now: int, level: HistoryLevel, post: Post
) -> tuple[TicketAnswer, ...]:
    waited_for = {key: _settled(run, key, now, level, post) for key in {t.key: None for t in tickets}}
    batch = [{"key": t.key, "attempt": t.attempt, "expires_at": now + micros(t.patience)} for t in tickets]
    all_there = bool(batch) and run.many(SQL.refresh_ticket, batch) == len(batch)
    answers = []
    for ticket in tickets:
        if all_there or run(SQL.find_ticket, key=ticket.key, attempt=ticket.attempt):
            end, head = waited_for[ticket.key]
            answers.append(TicketAnswer("waiting", head == ticket.attempt, (end - now) / 1e6))
        elif LockRow(run, ticket.key, now, level, post).find_hold(ticket.attempt) is not None:
            answers.append(TicketAnswer("handed"))
        else:
            answers.append(TicketAnswer("gone"))
    return tuple(answers)


def _settled(run: Run, key: str, now: int, level: HistoryLevel, post: Post) -> tuple[int, str | None]:
    """Settle a key if there is anything to settle. Return the end of its lease and the head of its queue."""
    for end, holds, head, head_end in run(SQL.waited_for, key=key):
        if not holds and end > now and (head_end is None or head_end > now):
            return end, head
        lock = LockRow(run, key, now, level, post)
        lock.settle()
        lock.write()
    return next(((end, head) for end, _, head, _ in run(SQL.waited_for, key=key)), (now, None))


def sweep(run: Run, request: Sweep, level: HistoryLevel, post: Post) -> Swept:
    """Settle and forget what is over, at most *limit* of each kind."""
    now = _now(run, request.now)
    limit = request.limit
    expired = run(SQL.sweep_expired, now=now, limit=limit)
    for (key,) in expired:
        lock = LockRow(run, key, now, level, post)
        lock.settle()
        lock.write()
    ended = run(SQL.ended_before, now=now, limit=limit)
    run.many(SQL.delete_ended, [{"key": key, "attempt": attempt} for key, attempt in ended])
    history = run(SQL.history_before, before=now - micros(request.keep_history), limit=limit)
    run.many(SQL.delete_event, [{"key": key, "number": number} for key, number in history])
    idle_since = now - micros(request.idle)
    walk = run(SQL.sweep_walk, after=request.after, idle_since=idle_since, limit=limit + 1)
    tickets = locks = 0
    after: str | None = request.after
    for key, token, idle, waiters in walk[:limit]:
        if waiters:
            lock = LockRow(run, key, now, level, post)
            tickets += lock.drop_dead_tickets(limit - tickets)
            lock.write()
            if tickets == limit:
                break  # there may be more of them: come back to this key
        elif idle:
            run(SQL.raise_floor, token=token)
            run(SQL.delete_lock, key=key)
            locks += 1
        after = key
    else:
        after = after if len(walk) > limit else None
    return Swept(len(expired), tickets, locks, len(ended), len(history), after)


def _now(run: Run, given: float | None) -> int:
    return cast("int", run(SQL.now, now=None if given is None else micros(given))[0][0])
