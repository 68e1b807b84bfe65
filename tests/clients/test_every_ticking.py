"""One run a tick across a fleet: the plan of every node, in virtual time over the memory store."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest

from holdfast import errors
from holdfast.client.ticks import GRACE, SAFETY, Row
from holdfast.core.cluster import Assign, Finish, Forget
from holdfast.core.requests import Break, History
from tests.clients.ticking import DAY, HOUR, START, TTL, World, job, multiples, overlaps


@pytest.fixture
def world() -> World:
    return World(START + 1)


@pytest.mark.parametrize("nodes", [1, 2, 10])
def test_every_tick_is_run_once_however_many_nodes_there_are(world, nodes):
    for n in range(nodes):
        world.node(f"node-{n}", job())
    world.run_until(START + DAY + 60)
    assert world.ticks() == multiples(300, START + 1, START + DAY)
    assert overlaps(world) == []
    assert [each.token for each in world.records] == sorted({each.token for each in world.records})
    assert all(each.since - each.tick < 1 for each in world.records)


def test_runs_come_to_all_nodes(world):
    for n in range(4):
        world.node(f"node-{n}", job(60))
    world.run_until(START + 4 * HOUR)
    assert {each.node for each in world.records} == {f"node-{n}" for n in range(4)}


def test_clocks_that_are_wrong_by_hours_change_nothing(world):
    """Only the store's clock says when a tick has come; a clock that is fast only looks sooner."""
    for n, ahead in enumerate((0.0, 5 * HOUR, -7 * HOUR, 1e6)):
        world.node(f"node-{n}", job("0 * * * *"), ahead=ahead)
    world.node("fast", job("0 * * * *"), rate=1.05)
    world.run_until(START + 3 * DAY + 60)
    assert world.ticks() == multiples(HOUR, START + 1, START + 3 * DAY)
    assert all(0 <= each.since - each.tick < 1 for each in world.records)


def test_a_slow_clock_alone_is_late_and_leaves_nothing_out(world):
    world.node("slow", job(HOUR), rate=0.95)
    world.run_until(START + DAY + 600)
    assert world.ticks() == multiples(HOUR, START + 1, START + DAY)
    assert all(each.since >= each.tick for each in world.records)


def test_nobody_runs_anything_when_it_is_started(world):
    world.node("first", job("0 3 * * *"))
    world.node("second", job("0 3 * * *"))
    world.run_until(START + 2 * HOUR)
    assert world.records == []
    row = json.loads(world.work().data)
    assert row == {"schedule": "0 3 * * *", "timezone": "UTC", "tick": "2026-01-01T03:00:00+00:00"}
    assert (world.work().state, world.work().due_at, world.work().tries) == ("offered", START + 3 * HOUR, 0)


def test_waiting_costs_no_more_than_a_look_now_and_then(world):
    world.node("node", job("0 0 1 2 *"))
    world.run_until(START + 10)
    before = len(world.asked)
    world.run_until(START + 10 + 10 * SAFETY)
    assert len(world.asked) - before <= 10


def test_who_waits_for_a_long_run_asks_ever_more_rarely(world):
    world.body = lambda _tick: (HOUR, "")
    for n in range(2):
        world.node(f"node-{n}", job(DAY))
    world.run_until(START + DAY)
    world.asked.clear()
    world.run_until(START + DAY + HOUR - 1)
    asked = [request for _, request in world.asked if isinstance(request, Assign)]
    assert len(asked) <= HOUR / (TTL - 16) + 10  # renewals keep at least so much of the lease


@pytest.mark.parametrize("missed", ["once", "skip", "all"])
def test_ticks_that_were_missed_are_treated_as_wanted(world, missed):
    first = world.node("first", job(HOUR, missed=missed))
    world.run_until(START + 2 * HOUR + 60)
    first.close()
    world.run_until(START + 7 * HOUR + 600)
    world.node("second", job(HOUR, missed=missed))
    world.run_until(START + 9 * HOUR + 600)
    late = [each for each in world.records if each.since - each.tick > GRACE]
    assert [each.tick - START for each in late] == {
        "once": [7 * HOUR],
        "skip": [],
        "all": [n * HOUR for n in range(3, 8)],
    }[missed]
    assert [tick - START for tick in world.ticks() if tick > START + 7 * HOUR] == [8 * HOUR, 9 * HOUR]
    assert overlaps(world) == []


def test_a_tick_that_is_a_little_late_is_not_skipped(world):
    first = world.node("first", job(HOUR, missed="skip"))
    world.run_until(START + HOUR - 10)
    first.close()
    world.run_until(START + HOUR + GRACE - 1)
    world.node("second", job(HOUR, missed="skip"))
    world.run_until(START + HOUR + GRACE)
    assert world.ticks() == [START + HOUR]


def test_ticks_that_come_while_it_runs_are_missed_ticks(world):
    world.body = lambda tick: (700.0, "") if tick == START + 300 else (1.0, "")
    world.node("node", job(300))
    world.run_until(START + 1600)
    assert [tick - START for tick in world.ticks()] == [300, 900, 1200, 1500]
    assert world.records[1].since == pytest.approx(START + 1000, abs=1)  # at once, for the last it missed


