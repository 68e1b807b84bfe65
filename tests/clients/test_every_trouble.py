"""What becomes of schedules when the store fails, answers are lost, and nodes come and go."""

from __future__ import annotations

from itertools import count, pairwise

import pytest

from holdfast import Settings, errors
from holdfast.client.ticks import TROUBLE, Row, Timekeeper
from holdfast.core.cluster import Assign, Assigned, Beat, Finish, InspectWork, NotDue, WorkView
from holdfast.core.plans import TICK as LATER
from holdfast.core.plans import Wait
from holdfast.core.requests import Client, NotHeld, Withdraw
from tests.clients.ticking import DAY, HOUR, START, TTL, World, job, multiples, no_fault, overlaps


@pytest.fixture
def world() -> World:
    return World(START + 1)


def test_a_store_that_is_away_for_a_while_costs_no_tick(world, caplog):
    def fault(node, request):
        away = START + HOUR - 60 <= world.now < START + HOUR + 60
        return errors.StoreUnavailable("down") if away else None

    world.fault = fault
    for n in range(2):
        world.node(f"node-{n}", job(HOUR))
    world.run_until(START + 3 * HOUR + 60)
    assert world.ticks() == multiples(HOUR, START + 1, START + 3 * HOUR)
    assert world.records[0].since >= START + HOUR + 60
    assert caplog.text.count("trying again") == 2  # said once, not with every try


@pytest.mark.parametrize("kind", [Assign, Finish])
def test_answers_that_are_lost_cost_no_tick_and_no_second_run(world, kind):
    lost = set()

    def fault(node, request):
        if isinstance(request, kind) and request.attempt not in lost:
            lost.add(request.attempt)
            return errors.OutcomeUnknown("lost")
        return None

    world.fault = fault
    for n in range(3):
        world.node(f"node-{n}", job(300))
    world.run_until(START + DAY + 60)
    assert world.ticks() == multiples(300, START + 1, START + DAY)
    assert len(lost) > 200


def test_an_error_that_does_not_pass_is_said_and_asked_about_rarely(world, caplog):
    world.fault = lambda _node, _request: errors.AccessDenied("not you") if world.now < START + HOUR else None
    world.node("node", job(60))
    world.run_until(START + HOUR)
    assert "not you" in caplog.text
    assert len(world.asked) <= 130
    world.run_until(START + HOUR + 150)
    assert world.ticks() == [START + HOUR + 60, START + HOUR + 120]


def test_who_closes_while_it_does_not_know_whether_it_got_it_withdraws(world):
    world.fault = lambda _node, request: (
        errors.OutcomeUnknown("lost") if isinstance(request, Assign) and world.now > START + HOUR else None
    )
    node = world.node("node", job(HOUR))
    world.run_until(START + HOUR + 0.06)
    assert world.work().state == "assigned"
    world.fault = no_fault
    node.close()
    assert isinstance(world.asked[-1][1], Withdraw)
    world.node("other", job(HOUR))
    world.run_until(START + HOUR + TTL + 5)  # whoever looks for what is due does so when its lease would end
    assert [each.node for each in world.records] == ["other"]


def test_who_stops_while_it_does_not_know_whether_it_got_it_withdraws(world):
    world.fault = lambda _node, request: (
        errors.OutcomeUnknown("lost") if isinstance(request, Assign) and world.now > START + HOUR else None
    )
    node = world.node("node", job(HOUR))
    world.run_until(START + HOUR + 0.06)
    world.fault = no_fault
    node.stop()
    assert isinstance(world.asked[-1][1], Withdraw)
    assert not node.alive


# By hand.


class Hands:
    """One node's plan, and a clock that a test moves."""

    def __init__(self, **options) -> None:
        self.now = 1000.0
        numbers = count(1)
        self.keeper = Timekeeper(
            job(HOUR),
            client=Client("node", "host", 1),
            owner="node",
            ttl=TTL,
            settings=Settings(),
            attempts=lambda: f"a-{next(numbers)}",
            clock=lambda: self.now,
            roll=lambda: 0.0,
            **options,
        )
        self.plan = self.keeper.plan()
        assert next(self.plan) == InspectWork("every:x")


