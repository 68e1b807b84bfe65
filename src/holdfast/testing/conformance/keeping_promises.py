"""The invariants of the protocol, checked after every step of random traffic.

The comparison of two stores finds where they differ; this finds where they are wrong together. It
knows only requests, answers, signals and the time.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import pytest

from holdfast.core.requests import (
    Acquire,
    Break,
    Broken,
    Granted,
    Inspect,
    Queued,
    Release,
    Released,
    Renew,
    Renewed,
    Request,
    Signal,
    Withdraw,
    Withdrawn,
)
from holdfast.stores.base import REMEMBER, micros
from holdfast.testing.compare import Traffic
from holdfast.testing.conformance.asking import CLIENT, Asker


@dataclass
class _Key:
    """What the answers so far say about one key. Times are whole microseconds."""

    token: int = 0
    owner: str = ""
    holds: dict[str, int] = field(default_factory=dict)  # attempt: end
    tickets: dict[str, int] = field(default_factory=dict)  # attempt: end, in the order of arrival
    lapsed: set[str] = field(default_factory=set)  # tickets that were dead once: no promise about their place
    handed: str = ""  # the attempt that the lock was handed to last
    ended: dict[str, int] = field(default_factory=dict)  # attempt: remembered until

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

    def __init__(self) -> None:
        self.keys: dict[str, _Key] = {}

    def saw(self, request: Request[Any], answer: Any, signals: tuple[Signal, ...]) -> None:
        """Take in one step."""
        now = micros(getattr(request, "now", None) or 0.0)
        for signal in signals:
            if signal.kind == "granted":
                self._handed(self._key(signal.key), signal.attempt, now)
        match request, answer:
            case Acquire(), Granted():
                self._granted(self._key(request.key), request, answer, now)
            case Acquire(), Queued():
                self._key(request.key).refresh(request.attempt, now + micros(request.patience), now)
            case Release(), Released():
                key = self._key(request.key)
                del key.holds[request.attempt]
                if request.retire:
                    key.ended[request.attempt] = now + REMEMBER["released"]
            case Withdraw(), Withdrawn():
                key = self._key(request.key)
                key.holds.pop(request.attempt, None)
                key.leave(request.attempt)
                key.ended[request.attempt] = now + REMEMBER["withdrawn"]
            case Break(), Broken():
                key = self._key(request.key)
                key.ended.update(dict.fromkeys(key.holds, now + REMEMBER["broken"]))
                key.holds.clear()
            case Renew(), _:
                self._renewed(request, answer, now)

    def _key(self, name: str) -> _Key:
        return self.keys.setdefault(name, _Key())

    def _handed(self, key: _Key, winner: str, now: int) -> None:
        """P7 and P8: the winner is alive, and nobody alive was before it."""
        if winner not in key.lapsed:
            for attempt, end in key.tickets.items():
                if attempt == winner:
                    break
                assert end <= now or attempt in key.lapsed, f"P7: {winner} got it before {attempt}"
        assert key.leave(winner) > now, f"P8: a dead ticket was handed the lock: {winner}"
        key.handed = winner

    def _granted(self, key: _Key, request: Acquire, answer: Granted, now: int) -> None:
        attempt = request.attempt
        assert key.ended.get(attempt, now) <= now, f"an ended attempt holds again: {attempt}"
        if answer.token == key.token:
            assert request.owner == key.owner, "P1, P2: one token, two owners"
        else:
            assert answer.token > key.token, f"P1: token {answer.token} after {key.token}"
            for other, end in key.holds.items():
                assert end <= now, f"P2: granted to {attempt} while {other} holds it"
            if answer.holds == 1 and attempt != key.handed:  # else its owner had its turn: checked then
                for other, end in key.tickets.items():
                    assert end <= now, f"P7: {attempt} passed {other}"
            key.holds.clear()
            key.token, key.owner = answer.token, request.owner
        key.leave(attempt)
        key.holds[attempt] = now + micros(answer.expires_in)

    def _renewed(self, request: Renew, answer: Renewed, now: int) -> None:
        for lease, said in zip(request.leases, answer.leases, strict=True):
            key = self._key(lease.key)
            if said.outcome in ("renewed", "held") and lease.attempt != key.handed:
                assert lease.token == key.token, "P5: renewed under another token"
                assert key.holds[lease.attempt] > now, "R3: an expired hold was renewed"
                key.holds[lease.attempt] = now + micros(said.expires_in)
        for ticket, told in zip(request.tickets, answer.tickets, strict=True):
            if told.outcome == "waiting":
                self._key(ticket.key).refresh(ticket.attempt, now + micros(ticket.patience), now)


class KeepingPromises:
    """Random traffic, and a witness who believes every answer."""

    @pytest.mark.parametrize("seed", range(6))
    def test_random_traffic_breaks_no_promise(self, ask: Asker, seed: int) -> None:
        """P1, P2, P7 and invariants 7 to 9 after every step; time only moves forward."""
        traffic = Traffic(random.Random(seed), CLIENT, backwards=False)
        witness = Witness()
        for step in range(250):
            request = traffic.next()
            answer = ask.store.execute(request)
            traffic.heard(request, answer)
            try:
                witness.saw(request, answer, ask.full_signals())
                self._check_rows(ask, request)
            except AssertionError as error:
                raise AssertionError(f"seed {seed}, step {step}: {error}\n{request}\n{answer}") from error

    @staticmethod
    def _check_rows(ask: Asker, request: Request[Any]) -> None:
        if isinstance(request, Acquire | Release | Withdraw | Break):
            view = ask.store.execute(Inspect(request.key, now=request.now))
            if view is not None:
                assert not (view.state == "free" and view.waiting), "P8: free, and waited for"
                assert view.waiting == len(view.waiters), "the count of tickets is wrong"
                assert (view.state == "free") == (view.holds == 0), "held without a hold, or the reverse"
