"""One request's effect on one key, as the invariants look at it; and how they say that something is wrong."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from holdfast.core.requests import (
    Acquire,
    Break,
    Broken,
    LeaseAnswer,
    RefreshTicket,
    Release,
    Renew,
    RenewLease,
    Request,
    Signal,
    TicketAnswer,
    Withdraw,
)
from holdfast.testing.simulation.observed import State

EPOCH = 1_700_000_000.0  # the store's clock at virtual time 0


class Violation(AssertionError):
    """An invariant does not hold."""

    def __init__(self, invariant: str, text: str) -> None:
        self.invariant = invariant
        self.text = text
        super().__init__(f"{invariant}: {text}")


@dataclass(slots=True)
class Step:
    """One request's effect on one key."""

    key: str
    request: Request[Any]
    answer: Any
    now: int
    before: State
    after: State
    signals: list[tuple[str, Signal]] = field(default_factory=list)
    named: set[str] = field(init=False)  # the attempts that the request is about
    continued: bool = field(init=False)  # the lease from before goes on, or is not settled yet

    def __post_init__(self) -> None:
        self.named = self._named()
        self.continued = any(
            attempt in self.after.holds and (hold.end > self.now or self.after.holds[attempt] == hold)
            for attempt, hold in self.before.holds.items()
        )

    def leases(self) -> Iterator[tuple[RenewLease, LeaseAnswer]]:
        """Return the renewals of this key's leases, with their answers."""
        if isinstance(self.request, Renew):
            for lease, answer in zip(self.request.leases, self.answer.leases, strict=True):
                if lease.key == self.key:
                    yield lease, answer

    def refreshed(self) -> Iterator[tuple[RefreshTicket, TicketAnswer]]:
        """Return the refreshments of this key's tickets, with their answers."""
        if isinstance(self.request, Renew):
            for ticket, answer in zip(self.request.tickets, self.answer.tickets, strict=True):
                if ticket.key == self.key:
                    yield ticket, answer

    def _named(self) -> set[str]:
        if isinstance(self.request, Acquire | Release | Withdraw):
            return {self.request.attempt}
        if isinstance(self.request, Break):
            return self._broken() if isinstance(self.answer, Broken) else set()
        return {lease.attempt for lease, _ in self.leases()} | {t.attempt for t, _ in self.refreshed()}

    def _broken(self) -> set[str]:
        """Return the attempts that lost the lock to an operator. It is settled first: whoever was handed
        it by that is the holder that is robbed.
        """
        if any(hold.end > self.now for hold in self.before.holds.values()):
            return set(self.before.holds)
        alive = (attempt for attempt, ticket in self.before.tickets.items() if ticket.end > self.now)
        return {*self.before.holds, *itertools.islice(alive, 1)}

    def rejoins(self, attempt: str) -> bool:
        """Tell whether an attempt with a dead ticket asked again, and came to stand at the tail."""
        if not isinstance(self.request, Acquire) or self.request.attempt != attempt:
            return False
        ticket = self.before.tickets.get(attempt)
        return ticket is not None and ticket.end <= self.now and next(reversed(self.after.tickets)) == attempt


@dataclass
class Books:
    """What the checker knows of a key."""

    highest: int = 0  # of all tokens seen
    arrivals: dict[str, int] = field(default_factory=dict)  # attempt → when its ticket appeared
    arrived: int = 0
    over: dict[str, str] = field(default_factory=dict)  # attempt → why it must never hold again


def violation(invariant: str, step: Step, text: str) -> Violation:
    """Return a violation that shows the step."""
    return Violation(
        invariant,
        f"{text}\n  request {step.request}\n  answer  {step.answer}"
        f"\n  before  {step.before}\n  after   {step.after}\n  at      {step.now}",
    )


def require(holds: bool, invariant: str, step: Step, text: str) -> None:
    """Raise a violation unless something holds."""
    if not holds:
        raise violation(invariant, step, text)
