"""Operations: one does it, the others learn what came of it, and a failure passes it on."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable
from typing import Any

import pytest

from holdfast import InvalidKey, LeaseLost, LockTimeout, NotHeld, OperationFailed, SettingsError
from holdfast.core.family import LARGEST_RESULT
from holdfast.core.requests import Acquire, Release
from holdfast.errors import StoreUnavailable
from tests.clients.support import PATIENCE, Spy, Stage, TaskActor, eventually


class Gate:
    """What somebody who does an operation waits for, in a thread or in a task."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._opened = threading.Event()
        self.reached = threading.Event()

    def pass_through(self) -> Any:
        self.reached.set()
        if self._stage.is_async:
            return asyncio.to_thread(self._opened.wait, PATIENCE)
        return self._opened.wait(PATIENCE)

    def open(self) -> None:
        self._opened.set()


def operate(
    stage: Stage, work: Callable[[Any], Any], *, locks: Any = None, key: str = "pull:model", **options: Any
) -> Callable[[], Any]:
    """Return what asks for an operation, does it if it has to, and returns it."""
    name, resource = key.split(":")
    client = locks or stage.locks

    def threaded() -> Any:
        with client.operation(name, resource, **options) as it:
            if it.todo:
                work(it)
        return it

    async def tasked() -> Any:
        async with client.operation(name, resource, **options) as it:
            if it.todo and inspect.isawaitable(doing := work(it)):
                await doing
        return it

    return tasked if stage.is_async else threaded


def never(_: Any) -> None:
    raise AssertionError("it was done twice")


def test_one_does_it_and_all_learn_the_result(stage: Stage) -> None:
    gate, elsewhere = Gate(stage), stage.client()
    spy = Spy(elsewhere)

    def pull(it: Any) -> Any:
        it.succeed({"path": "/models/7b", "parts": [1, 2]})
        return gate.pass_through()

    doer = stage.actor("doer").start(operate(stage, pull))
    assert gate.reached.wait(PATIENCE)
    waiting = [
        stage.actor(f"waiter-{n}").start(operate(stage, never, locks=elsewhere if n % 2 else None))
        for n in range(6)
    ]
    stage.until_waiting("pull:model", 6)
    gate.open()
    assert doer.result(PATIENCE).result == {"path": "/models/7b", "parts": [1, 2]}
    for each in waiting:
        it = each.result(PATIENCE)
        assert not it.todo
        assert it.result == {"path": "/models/7b", "parts": [1, 2]}
        assert it.failures == ()
    assert spy.count(Acquire) <= 3 * 4  # queued once, told once; nobody polls
    stage.nothing_left()


def test_who_comes_later_starts_anew(stage: Stage) -> None:
    done = []
    for _ in range(2):
        assert stage.call(operate(stage, lambda it: done.append(it.todo))).result is None
    assert done == [True, True]


def test_a_failure_passes_it_on_in_order_with_what_went_wrong(stage: Stage) -> None:
    gate = Gate(stage)
    seen: list[tuple[str, list[str]]] = []

    def first(it: Any) -> Any:
        seen.append(("first", [failure.error for failure in it.failures]))
        it.fail("no space left")
        return gate.pass_through()

    def second(it: Any) -> None:
        seen.append(("second", [failure.error for failure in it.failures]))
        raise OSError("no route to host")

    def third(it: Any) -> None:
        seen.append(("third", [failure.error for failure in it.failures]))
        it.succeed("there")

    doer = stage.actor("first").start(operate(stage, first))
    assert gate.reached.wait(PATIENCE)
    waiting = []
    for n, work in enumerate((second, third, never)):
        waiting.append(stage.actor(f"waiter-{n}").start(operate(stage, work)))
        stage.until_waiting("pull:model", n + 1)
    gate.open()
    doer.result(PATIENCE)
    with pytest.raises(OSError, match="no route to host"):
        waiting[0].result(PATIENCE)
    assert waiting[1].result(PATIENCE).todo
    assert waiting[2].result(PATIENCE).result == "there"
    assert seen == [
        ("first", []),
        ("second", ["no space left"]),
        ("third", ["no space left", "OSError: no route to host"]),
    ]


