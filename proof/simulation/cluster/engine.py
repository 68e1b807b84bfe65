"""A simulated engine: the real membership, the real plans, and a body that does work step by step."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

from holdfast import errors
from holdfast.core import cluster_plans as plans
from holdfast.core.cluster import Beat, Claim, Claimed, Ending, Finish, Join, Leave
from holdfast.core.cluster_plans import Answer
from holdfast.core.demand import Demand
from holdfast.core.keeper import Kept
from holdfast.core.membership import Membership
from holdfast.core.plans import Grant, Handed
from holdfast.core.requests import Signal
from proof.simulation.cluster.network import STEPS, Write
from proof.simulation.driver import PlanRun
from proof.simulation.machine import Machine

TTL, HEARTBEAT, SPREAD = 4.0, 1.0, 0.5
TYPE = "work"
FAILS = 0.1  # of all bodies


class Engine:
    """One membership of one machine after the other; what it has to do is a list of kept leases."""

    def __init__(self, machine: Machine, capacity: int, progress: Callable[[str], int]) -> None:
        self._machine = machine
        self._world = machine.world
        self._dice = machine.world.dice
        self._capacity = capacity
        self._progress = progress  # how many steps of a key are done
        self._lives = 0
        self._member: Membership | None = None
        self._demand: Demand | None = None
        self._claims = False  # a claim is under way
        self._beats = False
        self._wake_at = math.inf
        self._jobs: dict[str, Kept] = {}  # by attempt

    # Membership.

    def begin(self) -> None:
        """Join, as a new instance."""
        machine = self._machine
        self._lives += 1
        id = f"{machine.name}/{self._lives}"
        self._member = Membership(
            id,
            machine.client,
            ttl=TTL,
            heartbeat=HEARTBEAT,
            settings=machine.settings,
            roll=self._dice.random,
        )
        self._demand = Demand(
            self._member,
            capacity=self._capacity,
            spread=SPREAD,
            settings=machine.settings,
            roll=self._dice.random,
        )
        request = Join(id, machine.name, machine.client, self._capacity, TTL)
        self._run(plans.join(request, **self._means()), partial(self._joined, self._member))

    def _joined(self, member: Membership, answer: Answer | None, error: Exception | None) -> None:
        if answer is None:
            self._world.counts[f"not joined: {type(error).__name__}"] += 1
            self._later(1.0, self.begin)
            return
        assert isinstance(answer.said, Beat)
        member.answered(answer.said, asked=answer.asked)
        self._machine.listeners[member.id] = self._hear
        self._look()
        self._claim_later(member)

    def _look(self) -> None:
        """Heartbeat, or find out that we are lost, when that is due."""
        member = self._member
        if member is None:
            return
        now = self._machine.clock()
        if member.loss(now) is not None:
            self._lost(member)
        elif member.beat_at <= now:
            if not self._beats:
                self._beats = True
                self._machine.ask(member.request(), partial(self._beaten, member, now))
        else:
            self._machine.at(member.next_at(), self._look)

    def _beaten(self, member: Membership, asked: float, beat: Any, error: errors.StoreError | None) -> None:
        self._beats = False
        if error is not None:
            member.failed(str(error), now=self._machine.clock())
        elif member.answered(beat, asked=asked):
            self._lost(member)
            return
        self._look()

    def _lost(self, member: Membership) -> None:
        """Stop: what we have is lost, and goes back."""
        if self._member is not member:
            return
        self._world.counts["memberships lost"] += 1
        self._member = self._demand = None
        self._machine.listeners.pop(member.id, None)
        for kept in list(self._jobs.values()):
            kept.lose("instance lost")
            self._end(kept, "returned")
        self._later(self._dice.uniform(0.1, 3.0), self.begin)

    def drain(self) -> None:
        """Take no more work, return what there is, leave, and come back as another."""
        member = self._member
        if member is None or member.lost is not None:
            return
        self._world.counts["drained"] += 1
        member.draining = True
        member.leave()
        self._member = self._demand = None
        self._machine.listeners.pop(member.id, None)
        for kept in list(self._jobs.values()):
            self._end(kept, "returned")
        self._run(plans.quietly(Leave(member.id)), self._gone)

    def _gone(self, _: Any, error: Exception | None) -> None:
        self._later(self._dice.uniform(0.1, 3.0), self.begin)

    # Claims.

    def _hear(self, signal: Signal | Handed) -> None:
        if isinstance(signal, Signal) and self._demand is not None and self._member is not None:
            self._demand.signalled(signal.key)
            self._claim_later(self._member)

    def _claim_later(self, member: Membership) -> None:
        demand = self._demand
        if demand is None or member is not self._member:
            return
        due = demand.due_at((TYPE,), self._capacity - len(self._jobs))
        if due < math.inf:
            self._machine.at(max(due, self._machine.clock()), self._claim, member)

    def _claim(self, member: Membership) -> None:
        demand, room = self._demand, self._capacity - len(self._jobs)
        if demand is None or member is not self._member or self._claims or not member.takes_work:
            return
        if demand.due_at((TYPE,), room) > self._machine.clock():
            return
        self._claims = True
        attempt = self._machine.new_attempt()
        request = demand.next((TYPE,), room, attempt=attempt, ttl=TTL)
        plan = plans.claim(
            demand, request, known=self._jobs, until=lambda: member.trusted_until, **self._means()
        )
        self._run(plan, partial(self._claimed, member, demand, request))

    def _claimed(
        self,
        member: Membership,
        demand: Demand,
        request: Claim,
        answer: Answer | None,
        error: Exception | None,
    ) -> None:
        self._claims = False
        if answer is not None and isinstance(answer.said, Claimed):
            for work in answer.said.works:
                task = plans.claimed_task(work, request, asked=answer.asked, settings=self._machine.settings)
                if member is not self._member:  # we have left meanwhile, or are lost, and so is this
                    self._give_back(task.grant, "returned")
                    continue
                kept = self._jobs[work.attempt] = self._machine.keep(task.grant, None, work.attempt)
                self._later(self._dice.expovariate(1.0), self._step, kept)
            demand.answered(request, answer.said, now=self._machine.clock())
        elif answer is not None and isinstance(answer.said, Beat) and member.told(answer.said):
            self._lost(member)
        self._claim_later(member)

    # Work.

    def _step(self, kept: Kept) -> None:
        grant = kept.grant
        if self._jobs.get(grant.attempt) is not kept:
            return
        if not self._machine.check(kept):
            self._end(kept, "returned")
            return
        step = self._progress(grant.key)  # as it read it, which may be old by the time that it writes
        if step == STEPS:
            self._end(kept, "completed")
        elif not self._world.calm and self._dice.random() < FAILS:
            self._end(kept, "failed", retry=self._dice.choice((0.0, 1.0, 3.0)))
        else:
            write = Write(grant.key, grant.attempt, grant.token, step)
            self._machine.ask(write, partial(self._written, kept))

    def _written(self, kept: Kept, done: Any, error: errors.StoreError | None) -> None:
        if done is False:
            self._end(kept, "returned")
        else:  # an error: nobody knows whether it was written; the next step reads
            self._later(self._dice.expovariate(2.0), self._step, kept)

    def lost(self, kept: Kept) -> None:
        """Learn from the keeper that a lease is lost."""
        if self._jobs.get(kept.grant.attempt) is kept:
            self._end(kept, "returned")

    def _end(self, kept: Kept, ending: Ending, retry: float | None = None) -> None:
        grant = kept.grant
        if self._jobs.pop(grant.attempt, None) is None:
            return
        self._machine.drop(kept)  # nobody may trust what is not ours any more
        self._give_back(grant, ending, retry)
        if self._demand is not None and self._member is not None:
            self._demand.made_room(self._machine.clock())
            self._claim_later(self._member)

    def _give_back(self, grant: Grant, ending: Ending, retry: float | None = None) -> None:
        request = Finish(
            grant.key, grant.attempt, grant.token, ending, "null", retry=retry, retire=grant.retire
        )
        self._run(plans.finish(request, **self._means()), self._finished)

    def _finished(self, answer: Any, error: Exception | None) -> None:
        name = type(error).__name__ if error is not None else type(answer).__name__
        self._world.counts[f"finish: {name}"] += 1

    # Means.

    def _means(self) -> dict[str, Any]:
        machine = self._machine
        return {"settings": machine.settings, "clock": machine.clock, "roll": self._dice.random}

    def _run(self, plan: Any, done: Callable[[Any, Exception | None], None]) -> None:
        PlanRun(self._machine, plan, done).start()

    def _later(self, delay: float, call: Callable[..., None], *args: Any) -> None:
        self._machine.later(delay, call, *args)