def test_runs_begin_no_sooner_than_wanted_after_one_another(world):
    for n in range(3):
        world.node(f"node-{n}", job(60, at_least=150))
    world.run_until(START + HOUR)
    begun = sorted(each.since for each in world.records)
    assert all(b - a >= 150 for a, b in pairwise(begun))
    assert len(begun) >= HOUR / 150 - 1


def test_a_run_that_takes_too_long_is_told_and_the_others_go_on(world):
    world.body = lambda tick: (1000.0, "") if tick == START + 300 else (1.0, "")
    for n in range(2):
        world.node(f"node-{n}", job(300, at_most=100))
    world.run_until(START + 1600)
    runs = sorted(world.records, key=lambda each: each.since)
    assert [each.tick - START for each in runs] == [300, 600, 900, 1200, 1500]
    stuck, *others = runs
    assert stuck.told == "at_most reached"
    assert all(each.told == "" for each in others)
    assert {each.node for each in others if each.since < stuck.until} == {others[0].node} != {stuck.node}
    events = world.store.execute(History("every:x", 100))
    assert [event.kind for event in events].count("failed") == 1
    assert "at_most reached" in next(event.reason for event in events if event.kind == "failed")


def test_a_run_that_is_within_its_time_is_renewed_for_as_long_as_it_takes(world):
    world.body = lambda _tick: (20 * TTL, "")
    for n in range(2):
        world.node(f"node-{n}", job(HOUR, at_most=21 * TTL))
    world.run_until(START + 3 * HOUR + 21 * TTL)
    assert world.ticks() == multiples(HOUR, START + 1, START + 3 * HOUR)
    assert {each.told for each in world.records} == {""}


def test_a_run_that_fails_is_written_down_and_the_next_tick_comes(world):
    world.body = lambda tick: (1.0, "" if tick > START + 300 else "ZeroDivisionError: oh")
    world.node("node", job(300))
    world.run_until(START + 310)
    assert (world.work().state, world.work().text) == ("offered", "ZeroDivisionError: oh")
    world.run_until(START + 610)
    assert world.ticks() == [START + 300, START + 600]
    assert (world.work().text, world.work().tries) == ("", 0)


def test_the_tick_of_a_node_that_dies_is_run_again_by_another(world):
    nodes = [world.node(f"node-{n}", job(HOUR)) for n in range(3)]
    world.body = lambda _tick: (10.0, "")
    world.run_until(START + HOUR + 5)
    dead = next(node for node in nodes if node.running)
    dead.kill()
    world.run_until(START + HOUR + 5 + TTL + 15)
    died, again = sorted(world.records, key=lambda each: each.since)
    assert (died.tick, died.until) == (again.tick, None)
    assert again.node != dead.name
    assert again.token > died.token
    world.run_until(START + 3 * HOUR + 60)
    assert world.ticks()[2:] == [START + 2 * HOUR, START + 3 * HOUR]


def test_a_node_that_dies_before_it_has_written_the_first_tick_costs_its_lease(world):
    world.fault = lambda node, request: (
        errors.StoreUnavailable("down") if node.name == "dead" and isinstance(request, Finish) else None
    )
    dead = world.node("dead", job(60))
    world.run_until(START + 3)
    dead.kill()
    world.node("other", job(60))
    world.run_until(START + 10 * 60 + 30)
    assert world.ticks() == multiples(60, START + 1 + TTL + 1, START + 600)


def test_a_node_that_closes_gives_its_tick_to_another_at_once(world):
    nodes = [world.node(f"node-{n}", job(HOUR)) for n in range(2)]
    world.body = lambda _tick: (30.0, "")
    world.run_until(START + HOUR + 5)
    closing = next(node for node in nodes if node.running)
    closing.close()
    assert (closing.told, world.work().state, world.work().due_at) == ("client closed", "offered", world.now)
    world.run_until(START + HOUR + 10 + TTL + 30)
    assert [each.node != closing.name for each in world.records] == [False, True]
    assert world.ticks() == [START + HOUR] * 2


def test_a_node_that_stops_ends_its_run_and_begins_no_other(world):
    node = world.node("node", job(HOUR))
    world.body = lambda _tick: (30.0, "")
    world.run_until(START + HOUR + 5)
    node.stop()
    assert node.running
    world.run_until(START + 5 * HOUR)
    assert world.ticks() == [START + HOUR]
    assert not node.alive
    assert world.work().due_at == START + 2 * HOUR
    idle = world.node("idle", job(HOUR, missed="skip"))
    world.run_until(START + 5 * HOUR + GRACE + 2)
    idle.stop()
    assert not idle.alive


def test_a_node_that_is_cut_off_while_it_runs_says_so_when_it_is_back(world, caplog):
    nodes = [world.node(f"node-{n}", job(HOUR)) for n in range(2)]
    world.body = lambda _tick: (100.0, "")
    world.run_until(START + HOUR + 5)
    lost = next(node for node in nodes if node.running)
    lost.cut_off = True
    world.run_until(START + HOUR + 60)
    assert all(node.running for node in nodes)
    assert len({node.begin.grant.token for node in nodes}) == 2
    lost.cut_off = False
    world.run_until(START + HOUR + 300)
    assert "may be run again" in caplog.text
    assert world.ticks() == [START + HOUR] * 2
    world.run_until(START + 4 * HOUR + 300)
    assert world.ticks()[2:] == [START + n * HOUR for n in (2, 3, 4)]


