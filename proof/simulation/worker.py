"""Somebody who uses locks: wants one, waits or not, works, enters again, leaves; and changes its mind.

Whose a lock is follows the clients' rule: what is wanted outside of every block is a new owner's, and what is
wanted inside is the owner's of that block. A lease may travel: then another worker of the machine releases
it.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from holdfast import errors
from holdfast.core import plans
from holdfast.core.family import Outcome
from holdfast.core.keeper import Kept
from holdfast.core.requests import Acquire, Done, Downgrade, NotHeld, Refused
from proof.simulation.driver import PlanRun
from proof.simulation.machine import Machine
from proof.simulation.profile import Profile
from proof.simulation.uses import Use

TTLS = (1.0, 2.0, 6.0, 8.0)  # two below the claim window, and two above
LONGEST_TTL = max(TTLS)
DEEPEST = 3  # entries into one lock; more than the limit of some, so that the limit is met


class Worker:
    """Does one thing after the other on a machine. Whatever it waits for is one callback with a turn."""

    def __init__(self, machine: Machine, given: str | None, uses: dict[str, Use], profile: Profile) -> None:
        self._machine = machine
        self._world = machine.world
        self._dice = machine.world.dice
        self._given = given  # the owner that was given for all it does; None: each block is one of its own
        self._context = ""  # the block that it is in, or that it is about to enter
        self.colleagues: list[Worker] = []  # of the same machine
        self._uses = uses
        self._profile = profile
        self._turn = 0
        self._held: list[Kept] = []  # the innermost last
        self._run: PlanRun | None = None
        self._key = ""
        self._ttl = 0.0

    @property
    def idle(self) -> bool:
        """Whether it holds nothing and asks for nothing."""
        return self._run is None and not self._held

    def begin(self) -> None:
        """Think for a while, then want something."""
        self._next(self._dice.expovariate(1.0), self._want)

    def hurry(self) -> None:
        """Leave as soon as it can: the run is about to end."""
        if self._run is None:
            self._next(0.0, self._leave if self._held else self._want)

    def lost(self, kept: Kept) -> None:
        """Learn that a lease is lost: stop working."""
        if self._run is None and self._held and self._held[-1] is kept:
            self._next(self._dice.uniform(0.0, 0.2), self._leave)

    def _next(self, delay: float, call: Any) -> None:
        self._turn += 1
        self._machine.later(delay, self._do, self._turn, call)

    def _do(self, turn: int, call: Any) -> None:
        if turn == self._turn:
            call()

    def _want(self) -> None:
        if self._world.calm:
            return
        self._key = self._dice.choice(list(self._uses))
        self._ttl = self._dice.choice(TTLS)
        self._context = self._given or self._machine.new_context()
        self._enter()

    def _owner(self) -> str:
        """Return whose it is what it asks for now."""
        return self._context

    def _enter(self) -> None:
        dice, settings = self._dice, self._machine.settings
        roll = dice.random()
        if roll < self._profile.impatient:
            timeout: float | None = 0.0
        else:
            timeout = None if roll > 0.7 else dice.uniform(0.5, 20.0)
        request = Acquire(
            key=self._key,
            attempt=self._machine.new_attempt(),
            owner=self._owner(),
            ttl=self._ttl,
            client=self._machine.client,
            wait=timeout != 0,
            limit=dice.choice((1, 2, 64, 64)),
            patience=settings.patience,
            claim=settings.claim,
            terms=self._uses[self._key].terms(dice),
        )
        plan = plans.acquire(
            request,
            timeout=timeout,
            settings=settings,
            clock=self._machine.clock,
            roll=dice.random,
            retire=self._profile.repeated > 0,
            enters=True,
        )
        run = self._run = PlanRun(self._machine, plan, partial(self._entered, request.attempt))
        if dice.random() < self._profile.abandons:
            self._machine.later(dice.expovariate(1.0), run.abandon)
        run.start()

    def _entered(self, attempt: str, grant: plans.Grant | Done | None, error: Exception | None) -> None:
        self._run = None
        if not isinstance(grant, plans.Grant):
            name = type(error or grant).__name__
            self._world.counts[f"ended: {name}"] += 1
            self._world.log(f"{self._machine.name} {attempt} {name}")
            self._leave_or_begin()
            return
        if grant.attempt != attempt:
            self._world.counts["successors"] += 1
        dice = self._dice
        max_hold = dice.uniform(1.0, 6.0) if dice.random() < 0.1 else None
        if max_hold is not None and max_hold < grant.ttl:
            max_hold = None
        self._held.append(self._machine.keep(grant, max_hold, self._context))
        self._work()

    def _work(self) -> None:
        dice = self._dice
        if self._world.calm:
            self._leave()
        elif len(self._held) < DEEPEST and dice.random() < 0.2 and self._may_wait_holding():
            self._ttl = dice.choice(TTLS)
            if self._profile.entangled:
                self._key = dice.choice(list(self._uses))
            self._next(dice.uniform(0.0, 0.5), self._enter)
        elif self._uses[self._key].kind == "shared" and dice.random() < 0.3:
            self._next(dice.uniform(0.0, 0.5), self._downgrade)
        elif dice.random() < 0.2 and (idle := [each for each in self.colleagues if each.idle]):
            self._next(0.0, self._leave_or_begin)
            dice.choice(idle).take_over(self._held.pop(), self._context)
        elif dice.random() < 0.15:  # longer than the ttl, so that renewal matters
            self._next(self._ttl * dice.uniform(1.0, 2.5), self._leave)
        else:
            self._next(dice.expovariate(2.0), self._leave)

    def take_over(self, kept: Kept, context: str) -> None:
        """Take a lease that somebody else of this machine took, and release it after a while.

        Whoever has it may: nothing in the store changes. It is not inside of that one's block.
        """
        self._world.counts["leases passed on"] += 1
        self._world.log(f"{self._machine.name} passes {kept.grant.attempt} of {context} on")
        self._held.append(kept)
        self._next(self._dice.expovariate(1.0), self._leave)

    def _may_wait_holding(self) -> bool:
        """Tell whether it can wait for something without being in its own way, unless the store says so.

        Who has several waits under way is taken to go on with any of them: what it does not get to hear
        when that one is over is that all the others are stuck. And a circle that a resize has closed is only
        found when one of those in it asks again, which who waits for itself does not.
        """
        profile = self._profile
        return self._uses[self._key].kind != "semaphore" or not (profile.shared_owner or profile.resizes)

    def _downgrade(self) -> None:
        """Let others read what was written; whether that works or not, go on."""
        kept = self._held[-1].grant
        machine = self._machine
        plan = plans.ask(
            Downgrade(kept.key, kept.attempt, kept.token),
            settings=machine.settings,
            clock=machine.clock,
            roll=self._dice.random,
        )
        self._run = PlanRun(machine, plan, self._downgraded)
        self._run.start()

    def _downgraded(self, answer: Any, error: Exception | None) -> None:
        self._run = None
        self._next(self._dice.expovariate(2.0), self._leave)

    def _leave_or_begin(self) -> None:
        if self._held:
            self._next(0.0, self._leave)
        else:
            self.begin()

    def _leave(self) -> None:
        kept = self._held.pop()
        trusted = self._machine.check(kept)
        self._machine.drop(kept)
        if not trusted and self._dice.random() < 0.5:
            self._leave_or_begin()  # it knows that there is nothing to release; others try all the same
            return
        # Whoever is still in it with another hold has nothing to say yet.
        nested = any(other.grant.token == kept.grant.token for other in self._held)
        outcome = None if nested else self._uses[kept.grant.key].outcome(self._dice)
        self._release(kept.grant, outcome, trusted)

    def _release(self, grant: plans.Grant, outcome: Outcome | None, trusted: bool) -> None:
        machine = self._machine
        plan = plans.release(
            grant, settings=machine.settings, clock=machine.clock, roll=self._dice.random, outcome=outcome
        )
        self._run = PlanRun(machine, plan, partial(self._left, grant, trusted))
        self._run.start()

    def _left(self, grant: plans.Grant, trusted: bool, answer: Any, error: Exception | None) -> None:
        self._run = None
        if isinstance(answer, Refused):  # another worker of the same owner is in it: that one will say
            self._release(grant, None, trusted)
            return
        if isinstance(error, errors.StoreError):
            self._world.counts["not released"] += 1
        elif isinstance(answer, NotHeld):
            self._world.counts["released late" if trusted else "released in vain"] += 1
        self._leave_or_begin()
