"""The network of a fleet of engines, and their own database at its end: fenced writes beside the locks."""

from __future__ import annotations

from typing import Any

from holdfast.core.cluster import Assign, Claim, Claimed, Finish, ListInstances, ListWork
from holdfast.core.data import data
from holdfast.core.requests import Request
from holdfast.stores.base import micros
from proof.simulation.cluster.invariants import Picture, WorkChecker
from proof.simulation.invariants import Checker
from proof.simulation.network import ECHOES, Network
from proof.simulation.observed import ObservedStore
from proof.simulation.profile import Profile
from proof.simulation.step import EPOCH, Violation
from proof.simulation.world import World

STEPS = 3  # of every piece of work


@data
class Write(Request[bool]):
    """Do one step of some work in a transaction that is fenced by its lease; False if it is refused."""

    key: str
    attempt: str
    token: int
    step: int


class ClusterNetwork(Network):
    """Checks work and instances as well, after every request."""

    def __init__(
        self, world: World, profile: Profile, store: ObservedStore, checker: Checker, keys: list[str]
    ) -> None:
        super().__init__(world, profile, store, checker, keys)
        self.effects: dict[str, list[int]] = {key: [] for key in keys}  # the token of each step that was done
        self._works = WorkChecker(world.counts)

    def execute(self, request: Request[Any]) -> Any:
        """Let the store execute a request, or write what is fenced."""
        if isinstance(request, Write):
            return self._write(request)
        return super().execute(request)

    def picture(self) -> Picture:
        """Return all work and instances as the store shows them."""
        now = EPOCH + self._world.now
        works = self._store.execute(ListWork(limit=1000, now=now)).works
        instances = self._store.execute(ListInstances(limit=1000, now=now)).instances
        return Picture({work.key: work for work in works}, {each.id: each for each in instances})

    def _write(self, request: Write) -> bool:
        """Do a step unless it was done; refuse whoever does not have the lease, as a fence does."""
        now = micros(EPOCH + self._world.now)
        hold = self.state(request.key).live(now).get(request.attempt)
        if hold is None or hold.token != request.token:
            self._world.counts["writes refused"] += 1
            self._world.log(f"{request.attempt} is refused to write {request.key} {request.step}")
            return False
        done = self.effects[request.key]
        if request.step == len(done):
            if done and done[-1] > request.token:
                raise Violation("15 effects", f"{request} behind {done}")
            done.append(request.token)
            self._world.counts["writes"] += 1
        elif request.step > len(done):
            raise Violation("15 effects", f"{request} leaves a step out: {done}")
        else:
            self._world.counts["writes that were done already"] += 1
        return True

    def _execute_and_check(self, request: Any) -> Any:
        before = dict(self.states)
        answer = super()._execute_and_check(request)
        now = micros(EPOCH + self._world.now)
        self._works.step(request, answer, now, before, self.picture())
        if isinstance(request, Claim) and isinstance(answer, Claimed) and self._world.dice.random() < ECHOES:
            self._world.counts["claims echoed"] += 1
            again = super()._execute_and_check(request)
            self._works.step(request, again, now, dict(self.states), self.picture())
            same = isinstance(again, Claimed) and [w.attempt for w in again.works] == [
                work.attempt for work in answer.works
            ]
            if not same:
                raise Violation("14 claims", f"asked twice: {answer}, then {again}\n  request {request}")
        return answer

    def _touched(self, request: Request[Any]) -> list[str]:
        if type(request).__module__ == Claim.__module__ and not isinstance(request, Assign | Finish):
            return list(self.states)  # whatever it looked at on the way
        return super()._touched(request)
