"""The schedule of faults, and who carries it out: with faults that only write down that they struck."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, cast

import pytest

from proof.faults import ALL, Act, Fault, NobodyLeft, NotHealthy, Scene
from proof.faults.base import CLIENT, DATABASE, DATABASE_NETWORK, DISK, HTTP_NETWORK
from proof.faults.nemesis import Nemesis
from proof.faults.schedule import Step, places_of, schedule, why_senseless


class FakeProcess:
    kind = "sync"
    clock = None

    def __init__(self, name: str) -> None:
        self.name = name
        self.alive = True
        self.killed = False


class FakeFleet:
    def __init__(self, number: int = 4) -> None:
        self.workers = [FakeProcess(f"worker-{n}") for n in range(number)]


class FakeStage:
    """A store on which everything is possible, and which is always well."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.proxy = self.http_proxy = object()
        self.database = object()
        self.lock_server = self
        self.revived = 0

    def can(self, fault: str) -> str | None:
        return None

    def revive(self) -> None:
        self.revived += 1

    def revive_database(self) -> None: ...

    def is_ready(self) -> bool:
        return True

    def store_clock(self) -> None: ...

    def heal(self) -> None: ...


class FakeFault(Fault):
    """Notes who is at work with it."""

    shortest, longest = 0.01, 0.03

    def __init__(self, name: str, *places: str, error: Exception | None = None) -> None:
        self.name = name  # type: ignore[misc]
        self._places = places or (name,)
        self._error = error
        self.together: list[set[str]] = []
        self.struck: list[str] = []
        self.repeated = 0

    def places(self, stage: Any) -> tuple[str, ...]:
        return self._places

    @contextmanager
    def inject(self, scene: Scene, place: str, dice: random.Random) -> Iterator[Act]:
        at_work = cast("set[str]", vars(scene).setdefault("at_work", set()))
        at_work.add(self.name)
        self.together.append(set(at_work))
        try:
            if place == CLIENT:
                with scene.client(dice) as process:
                    self.struck.append(process.name)
                    yield Act(process.name, again=self._again, every=0.001)
            else:
                yield Act(place, again=self._again, every=0.001)
            if self._error is not None:
                raise self._error
        finally:
            at_work.remove(self.name)

    def _again(self) -> None:
        self.repeated += 1


@pytest.fixture
def stage(tmp_path: Path) -> FakeStage:
    return FakeStage(tmp_path)


def nemesis_of(stage: FakeStage, *faults: Fault, seed: int = 1) -> Nemesis:
    return Nemesis(cast("Any", stage), cast("Any", FakeFleet()), seed=seed, quick=True, faults=faults)


def real_places(stage: FakeStage) -> dict[Fault, tuple[str, ...]]:
    return {fault: fault.places(cast("Any", stage)) for fault in ALL}


def names(step: Step) -> tuple[str, ...]:
    return tuple(planned.fault.name for planned in step.faults)


# The schedule.


def test_the_same_seed_gives_the_same_schedule(stage: FakeStage) -> None:
    first, again, other = (
        list(islice(schedule(real_places(stage), seed, quick=False), 200)) for seed in (7, 7, 8)
    )
    assert first == again
    assert first != other


@pytest.mark.parametrize("quick", [True, False])
def test_every_class_comes_once_before_any_comes_again(stage: FakeStage, quick: bool) -> None:
    for seed in range(20):
        seen: list[str] = []
        for step in schedule(real_places(stage), seed, quick=quick):
            seen += names(step)
            if len(seen) >= len(ALL):
                break
        assert sorted(seen) == sorted(fault.name for fault in ALL)


def test_the_quick_schedule_has_every_class_within_forty_seconds_of_plan(stage: FakeStage) -> None:
    """A loaded machine takes longer than planned, so there must be some room."""
    for seed in range(50):
        took, seen = 0.0, set[str]()
        for step in schedule(real_places(stage), seed, quick=True):
            took += step.peace + step.seconds
            seen |= set(names(step))
            if took > 32 or len(seen) == len(ALL):
                break
        assert len(seen) >= 12, seed
        assert took <= 45, seed


def test_there_is_peace_for_about_half_of_the_time(stage: FakeStage) -> None:
    for seed in range(5):
        steps = list(islice(schedule(real_places(stage), seed, quick=False), 300))
        peace = sum(step.peace for step in steps)
        assert 0.4 < peace / (peace + sum(step.seconds for step in steps)) < 0.6


def test_a_long_schedule_has_hundreds_of_different_pairs(stage: FakeStage) -> None:
    steps = list(islice(schedule(real_places(stage), 3, quick=False), 400))
    pairs = Counter(frozenset(names(step)) for step in steps if len(step.faults) == 2)
    assert len(pairs) > 180
    assert set(pairs.values()) == {1}  # none twice before all were had


def test_two_of_a_pair_strike_different_places_or_two_clients(stage: FakeStage) -> None:
    for step in islice(schedule(real_places(stage), 5, quick=False), 500):
        if len(step.faults) == 2:
            one, two = step.faults
            assert one.place != two.place or one.place == CLIENT
            assert one.fault is not two.fault
            assert why_senseless(one.fault.name, two.fault.name) is None


def test_senseless_pairs_name_faults_that_exist() -> None:
    from proof.faults.schedule import SENSELESS

    known = {fault.name for fault in ALL}
    for first, second, why in SENSELESS:
        assert {*first, *second} <= known
        assert why


