"""What can happen next in a state.

Time passes to the next instant at which something is due, and only when nothing is: a client that is late is
one that was paused, an answer that takes time is a late one. Both are faults, and counted.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from proof.explorer.bounds import CLOCK_STEP, LONGEST_PAUSE, Bounds
from proof.explorer.plans import NEVER
from proof.explorer.world import Actor, World


class Move(NamedTuple):
    """One thing that happens. *which* is a key, a place among others, or how far a clock is set."""

    what: str
    who: int = -1
    which: Any = 0
    wait: float = 0.0
    fate: str = ""


TIME = Move("time")


def possible(world: World, bounds: Bounds) -> list[Move]:
    """Return what can happen next, whatever becomes of the requests that it leads to."""
    moves = list(_due(world))
    urgent = bool(moves)
    for actor in world.actors:
        if actor.runs and actor.passed is not None and actor.passed.lost is None:
            moves.append(Move("leave", actor.number))
        if actor.runs and actor.play is None:
            moves += _wishes(actor, bounds)
        elif actor.paused_until is not None:
            paused_at = actor.paused_until - LONGEST_PAUSE
            if paused_at < world.now < actor.paused_until:  # some time has passed, and it need not go on yet
                moves.append(Move("resume", actor.number))
    for place, flight in enumerate(world.flights):
        if flight.answer is None or world.actors[flight.client].runs:
            moves.append(Move("arrive", flight.client, place))
    if world.faults:
        moves += _misfortunes(world, frozenset(bounds.kinds))
    if not urgent and next_instant(world) < NEVER:
        moves.append(TIME)
    return moves


def _due(world: World) -> Iterator[Move]:
    for actor in world.actors:
        if actor.runs:
            if actor.unsent:
                yield Move("send", actor.number)
            elif actor.wakes_at() <= world.now:
                yield Move("wake", actor.number)
            if actor.looks_at() <= world.now:
                yield Move("keep", actor.number)
            if actor.passed is not None and actor.passed.lost is not None:
                yield Move("leave", actor.number)
            if actor.play is None:
                for place, kept in enumerate(actor.held):
                    if kept.lost is not None:  # it was told: it leaves, with or without a word
                        yield Move("release", actor.number, place)
                        yield Move("forget", actor.number, place)
        elif actor.paused_until is not None and actor.paused_until <= world.now:
            yield Move("resume", actor.number)
    for place, (number, _) in enumerate(world.signals):
        if world.actors[number].runs:
            yield Move("signal", number, place)


def _wishes(actor: Actor, bounds: Bounds) -> Iterator[Move]:
    """Return what a client without a plan may want."""
    if actor.begun < bounds.turns and len(actor.held) < bounds.deepest:
        for key in bounds.names:
            if bounds.nested or not actor.held or actor.held[-1].grant.key == key:
                for wait in bounds.waits:
                    yield Move("begin", actor.number, key, wait)
    if actor.held and actor.held[-1].lost is None:
        yield Move("release", actor.number, len(actor.held) - 1)
        if bounds.hands and actor.passed is None and len(actor.held) == 1:
            yield Move("hand", actor.number)


def _misfortunes(world: World, kinds: frozenset[str]) -> Iterator[Move]:
    for actor in world.actors:
        if actor.alive and (actor.play is not None or actor.held or actor.passed):
            if "crash" in kinds:
                yield Move("crash", actor.number)
            if "pause" in kinds and actor.runs:
                yield Move("pause", actor.number)
            if "interrupt" in kinds and actor.runs and actor.play is not None:
                yield Move("interrupt", actor.number)
    if "lost signal" in kinds:
        for place, (number, _) in enumerate(world.signals):
            yield Move("lost signal", number, place)
    if any(entry.state.holds or entry.state.tickets for entry in world.entries.values()):
        if "break" in kinds:
            yield from (Move("break", which=key) for key, entry in world.entries.items() if entry.state.holds)
        if "clock forward" in kinds:
            yield Move("clock", which=CLOCK_STEP)
        if "clock back" in kinds:
            yield Move("clock", which=-CLOCK_STEP)


def next_instant(world: World) -> int:
    """Return the next second at which anything is due, or ends."""
    instants = [NEVER]
    for actor in world.actors:
        if actor.runs:
            instants += (actor.wakes_at(), actor.looks_at())
        elif actor.paused_until is not None:
            instants.append(actor.paused_until)
    for entry in world.entries.values():
        instants += (world.local(hold.end) for hold in entry.state.holds.values())
        instants += (world.local(ticket.end) for ticket in entry.state.tickets.values())
    return min(instant for instant in instants if instant > world.now)
