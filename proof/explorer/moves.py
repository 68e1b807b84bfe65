"""The states that come of what can happen.

A move is something that one client does, or that happens to it, up to and including the answer to the request
that it leads to, all at one instant: whether it noticed and asked before or after others did something makes
no difference to anybody but the store, which executes one request after the other anyway. What the network
does to that request, as far as there are faults left, makes other states of the same move. Requests, answers
and copies that are under way arrive by moves of their own; so do signals. If an answer makes a plan ask once
more, that is a move of its own, too: others may come in between.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from holdfast import errors
from holdfast.core import plans
from holdfast.core.keeper import Kept
from holdfast.core.requests import Acquire, Break, Client
from proof.explorer.bounds import FATES, LONGEST_PAUSE, SETTINGS, Bounds
from proof.explorer.choices import Move, next_instant, possible
from proof.explorer.network import Sending
from proof.explorer.world import Actor, Part, World, roll
from proof.simulation.step import Violation


class BrokenBy(Exception):
    """A move that breaks an invariant."""

    def __init__(self, move: Move, violation: Violation) -> None:
        super().__init__(move, violation)
        self.move = move
        self.violation = violation


class Moves(Sending):
    """All moves of an exploration within its bounds."""

    def __init__(self, bounds: Bounds) -> None:
        super().__init__(nested=bounds.nested)
        self.bounds = bounds
        self._fates = [fate for fate in FATES if fate in bounds.kinds]
        self._repeats = "copy" in bounds.kinds  # clients are told so by a store's traits

    def successors(self, world: World) -> Iterator[tuple[Move, World]]:
        """Return every state that one move leads to."""
        for move in possible(world, self.bounds):
            after = world.copy()
            try:
                sender = self._begin(after, move)
            except Violation as violation:
                raise BrokenBy(move, violation) from violation
            if sender is None:
                yield move, after
                continue
            fates = [*self._fates, ""] if after.faults else [""]
            for fate in fates:
                chosen = move._replace(fate=fate)
                sent = after.copy() if fate else after  # the last one need not leave it as it is
                try:
                    self.send(sent, *sender, fate)
                except Violation as violation:
                    raise BrokenBy(chosen, violation) from violation
                yield chosen, sent

    def make(self, world: World, move: Move) -> World:
        """Return the state that one move leads to."""
        after = world.copy()
        try:
            if sender := self._begin(after, move):
                self.send(after, *sender, move.fate)
        except Violation as violation:
            raise BrokenBy(move, violation) from violation
        return after

    def _begin(self, world: World, move: Move) -> tuple[int, Part] | None:
        """Do what comes before a request; return who asks one."""
        match move.what:
            case "time":
                self._pass_time(world)
            case "clock":
                self._set_clock(world, move.which)
            case "break":
                world.faults -= 1
                self.execute(world, Break(move.which, reason="stuck", by="operator"))
            case "arrive":
                self.arrive(world, world.flights[move.which])
            case "lost signal":
                world.faults -= 1
                _, signal = self._taken(world, move.which)
                self.note("lost: {} for {}", signal.kind, signal.attempt)
            case "signal" if world.signals[move.which][1].kind == "lost":
                _, signal = self._taken(world, move.which)
                self.note("client {} hears: {} for {}", move.who, signal.kind, signal.attempt)
                world.own(move.who).keeper.hurry(signal.attempt, float(world.now))
                world.told |= {signal.attempt}
            case "crash" | "pause":
                self._stop(world, world.own(move.who), move.what)
            case "resume":
                self.note("client {} goes on", move.who)
                world.own(move.who).paused_until = None
            case "forget":
                self._let_go(world.own(move.who), move.which)
            case "hand":
                actor = world.own(move.who)
                (actor.passed,), actor.held = actor.held, ()
                self.note("client {} passes {} on", actor.number, actor.passed.grant.attempt)
            case "leave":
                self._leave_elsewhere(world, world.own(move.who))
            case "keep":
                return self._keep_up(world, world.own(move.who))
            case _:
                actor = world.own(move.who)
                self._step_plan(world, actor, move)
                return (actor.number, "plan") if actor.unsent else None
        return None

    def _step_plan(self, world: World, actor: Actor, move: Move) -> None:
        match move.what:
            case "begin":
                self._want(world, actor, move.which, move.wait)
            case "release":
                kept = self._let_go(actor, move.which)
                actor.key, actor.releasing = kept.grant.key, kept.grant
                plan = partial(plans.release, kept.grant, settings=SETTINGS, roll=roll)
                self.start(world, actor, lambda clock: plan(clock=clock))
            case "wake" if actor.gives_up_at is not None:
                self.disown(world, actor.number, ("plan",))
                assert actor.play is not None
                self.receive(world, actor.number, "plan", actor.play.step, errors.OutcomeUnknown)
            case "wake":
                self.go_on(world, actor, None)
            case "signal":
                _, signal = self._taken(world, move.which)
                self.note("client {} hears: {} for {}", actor.number, signal.kind, signal.attempt)
                self.hear(world, actor, signal)
            case "interrupt":
                world.faults -= 1
                world.calm = False
                self.note("client {} is interrupted", actor.number)
                self.disown(world, actor.number, ("plan",))
                actor.traces |= actor.gives_up_at is not None and actor.attempt is not None
                actor.unsent, actor.gives_up_at = False, None
                self.go_on(world, actor, plans.Abandoned)

    def _let_go(self, actor: Actor, place: int) -> Kept:
        kept = actor.held[place]
        actor.held = actor.held[:place] + actor.held[place + 1 :]
        actor.keeper.drop(kept.grant.attempt)
        return kept

    def _leave_elsewhere(self, world: World, actor: Actor) -> None:
        """Release what was passed on, in another thread of the client. Nothing happens to that request."""
        assert actor.passed is not None
        grant, actor.passed = actor.passed.grant, None
        actor.keeper.drop(grant.attempt)
        self.note("client {} releases {} in another thread", actor.number, grant.attempt)
        plan = plans.release(grant, settings=SETTINGS, clock=lambda: float(world.now), roll=roll)
        self.execute(world, next(plan))

    def _want(self, world: World, actor: Actor, key: str, wait: float) -> None:
        actor.begun += 1
        name = str(actor.number)
        request = Acquire(
            key=key,
            attempt=f"{name}-{actor.begun}",
            # Inside of a block it is that one's; otherwise a new owner.
            owner=actor.held[0].grant.owner if actor.held else f"{name}.{actor.begun}",
            ttl=SETTINGS.ttl,
            client=Client(name, "host", actor.number + 1),
            wait=wait != 0,
            patience=SETTINGS.patience,
            claim=SETTINGS.claim,
        )
        plan = partial(
            plans.acquire,
            request,
            timeout=wait,
            settings=SETTINGS,
            roll=roll,
            retire=self._repeats,
            enters=True,
        )
        self.start(world, actor, lambda clock: plan(clock=clock))

    def _keep_up(self, world: World, actor: Actor) -> tuple[int, Part] | None:
        now = float(world.now)
        for kept in actor.keeper.overdue(now):
            self.note("client {} lost {}: {}", actor.number, kept.grant.attempt, kept.lost)
        if actor.renewing is not None:
            if actor.renew_gives_up_at is not None and actor.renew_gives_up_at <= world.now:
                self.disown(world, actor.number, ("keeper",))
                self.receive(world, actor.number, "keeper", actor.renewing, errors.OutcomeUnknown)
            return None
        actor.renewing = actor.keeper.due(now)
        if actor.renewing is None:
            return None
        actor.renew_asked = world.now
        return actor.number, "keeper"

    def _taken(self, world: World, place: int) -> Any:
        taken = world.signals[place]
        world.signals = world.signals[:place] + world.signals[place + 1 :]
        return taken

    def _stop(self, world: World, actor: Actor, how: str) -> None:
        world.faults -= 1
        world.calm = False
        if how == "pause":
            self.note("client {} is paused", actor.number)
            actor.paused_until = world.now + LONGEST_PAUSE
            return
        self.note("client {} crashes", actor.number)
        self.disown(world, actor.number, ("plan", "keeper"))
        world.signals = tuple(each for each in world.signals if each[0] != actor.number)
        begun = actor.begun
        world.actors[actor.number] = dead = Actor(actor.number)
        dead.alive, dead.begun = False, begun

    def _set_clock(self, world: World, by: int) -> None:
        world.faults -= 1
        world.calm = False
        self.note("the store's clock is set by {:+} s", by)
        world.ahead += by
        if by > 0:  # leases that were granted before end early, as the documents say
            early = {kept.grant.attempt for kept in world.kept()}
            early |= {signal.attempt for _, signal in world.signals if signal.token}
            early |= {actor.attempt for actor in world.actors if actor.attempt and _handed(actor)}
            for flight in world.flights:
                if flight.answer is not None:
                    early |= {lease.attempt for lease in getattr(flight.request, "leases", ())}
                    early.add(getattr(flight.request, "attempt", ""))
            world.excused |= early
            world.flights = tuple(
                flight._replace(stale=flight.stale or flight.answer is not None) for flight in world.flights
            )

    def _pass_time(self, world: World) -> None:
        _nobody_goes_on_with_what_is_broken(world)
        world.now = next_instant(world)
        self.note("it is {} s", world.now)
        world.flights = tuple(flight for flight in world.flights if flight.until >= world.now)
        self.look(world)
        if world.calm:
            _nothing_stands_still(world)


def _handed(actor: Actor) -> bool:
    return any(isinstance(each, plans.Handed) for each in actor.mail)


def _nobody_goes_on_with_what_is_broken(world: World) -> None:
    """Renewing: whoever is told that its lease is broken asks about it before any time has passed."""
    for actor in world.actors:
        if actor.runs and actor.renewing is None:  # else it asks, and has no answer yet
            for attempt, kept in actor.keeper.leases.items():
                if attempt in world.told and not kept.failures:
                    raise Violation("told", f"client {actor.number} goes on with {attempt}, which is broken")


def _nothing_stands_still(world: World) -> None:
    """P8: a lease that is over is passed on after a heartbeat, signal or no signal."""
    late = world.store_now - int(SETTINGS.heartbeat * 1e6)
    waiting = {attempt for actor in world.actors for attempt in actor.keeper.tickets}
    for key, (_, _, state, _) in world.entries.items():
        over = all(hold.end < late for hold in state.holds.values())
        if over and not waiting.isdisjoint(state.tickets):
            raise Violation(
                "P8 liveness", f"{key} is over since more than a heartbeat, and some wait: {state}"
            )
