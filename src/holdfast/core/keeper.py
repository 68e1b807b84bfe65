"""What a client has to keep alive, and when: its leases, its tickets, and that it is part of a cluster.

Pure bookkeeping, safe to use from one thread at a time. A runner asks for the next `Renew`, sends it,
and reports what came of it; the keeper says who has to be told what.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from holdfast import errors
from holdfast.core.plans import Grant, Handed, Roll
from holdfast.core.requests import RefreshTicket, Renew, Renewed, RenewLease, Signal, Withdraw
from holdfast.core.settings import Settings, pause_in_queue

if TYPE_CHECKING:
    from holdfast.core.membership import Membership

BATCH = 2000  # leases in one request: 10,000 leases are five requests

# What is given back may have to wait for its row, if somebody keeps that locked, and so may all renewals. So
# it has to wait itself while any lease ends sooner than this, in seconds.
LONGEST_WAIT = 1.5

# Renew what is due within this part of the ttl, too: leases taken at different times then travel together.
EARLY = 0.1

INSTANCE_LOST = "instance lost"


class Kept:
    """A lease in a keeper's care, and the truth about its trust."""

    __slots__ = (
        *("failures", "grant", "holder", "hurried_at", "leaving", "lost", "margin"),
        *("member", "renew_at", "renews", "stop_at", "tell", "trouble", "trusted_until"),
    )

    def __init__(self, grant: Grant, *, renew_at: float, margin: float, stop_at: float = math.inf) -> None:
        self.grant = grant
        self.trusted_until = grant.trusted_until
        self.renew_at = renew_at  # when to ask about it next, infinity if there is no need
        self.renews = True  # else it is only asked about, and runs out
        self.hurried_at = -math.inf  # when a signal last said that something happened to it
        self.margin = margin
        self.stop_at = stop_at  # max_hold: no end later than this
        self.leaving = False  # released in a caller's transaction, which may still be rolled back
        self.failures = 0
        self.trouble: str | None = None
        self.lost: errors.LeaseLost | None = None
        self.member: Membership | None = None  # an assignment is lost with the instance that has it
        self.tell: Callable[[], None] | None = None  # called by the runner once the lease is lost
        self.holder: Any = None  # returns the lease that a caller has; None if nobody has it

    def loss(self, now: float) -> errors.LeaseLost | None:
        """Return why the lease is lost at *now*, or None while it can be trusted."""
        if self.lost is None and self.member is not None and (gone := self.member.loss(now)):
            self.lose(INSTANCE_LOST, detail=gone.reason)
        if self.lost is None and now >= self.trusted_until:
            reason = "store unreachable" if self.trouble and self.renews else "expired"
            if self.trusted_until >= self.stop_at - self.margin:
                reason = "max_hold reached"
            self.lose(reason, detail=self.trouble)
        return self.lost

    @property
    def ends_at(self) -> float:
        """Until when it can be trusted, if nothing is heard any more: of itself, or of its instance."""
        if self.member is None:
            return self.trusted_until
        return min(self.trusted_until, self.member.trusted_until)

    def lose(self, reason: str, *, by: str | None = None, detail: str | None = None) -> bool:
        """Mark the lease as lost, for good; the first reason stands. Return whether it was the first."""
        if self.lost is not None:
            return False
        self.lost = errors.LeaseLost(self.grant.key, reason, token=self.grant.token, by=by, detail=detail)
        return True


class _Ticket:
    __slots__ = ("answered_at", "asked", "attempt", "failures", "key", "refresh_at")

    def __init__(self, key: str, attempt: str, refresh_at: float) -> None:
        self.key = key
        self.attempt = attempt
        self.refresh_at = refresh_at
        self.failures = 0
        # The anchor: when we asked in the last request that found it queued, and the store's time then.
        self.asked = -math.inf
        self.answered_at = 0.0

    def anchor(self, asked: float, answered_at: float) -> None:
        """Take in an answer that found it queued."""
        if answered_at and asked > self.asked:
            self.asked, self.answered_at = asked, answered_at


