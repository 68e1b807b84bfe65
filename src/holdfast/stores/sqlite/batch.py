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
from holdfast.stores.base import instant, micros
from holdfast.stores.sql import deciding, settling
from holdfast.stores.sql.notes import lets_in_before_the_end
from holdfast.stores.sql.row import LockRow, Post
from holdfast.stores.sqlite.database import Transaction


def renew(run: Transaction, request: Renew, level: HistoryLevel, post: Post) -> Renewed:
    """Renew all leases and refresh all tickets of a client."""
    now = _now(run, request.now)
    return Renewed(
        _renew_leases(run, request.leases, now, level, post),
        _refresh_tickets(run, request.tickets, now, level, post),
    )


def _renew_leases(
    run: Transaction, leases: tuple[RenewLease, ...], now: int, level: HistoryLevel, post: Post
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
    if batch and run.many("renew_lease", batch) == len(batch):  # as good as always
        return tuple(LeaseAnswer("renewed", micros(lease.ttl) / 1e6) for lease in leases)
    # First all that are alive, then what became of the others: settling their keys depends on the first.
    alive = [_renew_alive(run, lease, now, level, post) for lease in leases]
    return tuple(
        answer or _explain_loss(run, lease, now, level, post)
        for answer, lease in zip(alive, leases, strict=True)
    )


def _renew_alive(
    run: Transaction, lease: RenewLease, now: int, level: HistoryLevel, post: Post
) -> LeaseAnswer | None:
    lock = LockRow(run, lease.key, now, level, post, lease.attempt)
    answer = deciding.renew_alive(lock, lease)
    lock.write()
    return answer


def _explain_loss(
    run: Transaction, lease: RenewLease, now: int, level: HistoryLevel, post: Post
) -> LeaseAnswer:
    lock = LockRow(run, lease.key, now, level, post, lease.attempt)
    answer = deciding.explain_loss(lock, lease)
    lock.write()
    return answer


def _refresh_tickets(
    run: Transaction, tickets: tuple[RefreshTicket, ...], now: int, level: HistoryLevel, post: Post
) -> tuple[TicketAnswer, ...]:
    waited_for = {key: _settled(run, key, now, level, post) for key in {t.key: None for t in tickets}}
    batch = [{"key": t.key, "attempt": t.attempt, "expires_at": now + micros(t.patience)} for t in tickets]
    all_there = bool(batch) and run.many("keep_ticket", batch) == len(batch)
    answers = []
    for ticket in tickets:
        if all_there or run("find_ticket", key=ticket.key, attempt=ticket.attempt):
            end, head, sooner = waited_for[ticket.key]
            end = sooner.get(ticket.attempt, end)
            answers.append(TicketAnswer("waiting", head == ticket.attempt, (end - now) / 1e6))
        elif LockRow(run, ticket.key, now, level, post, ticket.attempt).find_alive() is not None:
            answers.append(TicketAnswer("handed"))
        else:
            answers.append(TicketAnswer("gone"))
    return tuple(answers)


def _settled(
    run: Transaction, key: str, now: int, level: HistoryLevel, post: Post
) -> tuple[int, str | None, dict[str, int]]:
    """Settle a key if there is anything to settle. Return when it ends, the head of its queue, and which
    attempts may be granted sooner, and when.
    """
    sooner: dict[str, int] = {}
    for end, holds, head, head_end, notes in run("waited_for", key=key):
        simple = holds < 2 and not lets_in_before_the_end(notes)
        if simple and end > now and (head_end is None or head_end > now):
            return end, head, {}
        lock = LockRow(run, key, now, level, post)
        sooner = settling.settle_for_waiters(lock)
        lock.write()
    return next(((end, head, sooner) for end, _, head, *_ in run("waited_for", key=key)), (now, None, {}))


def sweep(run: Transaction, request: Sweep, level: HistoryLevel, post: Post) -> Swept:
    """Settle and forget what is over, at most *limit* of each kind."""
    now = _now(run, request.now)
    limit = request.limit
    expired = 0
    for (key,) in run("sweep_expired", now=now, limit=limit):
        lock = LockRow(run, key, now, level, post)
        expired += settling.settle(lock)
        lock.write()
    ended = run("ended_before", now=now, limit=limit)
    run.many("delete_ended", [{"key": key, "attempt": attempt} for key, attempt in ended])
    outcomes = run("outcomes_before", now=now, limit=limit)
    run.many("delete_outcome", [{"key": key, "token": token} for key, token in outcomes])
    run("delete_access", now=now, limit=limit)
    works = run("delete_works", before=now - micros(request.keep_history), limit=limit)
    gone = run("delete_instances", before=now - micros(request.idle), limit=limit)
    history = run("history_before", before=now - micros(request.keep_history), limit=limit)
    run.many("delete_event", [{"key": key, "number": number} for key, number in history])
    idle_since = now - micros(request.idle)
    walk = run("sweep_walk", after=request.after, idle_since=idle_since, limit=limit + 1)
    tickets = locks = 0
    after: str | None = request.after
    for key, token, idle, waiters in walk[:limit]:
        if waiters:
            lock = LockRow(run, key, now, level, post)
            tickets += settling.drop_dead_tickets(lock, limit - tickets)
            lock.write()
            if tickets == limit:
                break  # there may be more of them: come back to this key
        elif idle:
            run("raise_floor", token=token)
            run("delete_lock", key=key)
            locks += 1
        after = key
    else:
        # Even if all keys were seen, there may be more of what is over.
        more = len(walk) > limit or limit in (expired, len(ended), len(history), len(works), len(gone))
        after = after if more else None
    return Swept(expired, tickets, locks, len(ended), len(history), after)


def _now(run: Transaction, given: float | None) -> int:
    return cast("int", run("now", now=instant(given))[0][0])
