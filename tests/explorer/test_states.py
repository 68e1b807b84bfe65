"""What the explorer rests on: that plans can be run again, and that states taken to be one behave alike."""

from __future__ import annotations

from collections.abc import Generator
from functools import partial
from typing import Any

import pytest

from holdfast.core import plans
from holdfast.core.plans import Abandoned, Wait
from holdfast.core.requests import (
    Acquire,
    Busy,
    Client,
    Granted,
    Holder,
    NotHeld,
    Queued,
    Withdraw,
    Withdrawn,
)
from holdfast.errors import OutcomeUnknown
from proof.explorer import FAULTS, FEW_FAULTS, Bounds, Fault
from proof.explorer.bounds import CLOCK_STEP, LATEST, LONGEST_PAUSE, SETTINGS
from proof.explorer.choices import Move
from proof.explorer.fingerprint import fingerprint, form
from proof.explorer.moves import Moves
from proof.explorer.plans import Play, PlayEnded, begin, go_on
from proof.explorer.world import World

ASKED = Acquire("key:a", "0-1", "0", SETTINGS.ttl, Client("0", "host", 1), wait=True)
HOLDER = Holder("1", "host", 1, 41, 0.0)


def acquiring(clock: plans.Clock) -> plans.Plan[Any]:
    return plans.acquire(ASKED, timeout=6.0, settings=SETTINGS, clock=clock, roll=lambda: 0.0)


def told(play: Play | PlayEnded, now: float, *what: Any) -> Play:
    for each in what:
        assert isinstance(play, Play)
        play = go_on(play, now, each)
    assert isinstance(play, Play)
    return play


def test_a_plan_goes_on_from_any_of_its_steps_as_often_as_one_likes():
    asks = begin(acquiring, 0.0)
    waits = told(asks, 1.0, Queued(1, HOLDER, 3.0))
    assert isinstance(waits.step, Wait)
    for _ in range(2):
        assert told(waits, 4.0, None).step == ASKED
        assert told(waits, 2.0, Abandoned).step == Withdraw("key:a", "0-1")
    granted = go_on(told(waits, 4.0, None), 5.0, Granted(42, 4.0))
    assert isinstance(granted, PlayEnded)
    assert granted.result.trusted_until == 8.0  # counted from when that request was asked, at 4


def test_plans_that_came_to_one_place_by_different_ways_are_told_apart_only_by_what_counts():
    asks = begin(acquiring, 0.0)
    once = told(asks, 0.0, Queued(2, HOLDER, 3.0))
    twice = told(once, 0.0, None, Queued(2, HOLDER, 3.0))
    assert once.past != twice.past
    assert once.place == twice.place
    failed = told(asks, 0.0, OutcomeUnknown, None, Queued(2, HOLDER, 3.0))
    assert failed.place != once.place  # it will have to retire its attempt
    successor = told(asks, 0.0, NotHeld("expired"), Queued(2, HOLDER, 3.0))
    assert successor.place != once.place


def test_a_plan_with_something_new_in_it_is_not_compared_in_ignorance():
    """Two states that differ in it would else be taken to be one."""

    def plan(clock: plans.Clock) -> Generator[Any, Any, None]:
        mood = clock()
        yield Wait("key:a", "0-1", mood)

    with pytest.raises(AssertionError, match="what does 'mood' mean"):
        begin(plan, 0.0)


def test_an_error_of_a_plan_is_its_end():
    refused = go_on(begin(acquiring, 0.0), 0.0, Busy(HOLDER, 1.0))
    assert not isinstance(refused, Play)
    assert type(refused.error).__name__ == "LockTimeout"
    undone = told(begin(acquiring, 0.0), 0.0, Abandoned)
    assert isinstance(go_on(undone, 0.0, Withdrawn()), PlayEnded)


def after(bounds: Bounds, *moves: Move) -> World:
    world, maker = World(bounds), Moves(bounds)
    for move in moves:
        world = maker.make(world, move)
    return world