class _Pursued:
    __slots__ = ("failures", "next_at", "request", "until")

    def __init__(self, request: Withdraw, next_at: float, until: float) -> None:
        self.request = request
        self.next_at = next_at
        self.until = until  # when it has ended by itself
        self.failures = 0


class Keeper:
    """The leases and tickets of one client, and the instances that it is."""

    def __init__(self, settings: Settings, roll: Roll) -> None:
        self.settings = settings
        self.roll = roll
        self.leases: dict[str, Kept] = {}
        self.tickets: dict[str, _Ticket] = {}
        self.members: dict[str, Membership] = {}  # by id
        # What nobody has any more while the store does not know, and in which order it is given back. What is
        # in the order and not in the books, or there with another time, is over.
        self.pursued: dict[str, _Pursued] = {}
        self._order: list[tuple[float, int, _Pursued]] = []  # a heap: by time, and who came first
        self._lined_up = 0
        self._tried: _Pursued | None = None
        self._pause_until = -math.inf
        # When a signal last came for a lease that is not known here. It may have overtaken the answer that
        # grants it, so whatever was asked for before is asked about. One instant for all: signals for leases
        # that never come are not to pile up, and a lease that was not meant costs one early renewal.
        self.hurried_at = -math.inf

    def keep(
        self, grant: Grant, *, max_hold: float | None, renew: bool = True, asked: float | None = None
    ) -> Kept:
        """Take a lease into care. With *renew* off it runs out.

        *asked* is when its grant was asked for, if its trust does not tell.
        """
        margin = self.settings.margin_for(grant.ttl)
        lasts = grant.lasts or grant.ttl
        if asked is None:
            asked = grant.trusted_until - lasts + self.settings.margin_for(lasts)
        stop_at = math.inf if max_hold is None else asked + max_hold
        kept = Kept(grant, renew_at=math.inf, margin=margin, stop_at=stop_at)
        kept.renews = renew
        kept.hurried_at = self.hurried_at
        self._schedule(kept, lasts, asked)
        self.leases[grant.attempt] = kept
        return kept

    def watch(self, kept: Kept) -> None:
        """Take a lease into care again that is not to be renewed any more."""
        kept.renews = False
        kept.renew_at = math.inf
        self.leases[kept.grant.attempt] = kept

    def drop(self, attempt: str) -> None:
        """Stop renewing a lease."""
        if (kept := self.leases.pop(attempt, None)) is not None:
            kept.holder = None  # else we would hear of its end, although there is nothing left to give back

    def wait(self, key: str, attempt: str, now: float) -> None:
        """Take a ticket into care."""
        self.tickets[attempt] = _Ticket(key, attempt, now + self.settings.heartbeat)

    def queued(self, attempt: str, *, asked: float, answered_at: float) -> None:
        """Take in that the store, asked at *asked*, has answered that an attempt in our care is queued."""
        if ticket := self.tickets.get(attempt):
            ticket.anchor(asked, answered_at)

    def heard(self, signal: Signal) -> Signal | Handed:
        """Return what a signal is to the plan that waits for it: a hand-over to enter by, if it is one.

        See Entering by the hand-over in the protocol.
        """
        ticket = self.tickets.get(signal.attempt)
        if not signal.token or ticket is None or ticket.asked == -math.inf:
            return signal
        since = ticket.asked + min(0.0, signal.at - ticket.answered_at)
        return Handed(signal.attempt, signal.token, since, signal.expires_in)

    def leave(self, attempt: str) -> None:
        """Stop refreshing a ticket."""
        self.tickets.pop(attempt, None)

    def pursue(self, request: Withdraw, *, lasts: float, now: float) -> None:
        """Give back what nobody has any more, again and again. After *lasts* it has ended by itself."""
        self.drop(request.attempt)
        self.leave(request.attempt)
        self.pursued[request.attempt] = pursued = _Pursued(request, now, now + lasts)
        self._line_up(pursued)

    def withdrawal(self, now: float) -> Withdraw | None:
        """Return what is to be given back next, if there is time for that."""
        while self.pursue_at <= now and (first := self._first()) is not None:
            if now >= first.until:
                del self.pursued[first.request.attempt]
            elif any(
                kept.renews and kept.trusted_until < now + LONGEST_WAIT for kept in self.leases.values()
            ):
                self._pause_until = now + LONGEST_WAIT / 4
            else:
                self._tried = first
                return first.request
        return None

    def withdrawn(self, request: Withdraw) -> None:
        """Take in that it was given back."""
        self.pursued.pop(request.attempt, None)

    def not_withdrawn(self, now: float) -> None:
        """Take in that what was last to be given back could not be: try again after a backoff of its own.

        Somebody may have just that one locked, so the others have their turn meanwhile; but not all at once,
        for the store may be away.
        """
        self._pause_until = now + self.settings.backoff.delay(1, self.roll())
        if (tried := self._tried) is not None:
            tried.failures += 1
            tried.next_at = now + self.settings.backoff.delay(tried.failures, self.roll())
            self._line_up(tried)

    @property
    def pursue_at(self) -> float:
        """When something is to be given back next, if there is anything. Set it to try everything then."""
        first = self._first()
        return self._pause_until if first is None else max(self._pause_until, first.next_at)

    @pursue_at.setter
    def pursue_at(self, when: float) -> None:
        self._pause_until = when
        for pursued in self.pursued.values():
            pursued.next_at = when
            self._line_up(pursued)

    def _line_up(self, pursued: _Pursued) -> None:
        self._lined_up += 1
        heapq.heappush(self._order, (pursued.next_at, self._lined_up, pursued))

    def _first(self) -> _Pursued | None:
        while self._order:
            at, _, pursued = self._order[0]
            if self.pursued.get(pursued.request.attempt) is pursued and at == pursued.next_at:
                return pursued
            heapq.heappop(self._order)
        return None

    def next_at(self) -> float:
        """Return when there is something to do next; infinity when there is nothing."""
        return min(
            min((min(kept.renew_at, kept.trusted_until) for kept in self.leases.values()), default=math.inf),
            min((ticket.refresh_at for ticket in self.tickets.values()), default=math.inf),
            min((member.next_at() for member in self.members.values()), default=math.inf),
            self.pursue_at if self.pursued else math.inf,
        )

    def overdue(self, now: float) -> list[Kept]:
        """Return the leases whose trust has ended unrenewed; they are lost and no longer kept."""
        over = [kept for kept in self.leases.values() if kept.loss(now) is not None]
        for kept in over:
            self.drop(kept.grant.attempt)
        return over

    def gone(self, now: float) -> list[Membership]:
        """Return the instances whose trust has ended unanswered; they are lost and no longer kept."""
        gone = [member for member in self.members.values() if member.loss(now) is not None]
        for member in gone:
            del self.members[member.id]
        return gone

    def beats(self, now: float) -> list[Membership]:
        """Return the instances whose heartbeat is due."""
        return [member for member in self.members.values() if member.beat_at <= now]

    def hurry(self, attempt: str, now: float) -> None:
        """Ask about this lease at once: a signal says that something happened to it."""
        if kept := self.leases.get(attempt):
            kept.renew_at = kept.hurried_at = now
        else:
            self.hurried_at = now

    def hurry_all(self, now: float) -> None:
        """Ask about every lease that is renewed at once, and about those that are under way.

        Signals may be missing. A lease that is not renewed is asked about when one comes, and else never.
        """
        self.hurried_at = now
        for kept in self.leases.values():
            if kept.renews:
                kept.renew_at = kept.hurried_at = now

    def due(self, now: float) -> Renew | None:
        """Return the request for everything that is due, or None. At most `BATCH` leases and tickets."""
        due = [kept for kept in self.leases.values() if kept.renew_at <= now]
        if due:  # others then ride along, but for those that failed: they keep their own backoff
            due += [
                kept
                for kept in self.leases.values()
                if now < kept.renew_at <= now + EARLY * kept.grant.ttl and not kept.failures
            ]
        del due[BATCH:]
        leases = [
            RenewLease(kept.grant.key, kept.grant.attempt, kept.grant.token, self._ttl(kept, now))
            for kept in due
        ]
        for kept in due:
            kept.hurried_at = -math.inf  # what the signal was about is older than this question
        tickets = [t for t in self.tickets.values() if t.refresh_at <= now]
        if tickets:  # all others ride along, and from then on beat together
            tickets += [t for t in self.tickets.values() if t.refresh_at > now and not t.failures]
        del tickets[BATCH:]
        if not leases and not tickets:
            return None
        patience = self.settings.patience
        return Renew(
            leases=tuple(leases), tickets=tuple(RefreshTicket(t.key, t.attempt, patience) for t in tickets)
        )

    def answered(self, request: Renew, answer: Renewed, *, asked: float) -> tuple[list[Kept], list[Signal]]:
        """Take in an answer. Return the leases that are lost, and signals for those who wait."""
        lost: list[Kept] = []
        for lease, said in zip(request.leases, answer.leases, strict=True):
            kept = self.leases.get(lease.attempt)
            if kept is None or kept.grant.token != lease.token:
                continue  # released, or another client's business, while we asked
            if said.outcome == "unknown":
                self._postpone(kept, "the store could not look in time", asked)
            elif said.outcome == "lost":
                kept.lose(loss_reason(said.why), by=said.by, detail=said.reason)
                self.drop(lease.attempt)
                if not (kept.leaving and said.why == "already"):  # as its holder wanted
                    lost.append(kept)
            elif kept.lost is None:
                self._extend(kept, lease.ttl, asked)
        signals: list[Signal] = []
        for refresh, told in zip(request.tickets, answer.tickets, strict=True):
            ticket = self.tickets.get(refresh.attempt)
            if ticket is None:
                continue
            ticket.failures = 0
            ticket.refresh_at = asked + self.settings.heartbeat
            if told.outcome == "waiting":
                ticket.anchor(asked, told.at)
            if told.outcome != "waiting":
                signals.append(Signal("granted", ticket.key, ticket.attempt))
            elif told.head:
                signals.append(Signal("head", ticket.key, ticket.attempt, told.expires_in))
        return lost, signals

    def failed(self, request: Renew, trouble: str, *, now: float) -> None:
        """Take in a failure: try again later, each after its own backoff. An error is not a loss."""
        for lease in request.leases:
            if kept := self.leases.get(lease.attempt):
                self._postpone(kept, trouble, now)
        for refresh in request.tickets:
            if ticket := self.tickets.get(refresh.attempt):
                ticket.failures += 1
                ticket.refresh_at = now + pause_in_queue(self.settings, ticket.failures, self.roll())

    def _ttl(self, kept: Kept, now: float) -> float:
        """Return the ttl to ask for: never past max_hold; 0 only asks whether it is still held."""
        if not kept.renews:
            return 0.0
        return min(kept.grant.ttl, max(kept.stop_at - now, 0.0))

    def _extend(self, kept: Kept, ttl: float, asked: float) -> None:
        kept.failures = 0
        kept.trouble = None
        kept.trusted_until = max(kept.trusted_until, asked + ttl - kept.margin)
        self._schedule(kept, ttl, asked)

    def _schedule(self, kept: Kept, ttl: float, asked: float) -> None:
        """Say when to ask about a lease next, after it was granted or renewed for *ttl*."""
        if asked + ttl >= kept.stop_at:
            kept.renews = False  # max_hold: this was the last renewal
        kept.renew_at = asked + ttl * self.settings.renew_at if kept.renews else math.inf
        if kept.hurried_at >= asked:  # by a signal of something that this answer may be older than
            kept.renew_at = kept.hurried_at

    def _postpone(self, kept: Kept, trouble: str, now: float) -> None:
        kept.failures += 1
        kept.trouble = trouble
        kept.renew_at = now + self.settings.backoff.delay(kept.failures, self.roll())


def loss_reason(why: str | None) -> str:
    """Return what a holder is told who is not one any more."""
    return "released" if why == "already" else why or "unknown"
