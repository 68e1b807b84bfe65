"""Being an instance: joining, heartbeating, draining, leaving, and being declared dead."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from holdfast import (
    Closed,
    InstanceLost,
    LeaseLost,
    OutcomeUnknown,
    SettingsError,
    StoreUnavailable,
)
from holdfast.core.cluster import Finish, Heartbeat, Join, Leave
from holdfast.core.requests import Renew
from tests.clients.cluster import (
    MORTAL,
    begin_block,
    begin_next,
    events,
    instance_view,
    next_of,
    states,
    until_state,
)
from tests.clients.support import PATIENCE, QUICK, Spy, Stage, eventually


def test_an_instance_joins_and_leaves(stage: Stage) -> None:
    instance = stage.call(stage.locks.join, "engine", capacity=3, version="1.4")
    assert instance.name == "engine"
    assert instance.id.startswith("engine-")
    assert (instance.capacity, instance.state, instance.lost, instance.assignments) == (3, "alive", None, ())
    instance.check()
    view = instance_view(stage, instance)
    assert (view.name, view.state, view.capacity, view.version) == ("engine", "alive", 3, "1.4")
    assert view.assigned == 0
    stage.call(instance.leave)
    assert instance.state == "left"
    assert instance.lost is None
    with pytest.raises(InstanceLost, match="it has left"):
        instance.check()
    assert instance_view(stage, instance).state == "left"
    assert events(stage, f"instance:{instance.id}") == ["joined", "left"]
    stage.call(instance.leave)  # once is enough


def test_the_block_of_a_join_is_left_when_it_ends(stage: Stage) -> None:
    seen: list[Any] = []

    def body(instance: Any) -> None:
        seen.append(instance)
        assert instance.state == "alive"

    async def async_body(instance: Any) -> None:
        body(instance)

    if stage.is_async:
        begin_block(stage.me, stage.locks.join(), async_body).result(PATIENCE)
    else:
        begin_block(stage.me, stage.call(stage.locks.join), body).result(PATIENCE)
    assert instance_view(stage, seen[0]).state == "left"


def test_an_instance_heartbeats_by_itself(stage: Stage) -> None:
    spy = Spy(stage.locks)
    instance = stage.call(stage.locks.join, heartbeat=0.05, ttl=60)
    began = instance_view(stage, instance).beat_at
    eventually(lambda: spy.count(Heartbeat) >= 3)
    assert instance_view(stage, instance).beat_at > began
    stage.call(instance.leave)
    assert spy.count(Join) == spy.count(Leave) == 1


def test_a_heartbeat_that_fails_is_tried_again(stage: Stage) -> None:
    """An error is not a loss."""
    spy = Spy(stage.locks)
    instance = stage.call(stage.locks.join, heartbeat=0.05, ttl=60)
    spy.fail(Heartbeat, lambda: StoreUnavailable("no route"))
    eventually(lambda: spy.count(Heartbeat) >= 3)
    instance.check()
    spy.heal()
    before = spy.count(Heartbeat)
    eventually(lambda: spy.count(Heartbeat) >= before + 2)
    instance.check()


def test_who_misses_its_heartbeats_is_lost_and_its_work_with_it(stage: Stage) -> None:
    spy = Spy(stage.locks)
    instance = stage.call(stage.locks.join, **MORTAL)
    work = stage.call(instance.assign, "workflow:1", ttl=600)
    spy.fail(Heartbeat, lambda: StoreUnavailable("no route"))
    eventually(lambda: instance.lost is not None)
    assert instance.lost.reason == "no heartbeat was answered for 2 s (no route)"
    assert instance.state == "dead"
    for check in (instance.check, lambda: stage.call(instance.claim, "workflow")):
        with pytest.raises(InstanceLost, match="no heartbeat was answered"):
            check()
    with pytest.raises(LeaseLost) as caught:
        work.check()
    assert caught.value.reason == "instance lost"
    assert work.remaining == 0.0
    eventually(work.lost.is_set)
    with pytest.raises(LeaseLost):
        stage.call(work.complete)
    # Its lease had ten minutes left. It was returned, and others have it now.
    assert until_state(stage, "workflow:1", "offered").tries == 0
    other = stage.call(stage.locks.join)
    assert stage.call(other.assign, "workflow:1").token > work.token


def test_its_peers_declare_it_dead_and_it_learns_of_it(stage: Stage) -> None:
    """Who is paused past its ttl hears of it with its next heartbeat, and stops."""
    spy = Spy(stage.locks)
    instance = stage.call(stage.locks.join, **MORTAL)
    spy.fault = lambda request: StoreUnavailable("paused") if isinstance(request, Heartbeat | Leave) else None
    peer = stage.client()
    stage.call(peer.join, heartbeat=0.1, ttl=60)
    eventually(lambda: instance_view(stage, instance).state == "dead")
    eventually(lambda: events(stage, f"instance:{instance.id}") == ["joined", "died"])
    # As if its own clock had stood still meanwhile.
    instance._workload.member.lost, instance._workload.member.state = None, "alive"
    instance._workload.member.trusted_until = instance._workload.member.beat_at = float("inf")
    instance._workload.member.tell = instance._workload.gone
    spy.heal()
    with pytest.raises(InstanceLost, match="declared it dead"):
        stage.call(instance.assign, "workflow:1")
    assert instance.lost is not None


def test_a_paused_and_returned_instance_is_refused_at_its_first_write(stage: Stage) -> None:
    spy = Spy(stage.locks)
    instance = stage.call(stage.locks.join, **MORTAL)
    work = stage.call(instance.assign, "workflow:1", {"n": 1}, ttl=0.5)
    spy.fault = lambda request: (
        StoreUnavailable("paused") if isinstance(request, Heartbeat | Renew | Finish | Leave) else None
    )
    other = stage.client()
    successor = stage.call(other.join)
    claims = successor.claims("workflow", timeout=PATIENCE)
    taken = next_of(stage.me, claims)
    assert taken.key == "workflow:1"
    assert taken.data == {"n": 1}
    assert taken.tries == 2
    assert taken.token > work.token
    spy.heal()
    # Whatever the paused one believes: the store knows better.
    work._holding.kept.lost, work._holding.kept.trusted_until = None, float("inf")
    with pytest.raises(LeaseLost):
        stage.call(work.complete)
    assert states(stage) == {"workflow:1": "assigned"}
    stage.call(taken.complete)
    stage.close(other)


def test_a_lost_instance_ends_its_loops(stage: Stage) -> None:
    spy = Spy(stage.locks)
    instance = stage.call(stage.locks.join, **MORTAL)
    waiting = begin_next(stage.actor("worker"), instance.claims("workflow"))
    spy.fail(Heartbeat, lambda: StoreUnavailable("no route"))
    with pytest.raises(InstanceLost):
        waiting.result(PATIENCE)


def test_draining_ends_the_loops_and_waits_for_what_is_being_done(stage: Stage) -> None:
    stage.call(stage.locks.offer, ["workflow:1", "workflow:2"])
    instance = stage.call(stage.locks.join)
    claims = instance.claims("workflow")
    first, second = (next_of(stage.me, claims) for _ in range(2))
    worker = stage.actor("worker")
    waiting = begin_next(worker, instance.claims("workflow"))
    draining = stage.me.start(instance.drain, PATIENCE)
    assert waiting.result(PATIENCE) is None
    assert instance.state == "draining"
    worker.call(first.complete)
    assert not draining.done()
    worker.call(second.complete)
    draining.result(PATIENCE)
    assert next_of(stage.me, claims) is None
    assert stage.call(instance.claim, "workflow") == []
    with pytest.raises(InstanceLost, match="it is draining"):
        stage.call(instance.assign, "workflow:3")
    assert instance_view(stage, instance).state == "draining"
    assert states(stage) == {"workflow:1": "completed", "workflow:2": "completed"}
    stage.call(instance.leave)
    assert events(stage, f"instance:{instance.id}") == ["joined", "draining", "left"]


def test_what_is_not_done_in_time_is_offered_to_others_at_once(stage: Stage) -> None:
    stage.call(stage.locks.offer, [f"workflow:{i}" for i in range(3)])
    instance = stage.call(stage.locks.join)
    claims = instance.claims("workflow")
    work = next_of(stage.me, claims)
    stage.call(instance.drain)
    with pytest.raises(LeaseLost) as caught:
        work.check()
    assert caught.value.reason == "drained"
    assert work.lost.is_set() or eventually(work.lost.is_set)
    assert instance.assignments == ()
    assert set(states(stage).values()) == {"offered"}
    assert next_of(stage.me, claims) is None
    other = stage.call(stage.locks.join)
    assert len(stage.call(other.claim, "workflow")) == 3


def test_a_drain_that_the_store_does_not_hear_is_told_by_the_heartbeats(stage: Stage) -> None:
    settings = {"settings": type(QUICK)(release_timeout=0.2)}
    client = stage.client(**settings)
    spy = Spy(client)
    instance = stage.call(client.join, heartbeat=0.05, ttl=60)
    spy.fail(Heartbeat, lambda: StoreUnavailable("no route"))
    stage.call(instance.drain)
    assert instance.state == "draining"
    spy.heal()
    eventually(lambda: instance_view(stage, instance).state == "draining")


def test_leaving_returns_what_is_still_assigned(stage: Stage) -> None:
    instance = stage.call(stage.locks.join)
    work = stage.call(instance.assign, "workflow:1")
    stage.call(instance.leave)
    with pytest.raises(LeaseLost) as caught:
        work.check()
    assert caught.value.reason == "instance left"
    assert states(stage) == {"workflow:1": "offered"}
    with pytest.raises(LeaseLost):
        stage.call(work.complete)
    with pytest.raises(InstanceLost, match="it has left"):
        stage.call(instance.assign, "workflow:1")
    assert next_of(stage.me, instance.claims("workflow")) is None


def test_who_cannot_leave_says_so_and_is_none_any_more(stage: Stage) -> None:
    client = stage.client(settings=type(QUICK)(release_timeout=0.1))
    spy = Spy(client)
    instance = stage.call(client.join)
    spy.fail(Leave, lambda: StoreUnavailable("no route"))
    with pytest.raises(StoreUnavailable):
        stage.call(instance.leave)
    assert instance.state == "left"
    spy.heal()


def test_closing_a_client_leaves_and_returns_the_work(stage: Stage) -> None:
    client = stage.client()
    instance = stage.call(client.join)
    work = stage.call(instance.assign, "workflow:1")
    lock = stage.call(client.acquire, "plain")
    waiting = begin_next(stage.actor("worker"), instance.claims("workflow"))
    stage.close(client)
    assert waiting.result(PATIENCE) is None
    assert instance.state == "left"
    for each in (work, lock):
        with pytest.raises(LeaseLost, match="client closed"):
            each.check()
    assert states(stage) == {"workflow:1": "offered"}
    assert instance_view(stage, instance).state == "left"
    stage.nothing_left()
    with pytest.raises(Closed):
        stage.call(lambda: client.join())
    with pytest.raises(InstanceLost):
        stage.call(instance.assign, "workflow:1")


def test_a_lost_answer_to_a_join_is_asked_for_again(stage: Stage) -> None:
    spy = Spy(stage.locks)
    lost = [OutcomeUnknown("cut"), StoreUnavailable("down")]
    spy.fault = lambda request: lost.pop() if lost and isinstance(request, Join) else None
    instance = stage.call(stage.locks.join)
    assert instance.state == "alive"
    assert spy.count(Join) == 3


def test_a_store_that_stays_away_cannot_be_joined(stage: Stage) -> None:
    client = stage.client(settings=type(QUICK)(release_timeout=0.2))
    spy = Spy(client)
    spy.fail(Join, lambda: OutcomeUnknown("cut"))
    with pytest.raises(OutcomeUnknown):
        stage.call(client.join)
    assert spy.count(Leave) == 1
    assert stage.call(stage.locks.instances) == []


def test_members_can_be_watched(stage: Stage) -> None:
    async def collect(after: int) -> list[str]:
        return [event.kind async for event in stage.locks.watch("instance:*", after=after, timeout=0.5)]

    def collect_in_a_thread(after: int) -> list[str]:
        return [event.kind for event in stage.locks.watch("instance:*", after=after, timeout=0.5)]

    instance = stage.call(stage.locks.join)
    stage.call(instance.drain)
    stage.call(instance.leave)
    assert stage.call(collect if stage.is_async else collect_in_a_thread, 0) == ["joined", "draining", "left"]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"heartbeat": 60, "ttl": 90}, "heartbeat 60 s < renewal 36 s < ttl 90 s"),
        ({"heartbeat": "often"}, "heartbeat is 'often'"),
        ({"ttl": 0}, "ttl is 0 s"),
        ({"capacity": 0}, "capacity is 0; it must be a whole number"),
        ({"capacity": True}, "capacity is True"),
        ({"name": ""}, "name is ''"),
        ({"name": "two\nlines"}, "cannot be printed"),
        ({"version": 3}, "version is 3"),
        ({"spread": -1}, "spread is -1"),
        ({"retry": "soon"}, "retry is 'soon'"),
    ],
)
def test_what_cannot_be_joined_with_says_why(stage: Stage, options: dict[str, Any], says: str) -> None:
    with pytest.raises(SettingsError, match=says):
        stage.call(lambda: stage.locks.join(**options))
    assert stage.call(stage.locks.instances) == []


def test_a_strange_name_makes_a_plain_id(stage: Stage) -> None:
    instance = stage.call(stage.locks.join, "..Müller's/engine:7")
    assert instance.name == "..Müller's/engine:7"
    assert set(instance.id) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.")
    assert not instance.id.startswith(".")


def test_an_instance_tells_its_state_and_cannot_travel(stage: Stage) -> None:
    instance = stage.call(stage.locks.join, "engine", capacity=3)
    work = stage.call(instance.assign, "workflow:1")
    assert repr(instance).endswith("alive, 1/3>")
    for each in (instance, work):
        with pytest.raises(TypeError, match="cannot be sent to another process"):
            pickle.dumps(each)
    stage.call(instance.leave)
    assert repr(instance).endswith("left, 0/3>")
