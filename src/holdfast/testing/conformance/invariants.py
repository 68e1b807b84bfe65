"""The invariants of the protocol, checked after every step of random traffic.

The comparison of two stores finds where they differ; this finds where they are wrong together. It
knows only requests, answers, signals and the time.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import pytest

from holdfast.core.family import Terms
from holdfast.core.requests import (
    Acquire,
    Break,
    Broken,
    Deadlocked,
    Done,
    Downgrade,
    Granted,
    Inspect,
    LockView,
    Queued,
    Refused,
    Release,
    Released,
    Renew,
    Renewed,
    Request,
    Resize,
    Resized,
    Signal,
    Withdraw,
    Withdrawn,
)
from holdfast.stores.base import REMEMBER, micros
from holdfast.testing.compare import Traffic
from holdfast.testing.conformance.asker import CLIENT, Asker


@dataclass
class _Hold:
    """One entry into a lock, as far as answers told of it."""

    end: int
    token: int
    terms: Terms


@dataclass
class _Lease:
    """A lease, as far as answers told of it."""

    since: int  # 0: it was handed over, and nobody has said when
    operation: bool
    at_least: int = 0


@dataclass
class _Key:
    """What the answers so far say about one key. Times are whole microseconds."""

    highest: int = 0  # of all tokens seen
    owners: dict[int, str] = field(default_factory=dict)  # token: owner
    holds: dict[str, _Hold] = field(default_factory=dict)  # by attempt
    tickets: dict[str, int] = field(default_factory=dict)  # attempt: end, in the order of arrival
    lapsed: set[str] = field(default_factory=set)  # tickets that were dead once: no promise about their place
    handed: dict[str, int] = field(default_factory=dict)  # attempt: the highest token before it was its turn
    ended: dict[str, int] = field(default_factory=dict)  # attempt: remembered until
    outcomes: dict[int, str] = field(default_factory=dict)  # token: result
    taken: int = 0  # permits, after the last step
    leases: dict[int, _Lease] = field(default_factory=dict)  # by token
    handed_at: dict[str, int] = field(default_factory=dict)  # attempt: when it was its turn
    shut_until: int = 0  # because of a lease that was released
    kept: tuple[int, int] = (0, 0)  # the token of a result, and until when it is kept

    def refresh(self, attempt: str, end: int, now: int) -> None:
        """Note a ticket, new or not."""
        if self.tickets.get(attempt, end) <= now:
            self.lapsed.add(attempt)
        self.tickets[attempt] = max(self.tickets.get(attempt, 0), end)

    def leave(self, attempt: str) -> int:
        """Forget a ticket, and return its end."""
        self.lapsed.discard(attempt)
        return self.tickets.pop(attempt, 0)


class Witness:
    """Believes every answer, and complains when two cannot both be true."""

    def __init__(self, traffic: Traffic) -> None:
        self.keys: dict[str, _Key] = {}
        self._traffic = traffic

    def saw(self, request: Request[Any], answer: Any, signals: tuple[Signal, ...]) -> None:
        """Take in one step."""
        now = micros(getattr(request, "now", None) or 0.0)
        if isinstance(request, Break) and isinstance(answer, Broken):
            self._key(request.key).shut_until = 0  # before it is handed over to anybody
        if isinstance(request, Withdraw) and isinstance(answer, Withdrawn):
            self._key(request.key).lapsed.add(request.attempt)  # likewise: it is passed, as it wants to be
        self._signalled(request, answer, signals, now)
        match request, answer:
            case Acquire(), Granted():
                self._granted(self._key(request.key), request, answer, now)
            case Acquire(), Queued():
                turn = any(s.kind == "granted" and s.attempt == request.attempt for s in signals)
                if not turn:  # a deadlock was resolved in the same step, and its ticket is gone already
                    self._key(request.key).refresh(request.attempt, now + micros(request.patience), now)
            case Acquire(), Refused(why="upgrade"):
                pass  # it may go on waiting, and be asked again when it has given back what it shares
            case Acquire(), Deadlocked() | Refused():
                self._key(request.key).leave(request.attempt)
            case Acquire(), Done():
                told = self._key(request.key).outcomes.get(answer.token)
                assert told == answer.result, f"invariant 10: {told} is the outcome, and {answer} was told"
                self._key(request.key).leave(request.attempt)
            case Release(), Released():
                self._released(self._key(request.key), request, answer, now)
            case Withdraw(), Withdrawn():
                key = self._key(request.key)
                key.holds.pop(request.attempt, None)
                key.leave(request.attempt)
                key.ended[request.attempt] = now + REMEMBER["withdrawn"]
            case Downgrade(), Granted():
                hold = self._key(request.key).holds.get(request.attempt)
                if hold is not None:
                    hold.terms = Terms(mode="shared")
            case Resize(), Resized():
                key = self._key(request.key)
                key.taken = max(key.taken, answer.before)  # a sweep may have handed some over since we looked
            case Break(), Broken():
                key = self._key(request.key)
                if request.token in (None, key.kept[0]):
                    key.kept = (0, 0)
                for attempt, hold in list(key.holds.items()):
                    if request.token in (None, hold.token):
                        if hold.end > now:  # otherwise it had run out before
                            key.ended[attempt] = now + REMEMBER["broken"]
                        del key.holds[attempt]
            case Renew(), _:
                self._renewed(request, answer, now)

    def looked(self, view: LockView) -> None:
        """Take in how a key looks after a step."""
        key = self._key(view.key)
        holders = view.holders
        assert len({holder.token for holder in holders}) == len(holders), "P1: one token, two leases"
        assert view.mode != "exclusive" or len(holders) <= 1, "P2: two leases of an exclusive lock"
        if view.mode == "permits":
            taken = sum(holder.take for holder in holders)
            # Those who have some keep them when an operator takes permits away.
            assert taken <= max(view.permits, key.taken), "P2: more permits are taken than there are"
            key.taken = taken
        else:
            key.taken = 0
        assert not (view.state == "free" and view.waiting), "P8: free, and waited for"
        assert view.waiting == len(view.waiters), "the count of tickets is wrong"
        assert view.state != "free" or view.holds == 0, "free, with a hold"

    def _key(self, name: str) -> _Key:
        return self.keys.setdefault(name, _Key())

    def _signalled(self, request: Request[Any], answer: Any, signals: tuple[Signal, ...], now: int) -> None:
        for signal in signals:
            if signal.kind == "over":
                key = self._key(signal.key)
                # An operation is over, and with it all tickets: each learns that when it asks.
                key.lapsed |= key.tickets.keys()
        winners = [signal for signal in signals if signal.kind == "granted"]
        for signal in list(winners):
            key = self._key(signal.key)
            if self._may_have_been_ended(request, answer, signal):
                winners.remove(signal)
                key.leave(signal.attempt)
                key.handed[signal.attempt] = key.highest
        places = {name: list(key.tickets) for name, key in self.keys.items()}
        # Several may be granted at once, and are told in any order.
        for signal in sorted(winners, key=lambda each: places[each.key].index(each.attempt)):
            self._handed(self._key(signal.key), signal.attempt, now)

    def _may_have_been_ended(self, request: Request[Any], answer: Any, signal: Signal) -> bool:
        """Tell whether who is told to ask again may learn then that its ticket is gone."""
        if isinstance(request, Resize):
            terms = self._traffic.terms_of(signal.key, signal.attempt)
            return terms.mode == "permits" and terms.take > request.permits
        circles = self._traffic.entangled or self._traffic.flavours[signal.key] != "plain"
        return circles and isinstance(answer, Queued | Deadlocked)

    def _handed(self, key: _Key, winner: str, now: int) -> None:
        """P7 and P8: the winner is alive, and nobody alive was before it."""
        if winner not in key.lapsed:
            for attempt, end in key.tickets.items():
                if attempt == winner:
                    break
                assert end <= now or attempt in key.lapsed, f"P7: {winner} got it before {attempt}"
        assert key.leave(winner) > now, f"P8: a dead ticket was handed the lock: {winner}"
        assert now >= key.shut_until, f"invariant 16: {winner} got it before it had been taken long enough"
        key.handed[winner] = key.highest
        key.handed_at[winner] = now

    def _granted(self, key: _Key, request: Acquire, answer: Granted, now: int) -> None:
        attempt, token = request.attempt, answer.token
        assert key.ended.get(attempt, now) <= now, f"an ended attempt holds again: {attempt}"
        owner = key.owners.setdefault(token, request.owner)
        assert request.owner == owner, "P1, P2: one token, two owners"
        known = any(hold.token == token for hold in key.holds.values())
        if not known:
            handed = attempt in key.handed or answer.holds > 1  # else its owner had its turn
            before = key.handed.get(attempt, 0) if handed else key.highest
            assert token > before, f"P1: token {token} after {before}"
            self._fits(key, request, now)
            if not handed:
                for other, end in key.tickets.items():
                    passed = end > now and other not in key.lapsed and other != attempt
                    assert not passed, f"P7: {attempt} passed {other}"
                assert now >= key.shut_until, f"invariant 16: {attempt} got it before its time"
                kept = request.terms.operation and request.seen < key.kept[0] and key.kept[1] > now
                assert not kept, f"invariant 17: {attempt} is to do what was done"
        began = now if not known and attempt not in key.handed else key.handed_at.get(attempt, 0)
        if not known and answer.holds > 1:  # it enters what another attempt of its owner was handed
            lease = key.leases.setdefault(token, _Lease(since=0, operation=False))
            key.kept = (0, 0)  # what it was handed may be an operation
        else:
            lease = key.leases.setdefault(token, _Lease(began, request.terms.operation))
        lease.at_least = max(lease.at_least, micros(request.terms.at_least))
        if lease.operation:
            key.kept = (0, 0)
        key.leave(attempt)
        key.highest = max(key.highest, token)
        held = key.holds.get(attempt)
        # Asking again changes no terms: what was downgraded stays shared, whatever the first request said.
        terms = held.terms if held is not None and held.token == token else request.terms
        key.holds[attempt] = _Hold(now + micros(answer.expires_in), token, terms)

    @staticmethod
    def _fits(key: _Key, request: Acquire, now: int) -> None:
        """P2: there are no two live leases, unless both are shared, or both are permits."""
        for other, hold in list(key.holds.items()):
            if hold.end <= now:
                del key.holds[other]
                continue
            both = {hold.terms.mode, request.terms.mode}
            together = both in ({"shared"}, {"permits"})
            assert together, f"P2: granted to {request.attempt} while {other} holds it"

    @staticmethod
    def _released(key: _Key, request: Release, answer: Released, now: int) -> None:
        key.holds.pop(request.attempt, None)
        lease, outcome = key.leases.get(request.token), request.outcome
        if outcome is not None and outcome.succeeded:
            # Of a plain lease that is nothing. But one may be an operation that nobody has claimed.
            two = lease is not None and lease.operation and request.token in key.outcomes
            assert not two, "invariant 10: two outcomes for one token"
            key.outcomes[request.token] = outcome.text
        if lease is not None and not answer.holds:
            if lease.since and lease.at_least:
                key.shut_until = max(key.shut_until, lease.since + lease.at_least)
            if lease.operation and outcome is not None and outcome.succeeded and outcome.keep:
                key.kept = (request.token, now + micros(outcome.keep))
        if request.retire:
            key.ended[request.attempt] = now + REMEMBER["released"]

    def _renewed(self, request: Renew, answer: Renewed, now: int) -> None:
        for lease, said in zip(request.leases, answer.leases, strict=True):
            hold = self._key(lease.key).holds.get(lease.attempt)
            if said.outcome in ("renewed", "held") and hold is not None:
                assert lease.token == hold.token, "P5: renewed under another token"
                assert hold.end > now, "R3: an expired hold was renewed"
                hold.end = now + micros(said.expires_in)
        for ticket, told in zip(request.tickets, answer.tickets, strict=True):
            if told.outcome == "waiting":
                self._key(ticket.key).refresh(ticket.attempt, now + micros(ticket.patience), now)


class Invariants:
    """Random traffic, and a witness who believes every answer."""

    @pytest.mark.parametrize("seed", range(10))
    def test_random_traffic_breaks_no_promise(self, ask: Asker, seed: int) -> None:
        """P1, P2, P7 and invariants 7 to 10 after every step; time only moves forward."""
        traffic = Traffic(random.Random(seed), CLIENT, backwards=False)
        witness = Witness(traffic)
        for step in range(250):
            request = traffic.next()
            answer = ask.store.execute(request)
            traffic.heard(request, answer)
            try:
                witness.saw(request, answer, ask.full_signals())
                if isinstance(request, Acquire | Release | Withdraw | Break | Downgrade | Resize):
                    view = ask.store.execute(Inspect(request.key, now=request.now))
                    if view is not None:
                        witness.looked(view)
            except AssertionError as error:
                raise AssertionError(f"seed {seed}, step {step}: {error}\n{request}\n{answer}") from error
