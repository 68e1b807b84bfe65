"""Requests about many keys: renewals and sweeping. A statement for all where one will do, else key by key."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, cast

from holdfast import errors
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
from holdfast.stores.sql.row import LockRow
from holdfast.stores.sql.run import Row
from holdfast.stores.sql.serving import Peek, Serving
from holdfast.stores.sql.session import Conflict

BATCH = 1000  # leases or tickets in one statement: it locks them all until it is done


class ManyKeys(Serving):
    """See the module."""

    _may_delete_access = True

    def _renew(self, request: Renew) -> Renewed:
        return Renewed(
            self._renew_leases(request.leases, request.now),
            self._refresh_tickets(request.tickets, request.now),
        )

    def _renew_leases(self, leases: tuple[RenewLease, ...], now: float | None) -> tuple[LeaseAnswer, ...]:
        answers: dict[int, LeaseAnswer | None] = {}
        for place in self._in_batches(
            "renew",
            "leases",
            [
                {"key": each.key, "attempt": each.attempt, "token": each.token, "ttl": micros(each.ttl)}
                for each in leases
            ],
            now,
        ):
            answers[place] = LeaseAnswer("renewed", micros(leases[place].ttl) / 1e6)
        # First all that are alive, then what became of the others: settling their keys depends on the first.
        for decide in (deciding.renew_alive, deciding.explain_loss):
            for place, lease in enumerate(leases):
                if answers.get(place) is None:
                    answers[place] = self._on_lease(lease, now, decide)
        return tuple(cast("LeaseAnswer", answers[place]) for place in range(len(leases)))

    def _on_lease(
        self,
        lease: RenewLease,
        now: float | None,
        decide: Callable[[LockRow, RenewLease], LeaseAnswer | None],
    ) -> LeaseAnswer | None:
        try:
            return self._on_key(lease.key, lease.attempt, now, lambda lock: decide(lock, lease), urgent=True)
        except Conflict:
            return LeaseAnswer("unknown")  # somebody keeps the row locked; the others are none the worse

    def _refresh_tickets(
        self, tickets: tuple[RefreshTicket, ...], now: float | None
    ) -> tuple[TicketAnswer, ...]:
        if not tickets:
            return ()
        waited_for, sooner = self._settled(list(dict.fromkeys(ticket.key for ticket in tickets)), now)
        waiting = self._in_batches(
            "refresh_tickets",
            "tickets",
            [
                {"key": each.key, "attempt": each.attempt, "patience": micros(each.patience)}
                for each in tickets
            ],
            now,
        )
        answers = []
        for place, ticket in enumerate(tickets):
            if place in waiting:
                at, owner, end, _, head, *_ = waited_for[ticket.key]
                end = sooner.get((ticket.key, ticket.attempt), at if owner is None else end)
                answers.append(TicketAnswer("waiting", head == ticket.attempt, (end - at) / 1e6))
            elif self._peek_hold(ticket, now):
                answers.append(TicketAnswer("handed"))
            else:
                answers.append(TicketAnswer("gone"))
        return tuple(answers)

    def _settled(
        self, keys: list[str], now: float | None
    ) -> tuple[dict[str, Row], dict[tuple[str, str], int]]:
        """Settle the keys where there is anything to settle. Return what their waiters want to know.

        And which tickets, by key and attempt, may be granted before the last hold has ended, and when.
        """
        found = self._waited_for(keys, now)
        to_settle = [key for key, row in found.items() if _may_have_changed(row)]
        sooner: dict[tuple[str, str], int] = {}
        for key in to_settle:
            with suppress(Conflict):  # somebody keeps the row locked; the others are none the worse
                for attempt, end in self._on_key(
                    key, "", now, settling.settle_for_waiters, urgent=True
                ).items():
                    sooner[key, attempt] = end
        if to_settle:
            found |= self._waited_for(to_settle, now)
        return found, sooner

    def _waited_for(self, keys: list[str], now: float | None) -> dict[str, Row]:
        found: dict[str, Row] = {}
        for start in range(0, len(keys), BATCH):
            chosen = json.dumps(keys[start : start + BATCH])
            for key, *rest in self._fetch_urgently("waited_for", keys=chosen, now=instant(now)):
                found[key] = tuple(rest)
        return found

    def _peek_hold(self, ticket: RefreshTicket, now: float | None) -> bool:
        return self.use(
            lambda session: (
                LockRow(Peek(session), ticket.key, instant(now), self._level, [], ticket.attempt).find_alive()
                is not None
            ),
            urgent=True,
        )

    def _in_batches(
        self, name: str, parameter: str, items: list[dict[str, Any]], now: float | None
    ) -> set[int]:
        """Run a statement for many items, as few times as is good; return the places it found."""
        places: set[int] = set()
        for start in range(0, len(items), BATCH):
            chosen = json.dumps(
                [{"place": start + n, **item} for n, item in enumerate(items[start : start + BATCH])]
            )
            rows = self._fetch_urgently(name, **{parameter: chosen}, now=instant(now))
            places.update(place for (place,) in rows)
        return places

    def _fetch_urgently(self, name: str, /, **parameters: Any) -> list[Row]:
        return self.use(lambda session: session.fetch(name, parameters), urgent=True)

    def _sweep(self, request: Sweep) -> Swept:
        limit, given = request.limit, request.now
        now = cast("int", self._fetch("now", now=instant(given))[0][0])
        expired = self._fetch("sweep_expired", now=now, limit=limit)
        over = sum(self._on_key(key, "", given, settling.settle) for (key,) in expired)
        ended = self._fetch("delete_ended", now=now, limit=limit)
        self._fetch("delete_outcomes", now=now, limit=limit)
        self._delete_access(now, limit)
        works = self._fetch("delete_works", before=now - micros(request.keep_history), limit=limit)
        gone = self._fetch("delete_instances", before=now - micros(request.idle), limit=limit)
        history = self._fetch("delete_history", before=now - micros(request.keep_history), limit=limit)
        if given is None:
            self._keep_partitions(now, now - micros(request.keep_history))
        idle_since = now - micros(request.idle)
        walk = self._fetch("sweep_walk", after=request.after, idle_since=idle_since, limit=limit + 1)
        tickets = 0
        idle: list[tuple[str, int]] = []
        after: str | None = request.after
        for key, token, is_idle, waiters in walk[:limit]:
            if waiters:
                most = limit - tickets
                tickets += self._on_key(key, "", given, partial(settling.drop_dead_tickets, limit=most))
                if tickets == limit:
                    break  # there may be more of them: come back to this key
            elif is_idle:
                idle.append((key, token))
            after = key
        else:
            after = after if len(walk) > limit else None
        deleted = self._delete_idle(idle, idle_since)
        self._fetch(
            "delete_never_granted", after=request.after, upto=after, idle_since=idle_since, limit=limit
        )
        if after is None and limit in (over, len(ended), len(history), len(works), len(gone)):
            after = (
                walk[-1][0] if walk else request.after
            )  # all keys were seen, but there is more that is over
        return Swept(over, tickets, deleted, len(ended), len(history), after)

    def _delete_access(self, now: int, limit: int) -> None:
        """Forget access tokens that have ended, unless we may not: only servers have to do with them."""
        if self._may_delete_access:
            try:
                self._fetch("delete_access", now=now, limit=limit)
            except errors.StoreMisconfigured:
                self._may_delete_access = False  # each try would leave a line in the server's log

    def _delete_idle(self, idle: list[tuple[str, int]], idle_since: int) -> int:
        if not idle:
            return 0
        self._fetch("raise_floor", token=max(token for _, token in idle))
        return len(
            self._fetch("delete_idle", keys=json.dumps([key for key, _ in idle]), idle_since=idle_since)
        )

    @abstractmethod
    def _keep_partitions(self, now: int, forget_before: int) -> None:
        """Make the history's partitions ahead, and drop those that are over."""


def _may_have_changed(waited_for: Row) -> bool:
    """Tell whether a key that is waited for has to be settled, by what a plain read shows."""
    at, owner, end, holds, _, head_end, notes = waited_for
    if owner is None or end <= at or (head_end is not None and head_end <= at):
        return True
    return bool(holds > 1 or lets_in_before_the_end(notes))
