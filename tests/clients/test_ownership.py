"""Whose a lease is: of the code inside its block, and of everybody who has the object. Not of a thread."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import os
import sys
import threading
import warnings
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager, suppress
from multiprocessing.pool import ThreadPool
from typing import Any

import pytest

import holdfast
from holdfast import (
    AsyncHoldfast,
    DeadlockDetected,
    Holdfast,
    LeaseLost,
    LockTimeout,
    NotHeld,
    SettingsError,
    StoreUnavailable,
)
from holdfast.core.data import replace
from holdfast.core.requests import Release
from tests.clients.support import PATIENCE, QUICK, Spy, Stage, eventually


@pytest.fixture
def locks() -> Iterator[Holdfast]:
    with Holdfast("memory://", settings=QUICK) as locks:
        yield locks
        assert not list(locks.list(state="held"))


def is_inside(locks: Holdfast, key: str = "k") -> bool:
    """Tell whether the code that asks may enter again."""
    lease = locks.try_acquire(key)
    if lease is not None:
        lease.release()
    return lease is not None


async def is_inside_too(locks: AsyncHoldfast, key: str = "k") -> bool:
    lease = await locks.try_acquire(key)
    if lease is not None:
        await lease.release()
    return lease is not None


# The object is the proof.


def test_anybody_who_has_a_lease_may_check_and_release_it(stage: Stage) -> None:
    lease = stage.call(stage.locks.acquire, "k")
    stranger = stage.actor("stranger")
    stranger.call(lambda: lease.check())
    stranger.call(lease.release)
    assert stage.state("k") == "free"
    with pytest.raises(NotHeld, match="released already"):
        stage.call(lease.release)


def test_anybody_who_has_a_lease_may_downgrade_it(stage: Stage) -> None:
    lease = stage.call(stage.locks.acquire, "k")
    stage.actor("stranger").call(lease.downgrade)
    assert lease.mode == "shared"
    stage.call(lease.release)


def test_a_block_may_be_left_by_another_thread_or_task(stage: Stage) -> None:
    hold = stage.locks.hold("k")
    lease = stage.call(hold.__aenter__ if stage.is_async else hold.__enter__)
    stage.actor("stranger").call(hold.__aexit__ if stage.is_async else hold.__exit__, None, None, None)
    assert not lease.held
    stage.nothing_left()


def test_a_task_that_has_ended_is_not_cancelled_when_its_block_is_lost() -> None:
    """As of a fixture: one task enters, another is at work inside, a third one leaves."""

    async def scenario() -> None:
        async with AsyncHoldfast("memory://", settings=QUICK) as locks:
            hold = locks.hold("k")
            lease = await asyncio.create_task(hold.__aenter__())
            await locks.break_lock("k", reason="stuck", by="olga")
            await asyncio.wait_for(lease.lost.wait(), PATIENCE)
            with pytest.raises(LeaseLost, match="broken by olga"):
                await asyncio.create_task(hold.__aexit__(None, None, None))

    asyncio.run(scenario())


# Inside.


@contextmanager
def from_a_generator(locks: Holdfast) -> Iterator[None]:
    with locks.hold("k"):
        yield


@contextmanager
def from_a_stack(locks: Holdfast) -> Iterator[None]:
    with ExitStack() as stack:
        for _ in range(2):
            stack.enter_context(locks.hold("k", timeout=0))
        yield


class OfTheirOwn:
    def __init__(self, locks: Holdfast) -> None:
        self._hold = locks.hold("k", timeout=0)

    def __enter__(self) -> None:
        self._hold.__enter__()

    def __exit__(self, *error: Any) -> None:
        self._hold.__exit__(*error)


@contextmanager
def from_an_operation(locks: Holdfast) -> Iterator[None]:
    with locks.operation("op", "1", exclusive=True), locks.hold("k"):
        yield


WAYS_IN: dict[str, Callable[[Holdfast], Any]] = {
    "a hold": lambda locks: locks.hold("k"),
    "a lease": lambda locks: locks.acquire("k"),
    "a lock": lambda locks: locks.lock("k"),
    "several": lambda locks: locks.hold_all(["j", "k"]),
    "a generator": from_a_generator,
    "an exit stack": from_a_stack,
    "a class of their own": OfTheirOwn,
    "an operation": from_an_operation,
}


@pytest.mark.parametrize("way", WAYS_IN)
def test_code_inside_a_block_enters_again_and_code_after_it_does_not(locks: Holdfast, way: str) -> None:
    with WAYS_IN[way](locks):
        (token,) = {view.token for view in locks.list("k")}
        assert is_inside(locks)
        with WAYS_IN[way](locks):
            assert {view.token for view in locks.list("k")} == {token}
        assert is_inside(locks)
    stranger = locks.acquire("k")
    assert not is_inside(locks)
    stranger.release()


def test_several_locks_that_are_entered_together_have_one_owner(locks: Holdfast) -> None:
    with locks.hold_all(["a", "b"]) as leases, locks.hold("c") as inner:
        assert {lease.owner for lease in leases.values()} == {inner.owner}


def test_a_guarded_function_is_inside(locks: Holdfast) -> None:
    @locks.guarded("k")
    def outer(depth: int) -> int:
        return 0 if depth == 0 else 1 + outer(depth - 1)

    assert outer(3) == 3


def test_an_operation_is_entered_again_from_inside(locks: Holdfast) -> None:
    with locks.operation("pull", "x", exclusive=True) as outer:
        (companion,) = locks.list("operation::")
        assert companion.holder is not None
        assert companion.holder.owner == outer.lease.owner
        with locks.operation("pull", "x", exclusive=True, timeout=0) as inner:
            assert outer.lease.token == inner.lease.token
    assert locks.run_once("pull:y", lambda: locks.run_once("pull:y", lambda: 7, timeout=0)) == 7


def test_a_generator_is_inside_its_own_block_wherever_it_goes_on(locks: Holdfast) -> None:
    def steps() -> Iterator[bool]:
        with locks.hold("k"):
            yield is_inside(locks)
            yield is_inside(locks)

    running = steps()

    def begin() -> bool:
        return next(running)

    assert begin()
    assert next(running)
    assert not is_inside(locks), "the function that began it has returned"
    running.close()


def test_code_inside_a_block_with_an_owner_is_not_that_owner(locks: Holdfast) -> None:
    """An owner that was given is for that lease: others may have the same name elsewhere."""
    with locks.hold("k", owner="worker-7"):
        assert not is_inside(locks)
        with locks.hold("j") as lease:
            assert lease.owner != "worker-7"


def test_an_inner_block_of_another_owner_does_not_hide_the_outer_one(locks: Holdfast) -> None:
    with locks.hold("k"), locks.hold("j", owner="worker-7"):
        assert is_inside(locks)


def test_taking_a_lock_without_a_block_makes_nothing_an_inside(locks: Holdfast) -> None:
    lease = locks.acquire("k")
    assert not is_inside(locks)
    lease.release()
    with locks.hold("j"):
        lease = locks.acquire("k")  # inside of another block it is that block's
        assert is_inside(locks)
        lease.release()


def test_a_lock_that_is_acquired_without_a_block_is_as_one_of_threading(locks: Holdfast) -> None:
    lock = locks.lock("k")
    lock.acquire()
    assert not lock.acquire(blocking=False)
    lock.release()


def test_a_deadlock_between_nested_blocks_is_found() -> None:
    with Holdfast("memory://one", settings=QUICK) as locks:
        found: list[DeadlockDetected] = []
        met = threading.Barrier(2)

        def nest(first: str, then: str) -> None:
            with suppress(DeadlockDetected), locks.hold(first):
                met.wait(PATIENCE)
                try:
                    with locks.hold(then, timeout=PATIENCE):
                        pass
                except DeadlockDetected as error:
                    found.append(error)
                    raise

        threads = [threading.Thread(target=nest, args=keys) for keys in (("a", "b"), ("b", "a"))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
        assert len(found) == 1


def test_who_waits_for_itself_is_told_where_it_took_the_lock(stage: Stage) -> None:
    lease = stage.call(stage.locks.acquire, "k")
    with pytest.raises(LockTimeout) as caught:
        stage.call(stage.locks.acquire, "k", timeout=0)
    (note,) = caught.value.__notes__
    assert "this same thread or task took 'k', at " in note
    assert "support.py" in note
    for options in ({"owner": "somebody"}, {}):
        with pytest.raises(LockTimeout) as caught:
            stage.actor("other").call(stage.locks.acquire, "k", timeout=0, **options)
        assert not hasattr(caught.value, "__notes__")
    stage.call(lease.release)


# Strangers in the same thread.


@contextmanager
def by_futures() -> Iterator[Any]:
    with ThreadPoolExecutor(1) as pool:
        yield lambda function, *args: pool.submit(function, *args).result(PATIENCE)


@contextmanager
def by_a_thread_pool() -> Iterator[Any]:
    with ThreadPool(1) as pool:  # its loop calls directly what it is given
        yield lambda function, *args: pool.apply(function, args)
    pool.join()


@contextmanager
def by_copies_of_the_context() -> Iterator[Any]:
    with by_futures() as run:
        yield lambda function, *args: run(contextvars.copy_context().run, function, *args)


@pytest.mark.parametrize("pool", [by_futures, by_a_thread_pool, by_copies_of_the_context])
def test_what_runs_later_in_the_same_thread_is_not_inside(locks: Holdfast, pool: Any) -> None:
    with pool() as run:
        hold = locks.hold("k")
        run(hold.__enter__)
        assert not run(is_inside, locks)
        assert run(locks.try_acquire, "k") is None
        hold.__exit__(None, None, None)  # in another thread
        assert run(is_inside, locks), "it is free"

        manager = from_a_generator(locks)
        run(manager.__enter__)
        assert run(locks.try_acquire, "k") is None
        with pytest.raises(LockTimeout):
            run(locks.hold("k", timeout=0).__enter__)
        run(manager.__exit__, None, None, None)

        lease = run(locks.acquire, "k")
        assert run(locks.try_acquire, "k") is None
        lease.release()


def test_what_was_entered_and_is_left_in_another_thread_is_over(locks: Holdfast) -> None:
    """The function that entered the block goes on: it is not inside any more."""
    hold = locks.hold("k")
    lease = hold.__enter__()
    assert is_inside(locks)
    with ThreadPoolExecutor(1) as pool:
        pool.submit(hold.__exit__, None, None, None).result(PATIENCE)
        stranger = locks.acquire("k", owner=lease.owner)
        assert not is_inside(locks), "the block was left"
        stranger.release()


def test_many_in_a_pool_that_enters_and_leaves_in_different_threads_never_meet(url: str) -> None:
    """As web frameworks do: each step of a request is run in whichever thread is free."""
    inside: list[int] = []
    met: list[Any] = []

    with Holdfast(url, settings=QUICK) as locks, ThreadPoolExecutor(16) as pool:

        async def request(number: int) -> None:
            loop = asyncio.get_running_loop()
            manager = from_a_generator(locks)
            await loop.run_in_executor(pool, manager.__enter__)
            inside.append(number)
            await asyncio.sleep(0)
            if inside != [number]:
                met.append(list(inside))
            inside.remove(number)
            await loop.run_in_executor(pool, manager.__exit__, None, None, None)

        async def main() -> None:
            waiting = asyncio.Semaphore(8)  # else threads that wait for the lock keep those from leaving it

            async def one(number: int) -> None:
                async with waiting:
                    await request(number)

            await asyncio.gather(*(one(number) for number in range(60)))

        asyncio.run(main())
        assert not met
        assert not list(locks.list(state="held"))


def test_a_thread_in_a_copy_of_the_context_is_not_inside(locks: Holdfast) -> None:
    with locks.hold("k"), ThreadPoolExecutor(1) as pool:
        assert not pool.submit(contextvars.copy_context().run, is_inside, locks).result(PATIENCE)
        assert contextvars.copy_context().run(is_inside, locks), "called from the block"


def test_a_context_that_was_copied_inside_and_runs_later_is_not_inside(locks: Holdfast) -> None:
    with locks.hold("k"):
        context = contextvars.copy_context()
    stranger = locks.acquire("k")
    assert not context.run(is_inside, locks)
    stranger.release()


def test_a_forked_child_is_not_inside(tmp_path: Any) -> None:
    with Holdfast(f"sqlite:///{tmp_path}/locks.db") as locks, holdfast.owner(), locks.hold("k"):
        child = os.fork()
        if child == 0:
            os._exit(0 if locks.try_acquire("k") is None else 7)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0


# Tasks.


@asynccontextmanager
async def from_an_async_generator(locks: AsyncHoldfast) -> AsyncIterator[None]:
    async with locks.hold("k"):
        yield


@asynccontextmanager
async def from_an_async_stack(locks: AsyncHoldfast) -> AsyncIterator[None]:
    async with AsyncExitStack() as stack:
        for _ in range(2):
            await stack.enter_async_context(locks.hold("k", timeout=0))
        yield


ASYNC_WAYS_IN: dict[str, Callable[[AsyncHoldfast], Any]] = {
    "a hold": lambda locks: locks.hold("k"),
    "a lock": lambda locks: locks.lock("k"),
    "several": lambda locks: locks.hold_all(["j", "k"]),
    "a generator": from_an_async_generator,
    "an exit stack": from_an_async_stack,
}


@pytest.mark.parametrize("way", ASYNC_WAYS_IN)
def test_a_task_enters_again_from_inside_and_its_children_do_not(way: str) -> None:
    async def scenario() -> None:
        async with AsyncHoldfast("memory://", settings=QUICK) as locks:

            async def go_on() -> bool:
                await asyncio.sleep(0)
                return await is_inside_too(locks)

            async with ASYNC_WAYS_IN[way](locks):
                assert await go_on()
                async with ASYNC_WAYS_IN[way](locks):
                    assert await go_on()
                assert not await asyncio.create_task(go_on())
            assert await go_on()

    asyncio.run(scenario())


def test_a_task_is_not_inside_what_another_one_entered_for_it() -> None:
    async def scenario() -> None:
        async with AsyncHoldfast("memory://", settings=QUICK) as locks:
            hold = locks.hold("k")
            await asyncio.create_task(hold.__aenter__())
            assert not await is_inside_too(locks)
            await hold.__aexit__(None, None, None)
            assert await is_inside_too(locks)

    asyncio.run(scenario())


def test_a_task_that_another_one_runs_from_its_block_is_not_inside() -> None:
    """As eager tasks are run: on the stack of their parent, in a copy of its context."""

    async def scenario() -> None:
        loop, parent = asyncio.get_running_loop(), asyncio.current_task()
        with Holdfast("memory://", settings=QUICK) as locks, locks.hold("k"):
            child = asyncio.create_task(asyncio.sleep(0))
            asyncio.tasks._leave_task(loop, parent)  # type: ignore[arg-type]
            asyncio.tasks._enter_task(loop, child)
            try:
                inside = contextvars.copy_context().run(is_inside, locks)
            finally:
                asyncio.tasks._leave_task(loop, child)
                asyncio.tasks._enter_task(loop, parent)  # type: ignore[arg-type]
            assert not inside
            assert is_inside(locks)
            await child

    asyncio.run(scenario())


@pytest.mark.skipif(sys.version_info < (3, 12), reason="there are eager tasks from Python 3.12 on")
def test_a_task_that_begins_at_once_is_not_inside_its_parents_block() -> None:
    async def scenario() -> None:
        asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)  # type: ignore[attr-defined]
        async with AsyncHoldfast("memory://", settings=QUICK) as locks, locks.hold("k"):
            assert not await asyncio.create_task(is_inside_too(locks))

    asyncio.run(scenario())


def test_a_thread_that_a_task_runs_is_not_inside() -> None:
    async def scenario() -> None:
        with Holdfast("memory://", settings=QUICK) as locks, locks.hold("k"):
            assert is_inside(locks)
            assert not await asyncio.to_thread(is_inside, locks)

    asyncio.run(scenario())


# A scope that travels.


def test_everything_in_the_scope_of_an_owner_is_that_owner(locks: Holdfast) -> None:
    with holdfast.owner("request-17") as name, ThreadPoolExecutor(1) as pool:
        assert name == "request-17"
        lease = locks.acquire("k")
        assert lease.owner == "request-17"
        assert is_inside(locks)
        assert pool.submit(contextvars.copy_context().run, is_inside, locks).result(PATIENCE)
        assert not pool.submit(is_inside, locks).result(PATIENCE), "that is not its context"
        lease.release()
    lease = locks.acquire("k", owner="request-17")
    assert not is_inside(locks), "the scope has ended"
    lease.release()


def test_child_tasks_and_threads_are_in_the_scope_of_an_owner() -> None:
    async def scenario() -> None:
        with Holdfast("memory://", settings=QUICK) as locks:
            with holdfast.owner():
                with locks.hold("k"):
                    assert await asyncio.to_thread(is_inside, locks)
                    assert await asyncio.create_task(asyncio.to_thread(is_inside, locks))
                    await asyncio.create_task(stranger(locks))
                late = contextvars.copy_context()
            lease = locks.acquire("k")
            assert not late.run(is_inside, locks), "the scope has ended"
            lease.release()

    async def stranger(locks: Holdfast) -> None:
        with holdfast.owner():
            assert not is_inside(locks)

    asyncio.run(scenario())


def test_a_context_that_outlives_the_scope_of_an_owner_is_not_that_owner(locks: Holdfast) -> None:
    scope = holdfast.owner("request-17")  # somebody may still have it
    with scope:
        late = contextvars.copy_context()
        assert late.run(is_inside, locks)
    lease = locks.acquire("k", owner="request-17")
    assert not late.run(is_inside, locks), "the scope has ended"
    lease.release()


def test_an_owner_without_a_name_is_nobody_else(locks: Holdfast) -> None:
    with holdfast.owner() as one, holdfast.owner() as two:
        assert one != two
        lease = locks.acquire("k")
        assert lease.owner == two
    with holdfast.owner():
        assert not is_inside(locks)
    lease.release()


def test_a_scope_is_entered_once_at_a_time_and_shows_its_state() -> None:
    scope = holdfast.owner("me")
    assert repr(scope) == "<OwnerScope 'me'>"
    with scope:
        assert repr(scope) == "<OwnerScope 'me', open>"
        with pytest.raises(SettingsError, match="was entered before and not left"):
            scope.__enter__()
    with scope:
        pass
    with pytest.raises(SettingsError, match="owner is ''"):
        holdfast.owner("")


# What a client holds.


def test_a_client_lists_what_it_holds(stage: Stage) -> None:
    locks = stage.client()
    one = stage.call(locks.acquire, "one")
    two = stage.call(locks.acquire, "two", renew=False)
    assert locks.leases == (one, two)
    stage.call(one.release)
    assert locks.leases == (two,)
    stage.call(two.release)
    assert locks.leases == ()


def test_everything_can_be_released_at_once_and_those_inside_are_told(stage: Stage) -> None:
    told: list[LeaseLost] = []
    one = stage.call(stage.locks.acquire, "one", on_lost=told.append)
    hold = stage.locks.hold("two")
    inside = stage.actor("inside")  # which is cancelled if it is a task
    inside.call(hold.__aenter__ if stage.is_async else hold.__enter__)
    assert stage.actor("janitor").call(stage.locks.release_all) == 2
    stage.nothing_left()
    eventually(lambda: told)
    assert not one.held
    for leave in (one.release, hold.__aexit__ if stage.is_async else hold.__exit__):
        with pytest.raises(LeaseLost, match=r"release_all\(\) was called"):
            stage.call(leave, *(() if leave == one.release else (None, None, None)))
    assert stage.call(stage.locks.release_all) == 0


def test_a_task_inside_of_what_is_released_is_cancelled() -> None:
    async def scenario() -> None:
        async with AsyncHoldfast("memory://", settings=QUICK) as locks:
            entered = asyncio.Event()

            async def body() -> None:
                async with locks.hold("k"):
                    entered.set()
                    await asyncio.sleep(PATIENCE)

            task = asyncio.create_task(body())
            await entered.wait()
            assert await locks.release_all() == 1
            with pytest.raises(LeaseLost, match="release_all"):
                await task

    asyncio.run(scenario())


def test_what_cannot_be_released_with_everything_is_raised_and_released_later(stage: Stage) -> None:
    locks = stage.client(settings=replace(QUICK, release_timeout=0.05))
    leases = [stage.call(locks.acquire, key) for key in ("one", "two")]
    spy = Spy(locks)
    spy.fail(Release, lambda: StoreUnavailable("away"))
    with pytest.raises(StoreUnavailable):
        stage.call(locks.release_all)
    spy.heal()
    eventually(lambda: all(stage.state(key) == "free" for key in ("one", "two")))
    assert not any(lease.held for lease in leases)


def leak(locks: Holdfast) -> None:
    locks.acquire("k")


def test_a_lease_that_nobody_has_is_released_with_a_warning_that_says_where_it_was_taken(
    locks: Holdfast, caplog: pytest.LogCaptureFixture
) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        leak(locks)
        gc.collect()
        eventually(lambda: caught)
    (warning,) = caught
    assert warning.category is ResourceWarning
    assert warning.filename == __file__
    assert warning.lineno == leak.__code__.co_firstlineno + 1
    assert "'k' was not released" in str(warning.message)
    assert f"{__file__}:{warning.lineno} in leak" in str(warning.message)
    assert "in leak" in caplog.text
    eventually(lambda: not list(locks.list(state="held")))
    assert locks.leases == ()


def test_what_is_left_when_a_client_is_closed_is_warned_of_if_nobody_has_it() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with Holdfast("memory://") as locks:  # the keeper looks every few seconds
            _kept = locks.acquire("kept")
            leak(locks)
            gc.collect()
    assert [str(warning.message).partition(" ")[0] for warning in caught] == ["'k'"]


def test_a_warning_that_is_an_error_is_told_as_one_of_a_thread(
    locks: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", told.append)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        leak(locks)
        gc.collect()
        eventually(lambda: told)
    assert told[0].exc_type is ResourceWarning
    eventually(lambda: not list(locks.list(state="held")))
    locks.acquire("k").release()  # the keeper goes on