def test_a_broken_run_is_begun_again(world, caplog):
    world.body = lambda _tick: (100.0, "")
    world.node("node", job(HOUR))
    world.run_until(START + HOUR + 5)
    world.store.execute(Break("every:x", by="me", reason="stuck", now=world.now))
    world.run_until(START + HOUR + 300)
    assert world.ticks() == [START + HOUR] * 2
    assert "broken" in caplog.text


# A schedule that changes.


def test_the_schedule_of_the_node_that_was_started_last_holds(world):
    world.node("old", job("0 0 1 1 *"))
    world.run_until(START + DAY)
    world.node("new", job(HOUR))
    world.run_until(START + 2 * DAY + 60)
    assert world.ticks() == multiples(HOUR, START + DAY, START + 2 * DAY)
    assert json.loads(world.work().data)["schedule"] == HOUR


def test_of_two_that_are_started_at_once_one_schedule_holds_for_both(world):
    """The second comes while the first is about to write the row, and finds none to compare with."""
    first = {}

    def fault(node, request):
        if isinstance(request, Finish) and node.name == "first" and not first:
            first["second"] = world.node("second", job(HOUR))

    world.fault = fault
    world.node("first", job("0 0 1 1 *"))
    world.run_until(START + DAY + 60)
    assert world.ticks() == multiples(HOUR, START + 1, START + DAY)


def test_nodes_with_the_old_schedule_go_by_the_new_one(world):
    old = world.node("old", job(HOUR))
    world.run_until(START + HOUR + 60)
    world.node("new", job(2 * HOUR)).stop()
    world.run_until(START + DAY + 60)
    assert world.ticks() == [START + HOUR, *multiples(2 * HOUR, START + HOUR, START + DAY)]
    assert {each.node for each in world.records} == {"old"}
    assert old.alive


def test_a_schedule_that_changes_while_it_runs_holds_from_the_next_tick(world):
    world.body = lambda tick: (100.0, "") if tick == START + HOUR else (1.0, "")
    world.node("old", job(HOUR))
    world.run_until(START + HOUR + 5)
    world.node("new", job("30 * * * *"))
    world.run_until(START + 3 * HOUR)
    assert [tick - START for tick in world.ticks()] == [HOUR, 1.5 * HOUR, 2.5 * HOUR]


def test_a_tick_that_is_due_when_the_schedule_changes_is_run(world):
    world.node("old", job(HOUR)).close()
    world.run_until(START + HOUR + 20)
    world.node("new", job("30 * * * *"))
    world.run_until(START + 2 * HOUR)
    assert [tick - START for tick in world.ticks()] == [HOUR, 1.5 * HOUR]


def test_the_pause_between_runs_is_kept_when_the_schedule_changes(world):
    old = world.node("old", job(HOUR, at_least=1000))
    world.run_until(START + HOUR + 60)
    old.close()
    world.node("new", job(60, at_least=1000))
    world.run_until(START + 2 * HOUR)
    begun = sorted(each.since for each in world.records)
    assert begun[1] - begun[0] >= 1000


def test_a_schedule_that_cannot_be_read_gives_way_to_ours(world, caplog):
    node = world.node("node", job(HOUR))
    world.run_until(START + 60)
    _rewrite(world, Row({"schedule": "whenever"}, START + 2 * HOUR))
    world.run_until(START + 3 * HOUR + 60)
    assert node.alive
    assert "cannot be read" in caplog.text
    assert world.ticks() == [START + 2 * HOUR, START + 3 * HOUR]


def test_data_that_are_not_ours_are_written_anew(world):
    world.node("node", job(HOUR))
    world.run_until(START + 60)
    for text in ("[1]", '{"tick": 7}', '{"schedule": 3600}', '{"tick": "soon", "schedule": 3600}'):
        assert Row.load(text) is None
    _rewrite(world, None)
    world.run_until(START + 2 * HOUR + 60)
    assert world.ticks() == [START + HOUR, START + 2 * HOUR]


def test_work_that_was_forgotten_is_made_anew(world):
    world.node("node", job(HOUR))
    world.run_until(START + HOUR + 60)
    world.store.execute(Forget("every:x", now=world.now))
    world.run_until(START + 3 * HOUR + 60)
    assert world.ticks() == multiples(HOUR, START + 1, START + 3 * HOUR)


def _rewrite(world: World, row: Row | None) -> None:
    """Put something else into the row, as if by another hand."""
    client = world.node("hand", job(HOUR)).keeper._request.client
    given = world.store.execute(Assign("every:x", "hand", "hand", TTL, client, now=world.now))
    due = START + HOUR / 2 if row is None else row.tick
    data = '"nonsense"' if row is None else row.dump()
    world.store.execute(Finish("every:x", "hand", given.token, "returned", at=due, data=data, now=world.now))