def test_after_max_attempts_everybody_gives_up(stage: Stage) -> None:
    gate = Gate(stage)

    def fail(it: Any) -> Any:
        if not it.failures:
            it.fail("first")
            return gate.pass_through()
        raise ValueError("second")

    doer = stage.actor("first").start(operate(stage, fail, max_attempts=2))
    assert gate.reached.wait(PATIENCE)
    waiting = []
    for n in range(3):
        waiting.append(stage.actor(f"waiter-{n}").start(operate(stage, fail, max_attempts=2)))
        stage.until_waiting("pull:model", n + 1)
    gate.open()
    doer.result(PATIENCE)
    with pytest.raises(ValueError, match="second"):
        waiting[0].result(PATIENCE)
    for each in waiting[1:]:
        with pytest.raises(OperationFailed) as caught:
            each.result(PATIENCE)
        assert [failure.error for failure in caught.value.failures] == ["first", "ValueError: second"]
    assert stage.call(operate(stage, lambda it: it.succeed(it.failures == ()))).result is True
    stage.nothing_left()


def test_a_doer_that_is_broken_learns_it_and_the_next_one_does_it(stage: Stage) -> None:
    gate = Gate(stage)
    doer = stage.actor("first").start(operate(stage, lambda _: gate.pass_through()))
    assert gate.reached.wait(PATIENCE)
    waiter = stage.actor("second").start(operate(stage, lambda it: it.succeed(it.failures[0].error)))
    stage.until_waiting("pull:model", 1)
    stage.call(stage.locks.break_lock, "pull:model", reason="stuck", by="olga")
    assert waiter.result(PATIENCE).result == "broken by olga: stuck"
    gate.open()
    with pytest.raises(LeaseLost, match="broken"):
        doer.result(PATIENCE)
    stage.nothing_left()


def test_the_same_owner_asking_again_is_to_do_it_still(stage: Stage) -> None:
    """It never waits for itself, and only the outer block tells how it ended."""

    def inner(it: Any) -> None:
        it.succeed("inner")

    def outer(it: Any) -> Any:
        it.succeed("outer")
        return operate(stage, inner)()

    assert stage.call(operate(stage, outer)).result == "outer"
    stage.nothing_left()


@pytest.mark.parametrize("flaky", [False, True])
def test_of_two_with_the_same_owner_the_last_to_leave_says_how_it_ended(stage: Stage, flaky: bool) -> None:
    """Who entered first and leaves first cannot say it: the other is still at it."""
    first_gate, second_gate = Gate(stage), Gate(stage)
    spy = Spy(stage.locks)

    def by(gate: Gate, result: str) -> Any:
        def work(it: Any) -> Any:
            it.succeed(result)
            return gate.pass_through()

        return operate(stage, work, owner="node-1")

    first = stage.actor("first").start(by(first_gate, "first"))
    assert first_gate.reached.wait(PATIENCE)
    second = stage.actor("second").start(by(second_gate, "second"))
    assert second_gate.reached.wait(PATIENCE)
    waiter = stage.actor("waiter").start(operate(stage, never))
    stage.until_waiting("pull:model", 1)
    if flaky:
        failures = iter([StoreUnavailable("down")])
        spy.fault = lambda request: (
            next(failures, None) if isinstance(request, Release) and request.outcome is None else None
        )
    first_gate.open()
    with pytest.raises(NotHeld, match="the last to leave ends it"):
        first.result(PATIENCE)
    second_gate.open()
    assert second.result(PATIENCE).result == "second"
    assert waiter.result(PATIENCE).result == "second"
    stage.nothing_left()


