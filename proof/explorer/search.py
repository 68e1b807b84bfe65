"""Look at every state there is, nearest first: a flaw is found by the shortest way to it."""

from __future__ import annotations

import gc
import time
from array import array
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from proof.explorer.bounds import Bounds
from proof.explorer.choices import Move
from proof.explorer.fingerprint import fingerprint
from proof.explorer.moves import BrokenBy, Moves
from proof.explorer.world import World
from proof.simulation.step import Violation

ORIGIN = 0


@dataclass(slots=True)
class Report:
    """What an exploration has seen."""

    bounds: Bounds
    states: int = 1
    transitions: int = 0
    depth: int = 0  # every run of so many moves was seen
    complete: bool = False  # and no state is farther away
    seconds: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)


class CounterExample(AssertionError):
    """A run that breaks an invariant. No shorter one does."""

    def __init__(self, invariant: str, moves: list[Move], story: list[str], text: str) -> None:
        super().__init__(invariant)
        self.invariant = invariant
        self.moves = moves
        self.story = story
        self.text = text

    def __str__(self) -> str:
        lines = "\n".join(f"  {line}" for line in self.story)
        return f"«{self.invariant}» is broken after {len(self.moves)} moves:\n{lines}\n{self.text}"


Progress = Callable[[Report, int], None]  # called now and then, with the number of states to go on from


def explore(bounds: Bounds, progress: Progress | None = None) -> Report:
    """Explore everything within *bounds*; raise `CounterExample` if an invariant does not hold."""
    collecting = gc.isenabled()
    gc.disable()  # there are no cycles, and looking for them among millions of states takes half of the time
    try:
        return _Search(bounds, progress).run()
    finally:
        if collecting:
            gc.enable()


class _Search:
    def __init__(self, bounds: Bounds, progress: Progress | None) -> None:
        self._bounds = bounds
        self._progress = progress
        self._moves = Moves(bounds)
        self._report = Report(bounds, counts=self._moves.counts)
        # The state in place n was come to by _by[n] from the one in place _from[n]. Only those to go on from
        # are kept whole.
        self._from = array("L")
        self._by: list[Move] = []
        self._known_moves: dict[Move, Move] = {}

    def run(self) -> Report:
        bounds, report = self._bounds, self._report
        started = time.perf_counter()
        first = World(bounds)
        seen = {fingerprint(first, bounds)}
        self._add(ORIGIN, Move("begin of all"))
        level = [(ORIGIN, first)]
        looked = 0
        while level and not self._is_far_enough():
            following: list[tuple[int, World]] = []
            level.reverse()
            while level and not self._is_enough():
                place, world = level.pop()
                stands = True
                for move, after in self._successors(place, world):
                    stands = False
                    report.transitions += 1
                    mark = fingerprint(after, bounds)
                    if mark not in seen:
                        seen.add(mark)
                        following.append((self._add(place, move), after))
                if stands:
                    self._rests(place, world)
                report.states = len(seen)
                looked += 1
                if self._progress is not None and looked % 1000 == 0:
                    report.seconds = time.perf_counter() - started
                    self._progress(report, len(level) + len(following))
            if level:
                break
            report.depth += bool(following)
            level = following
        report.complete = not level
        report.seconds = time.perf_counter() - started
        return report

    def _is_far_enough(self) -> bool:
        return self._bounds.depth is not None and self._report.depth >= self._bounds.depth

    def _is_enough(self) -> bool:
        return self._bounds.limit is not None and self._report.states >= self._bounds.limit

    def _add(self, origin: int, move: Move) -> int:
        self._from.append(origin)
        self._by.append(self._known_moves.setdefault(move, move))
        return len(self._by) - 1

    def _successors(self, place: int, world: World) -> list[tuple[Move, World]]:
        try:
            return list(self._moves.successors(world))
        except BrokenBy as broken:
            raise self._told(place, broken.move) from broken.violation

    def _rests(self, place: int, world: World) -> None:
        """P8: where nothing can happen any more, nobody is waiting for anything."""
        stuck = [actor.number for actor in world.actors if actor.alive and actor.play is not None]
        if stuck:
            text = f"nothing can happen any more, and the plans of {stuck} do not end"
            raise self._told(place, None, Violation("P8 liveness", text))

    def _told(self, place: int, last: Move | None, end: Violation | None = None) -> CounterExample:
        """Go the way to a state once more, and write down what happens."""
        moves: list[Move] = [] if last is None else [last]
        while place != ORIGIN:
            moves.append(self._by[place])
            place = self._from[place]
        moves.reverse()
        return retold(self._bounds, moves, end)


def retold(bounds: Bounds, moves: list[Move], end: Violation | None = None) -> CounterExample:
    """Make some moves from the beginning, up to the one that breaks an invariant, and tell the story."""
    teller = Moves(bounds)
    story = teller.log = []
    world = World(bounds)
    try:
        for move in moves:
            world = teller.make(world, move)
    except BrokenBy as broken:
        end = broken.violation
    assert end is not None, "the same moves have come to another end"
    return CounterExample(end.invariant, moves, story, end.text)
