"""Who is inside of a block, and what is left of it, where blocks are entered and left in odd ways."""

from __future__ import annotations

import _thread
import asyncio
import contextvars
import functools
import gc
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import AsyncHoldfast, Holdfast, LeaseLost
from holdfast.client import ownership
from tests.clients.support import PATIENCE, QUICK, eventually


@pytest.fixture
def locks() -> Iterator[Holdfast]:
    with Holdfast("memory://", settings=QUICK) as locks:
        yield locks


def is_inside(locks: Holdfast, key: str = "k") -> bool:
    lease = locks.try_acquire(key)
    if lease is not None:
        lease.release()
    return lease is not None


def links() -> int:
    """Return how many scopes this context still knows."""
    count, link = 0, ownership._innermost.get()
    while link is not None:
        count, link = count + 1, link.outer
    return count


# A call is at another instruction if it is of Python code than if it is of what is written in C.
CALLS: dict[str, Callable[[Callable[[], Any]], Callable[[], Any]]] = {
    "itself": lambda call: call,
    "a function": lambda call: lambda: call(),
    "a partial": functools.partial,
    "a C function": lambda call: functools.partial(next, iter(call, None)),
}


@pytest.mark.parametrize("enters", CALLS)
@pytest.mark.parametrize("strangers", CALLS)
def test_a_loop_that_enters_a_block_calls_strangers(locks: Holdfast, enters: str, strangers: str) -> None:
    hold = locks.hold("k")
    jobs = [CALLS[enters](hold.__enter__), CALLS[strangers](lambda: is_inside(locks))]
    answers = []
    for job in jobs:
        answers.append(job())  # noqa: PERF401 - this is the loop in question
    assert answers[1] is False
    assert is_inside(locks) or "function" in enters, "we have gone on"
    hold.__exit__(None, None, None)


def test_a_thread_in_which_a_stack_was_filled_is_not_inside(locks: Holdfast) -> None:
    with ThreadPool(1) as pool, ExitStack() as stack, ExitStack() as other:
        pool.apply(stack.enter_context, (locks.hold("k"),))
        assert not pool.apply(is_inside, (locks,))
        with pytest.raises(holdfast.LockTimeout):
            pool.apply(other.enter_context, (locks.hold("k", timeout=0),))
        pool.apply(stack.enter_context, (locks.hold("k", timeout=0),))


def test_a_function_with_a_context_manager_as_decorator_is_inside(locks: Holdfast) -> None:
    @contextmanager
    def held() -> Iterator[None]:
        with locks.hold("k", timeout=0):
            yield

    @held()
    def down(depth: int) -> bool:
        return is_inside(locks) if depth == 0 else down(depth - 1)

    assert down(3)


def test_a_thread_or_a_greenlet_may_begin_with_a_method_of_ours(locks: Holdfast) -> None:
    """There is no code of a program that has asked."""
    _thread.start_new_thread(locks.acquire, ("k",))
    eventually(lambda: locks.history("k") or locks.inspect("k"))
    greenlet = pytest.importorskip("greenlet")
    greenlet.greenlet(locks.acquire).switch("j").release()
    with locks.hold("k"):
        assert is_inside(locks)
        assert not greenlet.greenlet(is_inside).switch(locks), "it has a stack of its own"


def test_code_without_a_module_may_take_a_lock(locks: Holdfast) -> None:
    exec("locks.acquire('k').release()", {"__name__": None, "locks": locks})


def test_blocks_that_are_left_before_those_inside_of_them_leave_nothing(locks: Holdfast) -> None:
    """Hand over hand along a list; there is always one that is open."""
    before = links()
    holds = [locks.hold(str(number)) for number in range(100)]
    for number, hold in enumerate(holds):
        hold.__enter__()
        if number >= 3:
            holds[number - 3].__exit__(None, None, None)
        assert links() <= before + 5
    for hold in holds[-3:]:
        hold.__exit__(None, None, None)


def test_a_scope_that_is_entered_again_is_not_open_where_it_was_left(locks: Holdfast) -> None:
    scope = holdfast.owner()
    with scope:
        late = contextvars.copy_context()
    with scope, locks.hold("k"):
        assert is_inside(locks)
        assert not late.run(is_inside, locks)


def test_leases_that_come_and_go_leave_nothing_to_look_at(locks: Holdfast) -> None:
    def come_and_go() -> None:
        with locks.hold("k"), locks.acquire("j"), locks.lock("i"), locks.hold_all(["a", "b"]):
            pass
        locks.acquire("k", renew=False).release()

    come_and_go()
    gc.collect()
    gc.disable()
    try:
        come_and_go()
        assert not locks._engine.keeper._dropped
        leases = [each for each in gc.get_objects() if isinstance(each, holdfast.Lease)]
        assert not [lease for lease in leases if lease._holding.engine is locks._engine]
    finally:
        gc.enable()


def test_a_hold_that_was_left_has_nothing_of_its_task() -> None:
    async def scenario() -> None:
        with Holdfast("memory://", settings=QUICK) as locks:
            hold = locks.hold("k")

            async def body() -> None:
                with hold:
                    pass

            await asyncio.create_task(body())
            assert hold._block is not None
            assert hold._block.task is None
            assert hold._block.calls == ()

    asyncio.run(scenario())


def test_a_warning_that_cannot_be_shown_does_not_end_the_keeper(
    locks: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", told.append)

    def show(*_: Any, **__: Any) -> None:
        raise ValueError("I/O operation on closed file")

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        monkeypatch.setattr(warnings, "showwarning", show)
        locks.acquire("k")
        gc.collect()
        eventually(lambda: told)
    assert told[0].exc_type is ValueError
    eventually(lambda: is_inside(locks))
    assert locks._engine.keeper._thread is not None
    assert locks._engine.keeper._thread.is_alive()


def test_a_task_that_releases_its_own_block_with_everything_else_leaves_nothing(tmp_path: Path) -> None:
    """It is cancelled for that while it releases the others."""

    async def scenario() -> None:
        async with AsyncHoldfast(f"sqlite:///{tmp_path}/l.db", settings=QUICK) as locks:

            async def body() -> None:
                async with locks.hold("first"):
                    leases.extend([await locks.acquire(str(number)) for number in range(5)])
                    await locks.release_all()
                    await asyncio.sleep(PATIENCE)

            leases: list[holdfast.AsyncLease] = []
            with pytest.raises(LeaseLost, match="release_all"):
                await asyncio.create_task(body())
            for lease in leases:
                assert not lease.held
                with pytest.raises(LeaseLost, match="release_all"):
                    await lease.release()
        with Holdfast(f"sqlite:///{tmp_path}/l.db", settings=QUICK) as another:
            for key in ("first", *map(str, range(5))):
                another.acquire(key, timeout=PATIENCE).release()

    asyncio.run(scenario())
