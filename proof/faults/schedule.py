"""Which faults, when, where and for how long: from a seed, and always the same for the same seed.

First every class once, then for ever: single ones and pairs, of which each is had once before any is had
again. In between there is peace for about as long as there were faults, so that traffic gets on.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TypeVar

from proof.faults.base import CLIENT, Fault

T = TypeVar("T")
Places = Mapping[Fault, tuple[str, ...]]

PAIRS = 0.6  # of the steps, once every class has had its turn
LATER = (0.05, 0.4)  # seconds by which the second of a pair begins later
PEACE = (0.7, 1.1)  # for each second of faults

# Pairs that would show nothing. That two faults strike one place is left out as well, but for two clients:
# one would undo the other, as a start of the database does with its promotion.
SENSELESS: tuple[tuple[tuple[str, ...], tuple[str, ...], str], ...] = (
    (
        ("promote standby",),
        ("slow fsync", "failing fsync", "full disk"),
        "a new standby is being copied; the disk that fails would have to be that of both",
    ),
    (
        ("kill database",),
        ("failing fsync", "full disk"),
        "a database cannot be started on a disk that fails: it only stays away for longer",
    ),
    (
        ("pause database",),
        ("slow fsync", "failing fsync", "full disk"),
        "a database that stands still does not write",
    ),
    (("power cut",), ("full disk",), "to open the copy needs room on it"),
    (("client clock jump",), ("client clock rate",), "few clients have a clock of their own"),
)


@dataclass(frozen=True)
class Planned:
    """One fault to be injected."""

    fault: Fault
    place: str
    seconds: float  # at work
    after: float  # seconds after its step begins
    seed: str  # of all that it chooses


@dataclass(frozen=True)
class Step:
    """One fault, or two at a time, after a while of *peace*."""

    peace: float
    faults: tuple[Planned, ...]

    @property
    def seconds(self) -> float:
        """How long it is planned to take, without the peace."""
        return max(each.after + each.seconds for each in self.faults)


def schedule(faults: Places, seed: int, *, quick: bool) -> Iterator[Step]:
    """Return steps without end. The *quick* one is briefer, and has pairs from the start."""
    dice = random.Random(f"faults {seed}")
    peace = 0.5
    for number, chosen in enumerate(_groups(faults, dice, quick=quick)):
        group = sorted(chosen, key=lambda fault: -fault.picky)
        places = dice.choice(places_of(faults, group))
        planned: list[Planned] = []
        for fault, place in zip(group, places, strict=True):
            longest = (fault.shortest + fault.longest) / 2 if quick else fault.longest
            planned.append(
                Planned(
                    fault,
                    place,
                    seconds=round(dice.uniform(fault.shortest, longest), 3),
                    after=round(dice.uniform(*LATER), 3) if planned else 0.0,
                    seed=f"{seed}/{number}/{fault.name}",
                )
            )
        step = Step(peace, tuple(planned))
        yield step
        peace = round(0.2 + step.seconds * dice.uniform(*PEACE), 3)


def why_senseless(one: str, two: str) -> str | None:
    """Tell why two faults are not to be had together; None: they are."""
    for first, second, why in SENSELESS:
        if (one in first and two in second) or (two in first and one in second):
            return why
    return None


def places_of(faults: Places, group: Sequence[Fault]) -> list[tuple[str, ...]]:
    """Return where the faults of a group can strike at the same time."""
    if len(group) == 1:
        return [(place,) for place in faults[group[0]]]
    one, two = group
    if why_senseless(one.name, two.name):
        return []
    return [(p, q) for p in faults[one] for q in faults[two] if p != q or p == CLIENT]


def _groups(faults: Places, dice: random.Random, *, quick: bool) -> Iterator[tuple[Fault, ...]]:
    every = list(faults)
    dice.shuffle(every)
    pairs = [pair for pair in combinations(every, 2) if places_of(faults, pair)]
    seen = set()
    for group in _each_once(faults, every, in_pairs=quick):
        seen.add(group)
        yield group
    dice.shuffle(pairs)
    pairs.sort(key=lambda pair: pair in seen)  # those that were had already come last
    turns, couples = _for_ever(every, dice), _for_ever(pairs, dice)
    while True:
        if pairs and dice.random() < PAIRS:
            yield next(couples)
        else:
            yield (next(turns),)


def _each_once(faults: Places, every: Sequence[Fault], *, in_pairs: bool) -> Iterator[tuple[Fault, ...]]:
    """Return each fault once: alone, or every second time with the next one that goes with it."""
    left = list(every)
    pair = False
    while left:
        one = left.pop(0)
        two = next((two for two in left if pair and places_of(faults, (one, two))), None)
        pair = in_pairs and not pair
        if two is None:
            yield (one,)
        else:
            left.remove(two)
            yield (one, two)


def _for_ever(things: list[T], dice: random.Random) -> Iterator[T]:
    """Return all of them in their order, then again and again in others."""
    while things:
        yield from things
        dice.shuffle(things)
