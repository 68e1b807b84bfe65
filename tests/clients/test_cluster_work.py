"""Work: offered, claimed, assigned, done, failed, returned, lost."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

import pytest

from holdfast import (
    AtCapacity,
    Backoff,
    InvalidKey,
    LeaseLost,
    LockTimeout,
    NotHeld,
    SettingsError,
    WorkEnded,
)
from holdfast.core.cluster import Claim, Offer
from tests.clients.cluster import (
    begin_block,
    begin_next,
    events,
    instance_view,
    next_of,
    states,
    until_state,
    works,
)
from tests.clients.support import PATIENCE, Spy, Stage, eventually, is_reachable


def take(stage: Stage, key: str = "workflow:1", **options: Any) -> Any:
    """Return an assignment of an instance that has joined for it."""
    return stage.call(stage.call(stage.locks.join, retry=options.pop("retry", 0)).assign, key, **options)


def assigned_here(stage: Stage) -> list[str]:
    """Return the work that our instances have, as they know it."""
    members = stage.locks._engine.members.values()
    return [work.key for member in members for work in member.works.values()]


def leave(stage: Stage, work: Any, error: BaseException | None = None, body: Any = None) -> Any:
    """Enter a block of some work, and leave it: normally or with an error."""

    def plain(entered: Any) -> None:
        if body is not None:
            stage.actor("body").call(getattr(entered, body))
        if error is not None:
            raise error

    async def async_body(entered: Any) -> None:
        if body is not None:
            await getattr(entered, body)()
        if error is not None:
            raise error

    return begin_block(stage.actor("block"), work, async_body if stage.is_async else plain).result(PATIENCE)


# Offering and looking.


def test_offering_twice_is_harmless(stage: Stage) -> None:
    offered = stage.call(stage.locks.offer, {"workflow:1": {"n": 1}, "workflow:2": None})
    assert offered.states == ("offered", "offered")
    assert offered.new == (True, True)
    offered = stage.call(stage.locks.offer, [("workflow:1", {"n": 2}), "workflow:3"])
    assert offered.new == (False, True)
    view = stage.call(stage.locks.work, "workflow:1")
    assert view.value == {"n": 1}
    assert (view.state, view.tries, view.instance, view.result) == ("offered", 0, "", None)
    assert stage.call(stage.locks.work, "workflow:4") is None


def test_what_is_over_can_be_offered_again(stage: Stage) -> None:
    stage.call(take(stage, data=1).complete, "fine")
    assert not stage.call(stage.locks.offer, {"workflow:1": 2}).new[0]
    assert stage.call(stage.locks.work, "workflow:1").result == "fine"
    assert stage.call(stage.locks.offer, {"workflow:1": 2}, again=True).new[0]
    view = stage.call(stage.locks.work, "workflow:1")
    assert (view.state, view.value, view.tries) == ("offered", 2, 0)


def test_much_is_offered_in_parts(stage: Stage) -> None:
    spy = Spy(stage.locks)
    offered = stage.call(stage.locks.offer, (f"workflow:{n:04}" for n in range(1001)))
    assert len(offered.states) == len(offered.new) == 1001
    assert all(offered.new)
    large = "x" * 50_000
    assert all(stage.call(stage.locks.offer, {f"large:{n}": large for n in range(11)}).new)
    assert [len(request.works) for request in spy.seen if isinstance(request, Offer)] == [1000, 1, 5, 5, 1]


def test_work_can_be_listed_and_forgotten(stage: Stage) -> None:
    stage.call(stage.locks.offer, ["job:1", "workflow:1", "workflow:2"])
    instance = stage.call(stage.locks.join)
    work = stage.call(instance.assign, "workflow:2")
    assert [view.key for view in works(stage)] == ["job:1", "workflow:1", "workflow:2"]
    assert [view.key for view in works(stage, prefix="workflow:")] == ["workflow:1", "workflow:2"]
    assert [view.key for view in works(stage, state="assigned")] == ["workflow:2"]
    assert [view.key for view in works(stage, instance=instance.id)] == ["workflow:2"]
    assert instance_view(stage, instance).assigned == 1
    assert stage.call(stage.locks.forget, "job:1").key == "job:1"
    assert stage.call(stage.locks.forget, "job:1") is None
    with pytest.raises(LockTimeout, match=instance.id):
        stage.call(stage.locks.forget, "workflow:2")
    stage.call(work.complete)
    assert stage.call(stage.locks.forget, "workflow:2").state == "completed"


def test_all_pages_of_a_long_list_are_fetched(stage: Stage) -> None:
    keys = [f"workflow:{n:03}" for n in range(150)]
    stage.call(stage.locks.offer, keys)
    assert [view.key for view in works(stage)] == keys


@pytest.mark.parametrize(
    ("call", "arguments", "options", "error", "says"),
    [
        ("offer", ["workflow:1"], {}, SettingsError, "it must be a list of keys"),
        ("offer", [7], {}, SettingsError, "it must be a list of keys"),
        ("offer", [[("a", 1, 2)]], {}, SettingsError, "is no \\(key, data\\)"),
        ("offer", [["a", "a"]], {}, SettingsError, "'a' is offered twice at once"),
        ("offer", [[""]], {}, InvalidKey, "is empty"),
        ("offer", [{"a": object()}], {}, SettingsError, "the data of 'a' is no JSON"),
        ("offer", [{"a": float("nan")}], {}, SettingsError, "the data of 'a' is no JSON"),
        ("offer", [{"a": "x" * 70_000}], {}, SettingsError, "has 70002 bytes as JSON, and 65536 can be kept"),
        ("offer", [["a"]], {"max_tries": 0}, SettingsError, "max_tries is 0"),
        ("offer", [["a"]], {"delay": -1}, SettingsError, "delay is -1"),
        ("works", [], {"state": "lost"}, SettingsError, "state is 'lost'"),
        ("works", [], {"instance": 7}, SettingsError, "instance is 7"),
        ("work", [""], {}, InvalidKey, "is empty"),
        ("forget", [""], {}, InvalidKey, "is empty"),
    ],
)
def test_what_cannot_be_offered_or_looked_at_says_why(
    stage: Stage, call: str, arguments: list[Any], options: dict[str, Any], error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        stage.call(getattr(stage.locks, call), *arguments, **options)


# Assigning and ending.


def test_work_is_assigned_with_its_lock(stage: Stage) -> None:
    instance = stage.call(stage.locks.join)
    work = stage.call(instance.assign, "workflow:1", {"n": 1}, ttl=60)
    assert (work.key, work.data, work.tries) == ("workflow:1", {"n": 1}, 1)
    assert work.token == work.lease.token > 0
    assert 50 < work.remaining < 60
    assert instance.assignments == (work,)
    assert stage.state("workflow:1") == "held"
    view = stage.call(stage.locks.work, "workflow:1")
    assert (view.state, view.instance, view.token) == ("assigned", instance.id, work.token)
    work.check()
    assert repr(work).startswith("<")
    assert "try 1, trusted" in repr(work)
    with pytest.raises(LockTimeout) as caught:
        stage.call(stage.client().acquire, "workflow:1", timeout=0)
    assert caught.value.holder.owner == instance.id


def test_who_wants_work_that_somebody_has_learns_who(stage: Stage) -> None:
    instance = stage.call(stage.locks.join)
    stage.call(instance.assign, "workflow:1")
    other = stage.call(stage.client().join)
    with pytest.raises(LockTimeout, match=f"'workflow:1' is held by {instance.id}"):
        stage.call(other.assign, "workflow:1")
    assert other.assignments == ()


def test_work_is_completed_with_a_result(stage: Stage) -> None:
    work = take(stage)
    stage.call(work.complete, {"ok": True})
    view = stage.call(stage.locks.work, "workflow:1")
    assert (view.state, view.result) == ("completed", {"ok": True})
    assert stage.state("workflow:1") == "free"
    assert repr(work).endswith("completed>")
    for again in (work.complete, work.release, lambda: work.fail("late")):
        with pytest.raises(NotHeld, match="the work was completed already"):
            stage.call(again)
    with pytest.raises(NotHeld):
        work.check()
    with pytest.raises(WorkEnded, match="has completed already") as caught:
        take(stage)
    assert caught.value.state == "completed"
    assert take(stage, again=True).tries == 1


def test_work_that_fails_is_tried_again_or_not(stage: Stage) -> None:
    work = take(stage)
    stage.call(work.fail, ValueError("boom"), 3600)
    view = stage.call(stage.locks.work, "workflow:1")
    assert (view.state, view.text, view.tries) == ("offered", "ValueError: boom", 1)
    assert view.due_at > view.assigned_at + 3000
    work = take(stage)
    assert work.tries == 2
    stage.call(work.fail, "out of luck")
    view = stage.call(stage.locks.work, "workflow:1")
    assert (view.state, view.text) == ("failed", "out of luck")
    with pytest.raises(WorkEnded, match=r"has failed already \(out of luck\)"):
        take(stage)


def test_work_fails_for_good_when_it_was_tried_as_often_as_it_may(stage: Stage) -> None:
    stage.call(stage.locks.offer, ["workflow:1"], max_tries=2)
    stage.call(take(stage).fail, "once", 0)
    assert states(stage) == {"workflow:1": "offered"}
    stage.call(take(stage).fail, "twice", 0)
    assert states(stage) == {"workflow:1": "failed"}


def test_work_that_is_released_was_not_tried(stage: Stage) -> None:
    work = take(stage)
    stage.call(work.release)
    view = stage.call(stage.locks.work, "workflow:1")
    assert (view.state, view.tries) == ("offered", 0)
    work = take(stage)
    stage.call(work.lease.release)  # is the same
    assert states(stage) == {"workflow:1": "offered"}
    assert assigned_here(stage) == []


def test_the_block_of_some_work_ends_it(stage: Stage) -> None:
    leave(stage, take(stage))
    view = stage.call(stage.locks.work, "workflow:1")
    assert (view.state, view.result) == ("completed", None)


def test_an_error_in_the_block_fails_it(stage: Stage) -> None:
    with pytest.raises(ValueError, match="boom"):
        leave(stage, take(stage), ValueError("boom"))
    view = stage.call(stage.locks.work, "workflow:1")
    assert (view.state, view.text) == ("offered", "ValueError: boom")


@pytest.mark.parametrize(
    ("retry", "state", "least", "most"),
    [(None, "failed", -1, 60), (100, "offered", 99, 200), (Backoff(1000, 4000), "offered", 500, 1000)],
)
def test_how_failed_work_is_tried_again_is_said_when_joining(
    stage: Stage, retry: Any, state: str, least: float, most: float
) -> None:
    with pytest.raises(ValueError, match="boom"):
        leave(stage, take(stage, retry=retry), ValueError("boom"))
    view = stage.call(stage.locks.work, "workflow:1")
    assert view.state == state
    assert least < view.due_at - view.assigned_at < most + PATIENCE


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_who_interrupts_the_block_returns_it(stage: Stage, error: type[BaseException]) -> None:
    with pytest.raises(error):
        leave(stage, take(stage), error())
    view = stage.call(stage.locks.work, "workflow:1")
    assert (view.state, view.tries) == ("offered", 0)


@pytest.mark.parametrize(
    ("how", "state"), [("complete", "completed"), ("release", "offered")], ids=["complete", "release"]
)
def test_what_was_ended_in_the_block_stays_as_it_is(stage: Stage, how: str, state: str) -> None:
    leave(stage, take(stage), body=how)
    assert states(stage) == {"workflow:1": state}
    with pytest.raises(ValueError, match="boom"):
        leave(stage, take(stage, "workflow:2"), ValueError("boom"), body=how)
    assert states(stage)["workflow:2"] == state


def test_lost_work_is_told_to_who_is_at_it_and_offered_again_at_once(stage: Stage) -> None:
    work = take(stage, ttl=600)
    eventually(lambda: is_reachable(stage.locks))
    stage.call(stage.client().break_lock, "workflow:1", reason="stuck", by="olga")
    eventually(work.lost.is_set)
    with pytest.raises(LeaseLost, match="broken by olga"):
        work.check()
    assert "lost: broken" in repr(work)
    assert until_state(stage, "workflow:1", "offered").tries == 1
    assert assigned_here(stage) == []
    assert "abandoned" in events(stage, "workflow:1")


def test_leaving_the_block_of_lost_work_raises_but_never_hides_an_error(stage: Stage) -> None:
    for error, expected in ((None, LeaseLost), (ValueError("mine"), ValueError)):
        work = take(stage)

        def lose(entered: Any, error: BaseException | None = error) -> None:
            stage.actor("other").call(stage.client().break_lock, "workflow:1", reason="stuck")
            entered.lost.wait(PATIENCE)
            if error is not None:
                raise error

        async def async_lose(entered: Any, error: BaseException | None = error) -> None:
            try:
                await stage.client().break_lock("workflow:1", reason="stuck")
                await entered.lost.wait()
                await eventually_cancelled()
            except BaseException:
                if error is not None:
                    raise error from None
                raise

        body = async_lose if stage.is_async else lose
        with pytest.raises(expected) as caught:
            begin_block(stage.actor("block"), work, body).result(PATIENCE)
        if error is not None:
            assert "is lost: broken" in caught.value.__notes__[0]
        until_state(stage, "workflow:1", "offered")


async def eventually_cancelled() -> None:
    import asyncio

    await asyncio.sleep(PATIENCE)


def test_a_lease_of_work_is_for_one_alone_and_ends_with_it(stage: Stage) -> None:
    work = take(stage)
    with pytest.raises(SettingsError, match="is work, which is for one at a time"):
        stage.call(work.lease.downgrade)
    with pytest.raises(SettingsError, match="cannot be ended inside a transaction"):
        stage.call(work.lease.release, within=object())


@pytest.mark.parametrize(
    ("arguments", "options", "error", "says"),
    [
        ([""], {}, InvalidKey, "is empty"),
        (["a", object()], {}, SettingsError, "the data of 'a' is no JSON"),
        (["a"], {"ttl": 0}, SettingsError, "ttl is 0"),
    ],
)
def test_what_cannot_be_assigned_says_why(
    stage: Stage, arguments: list[Any], options: dict[str, Any], error: type[Exception], says: str
) -> None:
    instance = stage.call(stage.locks.join)
    with pytest.raises(error, match=says):
        stage.call(instance.assign, *arguments, **options)


def test_what_is_no_json_ends_nothing(stage: Stage) -> None:
    work = take(stage)
    with pytest.raises(SettingsError, match="the result of 'workflow:1' is no JSON"):
        stage.call(work.complete, object())
    with pytest.raises(SettingsError, match="retry is -1"):
        stage.call(work.fail, "x", -1)
    stage.call(work.complete)


# Claiming.


def test_work_is_claimed_at_once_or_not_at_all(stage: Stage) -> None:
    instance = stage.call(stage.locks.join)
    assert stage.call(instance.claim, "workflow") == []
    stage.call(stage.locks.offer, {f"workflow:{n}": n for n in range(3)} | {"job:1": 7, "plain": 8})
    claimed = stage.call(instance.claim, "workflow", "job", limit=2)
    assert [work.data for work in claimed] == [0, 1]
    claimed += stage.call(instance.claim, "workflow", "job")
    assert [work.data for work in claimed] == [0, 1, 2, 7]
    assert [work.key for work in stage.call(instance.claim, "")] == ["plain"]
    assert len(instance.assignments) == 5


def test_no_more_is_claimed_or_assigned_than_an_instance_can_have(stage: Stage) -> None:
    stage.call(stage.locks.offer, [f"workflow:{n}" for n in range(5)])
    instance = stage.call(stage.locks.join, capacity=2)
    claimed = stage.call(instance.claim, "workflow")
    assert len(claimed) == 2
    assert stage.call(instance.claim, "workflow") == []
    with pytest.raises(AtCapacity, match="has 2 assignments, which is its capacity") as caught:
        stage.call(instance.assign, "workflow:4")
    assert (caught.value.id, caught.value.capacity) == (instance.id, 2)
    stage.call(claimed[0].complete)
    assert len(stage.call(instance.claim, "workflow")) == 1


def test_a_loop_is_given_work_as_it_comes(stage: Stage) -> None:
    """Nobody polls: without the signal it would be given in five seconds."""
    instance = stage.call(stage.locks.join)
    claims = instance.claims("workflow")
    spy = Spy(stage.locks)
    worker = stage.actor("worker")
    waiting = begin_next(worker, claims)
    eventually(lambda: spy.count(Claim) == 1)
    eventually(lambda: not instance._workload.asker)
    stage.call(stage.client().offer, {"workflow:1": 7})
    assert waiting.result(4).data == 7


def test_a_loop_goes_on_when_there_is_room_again(stage: Stage) -> None:
    stage.call(stage.locks.offer, [f"workflow:{n}" for n in range(3)])
    instance = stage.call(stage.locks.join, capacity=1)
    claims = instance.claims("workflow")
    seen = []
    work = next_of(stage.me, claims)
    for _ in range(2):
        waiting = begin_next(stage.actor("worker"), claims)
        seen.append(work.key)
        stage.call(work.complete)
        work = waiting.result(PATIENCE)
    assert seen == ["workflow:0", "workflow:1"]
    assert work.key == "workflow:2"


def test_a_loop_ends_after_some_time_without_work(stage: Stage) -> None:
    instance = stage.call(stage.locks.join, capacity=2)
    assert next_of(stage.me, instance.claims("workflow", timeout=0)) is None
    assert next_of(stage.me, instance.claims("workflow", timeout=0.1)) is None
    stage.call(stage.locks.offer, [f"workflow:{n}" for n in range(3)])
    claims = instance.claims("workflow", timeout=0)
    assert [next_of(stage.me, claims).key for _ in range(2)] == ["workflow:0", "workflow:1"]
    assert next_of(stage.me, claims) is None, "there is no room"


def test_what_was_claimed_ahead_goes_to_whoever_asks(stage: Stage) -> None:
    stage.call(stage.locks.offer, [f"workflow:{n}" for n in range(4)])
    instance = stage.call(stage.locks.join)
    spy = Spy(stage.locks)
    one, other = instance.claims("workflow"), instance.claims("workflow", "job")
    keys = [next_of(stage.me, each).key for each in (one, other, one, other)]
    assert keys == [f"workflow:{n}" for n in range(4)]
    assert spy.count(Claim) == 1


def test_what_was_claimed_ahead_and_nobody_wants_any_more_is_returned(stage: Stage) -> None:
    stage.call(stage.locks.offer, [f"workflow:{n}" for n in range(4)])
    instance = stage.call(stage.locks.join)
    claims = instance.claims("workflow")
    work = next_of(stage.me, claims)
    stage.call(claims.close)
    assert instance.assignments == (work,)
    assert Counter(states(stage).values()) == {"assigned": 1, "offered": 3}
    assert next_of(stage.me, claims) is None
    assert all(view.tries == 0 for view in works(stage, state="offered"))


def test_what_was_claimed_ahead_of_a_loop_that_was_left_is_returned(stage: Stage) -> None:
    stage.call(stage.locks.offer, [f"workflow:{n}" for n in range(4)])
    instance = stage.call(stage.locks.join)

    def first() -> str:
        for work in instance.claims("workflow"):
            return work.key
        raise AssertionError

    async def async_first() -> str:
        async for work in instance.claims("workflow"):
            return work.key
        raise AssertionError

    assert stage.call(async_first if stage.is_async else first) == "workflow:0"
    eventually(lambda: Counter(states(stage).values()) == {"assigned": 1, "offered": 3})
    assert len(instance.assignments) == 1


def test_a_batch_takes_no_more_than_it_says(stage: Stage) -> None:
    stage.call(stage.locks.offer, [f"workflow:{n}" for n in range(4)])
    instance = stage.call(stage.locks.join)
    next_of(stage.me, instance.claims("workflow", batch=1))
    assert len(instance.assignments) == 1


def test_loops_of_different_types_are_all_given_work_as_it_comes(stage: Stage) -> None:
    """A store remembers only what an instance asked for last: whoever asks does so for all who wait."""
    instance = stage.call(stage.locks.join)
    spy = Spy(stage.locks)
    waiting = {}
    for number, type in enumerate(("job", "workflow", "mail"), 1):
        waiting[type] = begin_next(stage.actor(type), instance.claims(type))
        eventually(lambda n=number: spy.count(Claim) >= n and not instance._workload.asker)
    for type, future in waiting.items():
        stage.call(stage.locks.offer, [f"{type}:1"])
        assert future.result(4).key == f"{type}:1"


def test_many_claim_at_once_and_nothing_is_claimed_twice(stage: Stage) -> None:
    keys = [f"workflow:{n:03}" for n in range(60)]
    clients = [stage.client() for _ in range(3)]
    instances = [stage.call(each.join, capacity=4) for each in clients]
    stage.call(stage.locks.offer, keys)
    seen: list[str] = []
    mutex = threading.Lock()

    def drain(instance: Any) -> None:
        for work in instance.claims("workflow", timeout=1.0):
            with work, mutex:
                seen.append(work.key)

    async def async_drain(instance: Any) -> None:
        async for work in instance.claims("workflow", timeout=1.0):
            async with work:
                seen.append(work.key)

    workers = [
        stage.actor(f"worker-{n}").start(async_drain if stage.is_async else drain, instance)
        for instance in instances
        for n in range(2)
    ]
    for each in workers:
        each.result(2 * PATIENCE)
    assert sorted(seen) == keys
    assert set(states(stage).values()) == {"completed"}


def test_who_is_fuller_leaves_fresh_work_to_others(stage: Stage) -> None:
    """For so long that it shows: an hour."""
    full = stage.call(stage.locks.join, capacity=2, spread=3600)
    free = stage.call(stage.client().join, capacity=2, spread=3600)
    # It knows that it is not alone since its last heartbeat.
    full._workload.member.living = free._workload.member.living = 2
    stage.call(full.assign, "workflow:0")
    stage.call(stage.locks.offer, ["workflow:1"])
    assert stage.call(full.claim, "workflow") == []
    assert [work.key for work in stage.call(free.claim, "workflow")] == ["workflow:1"]


def test_who_is_alone_leaves_nothing_to_others(stage: Stage) -> None:
    instance = stage.call(stage.locks.join, capacity=2, spread=3600)
    stage.call(instance.assign, "workflow:0")
    stage.call(stage.locks.offer, ["workflow:1"])
    assert len(stage.call(instance.claim, "workflow")) == 1


def test_work_that_is_delayed_is_given_when_its_time_has_come(stage: Stage) -> None:
    stage.call(stage.locks.offer, ["workflow:1"], delay=0.5)
    instance = stage.call(stage.locks.join)
    assert stage.call(instance.claim, "workflow") == []
    work = next_of(stage.me, instance.claims("workflow", timeout=PATIENCE))
    view = stage.call(stage.locks.work, "workflow:1")
    assert view.assigned_at >= view.offered_at + 0.5
    stage.call(work.complete)


@pytest.mark.parametrize(
    ("types", "options", "says"),
    [
        ([], {}, "say which types of work to claim"),
        ([7], {}, "7 is no type of work"),
        (list(map(str, range(101))), {}, "101 types of work are more than the 100 of one claim"),
        (["workflow:1"], {}, "'workflow:1' is no type of work: the type of 'workflow:123' is 'workflow'"),
        (["workflow"], {"limit": 0}, "limit is 0"),
        (["workflow"], {"batch": 0}, "batch is 0"),
        (["workflow"], {"timeout": -1}, "timeout is -1"),
    ],
)
def test_what_cannot_be_claimed_says_why(
    stage: Stage, types: list[Any], options: dict[str, Any], says: str
) -> None:
    instance = stage.call(stage.locks.join)
    claim = instance.claim if "limit" in options else instance.claims
    with pytest.raises(SettingsError, match=says):
        stage.call(claim, *types, **options)


def test_a_loop_tells_what_it_is_for(stage: Stage) -> None:
    instance = stage.call(stage.locks.join)
    assert "of 'workflow', 'job' by" in repr(instance.claims("workflow", "job"))
