# ruff: noqa: ASYNC110, PT012
"""Several keys at once: in order, all or nothing, within one deadline, and without deadlocks."""

from __future__ import annotations

import asyncio
import itertools
import random
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast import (
    AsyncHoldfast,
    DeadlockDetected,
    Holdfast,
    InvalidKey,
    LeaseLost,
    LockTimeout,
    SettingsError,
    StoreCorrupt,
)
from holdfast.core.requests import Acquire, Release, Withdraw
from tests.clients.support import PATIENCE, QUICK, Spy, Stage, eventually

_names = itertools.count()
Scenario = Callable[[AsyncHoldfast], Awaitable[None]]


@pytest.fixture(params=["memory", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Nothing here is a store's own: two will do."""
    return (
        f"memory://several-{next(_names)}" if request.param == "memory" else f"sqlite:///{tmp_path}/locks.db"
    )


def use(stage: Stage, hold: Any, body: Callable[[Any], Any] = repr) -> Callable[[], Any]:
    """Return what an actor can call: the block, with a body that does not wait."""

    def block() -> Any:
        with hold as leases:
            return body(leases)

    async def async_block() -> Any:
        async with hold as leases:
            return body(leases)

    return async_block if stage.is_async else block


def play(url: str, scenario: Scenario) -> None:
    """Play a scenario for tasks; nothing may be left held or waiting after it."""

    async def run() -> None:
        async with AsyncHoldfast(url, settings=QUICK) as locks:
            await asyncio.wait_for(scenario(locks), PATIENCE)
            async for view in locks.list():
                assert view.state == "free", view
                assert view.waiting == 0, view
            task = asyncio.current_task()
            assert task is not None
            assert task.cancelling() == 0
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(run())


async def until_waiting(locks: AsyncHoldfast, key: str) -> None:
    while (view := await locks.inspect(key)) is None or not view.waiting:
        await asyncio.sleep(0.001)


def lose(locks: AsyncHoldfast, lease: Any) -> None:
    """Lose a lease as its keeper would find it lost. Its body is cancelled when it next waits."""
    lease._holding.kept.lose("expired")
    locks._engine.keeper.tell(lease._holding.kept)


def asked_for(spy: Spy, kind: type) -> list[str]:
    return [request.key for request in spy.seen if isinstance(request, kind)]  # type: ignore[attr-defined]


# Taking them.


def test_keys_are_taken_in_order_and_released_in_reverse(stage: Stage) -> None:
    spy = Spy(stage.locks)
    stage.call(use(stage, stage.locks.hold_all(["c", "a", "b"])))
    assert asked_for(spy, Acquire) == ["a", "b", "c"]
    assert asked_for(spy, Release) == ["c", "b", "a"]
    stage.nothing_left()


def test_a_key_that_is_named_twice_is_taken_once(stage: Stage) -> None:
    spy = Spy(stage.locks)
    stage.call(use(stage, stage.locks.hold_all(iter(["b", "a", "b"]), limit=1)))
    assert asked_for(spy, Acquire) == ["a", "b"]


def test_the_leases_are_a_mapping_in_the_order_of_the_keys(stage: Stage) -> None:
    def look(leases: Any) -> None:
        assert list(leases) == ["a", "b", "c"]
        assert len(leases) == 3
        assert "b" in leases
        assert "d" not in leases
        assert leases["b"].key == "b"
        assert leases.tokens == {key: lease.token for key, lease in leases.items()}
        assert len(set(leases.tokens)) == 3
        assert leases.held
        assert leases.remaining == pytest.approx(min(each.remaining for each in leases.values()), abs=1.0)
        leases.check()
        assert "<Leases <" in repr(leases)

    hold = stage.locks.hold_all(["c", "a", "b"], ttl=60)
    assert "not entered" in repr(hold)
    stage.call(use(stage, hold, look))
    assert not hold._leases.held
    assert hold._leases.remaining == 0.0


def test_an_owner_enters_again_what_it_has(stage: Stage) -> None:
    tokens = stage.call(
        use(stage, stage.locks.hold_all(["a", "b"], owner="me"), lambda leases: leases.tokens)
    )
    inner = stage.locks.hold_all(["b", "c"], owner="me", timeout=0)
    outer = stage.locks.hold_all(["a", "b"], owner="me", timeout=0)
    enter = "__aenter__" if stage.is_async else "__enter__"
    leave = "__aexit__" if stage.is_async else "__exit__"
    first = stage.call(getattr(outer, enter))
    second = stage.call(getattr(inner, enter))
    assert first["b"].token == second["b"].token > tokens["b"]
    stage.call(getattr(inner, leave), None, None, None)
    first.check()
    assert stage.state("c") == "free"
    stage.call(getattr(outer, leave), None, None, None)
    stage.nothing_left()


def test_every_key_has_its_ordinary_queue(stage: Stage) -> None:
    """Whoever came before us for the second key is served before us."""
    holder = stage.call(stage.locks.acquire, "b")
    first = stage.actor("first").start(stage.locks.acquire, "b")
    stage.until_waiting("b", 1)
    second = stage.actor("second").start(
        use(stage, stage.locks.hold_all(["a", "b"]), lambda leases: leases.tokens)
    )
    stage.until_waiting("b", 2)
    stage.call(holder.release)
    lease = first.result(PATIENCE)
    assert not second.done()
    stage._actors[1].call(lease.release)
    assert second.result(PATIENCE)["b"] > lease.token
    stage.nothing_left()


# All or nothing.


def test_a_key_that_is_not_free_gives_the_others_back(stage: Stage) -> None:
    _lease = stage.call(stage.locks.acquire, "b", owner="somebody else")
    with pytest.raises(LockTimeout) as caught:
        stage.call(use(stage, stage.locks.hold_all(["a", "b", "c"], timeout=0)))
    assert caught.value.key == "b"
    assert caught.value.waited == 0.0
    assert caught.value.holder is not None
    assert caught.value.holder.owner == "somebody else"
    assert stage.state("a") == stage.state("c") == "free"


def test_the_timeout_is_one_deadline_for_all(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first key takes most of the time, the second the rest: what is told is the time waited for both."""
    _lease = stage.call(stage.locks.acquire, "b", owner="somebody else")
    hold = stage.locks.hold_all(["a", "b"], timeout=PATIENCE)
    waits = iter([0.0, PATIENCE - 0.1, PATIENCE])
    monkeypatch.setattr(hold, "_waited", lambda: next(waits))
    with pytest.raises(LockTimeout) as caught:
        stage.call(use(stage, hold))
    assert caught.value.key == "b"
    assert caught.value.waited == PATIENCE
    assert caught.value.position == 1
    assert f"gave up after {PATIENCE:.1f} s" in str(caught.value)
    assert stage.state("a") == "free"
    assert stage.waiting("b") == 0


def test_with_no_time_left_the_rest_is_tried_once(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    spy = Spy(stage.locks)
    hold = stage.locks.hold_all(["a", "b"], timeout=5)
    waits = iter([0.0, 6.0])
    monkeypatch.setattr(hold, "_waited", lambda: next(waits))
    stage.call(use(stage, hold))
    assert [request.wait for request in spy.seen if isinstance(request, Acquire)] == [True, False]


@pytest.mark.parametrize("kind", [StoreCorrupt, OSError])
def test_an_error_gives_back_what_was_taken(stage: Stage, kind: type[Exception]) -> None:
    spy = Spy(stage.locks)
    spy.fault = lambda request: (
        kind("bad page") if isinstance(request, Acquire) and request.key == "c" else None
    )
    with pytest.raises(kind, match="bad page"):
        stage.call(use(stage, stage.locks.hold_all(["a", "b", "c"])))
    assert asked_for(spy, Release) == ["b", "a"]
    stage.nothing_left()


def test_what_is_lost_while_we_wait_for_the_next_is_told_on_entering(stage: Stage) -> None:
    """A body must not begin without all of its locks."""
    holder = stage.call(stage.locks.acquire, "b", owner="somebody else")
    entered: list[Any] = []
    hold = stage.locks.hold_all(["a", "b"])
    waiter = stage.actor("waiter").start(use(stage, hold, entered.append))
    stage.until_waiting("b", 1)
    stage.call(stage.locks.break_lock, "a", reason="stuck", by="olga")
    eventually(lambda: not hold._taken["a"].held)
    stage.call(holder.release)
    with pytest.raises(LeaseLost, match="broken by olga") as caught:
        waiter.result(PATIENCE)
    assert caught.value.key == "a"
    assert not entered
    stage.nothing_left()


# Leaving.


def test_a_lease_that_was_lost_is_told_after_the_others_were_released(url: str) -> None:
    with Holdfast(url, settings=QUICK) as locks:
        with pytest.raises(LeaseLost) as caught, locks.hold_all(["a", "b", "c"]) as leases:
            locks.break_lock("b", reason="stuck", by="olga")
            eventually(lambda: not leases.held)
            assert leases.remaining == 0.0
            with pytest.raises(LeaseLost) as checked:
                leases.check()
            assert checked.value.key == "b"
        assert caught.value.key == "b"
        assert {view.state for view in locks.list()} == {"free"}


def test_of_several_that_were_lost_the_first_is_raised(url: str) -> None:
    with Holdfast(url, settings=QUICK) as locks:
        with pytest.raises(LeaseLost) as caught, locks.hold_all(["a", "b", "c"]):
            locks.break_lock("c", reason="stuck", by="olga")
            locks.break_lock("b", reason="stuck", by="olga")
        assert caught.value.key == "b"
        assert "lease of 'c'" in caught.value.__notes__[0]


def test_a_loss_is_worse_than_a_release_that_failed(url: str) -> None:
    with Holdfast(url, settings=QUICK) as locks:
        spy = Spy(locks)
        with pytest.raises(LeaseLost) as caught, locks.hold_all(["a", "b"]):
            locks.break_lock("a", reason="stuck", by="olga")
            spy.fault = lambda request: (
                StoreCorrupt("bad page") if isinstance(request, Release) and request.key == "b" else None
            )
        assert caught.value.key == "a"
        assert "bad page" in caught.value.__notes__[0]


def test_the_error_of_the_body_is_not_hidden(stage: Stage) -> None:
    def fail(leases: Any) -> None:
        leases["a"]._holding.kept.lose("expired")
        raise KeyError("mine")

    with pytest.raises(KeyError) as caught:
        stage.call(use(stage, stage.locks.hold_all(["a", "b"]), fail))
    assert "lease of 'a'" in caught.value.__notes__[0]
    stage.nothing_left()


def test_a_block_is_entered_once(stage: Stage) -> None:
    hold = stage.locks.hold_all(["a", "b"])
    stage.call(use(stage, hold))
    with pytest.raises(SettingsError, match="entered before"):
        stage.call(use(stage, hold))


# Interrupts.


def test_ctrl_c_while_taking_gives_back_what_was_taken(url: str) -> None:
    with Holdfast(url, settings=QUICK) as locks:
        spy = Spy(locks)
        spy.fault = lambda request: (
            KeyboardInterrupt() if isinstance(request, Acquire) and request.key == "c" else None
        )
        with pytest.raises(KeyboardInterrupt), locks.hold_all(["a", "b", "c"]):
            raise AssertionError("entered")
        assert asked_for(spy, Release) == ["b", "a"]
        assert "c" in asked_for(spy, Withdraw)
        assert {view.state for view in locks.list()} == {"free"}
        assert not locks._engine.keeper.kept()


def test_ctrl_c_while_releasing_releases_the_others_too(url: str) -> None:
    with Holdfast(url, settings=QUICK) as locks:
        spy = Spy(locks)
        interrupts = iter([KeyboardInterrupt()])
        with pytest.raises(KeyboardInterrupt), locks.hold_all(["a", "b", "c"]):
            spy.fault = lambda request: (
                next(interrupts, None) if isinstance(request, Release) and request.key == "b" else None
            )
        assert {view.state for view in locks.list()} == {"free"}
        assert not locks._engine.keeper.kept()


def test_a_task_that_is_cancelled_while_it_waits_gives_back_what_it_took(url: str) -> None:
    async def scenario(locks: AsyncHoldfast) -> None:
        holder = await locks.acquire("c")

        async def work() -> None:
            async with locks.hold_all(["a", "b", "c"]):
                raise AssertionError("entered")

        task = asyncio.create_task(work())
        await until_waiting(locks, "c")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await holder.release()

    play(url, scenario)


def test_a_task_that_is_cancelled_in_the_block_or_while_leaving_it_releases_all(url: str) -> None:
    async def scenario(locks: AsyncHoldfast) -> None:
        async def work() -> None:
            async with locks.hold_all(["a", "b", "c"]):
                inside.set()
                await asyncio.sleep(pause)

        for pause, steps in itertools.product((0, PATIENCE), range(12)):
            inside = asyncio.Event()
            task = asyncio.create_task(work())
            await inside.wait()
            for _ in range(steps):
                await asyncio.sleep(0)
            task.cancel()
            if pause:
                with pytest.raises(asyncio.CancelledError):
                    await task
            else:
                await asyncio.wait([task])
            async for view in locks.list(state="held"):
                raise AssertionError(view)

    play(url, scenario)


def test_a_lost_lease_cancels_the_body(url: str) -> None:
    async def scenario(locks: AsyncHoldfast) -> None:
        for lost in ("a", "b", "c"):
            with pytest.raises(LeaseLost, match="broken by olga") as caught:
                async with locks.hold_all(["a", "b", "c"], ttl=60):
                    await locks.break_lock(lost, reason="stuck", by="olga")
                    await asyncio.sleep(PATIENCE)
            assert caught.value.key == lost

    play(url, scenario)


def test_two_lost_leases_cancel_the_body_and_are_told_as_a_loss(url: str) -> None:
    async def scenario(locks: AsyncHoldfast) -> None:
        with pytest.raises(LeaseLost):
            async with locks.hold_all(["a", "b", "c"], ttl=60) as leases:
                lose(locks, leases["a"])
                lose(locks, leases["c"])
                await asyncio.sleep(PATIENCE)

    play(url, scenario)


def test_a_loss_while_the_others_are_released_is_told_as_a_loss(url: str) -> None:
    """It cancels the release of another lease. That is no cancellation of ours to pass on."""

    async def scenario(locks: AsyncHoldfast) -> None:
        async def release_slowly() -> None:
            del leases["b"].release
            lose(locks, leases["a"])
            await asyncio.sleep(PATIENCE)

        with pytest.raises(LeaseLost) as caught:
            async with locks.hold_all(["a", "b"], ttl=60) as leases:
                leases["b"].release = release_slowly  # type: ignore[method-assign]
        assert caught.value.key == "a"
        await leases["b"].release()

        with pytest.raises(KeyError) as failed:
            async with locks.hold_all(["a", "b"], ttl=60) as leases:
                leases["b"].release = release_slowly  # type: ignore[method-assign]
                raise KeyError("mine")
        assert any("lease of 'a'" in note for note in failed.value.__notes__)
        await leases["b"].release()

    play(url, scenario)


def test_a_cancellation_from_outside_stays_one_when_a_lease_is_lost_too(url: str) -> None:
    async def scenario(locks: AsyncHoldfast) -> None:
        inside = asyncio.Event()

        async def work() -> None:
            async with locks.hold_all(["a", "b"], ttl=60) as leases:
                inside.set()
                try:
                    await asyncio.sleep(PATIENCE)
                finally:
                    lose(locks, leases["a"])
                    await asyncio.sleep(PATIENCE)

        task = asyncio.create_task(work())
        await inside.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    play(url, scenario)


# Bad input.


def test_there_must_be_keys(stage: Stage) -> None:
    with pytest.raises(SettingsError, match="no keys"):
        stage.locks.hold_all([])


@pytest.mark.parametrize("keys", ["abc", b"abc", None, 7])
def test_keys_are_a_list(stage: Stage, keys: Any) -> None:
    with pytest.raises(SettingsError, match="list of keys"):
        stage.locks.hold_all(keys)


def test_what_is_wrong_is_told_before_anything_is_taken(stage: Stage) -> None:
    spy = Spy(stage.locks)
    with pytest.raises(InvalidKey):
        stage.locks.hold_all(["a", ""])
    with pytest.raises(InvalidKey):
        stage.locks.hold_all(["a", 7])
    with pytest.raises(TypeError, match="unknown option"):
        stage.locks.hold_all(["a"], timout=1)
    with pytest.raises(SettingsError, match="timeout"):
        stage.call(use(stage, stage.locks.hold_all(["a"], timeout=-1)))
    assert not spy.seen


# Deadlocks: none among those who take all at once, and the others are told.


def test_a_deadlock_with_somebody_who_nests_gives_back_what_was_taken(stage: Stage) -> None:
    outer = stage.call(stage.locks.acquire, "b", owner="me")
    waiter = stage.actor("waiter").start(
        use(stage, stage.locks.hold_all(["a", "b"]), lambda leases: leases.tokens)
    )
    stage.until_waiting("b", 1)
    with pytest.raises(DeadlockDetected) as caught:
        stage.call(use(stage, stage.locks.hold_all(["0", "a"], owner="me")))
    assert caught.value.key == "a"
    assert stage.state("0") == "free"
    stage.call(outer.release)
    assert waiter.result(PATIENCE)["b"] > outer.token
    stage.nothing_left()


KEYS = ["a", "b", "c", "d"]
ROUNDS = 25


def test_threads_that_name_them_in_any_order_do_not_deadlock(url: str) -> None:
    counts = dict.fromkeys(KEYS, 0)
    expected = dict.fromkeys(KEYS, 0)
    mutex = threading.Lock()

    def work(locks: Holdfast, seed: int) -> None:
        dice = random.Random(seed)
        for _ in range(ROUNDS):
            some = dice.sample(KEYS, dice.randint(1, len(KEYS)))
            with locks.hold_all(some, timeout=PATIENCE):
                before = {key: counts[key] for key in some}
                threading.Event().wait(dice.random() / 1000)
                counts.update({key: before[key] + 1 for key in some})
            with mutex:
                for key in some:
                    expected[key] += 1

    with Holdfast(url, settings=QUICK) as locks:
        threads = [threading.Thread(target=work, args=(locks, seed)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert {view.state for view in locks.list()} == {"free"}
    assert sum(expected.values()) >= 4 * ROUNDS
    assert counts == expected


def test_tasks_that_name_them_in_any_order_do_not_deadlock(url: str) -> None:
    counts = dict.fromkeys(KEYS, 0)
    expected = dict.fromkeys(KEYS, 0)

    async def scenario(locks: AsyncHoldfast) -> None:
        async def work(seed: int) -> None:
            dice = random.Random(seed)
            for _ in range(ROUNDS):
                some = dice.sample(KEYS, dice.randint(1, len(KEYS)))
                async with locks.hold_all(some, timeout=PATIENCE):
                    before = {key: counts[key] for key in some}
                    await asyncio.sleep(dice.random() / 1000)
                    counts.update({key: before[key] + 1 for key in some})
                for key in some:
                    expected[key] += 1

        await asyncio.gather(*map(work, range(4)))

    play(url, scenario)
    assert sum(expected.values()) >= 4 * ROUNDS
    assert counts == expected
