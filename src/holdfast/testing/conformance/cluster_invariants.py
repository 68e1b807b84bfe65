"""The invariants of clusters, checked after every step of random traffic.

As in `invariants`: the witness knows only requests, answers and the time. So it finds where all stores are
wrong together.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import pytest

from holdfast.core import cluster as c
from holdfast.core.requests import (
    Acquire,
    Break,
    Broken,
    Granted,
    Release,
    Released,
    Renew,
    Request,
    Sweep,
    Withdraw,
    Withdrawn,
)
from holdfast.stores.base import micros
from holdfast.testing.compare import ClusterTraffic
from holdfast.testing.conformance.asker import CLIENT, Asker

Given = tuple[str, int]  # an attempt, and its token


@dataclass
class _Key:
    """What the answers so far say about one key."""

    highest: int = 0  # of all tokens seen
    holds: dict[Given, int] = field(default_factory=dict)  # until when
    instances: dict[Given, str] = field(default_factory=dict)  # whom it was assigned to
    done: bool = False  # it has completed, and nobody has begun it again


class ClusterWitness:
    """Believes every answer, and complains when two cannot both be true."""

    def __init__(self) -> None:
        self._keys: dict[str, _Key] = {}
        self._there: set[str] = set()  # instances that have been alive
        self._gone: set[str] = set()  # those of them that have left or died
        self._swept: set[str] = (
            set()
        )  # that may have been forgotten, and have joined anew with work behind them
        self._claims: dict[tuple[str, int], set[tuple[str, str, int]]] = {}
        self._last: dict[str, int] = {}  # instance: the number of its last claim

    def saw(self, request: Request[Any], answer: Any) -> None:
        """Take in one step."""
        now = micros(getattr(request, "now", None) or 0.0)
        match request, answer:
            case c.Claim(), c.Claimed():
                self._claimed(request, answer, now)
            case c.Assign(), c.Assigned():
                self._lives(request.id)
                self._assigned(answer, request.id, now, again=request.again)
            case ((c.Join() | c.Heartbeat() | c.Claim() | c.Leave()), c.Beat()):
                self._beat(request, answer)
            case c.Finish(), c.Finished():
                key = self._key(request.key)
                if key.holds.pop((request.attempt, request.token), None) is not None:
                    key.done = answer.state == "completed"
            case c.Offer(again=True), c.Offered():
                for work, new in zip(request.works, answer.new, strict=True):
                    self._key(work.key).done &= not new
            case c.Forget(), c.Ended():
                self._key(request.key).done = False
            case Sweep(), _:  # it may have forgotten what had ended, and who was gone
                self._swept |= self._there
                self._there.clear()
                self._gone.clear()
                self._last.clear()
                for key in self._keys.values():
                    key.done = False
            case _:
                self._saw_lock(request, answer, now)

    def _saw_lock(self, request: Request[Any], answer: Any, now: int) -> None:
        """Take in what became of a lock."""
        match request, answer:
            case Acquire(), Granted():
                self._granted(self._key(request.key), request.attempt, answer.token, now, answer.expires_in)
            case Release(), Released():
                self._key(request.key).holds.pop((request.attempt, request.token), None)
            case Withdraw(), Withdrawn():
                holds = self._key(request.key).holds
                for given in [given for given in holds if given[0] == request.attempt]:
                    del holds[given]
            case Break(), Broken():
                self._key(request.key).holds.clear()
            case Renew(), _:
                for lease, said in zip(request.leases, answer.leases, strict=True):
                    given, holds = (lease.attempt, lease.token), self._key(lease.key).holds
                    if given in holds and said.outcome in ("renewed", "held"):
                        assert holds[given] > now, "R3: an expired assignment was renewed"
                        holds[given] = now + micros(said.expires_in)

    def looked(self, page: c.InstancePage) -> None:
        """Take in how the instances look after a step."""
        for each in page.instances:
            assert each.assigned <= each.capacity or each.id in self._swept, f"{each.id} has more than it can"
            assert each.id not in self._gone or each.state in ("left", "dead"), f"{each.id} came back"

    def _key(self, name: str) -> _Key:
        return self._keys.setdefault(name, _Key())

    def _lives(self, id: str) -> None:
        assert id not in self._gone, f"{id} is gone, and was given work"

    def _beat(self, request: Any, answer: c.Beat) -> None:
        if answer.state not in ("left", "dead"):
            self._lives(request.id)
            self._there.add(request.id)
        elif request.id in self._there:
            self._gone.add(request.id)
        if isinstance(request, c.Leave):
            for key in self._keys.values():
                for given in [given for given, id in key.instances.items() if id == request.id]:
                    key.holds.pop(given, None)

    def _claimed(self, request: c.Claim, answer: c.Claimed, now: int) -> None:
        self._lives(request.id)
        works = {(work.key, work.attempt, work.token) for work in answer.works}
        assert len({work.key for work in answer.works}) == len(works) <= request.limit
        before = self._claims.get((request.id, request.number))
        if request.number <= self._last.get(request.id, 0):
            assert works <= (before or set()), "P6: a late copy of a claim has claimed"
        else:
            self._claims[request.id, request.number] = works
            self._last[request.id] = request.number
        for work in answer.works:
            self._assigned(work, request.id, now)

    def _assigned(self, work: c.Assigned, id: str, now: int, *, again: bool = False) -> None:
        key = self._key(work.key)
        assert again or not key.done, f"{work.key} has completed, and was begun once more"
        key.done = False
        key.instances.setdefault((work.attempt, work.token), id)
        self._granted(key, work.attempt, work.token, now, work.expires_in)

    @staticmethod
    def _granted(key: _Key, attempt: str, token: int, now: int, expires_in: float) -> None:
        """P1 and P2: a token is new and larger, or somebody has it; and who has another has lost it."""
        assert token >= key.highest, f"P1: token {token} after {key.highest}"
        key.highest = token
        for other, end in key.holds.items():
            assert end <= now or other[1] == token, f"P2: granted to {attempt} while {other} has it"
        key.holds[attempt, token] = now + micros(expires_in)


class ClusterInvariants:
    """Random traffic, and a witness who believes every answer."""

    @pytest.mark.parametrize("seed", range(5))
    def test_random_traffic_about_work_breaks_no_promise(self, ask: Asker, seed: int) -> None:
        """P1, P2, P6, and nobody dead, full or late is given anything; time only moves forward."""
        traffic = ClusterTraffic(random.Random(seed), CLIENT, backwards=False)
        traffic.flavours = dict.fromkeys(traffic.keys, "plain")
        witness = ClusterWitness()
        for step in range(250):
            request = traffic.next()
            answer = ask.store.execute(request)
            traffic.heard(request, answer)
            try:
                witness.saw(request, answer)
                if isinstance(request, c.Claim | c.Assign):
                    witness.looked(ask.instances(now=request.now))
            except AssertionError as error:
                raise AssertionError(f"seed {seed}, step {step}: {error}\n{request}\n{answer}") from error
