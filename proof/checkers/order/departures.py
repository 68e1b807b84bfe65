"""Whoever begins another turn has left the one before: nothing of that is kept alive any more (P6).

A call may end in many ways without an answer: cancelled, interrupted, timed out after a grant, cut off. Then
the client has to clean up after it, and if it does not, its keeper goes on renewing for as long as the
process lives. That is no wrong answer and breaks no other rule: the lock is just never free again.

The turns of a thread or task come one after the other, each with an owner of its own. So once the next one
has made its first call, nobody moves the end of what the last one had, but for a statement that is late.
What a program has got and never gave back is its own business.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict

from proof.checkers.order import rules
from proof.checkers.order.clocks import LATE, Clocks
from proof.checkers.order.ledger import Key, Ticket
from proof.checkers.order.requests import Asked, micros
from proof.checkers.order.rules import Findings
from proof.checkers.order.tokens import TAKING
from proof.histories.records import Call, History, Injected

# Seconds for a statement that is late. Clients wait for 3 s at most for an answer, and so do lock servers for
# the database. Of 142,000 holds and tickets in 28 minutes of faults, nine were moved later at all, and the
# latest of them 2.1 s later: they had been on their way through a lock server that nobody could hear.
GIVEN_UP = 3.0
# Faults that keep back what was said, and deliver it when they are over: by then its client has given up.
# Behind a partition it is the kernel who says it again, at longer and longer intervals: 7.0 s late was seen.
KEEP_BACK = frozenset({"partition a client", "deaf network", "delays"})
HTTP_NETWORK = "network before the lock server"
MOVING = frozenset({"Acquire", "Renew", "Refresh"})  # requests that move ends


class Leaving:
    """All turns that were followed by another one."""

    def __init__(
        self, history: History, keys: dict[str, Key], asked: Asked, clocks: Clocks, findings: Findings
    ) -> None:
        self._keys, self._asked, self._clocks, self._findings = keys, asked, clocks, findings
        self._next = _next_turns(history.calls)  # owner → when the next turn made its first call
        self._taking: dict[str, list[Call]] = defaultdict(list)  # by owner
        for call in history.calls:
            if call.kind in TAKING:
                self._taking[call.owner].append(call)
        self._claim = float(history.run.settings.get("claim", asked.patience))
        self._kept_back = _kept_back(history)  # attempt → when it asked what may have arrived late

    def check(self) -> None:
        """Apply the rule."""
        for key in self._keys.values():
            for lease in key.leases.values():
                left = self._next.get(lease.owner)
                if left is None:
                    continue
                for hold in lease.holds:
                    if self._is_kept(hold.attempt, lease.owner):
                        continue
                    # Who was not handed it before it left is handed it while its ticket is alive.
                    ttl = self._asked.attempts[hold.attempt].ttl / 1e6
                    lives = ttl if hold.claimed else self._asked.patience + self._claim
                    self._check(key.name, lease.owner, "hold", hold.attempt, hold.end, left, lives)
            for ticket in key.all_tickets:
                self._check_ticket(key, ticket)

    def _check_ticket(self, key: Key, ticket: Ticket) -> None:
        if (left := self._next.get(ticket.owner)) is not None:
            attempt, patience = ticket.attempt, self._asked.patience
            self._check(key.name, ticket.owner, "ticket", attempt, ticket.last_end, left, patience)

    def _check(
        self, key: str, owner: str, what: str, attempt: str, end: int, left: float, lives: float
    ) -> None:
        """See that an end was given before *left*, or little later: for what *lives* so long."""
        self._findings.check(rules.LEFT)
        stepped = self._clocks.stepped_by(end - micros(lives))
        by = left + GIVEN_UP
        if (asked := self._kept_back.get(attempt)) is not None:
            by = max(by, asked + LATE)
        latest = self._clocks.at(by)[1] + micros(lives + stepped)
        if end > latest:
            self._findings.violated(
                rules.LEFT,
                key,
                f"{owner} was done with it by {left:.6f}, and the {what} of {attempt} was moved to {end}"
                f" after that, which is {(end - latest) / 1e6:.1f} s too late",
            )

    def _is_kept(self, attempt: str, owner: str) -> bool:
        """Tell whether a program was told that it has it, and never wanted to be rid of it."""
        known = self._asked.attempts.get(attempt)
        if known is None:
            return True  # who looks when all is over is not recorded
        calls = self._taking[owner]
        which = bisect_right(calls, known.asked, key=lambda call: call.called) - 1
        return which >= 0 and calls[which].outcome == "ok" and known.let_go == float("inf")


def _kept_back(history: History) -> dict[str, float]:
    """Return the attempts that have asked, without an answer, what a fault may have kept back; and when."""
    kept_back: dict[str, float] = {}
    faults = [fault for fault in history.faults if fault.fault in KEEP_BACK]
    for ask in history.asks:
        if (
            ask.kind in MOVING
            and ask.outcome == "unknown"
            and any(_concerns(fault, ask.worker) and _meets(fault, ask.called) for fault in faults)
        ):
            kept_back[ask.attempt] = max(ask.called, kept_back.get(ask.attempt, ask.called))
    return kept_back


def _concerns(fault: Injected, process: str) -> bool:
    if fault.fault == "partition a client":
        return fault.target == process
    return fault.target != HTTP_NETWORK or process.startswith("http")  # all others are before the database


def _meets(fault: Injected, asked: float) -> bool:
    return fault.began <= asked + GIVEN_UP and asked <= fault.ended


def _next_turns(calls: list[Call]) -> dict[str, float]:
    following: dict[str, float] = {}
    last: dict[str, str] = {}  # worker → owner
    for call in sorted(calls, key=lambda call: call.called):
        before = last.get(call.worker)
        if before is not None and before != call.owner:
            following.setdefault(before, call.called)
        last[call.worker] = call.owner
    return following