def test_clients_and_keys_are_interchangeable():
    bounds = Bounds(clients=2, keys=2)
    one = after(bounds, Move("begin", 0, "key:a", 6.0), Move("begin", 1, "key:a", 6.0))
    other = after(bounds, Move("begin", 1, "key:b", 6.0), Move("begin", 0, "key:b", 6.0))
    apart = after(bounds, Move("begin", 1, "key:b", 6.0), Move("begin", 0, "key:a", 6.0))
    assert form(one, bounds) == form(other, bounds)
    assert fingerprint(one, bounds) != fingerprint(apart, bounds)


def test_it_does_not_matter_when_something_happens():
    bounds = Bounds(clients=2, keys=1)
    early = after(bounds, Move("begin", 0, "key:a", 6.0))
    renewed = after(bounds, Move("begin", 0, "key:a", 6.0), Move("time"), Move("keep", 0))
    assert early.now != renewed.now
    # All that is left is that the token was granted at this very instant, or earlier.
    assert form(early, bounds)[2] == form(renewed, bounds)[2]
    longer = after(bounds, *[Move("begin", 0, "key:a", 6.0), *[Move("time"), Move("keep", 0)] * 7])
    assert fingerprint(longer, bounds) == fingerprint(after(bounds, *longer_by(8)), bounds)


def longer_by(renewals: int) -> list[Move]:
    return [Move("begin", 0, "key:a", 6.0), *[Move("time"), Move("keep", 0)] * renewals]


def test_nothing_is_under_way_for_as_long_as_an_ended_attempt_is_remembered():
    """So it can be left out of a state what is forgotten one day."""
    assert LATEST + LONGEST_PAUSE + SETTINGS.patience + CLOCK_STEP < 60


@pytest.mark.parametrize(
    ("bounds", "most"),
    [
        pytest.param(Bounds(2, 1, 1, 1), 1000, id="every fault"),
        pytest.param(Bounds(2, 1, 2, 1, FEW_FAULTS), 600, id="entering again"),
        pytest.param(Bounds(2, 2, 1, 1), 600, id="two keys"),
        pytest.param(Bounds(3, 1, 1, 1), 600, id="three clients"),
        pytest.param(Bounds(2, 1, 1, 2, ("interrupt", "late request")), 600, id="two faults"),
        pytest.param(Bounds(2, 1, 2, 2, ("break", "late answer")), 1000, id="breaks"),
        pytest.param(Bounds(2, 2, 2, 1, ("crash",), nested=True), 600, id="deadlocks"),
    ],
)
def test_states_that_are_taken_to_be_one_have_the_same_successors(bounds: Bounds, most: int):
    moves = Moves(bounds)
    mark = partial(fingerprint, bounds=bounds)
    first = World(bounds)
    level = [first]
    known = {mark(first)}
    successors: dict[bytes, list[bytes]] = {}
    merged: list[tuple[bytes, World]] = []
    while level and len(known) < most:
        following = []
        for world in level:
            found = [(mark(next_world), next_world) for _, next_world in moves.successors(world)]
            successors[mark(world)] = sorted(each for each, _ in found)
            for each, next_world in found:
                if each in known:
                    merged.append((each, next_world))
                else:
                    known.add(each)
                    following.append(next_world)
        level = following
    compared = [(each, world) for each, world in merged if each in successors]
    assert len(compared) > most / 20
    for each, world in compared:
        assert sorted(mark(next_world) for _, next_world in moves.successors(world)) == successors[each]


def test_every_kind_of_fault_makes_a_difference():
    """A kind that is never possible would be explored in vain."""
    calm = {move for move in moves_within(()) if not move.fate}
    for kind in FAULTS:
        assert moves_within((kind,)) - calm, kind


def moves_within(kinds: tuple[Fault, ...]) -> set[Move]:
    """Return the moves of the first few steps."""
    bounds = Bounds(clients=2, keys=1, turns=1, faults=1, kinds=kinds)
    moves, seen = Moves(bounds), set()
    level = [World(bounds)]
    for _ in range(4):
        level = [after for world in level for move, after in moves.successors(world) if not seen.add(move)]
    return seen