def test_two_faults_of_one_network_go_together_only_at_its_two_ends() -> None:
    one, two, three = (
        FakeFault("one", HTTP_NETWORK, DATABASE_NETWORK),
        FakeFault("two", HTTP_NETWORK, DATABASE_NETWORK),
        FakeFault("three", DATABASE),
    )
    places: dict[Fault, tuple[str, ...]] = {each: each._places for each in (one, two, three)}
    assert places_of(places, (one, two)) == [
        (HTTP_NETWORK, DATABASE_NETWORK),
        (DATABASE_NETWORK, HTTP_NETWORK),
    ]
    assert len(places_of(places, (one, three))) == 2
    on_a_file: dict[Fault, tuple[str, ...]] = {one: (HTTP_NETWORK,), two: (HTTP_NETWORK,)}
    assert places_of(on_a_file, (one, two)) == []


def test_all_names_are_different() -> None:
    assert len({fault.name for fault in ALL}) == len(ALL) >= 20


# Carrying it out.


def test_faults_that_are_impossible_are_left_out_with_a_reason(stage: FakeStage) -> None:
    class Never(FakeFault):
        def possible(self, stage: Any) -> str | None:
            return "pigs cannot fly"

    nemesis = nemesis_of(stage, FakeFault("one"), Never("never"))
    injected = nemesis.run(0.6)
    assert nemesis.impossible == {"never": "pigs cannot fly"}
    assert {each.fault for each in injected} == {"one"}


def test_what_was_done_is_written_down_in_order_with_its_times(stage: FakeStage) -> None:
    faults = [FakeFault("one", DATABASE), FakeFault("two", DISK), FakeFault("three", CLIENT)]
    nemesis = nemesis_of(stage, *faults)
    injected = nemesis.run(2.0)
    assert {each.fault for each in injected} == {"one", "two", "three"}
    assert all(each.ended >= each.began + 0.01 for each in injected)
    assert all(one.began <= two.began for one, two in pairwise(injected))
    assert {each.target for each in injected if each.fault == "one"} == {DATABASE}
    assert all(each.target.startswith("worker-") for each in injected if each.fault == "three")
    assert all(fault.repeated > 1 for fault in faults)
    assert stage.revived  # it was seen to be well


def test_a_pair_is_at_work_together_and_has_a_number(stage: FakeStage) -> None:
    class Slow(FakeFault):
        shortest, longest = 0.5, 0.6

    one, two, three = (Slow(place, place) for place in (DATABASE, DISK, HTTP_NETWORK))
    injected = nemesis_of(stage, one, two, three).run(3.5)
    pairs = Counter(each.pair for each in injected if each.pair)
    assert pairs
    assert set(pairs.values()) == {2}
    assert max(map(len, one.together + two.together + three.together)) == 2


def test_two_faults_never_strike_the_same_client_at_the_same_time(stage: FakeStage) -> None:
    scene = Scene(cast("Any", stage), cast("Any", FakeFleet(2)))
    dice = random.Random(1)
    for _ in range(50):
        with scene.client(dice) as one, scene.client(dice) as two:
            assert one is not two
            with pytest.raises(NobodyLeft), scene.client(dice):
                pass


def test_the_same_seed_strikes_the_same_clients(stage: FakeStage) -> None:
    struck = []
    for _ in range(2):
        fault = FakeFault("one", CLIENT)
        nemesis_of(stage, fault, seed=9).run(4)
        struck.append(fault.struck)
    shorter = min(map(len, struck))
    assert shorter > 1
    assert struck[0][:shorter] == struck[1][:shorter]


def test_a_fault_that_fails_ends_the_run_and_the_other_one_is_healed(stage: FakeStage) -> None:
    class Long(FakeFault):
        shortest, longest = 60.0, 60.0

    bad = FakeFault("bad", DISK, error=OSError("no such disk"))
    good = Long("good", DATABASE)
    nemesis = nemesis_of(stage, bad, good)
    step = Step(0.0, tuple(planned for planned in _pair(good, bad)))
    with pytest.raises(OSError, match="no such disk"):
        nemesis._take(step)
    assert vars(nemesis.scene)["at_work"] == set()
    assert not any(thread.name == "good + bad" for thread in threading.enumerate())


def _pair(*faults: FakeFault) -> Iterator[Any]:
    from proof.faults.schedule import Planned

    for fault in faults:
        yield Planned(fault, fault._places[0], fault.shortest, 0.0, "seed")


def test_a_client_that_ends_by_itself_ends_the_run(stage: FakeStage) -> None:
    nemesis = nemesis_of(stage, FakeFault("one"))
    cast("Any", nemesis.scene.fleet.workers[2]).alive = False
    with pytest.raises(NotHealthy, match="worker-2"):
        nemesis.run(5.0)


def test_a_fault_that_finds_nobody_to_strike_is_left_out(stage: FakeStage) -> None:
    one, two = FakeFault("one", CLIENT), FakeFault("two", CLIENT)
    nemesis = nemesis_of(stage, one, two)
    del nemesis.scene.fleet.workers[1:]
    planned = [
        replace(each, seconds=0.2, after=after)
        for each, after in zip(_pair(one, two), (0, 0.05), strict=True)
    ]
    nemesis._take(Step(0.0, tuple(planned)))
    assert [each.fault for each in nemesis.injected] == ["one"]


def test_a_database_that_never_answers_is_not_waited_for_for_ever(stage: FakeStage) -> None:
    asked: list[None] = []

    def refuse() -> None:
        asked.append(None)
        raise ConnectionError("away")

    stage.store_clock = refuse  # type: ignore[method-assign]
    Scene(cast("Any", stage), cast("Any", FakeFleet())).wait_for_an_answer(0.2)
    assert len(asked) > 1
