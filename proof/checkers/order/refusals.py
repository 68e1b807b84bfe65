"""Who is told to wait, or to go away, is told so for a reason: what is free is not refused (P8).

Reasons are in the tables: at some instant between question and answer somebody has a lease beside which the
wanted one does not fit, or has a ticket before it, or the key is shut. None of that is judged by when a row
was written: a change is seen when it is committed, which is after that. Until when it can be unseen is known
as well: whoever changes a key next has waited for it, and whoever asked for it has been answered by then.

Two reasons leave no rows. A transaction that fences the key locks its row, and so does a change that is under
way; who waits for that is answered after half a second.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator
from itertools import accumulate
from typing import NamedTuple

from proof.checkers.order import rules
from proof.checkers.order.clocks import Clocks
from proof.checkers.order.ledger import Key
from proof.checkers.order.requests import Asked
from proof.checkers.order.rules import Findings
from proof.checkers.order.terms import PLAIN, Terms, fit
from proof.histories.records import FENCED, PERMITS, SEMAPHORE, Ask, Call, History

REFUSED = frozenset({"Busy", "Queued", "waiting"})
ROW_LOCKED = 0.4  # seconds: an answer that took longer may come from the timeout of half a second
# A crash may undo what others have seen: MariaDB shows a change to others before it is on its disk.
UNDONE = 1.0  # seconds before it
CRASHES = frozenset({"kill database", "promote standby", "failing fsync", "full disk", "power cut"})


class Reason(NamedTuple):
    """Something that others have to wait for, from when until when, by the store's clock."""

    since: float
    until: float
    owner: str
    attempt: str
    terms: Terms | None  # None: of a ticket, or of a key that is shut, which lets nobody in
    number: float = -math.inf  # of a ticket


class Reasons:
    """All that there were of one key."""

    def __init__(self, reasons: list[Reason]) -> None:
        self._reasons = sorted(reasons, key=lambda each: each.since)
        self._since = [each.since for each in self._reasons]
        # The latest end so far: where that is over, so is everything before.
        self._over = list(accumulate((each.until for each in self._reasons), max))

    def between(self, since: float, until: float) -> list[Reason]:
        """Return those that were there at some instant between two."""
        first = bisect_left(self._over, since)
        last = bisect_right(self._since, until)
        return [each for each in self._reasons[first:last] if each.until > since]


class Refusals:
    """All answers that tell somebody to wait or to go away."""

    def __init__(
        self, history: History, keys: dict[str, Key], asked: Asked, clocks: Clocks, findings: Findings
    ) -> None:
        self._keys, self._asked, self._clocks, self._findings = keys, asked, clocks, findings
        self._asks = [ask for ask in history.asks if ask.answer in REFUSED]
        self._wanted = dict(_wanted(history.calls))
        self._excused = [
            (fault.began - UNDONE, fault.ended) for fault in history.faults if fault.fault in CRASHES
        ]
        # What was given by a clock that was ahead seems to begin later than it was there, and lasts longer.
        longest = max([asked.patience, *(attempt.ttl / 1e6 for attempt in asked.attempts.values())])
        self._excused += [(step.began, step.ended + step.size + longest) for step in clocks.stepped]
        self._released = {(ask.attempt, ask.token): ask.returned for ask in asked.releases}
        self._pins: dict[str, list[tuple[float, float]]] = defaultdict(list)
        for call in history.calls:
            if call.kind == "update" and call.key.startswith(f"{FENCED}:"):
                self._pins[call.key].append((call.called, call.returned))

    def check(self) -> None:
        """Apply the rule."""
        reasons = {name: Reasons(list(self._reasons(key))) for name, key in self._keys.items()}
        numbers = {
            name: {ticket.attempt: ticket.number for ticket in key.all_tickets}
            for name, key in self._keys.items()
        }
        for ask in self._asks:
            attempt = self._asked.attempts[ask.attempt]
            if attempt.owner and ask.key in reasons and not self._is_excused(ask):
                self._findings.check(rules.REASON)
                number = numbers[ask.key].get(ask.attempt, math.inf)
                self._check(ask, attempt.owner, number, reasons[ask.key])

    def _check(self, ask: Ask, owner: str, number: float, reasons: Reasons) -> None:
        since, until = self._clocks.earliest(ask.called), self._clocks.latest(ask.returned)
        there = reasons.between(since, until)
        wanted = self._wanted.get(owner, PLAIN)
        held = []
        for each in there:
            if each.terms is not None:
                if each.owner != owner or wanted.mode == PERMITS:  # who has it already is let in again
                    held.append(each)
            elif each.attempt != ask.attempt and each.number < number:
                return
        # Of many that end one after the other, some were there at once: at the beginning of one of them.
        for instant in {since, *(each.since for each in held if each.since > since)}:
            now = [each.terms for each in held if each.since <= instant < each.until and each.terms]
            if not fit(wanted, now):
                return
        self._findings.violated(
            rules.REASON,
            ask.key,
            f"{ask.attempt} of {owner} wanted it {wanted.mode} at {ask.called:.6f} ({since:.0f}), and was"
            f" told {ask.answer} at {ask.returned:.6f} ({until:.0f}), when nobody was in its way",
        )

    def _is_excused(self, ask: Ask) -> bool:
        """Tell whether there may have been a reason that has left no row."""
        return (
            ask.returned - ask.called >= ROW_LOCKED
            or any(began <= ask.returned and ask.called <= ended for began, ended in self._excused)
            or any(began <= ask.returned and ask.called <= ended for began, ended in self._pins[ask.key])
        )

    def _reasons(self, key: Key) -> Iterator[Reason]:
        for lease in key.leases.values():
            for hold in lease.holds:
                until = float(hold.end)
                if hold.ended != "expired" and hold.gone_at:
                    told = self._released.get((hold.attempt, hold.token), math.inf)
                    until = min(until, self._seen_by(key, hold.gone_at), self._clocks.latest(told))
                # Exclusive leases that are shared later let more in, not less.
                yield Reason(lease.granted_at, until, lease.owner, hold.attempt, lease.granted_terms)
        for ticket in key.all_tickets:
            gone = self._seen_by(key, ticket.gone_at) if ticket.gone_at else math.inf
            until = min(float(ticket.last_end), gone)
            yield Reason(ticket.queued_at, until, ticket.owner, ticket.attempt, None, ticket.number)
        for shut_at, until in key.shut:
            yield Reason(shut_at, until, "", "", None)

    def _seen_by(self, key: Key, at: int) -> float:
        """Return when a change that was written *at* was seen by all: when the next one was made."""
        place = bisect_right(key.steps_at, at)
        return key.steps_at[place] if place < len(key.steps_at) else math.inf


def _wanted(calls: list[Call]) -> Iterator[tuple[str, Terms]]:
    """Return what each owner wants: of a turn all calls are about the same."""
    for call in calls:
        if call.kind in ("acquire", "try"):
            permits = call.key.startswith(f"{PERMITS}:")
            yield call.owner, Terms(PERMITS, call.take, SEMAPHORE) if permits else Terms(call.mode)