def test_an_outcome_that_the_store_took_is_told_though_we_did_not_trust_the_lease_any_more(
    stage: Stage,
) -> None:
    gate = Gate(stage)

    def work(it: Any) -> Any:
        it.succeed("done")
        passing = gate.pass_through()
        if not stage.is_async:
            it.lease._holding.kept.lose("store unreachable")
            return None

        async def waiting() -> None:
            await passing
            it.lease._holding.kept.lose("store unreachable")

        return waiting()

    doer = stage.actor("doer").start(operate(stage, work, ttl=60))
    assert gate.reached.wait(PATIENCE)
    waiter = stage.actor("waiter").start(operate(stage, never))
    stage.until_waiting("pull:model", 1)
    gate.open()
    assert doer.result(PATIENCE).result == "done"
    assert waiter.result(PATIENCE).result == "done"
    stage.nothing_left()


def test_a_doer_that_loses_its_trust_in_the_middle_has_failed_and_learns_it(stage: Stage) -> None:
    gate = Gate(stage)

    def work(it: Any) -> Any:
        it.succeed("done")
        passing = gate.pass_through()

        def lose() -> None:
            it.lease._holding.kept.lose("store unreachable")
            stage.locks._engine.keeper.tell(it.lease._holding.kept)

        if not stage.is_async:
            lose()
            it.lease.check()

        async def waiting() -> None:
            await passing
            lose()
            await asyncio.sleep(PATIENCE)

        return waiting()

    doer = stage.actor("doer").start(operate(stage, work, ttl=60))
    assert gate.reached.wait(PATIENCE)
    waiter = stage.actor("waiter").start(operate(stage, lambda it: it.succeed(it.failures[0].error)))
    stage.until_waiting("pull:model", 1)
    gate.open()
    with pytest.raises(LeaseLost, match="store unreachable"):
        doer.result(PATIENCE)
    assert "is lost: store unreachable" in waiter.result(PATIENCE).result
    stage.nothing_left()


def test_each_type_of_operation_has_its_own_queue(stage: Stage) -> None:
    gate = Gate(stage)
    doer = stage.actor("puller").start(operate(stage, lambda _: gate.pass_through()))
    assert gate.reached.wait(PATIENCE)
    assert stage.call(operate(stage, lambda it: it.succeed("gone"), key="delete:model")).result == "gone"
    gate.open()
    doer.result(PATIENCE)


def test_types_can_exclude_each_other(stage: Stage) -> None:
    gate = Gate(stage)
    doer = stage.actor("puller").start(operate(stage, lambda _: gate.pass_through(), exclusive=True))
    assert gate.reached.wait(PATIENCE)
    deleter = stage.actor("deleter")
    with pytest.raises(LockTimeout):
        deleter.call(operate(stage, never, key="delete:model", exclusive=True, timeout=0.05))
    deleting = deleter.start(operate(stage, lambda it: it.succeed(1), key="delete:model", exclusive=True))
    stage.until_waiting("operation::model", 1)
    gate.open()
    doer.result(PATIENCE)
    assert deleting.result(PATIENCE).result == 1
    stage.nothing_left()


def test_an_operation_may_be_named_like_the_lock_that_they_share(stage: Stage) -> None:
    doing = operate(stage, lambda it: it.succeed(1), key="operation:model", exclusive=True)
    assert stage.call(doing).result == 1
    stage.nothing_left()


def test_a_resource_that_is_too_long_for_the_shared_lock_is_refused_before_anything_is_granted(
    stage: Stage,
) -> None:
    resource = "x" * 250
    assert stage.call(operate(stage, lambda it: it.succeed(1), key=f"p:{resource}")).result == 1
    spy = Spy(stage.locks)
    with pytest.raises(InvalidKey):
        stage.locks.operation("p", resource, exclusive=True)
    with pytest.raises(InvalidKey):
        stage.call(stage.locks.run_once, f"p:{resource}", lambda: never(None), exclusive=True)
    assert spy.count(Acquire) == 0


