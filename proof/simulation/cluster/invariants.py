"""The invariants of instances and their work, checked on what a store shows after every request."""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

from holdfast.core.cluster import (
    Assign,
    Claim,
    Finish,
    Finished,
    Forget,
    Heartbeat,
    InstanceView,
    Join,
    Offer,
    WorkView,
)
from holdfast.core.requests import Request, Sweep
from holdfast.stores.base import micros
from proof.simulation.observed import State
from proof.simulation.step import Violation

ORDER = {"alive": 0, "draining": 1, "left": 2, "dead": 2}


class Picture(NamedTuple):
    """All work and all instances, as the store shows them at an instant."""

    works: dict[str, WorkView]
    instances: dict[str, InstanceView]


class WorkChecker:
    """See the module. It keeps books of its own: the highest token of each key, the last claim of each id."""

    def __init__(self, counts: Counter[str]) -> None:
        self._counts = counts
        self._picture = Picture({}, {})
        self._highest: dict[str, int] = {}
        self._claims: dict[str, int] = {}
        self._ends: dict[str, int] = {}  # until when an instance lives, by the heartbeats that were answered

    def step(
        self, request: Request[Any], answer: Any, now: int, before: dict[str, State], after: Picture
    ) -> None:
        """Check what a request did. *before* has the locks as they were."""
        old, self._picture = self._picture, after
        for key in sorted({*old.works, *after.works}):
            self._work(request, answer, now, before.get(key), old.works.get(key), after.works.get(key), after)
        if isinstance(request, Join | Heartbeat) and answer.state in ("alive", "draining"):
            self._beat(request, now)
        for id, instance in after.instances.items():
            self._instance(request, old.instances.get(id), instance)
        self._capacity(request, after)
        if isinstance(request, Claim):
            self._claims[request.id] = max(request.number, self._claims.get(request.id, 0))

    def _work(
        self,
        request: Request[Any],
        answer: Any,
        now: int,
        lock: State | None,
        old: WorkView | None,
        new: WorkView | None,
        picture: Picture,
    ) -> None:
        if new is None:
            assert old is not None
            allowed = isinstance(request, Forget | Sweep) and old.state != "assigned"
            _require(allowed or isinstance(request, Forget), "11 work", request, f"{old} is gone")
            return
        began = new.state == "assigned" and (old is None or new.token != old.token)
        if began:
            self._begun(request, now, lock, old, new, picture)
        if old is None or old.state == new.state:
            return
        self._counts[f"work {old.state} → {new.state}"] += 1
        if old.state == "completed":
            again = isinstance(request, Offer | Assign) and request.again
            _require(again, "11 work", request, f"what was done is not done any more: {new}")
        if new.state == "completed":
            live = lock is not None and any(hold.token == old.token for hold in lock.live(now).values())
            right = (
                isinstance(request, Finish)
                and isinstance(answer, Finished)
                and request.key == new.key
                and request.token == old.token
                and live
            )
            _require(right, "11 work", request, f"completed by somebody without its lease: {old}")
        if old.state == "assigned" and new.state == "offered" and not isinstance(request, Finish):
            live = lock is not None and any(hold.token == old.token for hold in lock.live(now).values())
            named = getattr(request, "id", None) == old.instance
            _require(not live or named, "11 work", request, f"taken from who has its lease: {old}")

    def _begun(
        self,
        request: Request[Any],
        now: int,
        lock: State | None,
        old: WorkView | None,
        new: WorkView,
        picture: Picture,
    ) -> None:
        self._counts["work begun"] += 1
        if new.tries > 1:
            self._counts["work begun again"] += 1
        highest = self._highest.get(new.key, 0)
        _require(new.token > highest, "1 tokens", request, f"{new} after the token {highest}")
        self._highest[new.key] = new.token
        live = lock is not None and any(hold.end > now for hold in lock.holds.values())
        _require(not live, "2 exclusion", request, f"{new} beside {lock}")
        tries = 1 if old is None or old.state in ("completed", "failed") else old.tries + 1
        _require(new.tries in (tries, 1), "11 work", request, f"{old} was begun, and is {new}")
        if new.instance:
            state = picture.instances[new.instance].state
            _require(state == "alive", "12 instances", request, f"given to one that is {state}: {new}")
        if isinstance(request, Claim):
            last = self._claims.get(request.id, 0)
            _require(request.number > last, "14 claims", request, f"a late copy took {new}")

    def _beat(self, request: Join | Heartbeat, now: int) -> None:
        end = self._ends.get(request.id, now + 1)
        _require(end > now, "12 instances", request, f"alive again; it had died at {end}")
        self._ends[request.id] = max(self._ends.get(request.id, 0), now + micros(request.ttl))

    def _instance(self, request: Request[Any], old: InstanceView | None, new: InstanceView) -> None:
        if old is not None and old.state != new.state:
            self._counts[f"instance {new.state}"] += 1
            forward = ORDER[new.state] > ORDER[old.state]
            _require(forward, "12 instances", request, f"from {old.state} to {new.state}: {new}")

    def _capacity(self, request: Request[Any], picture: Picture) -> None:
        held = Counter(work.instance for work in picture.works.values() if work.state == "assigned")
        for id, count in held.items():
            if id and id in picture.instances:
                capacity = picture.instances[id].capacity
                _require(count <= capacity, "13 capacity", request, f"{id} has {count} of {capacity}")


def _require(holds: bool, invariant: str, request: Request[Any], text: str) -> None:
    if not holds:
        raise Violation(invariant, f"{text}\n  request {request}")
