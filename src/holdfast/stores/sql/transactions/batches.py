"""Requests about many keys: renewals and sweeping. One statement for all if that will do, or key by key."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import Any, NamedTuple, cast

from holdfast import errors
from holdfast.core import requests as r
from holdfast.stores.base import instant, micros
from holdfast.stores.sql.dialect import BATCH, Dialect
from holdfast.stores.sql.rules import decisions, renewals, settlement
from holdfast.stores.sql.rules.lock import LockRow
from holdfast.stores.sql.rules.notes import lets_in_before_the_end
from holdfast.stores.sql.rules.runner import json_lists
from holdfast.stores.sql.transactions.session import Conflict
from holdfast.stores.sql.transactions.transactor import Transactor

MOST_LOCKED = 250  # rows that are locked over a round trip: who stops there keeps others from them


class WaitedFor(NamedTuple):
    """A lock that somebody waits for, and the ticket at its head."""

    at: int
    owner: str | None
    end: int
    holds: int
    head: str | None
    head_end: int | None
    notes: str | None

    def may_have_changed(self) -> bool:
        """Tell whether the key has to be settled, by what a plain read shows."""
        head_is_over = self.head_end is not None and self.head_end <= self.at
        if self.owner is None or self.end <= self.at or head_is_over:
            return True
        return self.holds > 1 or lets_in_before_the_end(self.notes)


class Batches:
    """See the module."""

    def __init__(self, transactor: Transactor, dialect: Dialect[Any]) -> None:
        self._transactor = transactor
        self._sessions = transactor.sessions
        self._on_key = transactor.on_key
        self._dialect = dialect
        self._may_delete_access = True
        self.answers: dict[type, Callable[[Any], Any]] = {r.Renew: self._renew, r.Sweep: self._sweep}

    def _renew(self, request: r.Renew) -> r.Renewed:
        leases, tickets, now = request.leases, request.tickets, request.now
        return r.Renewed(self._renew_leases(leases, now), self._refresh_tickets(tickets, now))

    def _renew_leases(self, leases: tuple[r.RenewLease, ...], now: float | None) -> tuple[r.LeaseAnswer, ...]:
        if not leases:
            return ()
        answers: dict[int, r.LeaseAnswer | None] = {
            place: r.LeaseAnswer("renewed", micros(leases[place].ttl) / 1e6)
            for place in self._dialect.renew(leases, now)
        }
        left = {place: lease for place, lease in enumerate(leases) if place not in answers}
        if len(left) == 1:  # settling its key depends on no other
            answers |= {place: self._on_lease(lease, now, _renew_or_explain) for place, lease in left.items()}
        else:
            # First all that are alive, then what became of the others: settling their keys depends on these.
            answers |= self._renew_together(left, now)
            for decide in (decisions.renew_alive, decisions.explain_loss):
                for place, lease in left.items():
                    if place not in answers or (decide is decisions.explain_loss and not answers[place]):
                        answers[place] = self._on_lease(lease, now, decide)
        return tuple(cast("r.LeaseAnswer", answers[place]) for place in range(len(leases)))

    def _renew_together(
        self, leases: Mapping[int, r.RenewLease], now: float | None
    ) -> dict[int, r.LeaseAnswer | None]:
        """Renew leases of which the rows of their locks say too little; see `renewals.renew`."""
        answers: dict[int, r.LeaseAnswer | None] = {}
        write = self._dialect.write_renewed
        for start in range(0, len(leases), MOST_LOCKED):
            some = dict(islice(leases.items(), start, start + MOST_LOCKED))
            with suppress(Conflict):  # then they are asked for one by one
                answers |= self._transactor.run(
                    lambda deal, some=some: renewals.renew(deal, some, write),  # type: ignore[misc]
                    now,
                    create=False,
                    urgent=True,
                )
        return answers

    def _on_lease(
        self,
        lease: r.RenewLease,
        now: float | None,
        decide: Callable[[LockRow, r.RenewLease], r.LeaseAnswer | None],
    ) -> r.LeaseAnswer | None:
        try:
            return self._on_key(lease.key, lease.attempt, now, lambda lock: decide(lock, lease), urgent=True)
        except Conflict:
            return r.LeaseAnswer("unknown")  # somebody keeps the row locked; the others are none the worse

    def _refresh_tickets(
        self, tickets: tuple[r.RefreshTicket, ...], now: float | None
    ) -> tuple[r.TicketAnswer, ...]:
        if not tickets:
            return ()
        self._dialect.signals.expect(max(ticket.patience for ticket in tickets), begins=False)
        waited_for, sooner = self._settled(list(dict.fromkeys(ticket.key for ticket in tickets)), now)
        waiting = self._dialect.refresh(tickets, now)
        answers = []
        for place, ticket in enumerate(tickets):
            if place in waiting:
                lock = waited_for[ticket.key]
                end = sooner.get((ticket.key, ticket.attempt), lock.at if lock.owner is None else lock.end)
                head, expires_in = lock.head == ticket.attempt, (end - lock.at) / 1e6
                answers.append(r.TicketAnswer("waiting", head, expires_in, lock.at / 1e6))
            elif self._transactor.peek(ticket, now, LockRow.find_alive, urgent=True) is not None:
                answers.append(r.TicketAnswer("handed"))
            else:
                answers.append(r.TicketAnswer("gone"))
        return tuple(answers)

    def _settled(
        self, keys: list[str], now: float | None
    ) -> tuple[dict[str, WaitedFor], dict[tuple[str, str], int]]:
        """Settle the keys where there is anything to settle. Return what their waiters want to know.

        And which tickets, by key and attempt, may be granted before the last hold has ended, and when.
        """
        found = self._waited_for(keys, now)
        to_settle = [key for key, lock in found.items() if lock.may_have_changed()]
        sooner: dict[tuple[str, str], int] = {}
        for key in to_settle:
            with suppress(Conflict):  # somebody keeps the row locked; the others are none the worse
                ends = self._on_key(key, "", now, settlement.settle_for_waiters, urgent=True)
                sooner |= {(key, attempt): end for attempt, end in ends.items()}
        if to_settle:
            found |= self._waited_for(to_settle, now)
        return found, sooner

    def _waited_for(self, keys: list[str], now: float | None) -> dict[str, WaitedFor]:
        found: dict[str, WaitedFor] = {}
        for chosen in json_lists(keys, BATCH):
            for key, *rest in self._sessions.fetch_urgently("waited_for", keys=chosen, now=instant(now)):
                found[key] = WaitedFor._make(rest)
        return found

    def _sweep(self, request: r.Sweep) -> r.Swept:
        limit, given, fetch = request.limit, request.now, self._sessions.fetch
        now = cast("int", fetch("now", now=instant(given))[0][0])
        forget_before, idle_since = now - micros(request.keep_history), now - micros(request.idle)
        expired = fetch("sweep_expired", now=now, limit=limit)
        over = sum(self._on_key(key, "", given, settlement.settle) for (key,) in expired)
        ended = fetch("delete_ended", now=now, limit=limit)
        fetch("delete_outcomes", now=now, limit=limit)
        self._delete_access(now, limit)
        works = fetch("delete_works", before=forget_before, limit=limit)
        gone = fetch("delete_instances", before=idle_since, limit=limit)
        history = fetch("delete_history", before=forget_before, limit=limit)
        self._dialect.tidy_up(request, now, forget_before)
        walk = fetch("sweep_walk", after=request.after, idle_since=idle_since, limit=limit + 1)
        tickets = 0
        idle: list[tuple[str, int]] = []
        after: str | None = request.after
        for key, token, is_idle, waiters in walk[:limit]:
            if waiters:
                most = limit - tickets
                tickets += self._on_key(key, "", given, partial(settlement.drop_dead_tickets, limit=most))
                if tickets == limit:
                    break  # there may be more of them: come back to this key
            elif is_idle:
                idle.append((key, token))
            after = key
        else:
            after = after if len(walk) > limit else None
        deleted = self._delete_idle(idle, idle_since)
        if not self._sessions.alone:  # who is alone makes no rows only to lock them
            fetch("delete_never_granted", after=request.after, upto=after, idle_since=idle_since, limit=limit)
        if after is None and limit in (over, len(ended), len(history), len(works), len(gone)):
            # All keys were seen, but there is more that is over.
            after = walk[-1][0] if walk else request.after
        return r.Swept(over, tickets, deleted, len(ended), len(history), after)

    def _delete_access(self, now: int, limit: int) -> None:
        """Forget access tokens that have ended, unless we may not: only servers have to do with them."""
        if self._may_delete_access:
            try:
                self._sessions.fetch("delete_access", now=now, limit=limit)
            except errors.StoreMisconfigured:
                self._may_delete_access = False  # each try would leave a line in the server's log

    def _delete_idle(self, idle: list[tuple[str, int]], idle_since: int) -> int:
        if not idle:
            return 0
        fetch, keys = self._sessions.fetch, json.dumps([key for key, _ in idle])
        fetch("raise_floor", token=max(token for _, token in idle))
        return len(fetch("delete_idle", keys=keys, idle_since=idle_since))


def _renew_or_explain(lock: LockRow, lease: r.RenewLease) -> r.LeaseAnswer:
    return decisions.renew_alive(lock, lease) or decisions.explain_loss(lock, lease)
