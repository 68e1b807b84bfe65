"""One request's effect on one key, as the invariants look at it; and how they say that something is wrong."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from holdfast.core.cluster import Assign, Claim, Finish, Leave
from holdfast.core.requests import (
    Acquire,
    Break,
    Broken,
    Downgrade,
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
from proof.simulation.observed import Hold, State

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
    granted: dict[str, Hold] = field(init=False)  # the first hold of each new lease, by its token
    told: set[str] = field(init=False)  # those whose tickets were ended, to learn why when they ask

    def __post_init__(self) -> None:
        self.named = self._named()
        self.granted = self._granted()
        self.told = self._told()

    @property
    def direct(self) -> bool:
        """Whether the request is about this key, and not only its consequences."""
        return getattr(self.request, "key", self.key) == self.key

    def _granted(self) -> dict[str, Hold]:
        known = {
            hold.token
            for attempt, hold in self.before.holds.items()
            if hold.end > self.now or self.after.holds.get(attempt) == hold
        }
        new: dict[int, str] = {}
        for attempt, hold in self.after.holds.items():
            if hold.token not in known:
                first = new.setdefault(hold.token, attempt)
                if first not in self.before.tickets and attempt in self.before.tickets:
                    new[hold.token] = attempt
        return {new[token]: self.after.holds[new[token]] for token in sorted(new)}

    def _told(self) -> set[str]:
        """Return who lost a live ticket and got nothing for it, and was signalled."""
        over = {instance for instance, signal in self.signals if signal.kind == "over"}
        asked = {signal.attempt for _, signal in self.signals if signal.kind == "granted"}
        return {
            attempt
            for attempt, ticket in self.before.tickets.items()
            if attempt not in self.after.tickets
            and attempt not in self.after.holds
            and ticket.end > self.now
            and (ticket.instance in over or attempt in asked)
        }

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
        if isinstance(self.request, Acquire | Release | Withdraw | Downgrade | Assign | Finish):
            return {self.request.attempt}
        if isinstance(self.request, Claim):
            return {f"{self.request.attempt}.{place}" for place in range(self.request.limit)}
        if isinstance(self.request, Leave):
            return {attempt for attempt, hold in self.before.holds.items() if hold.owner == self.request.id}
        if isinstance(self.request, Break):
            return self._broken() if isinstance(self.answer, Broken) else set()
        return {lease.attempt for lease, _ in self.leases()} | {t.attempt for t, _ in self.refreshed()}

    def _broken(self) -> set[str]:
        """Return the attempts that lost the lock to an operator. It is settled first: whoever was handed
        it by that is robbed as well.
        """
        token = getattr(self.request, "token", None)
        live = self.before.live(self.now)
        if token is not None:
            return {attempt for attempt, hold in live.items() if hold.token == token}
        lost = {signal.attempt for _, signal in self.signals if signal.kind == "lost"}
        return {*live, *(lost & self.before.tickets.keys())}

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
    outcomes: dict[int, str] = field(default_factory=dict)  # token → the result of an operation
    waited: dict[str, int | None] = field(
        default_factory=dict
    )  # attempt → the token whose outcome it waited for
    began: dict[int, int] = field(default_factory=dict)  # token → when its lease was granted
    shut_until: int = 0  # because of a lease that was released
    kept: tuple[int, int] = (0, 0)  # the token of a result, and until when it is kept


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