def test_an_answer_that_took_longer_than_the_lease_is_asked_for_again():
    hands = Hands()
    first = hands.plan.send(None)
    assert (first.attempt, first.due, first.again, first.id) == ("a-1", True, True, "")
    hands.now += TTL
    assert isinstance(hands.plan.send(Assigned("every:x", "a-1", 7, "null", 1, TTL, START)), Wait)
    assert hands.plan.send(None) == InspectWork("every:x")
    assert hands.plan.send(None) == first
    finish = hands.plan.send(Assigned("every:x", "a-1", 7, "null", 1, TTL, START + 1))
    assert (finish.attempt, finish.token, finish.ending, finish.at) == ("a-1", 7, "returned", START + HOUR)


def test_an_attempt_that_has_ended_is_followed_by_another():
    hands = Hands()
    hands.plan.send(None)
    assert hands.plan.send(NotHeld("expired")) == InspectWork("every:x")
    assert hands.plan.send(None).attempt == "a-2"


def test_an_answer_that_makes_no_sense_is_said_and_asked_for_later(caplog):
    hands = Hands()
    hands.plan.send(None)
    assert hands.plan.send(Beat("dead")) == Wait("every:x", "a-1", hands.now + TROUBLE)
    assert "Beat" in caplog.text


def offered(schedule: object) -> WorkView:
    text = Row({"schedule": schedule}, START).dump()
    return WorkView("every:x", "offered", text, "", 0, 0, "", 0, 0.0, None, START)


def test_a_row_that_another_writes_while_we_look_for_it_is_compared_with_as_well():
    hands = Hands()
    assert hands.plan.send(None).due
    assert hands.plan.send(NotDue(1e7)) == InspectWork("every:x")
    assert not hands.plan.send(offered(DAY)).due


def test_where_requests_may_be_repeated_who_leaves_withdraws():
    """A copy of the request that comes late would else take the work for nobody."""
    for repeats in (False, True):
        hands = Hands(repeats=repeats)
        hands.plan.send(offered(HOUR))
        assert hands.plan.send(NotDue(5.0)) == Wait("every:x", "a-1", hands.now + 5.0 + LATER)
        assert hands.keeper.next_until == hands.now + 5.0
        hands.keeper.stopping = True
        if repeats:
            assert hands.plan.send(None) == Withdraw("every:x", "a-1")
        with pytest.raises(StopIteration):
            hands.plan.send(None)


# Everything at once.


@pytest.mark.parametrize("seed", range(30))
def test_whatever_happens_each_tick_is_run_and_only_a_loss_runs_one_twice(seed):
    """Nodes die, close, are cut off and come; bodies fail and take long; answers are lost."""
    world = World(START + 1, seed)
    dice = world.dice
    nodes = [world.node(f"node-{n}", job(120), ahead=dice.uniform(-1e5, 1e5)) for n in range(3)]
    world.body = lambda _tick: (dice.choice((0.1, 5.0, 70.0)), dice.choice(("", "", "oh")))

    def fault(node, request):
        chance = dice.random()
        if chance < 0.02:
            return errors.OutcomeUnknown("lost")
        return errors.StoreUnavailable("down") if chance < 0.04 else None

    world.fault = fault
    bad = 0
    for n in range(3, 60):
        world.run_until(world.now + dice.uniform(10, 300))
        node = dice.choice(nodes)
        what = dice.choice(("kill", "close", "cut off", "nothing"))
        bad += what != "nothing" and node.running
        if what == "cut off":
            node.cut_off = True
            world.run_until(world.now + dice.uniform(1, 90))
            node.cut_off = False
        elif what != "nothing":
            (node.kill if what == "kill" else node.close)()
            nodes.remove(node)
            nodes.append(world.node(f"node-{n}", job(120), ahead=dice.uniform(-1e5, 1e5)))
    world.fault = no_fault
    world.run_until(world.now + 300)
    ticks = world.ticks()
    assert ticks == sorted(ticks)
    twice = len(ticks) - len(set(ticks))
    assert twice <= bad
    assert len(overlaps(world)) <= bad
    ended = [each for each in world.records if each.until is not None]
    late = [
        b for a, b in pairwise(ticks) if b - a > 120
    ]  # some were missed, while there was nobody to run them
    assert len(set(ticks)) > 20
    assert len(late) < len(ticks)
    assert all(
        a.since <= b.since and a.token < b.token for a, b in pairwise(sorted(ended, key=lambda e: e.since))
    )