def test_losing_the_shared_lock_does_not_hide_what_the_body_raised(stage: Stage) -> None:
    def work(it: Any) -> None:
        companion = it._companion if stage.is_async else it._companion._lease
        companion._holding.kept.lose("expired")
        raise OSError("no space left")

    with pytest.raises(OSError, match="no space left") as caught:
        stage.call(operate(stage, work, exclusive=True))
    assert "'operation::model'" in caught.value.__notes__[0]
    stage.nothing_left()


def test_who_loses_it_while_waiting_for_the_shared_lock_does_not_begin(stage: Stage) -> None:
    blocker = stage.actor("blocker")
    lease = blocker.call(stage.locks.acquire, "operation::model")
    doing = stage.actor("doer").start(operate(stage, never, exclusive=True))
    stage.until_waiting("operation::model", 1)
    stage.call(stage.locks.break_lock, "pull:model", reason="stuck")
    eventually(
        lambda: [kept.grant.key for kept in stage.locks._engine.keeper.kept()] in ([], ["operation::model"])
    )
    blocker.call(lease.release)
    with pytest.raises(LeaseLost, match="broken"):
        doing.result(PATIENCE)
    stage.nothing_left()


def test_who_does_not_want_to_wait_is_told_who_does_it(stage: Stage) -> None:
    gate = Gate(stage)
    doer = stage.actor("doer").start(operate(stage, lambda _: gate.pass_through()))
    assert gate.reached.wait(PATIENCE)
    with pytest.raises(LockTimeout, match="is held by"):
        stage.call(operate(stage, never, timeout=0))
    gate.open()
    doer.result(PATIENCE)
    stage.nothing_left()


@pytest.mark.parametrize("result", ["x" * LARGEST_RESULT, object(), float("nan")])
def test_a_result_that_cannot_be_passed_on_is_refused_where_it_is_given(stage: Stage, result: object) -> None:
    def work(it: Any) -> None:
        with pytest.raises(SettingsError, match="pass on where it is"):
            it.succeed(result)
        it.succeed("x" * (LARGEST_RESULT - 2))

    assert len(stage.call(operate(stage, work)).result) == LARGEST_RESULT - 2


def test_what_cannot_be_said_yet_or_any_more(stage: Stage) -> None:
    it = stage.locks.operation("pull", "model")
    assert "not entered" in repr(it)
    with pytest.raises(SettingsError, match="enter the operation"):
        it.succeed()
    gate = Gate(stage)
    doer = stage.actor("doer").start(operate(stage, lambda _: gate.pass_through()))
    assert gate.reached.wait(PATIENCE)
    waiter = stage.actor("waiter").start(operate(stage, never))
    stage.until_waiting("pull:model", 1)
    gate.open()
    told = waiter.result(PATIENCE)
    with pytest.raises(NotHeld, match="done by somebody else"):
        told.fail("too late")
    assert "done" in repr(told)
    doer.result(PATIENCE)


def test_run_once_does_it_once_for_all(stage: Stage) -> None:
    gate = Gate(stage)
    there: list[str] = []

    def threaded() -> str:
        gate.pass_through()
        there.append("model")
        return "/models/7b"

    async def tasked() -> str:
        await gate.pass_through()
        there.append("model")
        return "/models/7b"

    do = tasked if stage.is_async else threaded
    asking = [
        stage.actor(f"node-{n}").start(stage.locks.run_once, "pull:model", do, ready=lambda: there)
        for n in range(5)
    ]
    stage.until_waiting("pull:model", 4)
    gate.open()
    assert [each.result(PATIENCE) for each in asking] == ["/models/7b"] * 5
    assert there == ["model"]
    assert stage.call(stage.locks.run_once, "pull:model", do, ready=lambda: there) is None
    assert there == ["model"]
    stage.nothing_left()


