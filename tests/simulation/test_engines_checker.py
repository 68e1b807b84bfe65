"""Stores that treat work wrongly are found out by the simulation, each by the right name."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import pytest

from holdfast.core import cluster as c
from holdfast.core.data import replace
from holdfast.core.requests import NotHeld
from holdfast.stores.memory import MemoryStore
from holdfast.stores.memory.state import Instance
from proof.simulation import SimulationFailed
from proof.simulation.cluster import simulate_cluster

SEEDS = 60

_claim: Callable[..., Any] = MemoryStore._claim
_take: Callable[..., Any] = MemoryStore._take
_look_at: Callable[..., Any] = MemoryStore._look_at
_let_go: Callable[..., Any] = MemoryStore._let_go
_seen_at: Callable[..., Any] = Instance.seen_at


def claim_whatever_the_number(self: Any, request: c.Claim, now: int, post: Any) -> Any:
    """A late copy of a claim claims."""
    if instance := self._world.instances.get(request.id):
        instance.claims = 0
    return _claim(self, request, now, post)


def take_beyond_capacity(self: Any, instance: Instance, request: c.Claim, now: int, post: Any) -> Any:
    works_of, self._works_of = self._works_of, lambda _: []
    try:
        return _take(self, instance, replace(request, limit=request.limit + 1), now, post)
    finally:
        self._works_of = works_of


def abandon_what_lives(self: Any, work: Any, now: int, post: Any) -> None:
    """Whatever is due is taken from its holder, and its lock with it."""
    shard = self._world.shard(work.key)
    if lock := shard.locks.get(work.key):
        lock.holds.clear()
    _look_at(self, work, now, post)


def live_for_ever(self: Any, now: int) -> Any:
    """The dead come back when they are heard of again."""
    return self.state if self.end > now - 10_000_000 else _seen_at(self, now)


def finish_without_the_lease(self: Any, *args: Any, **options: Any) -> Any:
    answer = _let_go(self, *args, **options)
    return "" if isinstance(answer, NotHeld) else answer


FLAWS: dict[str, tuple[str, dict[tuple[type, str], Callable[..., Any]]]] = {
    "a late copy of a claim": ("14 claims", {(MemoryStore, "_claim"): claim_whatever_the_number}),
    "more than its capacity": ("13 capacity", {(MemoryStore, "_take"): take_beyond_capacity}),
    "work taken from who has it": ("4 scope", {(MemoryStore, "_look_at"): abandon_what_lives}),
    "the lease is not asked for": ("11 work", {(MemoryStore, "_let_go"): finish_without_the_lease}),
    "the dead return": (
        "12 instances",
        {(Instance, "seen_at"): live_for_ever, (MemoryStore, "_declare_dead"): lambda *_: None},
    ),
}


# Where to begin to look, if the first seeds do not meet it.
FIRST = {"the lease is not asked for": 58}


@pytest.mark.parametrize("flaw", FLAWS)
def test_a_planted_flaw_is_found(flaw: str, monkeypatch: pytest.MonkeyPatch):
    invariant, changes = FLAWS[flaw]
    for (where, name), change in changes.items():
        monkeypatch.setattr(where, name, change)
    first = FIRST.get(flaw, 0)
    with pytest.raises(SimulationFailed) as found:
        deque(map(simulate_cluster, (*range(first, SEEDS), *range(first))), maxlen=0)
    assert found.value.invariant == invariant
    assert f"START={found.value.seed} SEEDS=1 STORE=memory FLEET=engines" in str(found.value)
