"""The client's end: the real plans and the real keeper are told what came of what they wanted."""

from __future__ import annotations

from typing import Any

from holdfast import errors
from holdfast.core.plans import Abandoned, Grant
from holdfast.core.requests import Acquire, Granted, Queued, Renew, Renewed, Signal, Withdraw
from proof.explorer import plans as plays
from proof.explorer.execution import Serving
from proof.explorer.invariants import Judge, copied
from proof.explorer.plans import Maker, Play, PlayEnded
from proof.explorer.world import Actor, Part, World
from proof.simulation.step import Violation


class Playing(Serving):
    """See the module."""

    def receive(
        self, world: World, number: int, part: Part, request: Any, told: Any, *, fresh: bool = True
    ) -> None:
        """Tell a part of a client what came of its request: an answer, or the class of an error."""
        actor = world.own(number)
        if fresh:
            world.excused -= _confirmed(request, told)
        if part == "keeper":
            self._renewed(world, actor, request, told)
            return
        actor.gives_up_at = None
        if isinstance(request, Withdraw):
            actor.traces = isinstance(told, type)
        elif told is errors.OutcomeUnknown or isinstance(told, Queued):
            actor.traces = True
        if isinstance(told, Queued):
            assert actor.play is not None
            if request.attempt not in actor.keeper.tickets:
                actor.keeper.wait(request.key, request.attempt, float(world.now))
            asked = float(actor.play.place.asked)
            actor.keeper.queued(request.attempt, asked=asked, answered_at=told.at)
        self.go_on(world, actor, told)

    def _renewed(self, world: World, actor: Actor, request: Renew, told: Any) -> None:
        asked = float(actor.renew_asked)
        actor.renewing = actor.renew_gives_up_at = None
        actor.renew_asked = 0
        if not isinstance(told, Renewed):
            actor.keeper.failed(request, "no answer", now=float(world.now))
            return
        lost, signals = actor.keeper.answered(request, told, asked=asked)
        for kept in lost:
            self.note("client {} lost {}: {}", actor.number, kept.grant.attempt, kept.lost)
        trust = world.trust()
        for lease in request.leases:
            trust.compare(lease.key, world.entries[lease.key].state, world.store_now)
        for signal in signals:
            self.hear(world, actor, signal)

    def hear(self, world: World, actor: Actor, signal: Signal) -> None:
        """Take in a signal, for now or for the next wait."""
        if actor.play is None or actor.attempt != signal.attempt:
            return
        heard = actor.keeper.heard(signal)
        if actor.waits:
            self.go_on(world, actor, heard)
        else:
            actor.mail = (*actor.mail, heard)

    # Plans.

    def start(self, world: World, actor: Actor, make: Maker) -> None:
        """Let a client follow a plan."""
        actor.traces = actor.withdrew = False
        self._take(world, actor, plays.begin(make, float(world.now)))

    def go_on(self, world: World, actor: Actor, told: Any) -> None:
        """Tell the plan of a client something."""
        assert actor.play is not None
        self._take(world, actor, plays.go_on(actor.play, float(world.now), told))

    def _take(self, world: World, actor: Actor, play: Play | PlayEnded) -> None:
        if isinstance(play, PlayEnded):
            self._finish(world, actor, play)
            return
        actor.play = play
        step = play.step
        if actor.waits:
            if actor.mail:
                signal, *rest = actor.mail
                actor.mail = tuple(rest)
                self.go_on(world, actor, signal)
            return
        actor.withdrew = isinstance(step, Withdraw)
        if isinstance(step, Acquire) and step.attempt != actor.attempt:
            if actor.attempt is not None:  # it goes on with another one: because this one has ended
                self._given_up(world, actor)
            self._leave(world, actor)
            actor.attempt, actor.key = step.attempt, step.key
        actor.unsent = True

    def _finish(self, world: World, actor: Actor, ended: PlayEnded) -> None:
        error = ended.error
        if error is not None and not isinstance(error, errors.HoldfastError | Abandoned):
            raise Violation("answers", f"a plan of client {actor.number} raised {error!r}") from error
        if actor.attempt is not None and error is not None:
            if not actor.traces:
                self._given_up(world, actor)
            elif not actor.withdrew:
                raise Violation("undo", f"{actor.attempt} was given up with {error!r}, and not withdrawn")
        if error is not None:
            self.note("client {} gives up: {}", actor.number, type(error).__name__)
        self._leave(world, actor)
        actor.play = actor.attempt = actor.releasing = None
        actor.key = ""
        actor.unsent = actor.traces = actor.withdrew = False
        if isinstance(ended.result, Grant):
            self._keep(world, actor, ended.result)

    def _given_up(self, world: World, actor: Actor) -> None:
        assert actor.attempt is not None
        entry = world.entries[actor.key]
        books = copied(entry.books)
        Judge(self.counts, {actor.key: books}).finished(actor.key, actor.attempt, entry.state)
        world.entries = world.entries | {actor.key: entry._replace(books=books)}

    def _leave(self, world: World, actor: Actor) -> None:
        if actor.attempt is not None:
            actor.keeper.leave(actor.attempt)
        actor.mail = ()
        world.signals = tuple(
            each for each in world.signals if each[0] != actor.number or each[1].kind == "lost"
        )

    def _keep(self, world: World, actor: Actor, grant: Grant) -> None:
        """Trust a lease, as long as it can be trusted."""
        judge = Judge(self.counts, {}, world.trust())  # what others trust
        self.counts["entered"] += bool(grant.lasts)
        kept = actor.keeper.keep(grant, max_hold=None)
        actor.held = (*actor.held, kept)
        self.note("client {} has {}, until {:g} s", actor.number, grant.key, grant.trusted_until)
        if kept.loss(float(world.now)) is None:
            store_now = float(world.now + world.ahead)
            judge.looked(kept, store_now)
            judge.believes(world.clock(), kept, store_now, world.entries[grant.key].state, actor.inside)


def _confirmed(request: Any, told: Any) -> set[str]:
    """Return the attempts whose leases an answer says are held."""
    if isinstance(told, Granted):
        return {request.attempt}
    if isinstance(told, Renewed):
        said = zip(request.leases, told.leases, strict=True)
        return {lease.attempt for lease, answer in said if answer.outcome in ("renewed", "held")}
    return set()