def test_run_once_looks_again_once_it_is_granted(stage: Stage) -> None:
    """Somebody may have finished it between the first look and the grant."""
    looks = iter((False, True))
    assert (
        stage.call(stage.locks.run_once, "pull:model", lambda: never(None), ready=lambda: next(looks)) is None
    )


def test_run_once_does_it_anew_if_it_is_gone_again(stage: Stage) -> None:
    gate = Gate(stage)
    doer = stage.actor("doer").start(operate(stage, lambda _: gate.pass_through()))
    assert gate.reached.wait(PATIENCE)
    asking = stage.actor("node").start(
        stage.locks.run_once, "pull:model", lambda: "anew", ready=lambda: False, timeout=PATIENCE
    )
    stage.until_waiting("pull:model", 1)
    gate.open()
    doer.result(PATIENCE)
    assert asking.result(PATIENCE) == "anew"


def test_run_once_passes_an_exception_through_and_the_work_on(stage: Stage) -> None:
    def fail() -> None:
        raise OSError("no space left")

    with pytest.raises(OSError, match="no space left"):
        stage.call(stage.locks.run_once, "pull:model", fail)
    assert stage.call(stage.locks.run_once, "pull:model", lambda: "done") == "done"


class Moody(dict[str, int]):
    def items(self) -> Any:
        raise OSError("not today")


@pytest.mark.parametrize("result", ["x" * LARGEST_RESULT, {1, 2}, Moody(a=1)])
def test_run_once_has_done_it_even_if_the_result_cannot_be_passed_on(stage: Stage, result: object) -> None:
    """The work was done. Nobody is to repeat it for what it returned."""
    gate = Gate(stage)
    done: list[int] = []

    def threaded() -> Any:
        gate.pass_through()
        done.append(1)
        return result

    async def tasked() -> Any:
        await gate.pass_through()
        done.append(1)
        return result

    do = tasked if stage.is_async else threaded
    doer = stage.actor("doer").start(stage.locks.run_once, "charge:1", do)
    assert gate.reached.wait(PATIENCE)
    waiting = [stage.actor(f"node-{n}").start(stage.locks.run_once, "charge:1", do) for n in range(2)]
    stage.until_waiting("charge:1", 2)
    gate.open()
    with pytest.raises(SettingsError, match="pass on where it is"):
        doer.result(PATIENCE)
    assert [each.result(PATIENCE) for each in waiting] == [None, None]
    assert done == [1]
    stage.nothing_left()


def test_a_doer_that_is_interrupted_or_cancelled_hands_it_on(stage: Stage) -> None:
    gate = Gate(stage)

    def work(_: Any) -> Any:
        waiting = gate.pass_through()
        if stage.is_async:
            return waiting
        raise KeyboardInterrupt

    doer = stage.actor("doer")
    doing = doer.start(operate(stage, work))
    assert gate.reached.wait(PATIENCE)
    waiter = stage.actor("waiter").start(operate(stage, lambda it: it.succeed(it.failures[0].error)))
    stage.until_waiting("pull:model", 1)
    if isinstance(doer, TaskActor):
        doer.task.get_loop().call_soon_threadsafe(doer.task.cancel)
    else:
        gate.open()
    reason = asyncio.CancelledError if stage.is_async else KeyboardInterrupt
    assert waiter.result(PATIENCE).result == reason.__name__
    with pytest.raises(reason):
        doing.result(PATIENCE)
    gate.open()


def test_a_plain_waiter_in_the_same_queue_gets_the_lock_when_the_operation_is_over(stage: Stage) -> None:
    gate = Gate(stage)
    doer = stage.actor("doer").start(operate(stage, lambda _: gate.pass_through()))
    assert gate.reached.wait(PATIENCE)
    plain = stage.actor("plain")
    waiting = plain.start(stage.locks.acquire, "pull:model")
    stage.until_waiting("pull:model", 1)
    gate.open()
    doer.result(PATIENCE)
    plain.call(waiting.result(PATIENCE).release)
    stage.nothing_left()
