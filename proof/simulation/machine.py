"""A simulated client: the real plans and the real keeper, with a clock of its own, on a process that can
be paused, killed and started again.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

from holdfast import errors
from holdfast.core.keeper import Keeper, Kept
from holdfast.core.plans import Grant, Handed
from holdfast.core.requests import Client, Renew, Request, Signal
from holdfast.core.settings import Settings
from proof.simulation.invariants import Checker
from proof.simulation.network import Network, Reply
from proof.simulation.profile import DRIFT
from proof.simulation.world import World

# A timer never fires a rounding error before its time.
ROUNDING = 1e-6


class Machine:
    """One process of one client. After a crash there is a new one, with a new instance and the same name."""

    def __init__(
        self, name: str, life: int, world: World, network: Network, checker: Checker, settings: Settings
    ) -> None:
        self.name = f"{name}.{life}"
        self.client = Client(instance=self.name, host=name, pid=life)
        self.settings = settings
        self.world = world
        self.keeper = Keeper(settings, world.dice.random)
        self.dead = False
        self.paused = False
        self.listeners: dict[str, Callable[[Signal | Handed], None]] = {}  # by attempt
        self.on_lost: Callable[[Kept], None] | None = None
        self._network = network
        self._checker = checker
        self._offset = world.dice.uniform(0.0, 1e5)
        self._rate = 1.0 + world.dice.choice((-DRIFT, DRIFT, world.dice.uniform(-DRIFT, DRIFT)))
        self._backlog: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        self._attempts = 0
        self._contexts = 0
        self._renewing = False
        self._wake_at = math.inf
        network.receivers[self.name] = self

    # Its clock, and its time.

    def clock(self) -> float:
        """Return what its boot-time clock shows."""
        return self._offset + self._rate * self.world.now

    def true_time(self, local: float) -> float:
        """Return the virtual time at which its clock shows *local*."""
        return (local - self._offset) / self._rate

    def at(self, local: float, call: Callable[..., None], *args: Any) -> None:
        """Call when its clock shows *local*, if it is running then."""
        self.world.at(self.true_time(local) + ROUNDING, self.receive, call, *args)

    def later(self, delay: float, call: Callable[..., None], *args: Any) -> None:
        """Call after a while, if it is running then."""
        self.world.later(delay, self.receive, call, *args)

    def receive(self, call: Callable[..., None], *args: Any) -> None:
        """Do something in this process: now, when it goes on, or never."""
        if self.dead:
            return
        if self.paused:
            self._backlog.append((call, args))
        else:
            call(*args)

    # Its fate.

    def pause(self, seconds: float) -> None:
        """Stop for a while, as by SIGSTOP."""
        if self.dead or self.paused:
            return
        self.paused = True
        self.world.counts["pauses"] += 1
        self.world.log(f"{self.name} is paused for {seconds:.1f} s")
        self.world.later(seconds, self.resume)

    def resume(self) -> None:
        """Go on. Whoever looks first at a lease must find out that it is over, before anything else."""
        if self.dead or not self.paused:
            return
        self.paused = False
        self.world.log(f"{self.name} goes on")
        for kept in list(self.keeper.leases.values()):
            self.check(kept)
        backlog, self._backlog = self._backlog, []
        for call, args in backlog:
            self.receive(call, *args)

    def crash(self) -> None:
        """Be gone at once: nothing is released, and what is under way stays under way."""
        self.dead = True
        self.world.counts["crashes"] += 1
        self.world.log(f"{self.name} crashes")
        del self._network.receivers[self.name]
        for kept in self.keeper.leases.values():
            self._checker.doubts(kept)

    # Leases.

    def new_attempt(self) -> str:
        """Return an id that no attempt has."""
        self._attempts += 1
        return f"{self.name}-{self._attempts}"

    def new_context(self) -> str:
        """Return a name for a block that nobody has entered yet."""
        self._contexts += 1
        return f"{self.name}/{self._contexts}"

    def keep(self, grant: Grant, max_hold: float | None, context: str) -> Kept:
        """Trust a lease, and renew it from now on. *context* is the block that it was entered by."""
        if grant.lasts:
            self.world.counts["entered by the hand-over"] += 1
        kept = self.keeper.keep(grant, max_hold=max_hold)
        if self.check(kept):
            self._checker.believes(self, kept, self.world.now, self._network.state(grant.key), context)
        self._look_later()
        return kept

    def drop(self, kept: Kept) -> None:
        """Stop trusting and renewing a lease."""
        self.keeper.drop(kept.grant.attempt)
        self._checker.doubts(kept)

    def check(self, kept: Kept) -> bool:
        """Look at a lease as a user does, and see whether the answer is honest (P3)."""
        held = kept.loss(self.clock()) is None
        if held:
            self._checker.looked(kept, self.world.now)
        return held

    def given_up(self, key: str, attempt: str) -> None:
        """Take note that nothing of an attempt may be in the store any more, nor come back to it."""
        self._checker.finished(key, attempt, self._network.state(key))

    # Signals, and the keeper's work.

    def hear(self, signal: Signal) -> None:
        """Take in a signal."""
        if signal.kind == "lost":
            self.keeper.hurry(signal.attempt, self.clock())
            self._look_later()
        elif signal.kind == "over":
            for ticket in list(self.keeper.tickets.values()):
                if ticket.key == signal.key and ticket.attempt in self.listeners:
                    self.listeners[ticket.attempt](signal)
        elif listener := self.listeners.get(signal.attempt):
            listener(self.keeper.heard(signal))

    def wait_for(self, key: str, attempt: str, asked: float, answered_at: float) -> None:
        """Refresh a ticket from now on."""
        if attempt not in self.keeper.tickets:
            self.keeper.wait(key, attempt, self.clock())
            self._look_later()
        self.keeper.queued(attempt, asked=asked, answered_at=answered_at)

    def ask(self, request: Request[Any], reply: Reply) -> None:
        """Send a request."""
        self._network.send(self, request, reply)

    def _look_later(self) -> None:
        next_at = self.keeper.next_at()
        if next_at < self._wake_at:
            self._wake_at = next_at
            self.at(next_at, self._look, next_at)

    def _look(self, wake_at: float) -> None:
        if wake_at != self._wake_at:
            return  # an earlier look came first, and has set another timer
        self._wake_at = math.inf
        self._keep_up()

    def _keep_up(self) -> None:
        now = self.clock()
        for kept in self.keeper.overdue(now):
            self._lost(kept)
        if self._renewing:
            return  # one request at a time; we look again after its answer
        request = self.keeper.due(now)
        if request is None:
            self._look_later()
            return
        self._renewing = True
        self.ask(request, partial(self._renewed, request, now))

    def _renewed(self, request: Renew, asked: float, answer: Any, error: errors.StoreError | None) -> None:
        self._renewing = False
        if error is not None:
            self.keeper.failed(request, str(error), now=self.clock())
        else:
            lost, signals = self.keeper.answered(request, answer, asked=asked)
            for kept in lost:
                self._lost(kept)
            for lease in request.leases:
                self._checker.extended(lease.key, self.world.now, self._network.state(lease.key))
            for signal in signals:
                self.hear(signal)
        self._keep_up()

    def _lost(self, kept: Kept) -> None:
        assert kept.lost is not None
        self.world.counts[f"lost: {kept.lost.reason}"] += 1
        self.world.log(f"{self.name} lost {kept.grant.key}/{kept.grant.attempt}: {kept.lost.reason}")
        self._checker.doubts(kept)
        if self.on_lost is not None:
            self.on_lost(kept)
