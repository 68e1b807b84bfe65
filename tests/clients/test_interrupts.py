"""An interrupt at each line and each call of ours in turn: what was begun is undone, and nobody renews what
nobody has.

Python notices signals where a function is entered, and where one that is written in C comes back. No line of
ours need come after that, so calls are tried by themselves. A task is cancelled where it
awaits, see `test_cancelling`. But a loop can be interrupted anywhere, and be used again.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import math
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from types import FrameType
from typing import Any, Literal

import pytest

import holdfast
from holdfast import AsyncHoldfast, Holdfast, LockTimeout, LockView, Settings
from holdfast.client import exits
from holdfast.client.keeper_thread import AWAKE
from tests.clients.support import PATIENCE, eventually

OURS = str(Path(holdfast.__file__).parent)
NOT_HERE = (
    "keeper.py",
    "keeper_thread.py",
    "signal_mask.py",
)  # they are told of a lease, and not who takes it

Where = Literal["lines", "calls"]

_names = itertools.count()


@pytest.fixture(params=["memory", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return (
        f"memory://interrupts-{next(_names)}" if request.param == "memory" else f"sqlite:///{tmp_path}/l.db"
    )


@pytest.fixture(params=["lines", "calls"])
def at(request: pytest.FixtureRequest) -> Iterator[Where]:
    # A collection in the middle would give back what is left, or call something of ours, at its own time.
    gc.disable()
    yield request.param
    gc.enable()


def is_ours(frame: FrameType | None) -> bool:
    if frame is None:
        return False
    file = frame.f_code.co_filename
    return file.startswith(OURS) and "stores" not in file and not file.endswith(NOT_HERE)


def interrupted_at(number: int, function: Callable[[], Any], at: Where = "lines") -> str | None:
    """Call *function* with an interrupt at that place of ours; return which it was, None if there is none."""
    places, where = 0, None

    def is_a_place(frame: FrameType, event: str) -> bool:
        if event == "call" and at == "calls":
            return is_ours(frame) or is_ours(frame.f_back)
        return event == ("line" if at == "lines" else "c_return") and is_ours(frame)

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal places, where
        if is_a_place(frame, event):
            places += 1
            if places == number:
                where = f"{Path(frame.f_code.co_filename).name} {frame.f_code.co_qualname}"
                watch(None)
                raise KeyboardInterrupt
        return trace

    watch = sys.settrace if at == "lines" else sys.setprofile
    before = (sys.gettrace if at == "lines" else sys.getprofile)()
    watch(trace)
    try:
        function()
    except KeyboardInterrupt:
        pass
    finally:
        watch(before)
    return where


def left_behind(locks: Holdfast, function: Callable[[], Any], at: Where) -> set[str]:
    """Interrupt *function* everywhere; return where something was left until nobody had it any more."""
    found = set()
    for number in itertools.count(1):
        where = interrupted_at(number, function, at)
        if where is None:
            assert number > 30, "nothing was interrupted"
            return found
        if locks._engine.keeper.kept() or held(locks):
            found.add(where)
            gc.collect()
            locks._engine.keeper.hurry("")  # else it has a look after a nap
            eventually(lambda: not locks._engine.keeper.kept() and not held(locks), where)
    raise AssertionError


def held(locks: Holdfast) -> list[LockView]:
    return list(locks.list(state="held"))


# Where a function is entered no code of it can catch an interrupt. But then nobody has the lease any more.
ENTERED = {
    "hold": {"leases.py Hold.__exit__"},
    "all": {"several.py HoldAll.__exit__"},
    "operation": {"operations.py Operation.__exit__"},
    "exclusive": {"operations.py Operation.__exit__"},
}


@pytest.mark.parametrize("kind", [*ENTERED, "acquire", "guarded", "once", "elect"])
def test_a_block_that_is_interrupted_anywhere_leaves_nothing(url: str, kind: str, at: Where) -> None:
    with Holdfast(url) as locks:

        def block() -> None:
            if kind == "hold":
                with locks.hold("pull:model"):
                    return
            elif kind == "acquire":
                with locks.acquire("pull:model"):
                    return
            elif kind == "all":
                with locks.hold_all(["pull:model", "pull:other"]):
                    return
            elif kind == "guarded":
                locks.guarded("pull:model")(lambda: None)()
            elif kind == "once":
                locks.run_once("pull:model", lambda: 1)
            elif kind == "elect":
                terms: Any = iter(locks.elect("pull:model"))
                with next(terms):
                    pass
                terms.close()  # what a generator raises while it is forgotten nobody would hear
            else:
                with locks.operation("pull", "model", exclusive=kind == "exclusive") as pull:
                    pull.succeed(1)

        left = left_behind(locks, block, at)
        assert left <= ENTERED.get(kind, left)


@pytest.mark.parametrize("how", ["acquire", "try_acquire"])
def test_an_acquire_that_is_interrupted_anywhere_leaves_nothing(url: str, how: str, at: Where) -> None:
    """Whoever calls it has the lease, or there is none: else it would be renewed as long as we run."""
    with Holdfast(url) as locks:
        assert left_behind(locks, lambda: getattr(locks, how)("nightly").release(), at) <= {
            "leases.py Lease.release"
        }


def test_a_lock_with_the_methods_of_threading_s_has_what_is_held_wherever_it_is_interrupted(
    url: str, at: Where
) -> None:
    """It is an object that has the lease: whoever was interrupted before `release` began may release it."""
    with Holdfast(url) as locks:
        for number in itertools.count(1):
            lock = locks.lock("nightly")

            def block(lock: Any = lock) -> None:
                with lock:
                    pass

            where = interrupted_at(number, block, at)
            if where is None:
                break
            if held(locks):
                lock.release()
            with pytest.raises(holdfast.NotHeld):
                lock.release()
            assert not locks._engine.keeper.kept(), where
            assert not held(locks), where


def test_a_lease_that_nobody_has_is_given_back(url: str, caplog: pytest.LogCaptureFixture) -> None:
    with Holdfast(url) as locks:
        locks.acquire("nightly")
        eventually(lambda: not held(locks))
        assert not locks._engine.keeper.kept()
        eventually(lambda: "Keep the lease as long as you need the lock" in caplog.text)


@pytest.mark.parametrize("kind", ["acquire", "hold", "lock"])
def test_a_loop_that_is_interrupted_anywhere_renews_nothing_that_nobody_has(kind: str, at: Where) -> None:
    """The task has ended, and nobody has its lease. It is given back, or ends with its ttl."""

    async def open_client() -> AsyncHoldfast:
        return AsyncHoldfast("memory://", settings=Settings(sweep_every=None))

    async def block(key: str) -> None:
        if kind == "acquire":
            lease = await locks.acquire(key)
            await lease.release()
        elif kind == "hold":
            async with locks.hold(key):
                pass
        else:
            async with locks.lock(key):
                pass

    with closing(asyncio.new_event_loop()) as loop:
        locks = loop.run_until_complete(open_client())
        for number in itertools.count(1):
            where = interrupted_at(number, lambda: loop.run_until_complete(block(f"k-{number}")), at)  # noqa: B023
            if where is None:
                break
            loop.run_until_complete(asyncio.sleep(0))  # until then it has the task that has ended
            if locks._engine.keeper.kept():
                gc.collect()
                locks._engine.keeper.hurry("")  # else it has a look after a nap
                eventually(lambda: not locks._engine.keeper.kept(), where)
        assert number > 30, "nothing was interrupted"
        loop.run_until_complete(locks.close())


def test_a_lease_of_tasks_that_nobody_has_is_given_back(url: str) -> None:
    async def play() -> None:
        async with AsyncHoldfast(url) as locks:
            lease = await locks.acquire("nightly")
            del lease
            gc.collect()
            locks._engine.keeper.hurry("")
            await asyncio.to_thread(eventually, lambda: not locks._engine.keeper.kept())
            await asyncio.to_thread(eventually, lambda: not locks._engine.keeper.pursued())
            assert [view async for view in locks.list(state="held")] == []

    asyncio.run(play())


def test_a_lease_that_is_not_renewed_needs_nobody_who_has_it(url: str) -> None:
    with Holdfast(url) as locks:
        locks.acquire("cooling", renew=False)
        dropped = locks.acquire("nightly")
        del dropped
        eventually(lambda: [view.key for view in held(locks)] == ["cooling"])


def test_what_somebody_can_reach_is_kept(url: str) -> None:
    with Holdfast(url) as locks:
        lost = locks.acquire("waited-for").lost
        block = locks.hold("block")
        block.__enter__()
        lock = locks.lock("lock")
        lock.acquire()
        dropped = locks.acquire("nightly")
        del dropped
        gc.collect()
        eventually(lambda: len(held(locks)) == 3)
        assert not lost.is_set()
        block.__exit__(None, None, None)
        lock.release()


def test_who_waits_for_the_loss_of_a_lease_of_tasks_has_it() -> None:
    async def play() -> None:
        async with AsyncHoldfast("memory://") as locks:
            lease = await locks.acquire("waited-for")
            lost = lease.lost
            dropped = await locks.acquire("nightly")
            del lease, dropped
            gc.collect()
            locks._engine.keeper.hurry("")
            await asyncio.to_thread(eventually, lambda: len(locks._engine.keeper.kept()) == 1)
            assert not lost.is_set()
            await locks.break_lock("waited-for", reason="stuck")
            await asyncio.wait_for(lost.wait(), PATIENCE)

    asyncio.run(play())


def test_an_interrupt_while_the_keeper_is_woken_does_not_put_it_to_sleep_for_ever() -> None:
    """If it is interrupted, `Condition.notify` may not know whom it has woken, and next time wakes nobody."""
    with Holdfast("memory://", settings=Settings(sweep_every=None, renew_at=0.1)) as locks:
        locks.acquire("first").release()
        for number in itertools.count(1):
            asleep(locks)
            found, woken = interrupt_notify(number, lambda: locks.acquire("interrupted").release())
            if not found:
                break
            if woken:
                eventually(lambda: AWAKE < locks._engine.keeper._wake_at < math.inf, "it sleeps again")
            lease = locks.acquire("nightly", ttl=3.0)
            before = lease._holding.kept.trusted_until
            eventually(
                lambda lease=lease, before=before: lease._holding.kept.trusted_until > before, within=10.0
            )
            lease.release()
        assert number > 3


def asleep(locks: Holdfast) -> None:
    """Wait until the keeper has nothing to keep, and sleeps until it is woken."""
    eventually(lambda: locks._engine.keeper._thread)
    with locks._engine.keeper._mutex:
        locks._engine.keeper._busy = False
        locks._engine.keeper._changed.notify_all()
    eventually(lambda: locks._engine.keeper._wake_at == math.inf)


def interrupt_notify(number: int, function: Callable[[], Any]) -> tuple[bool, bool]:
    """Call *function*; interrupt it at that line of `Condition.notify`.

    Tell whether there is one, and whether it had woken somebody by then.
    """
    lines, woken = 0, False

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal lines, woken
        if event == "line" and frame.f_code.co_qualname == "Condition.notify":
            lines += 1
            if lines == number:
                woken = frame.f_locals["n"] == 0
                sys.settrace(None)
                raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        function()
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(before)
    return lines >= number, woken


def test_who_is_interrupted_while_waiting_for_the_shared_lock_leaves_nothing(url: str, at: Where) -> None:
    with Holdfast(url) as locks, Holdfast(url) as others, others.hold("operation::model", owner="other"):

        def block() -> None:
            with (
                pytest.raises(holdfast.LockTimeout),
                locks.operation("pull", "model", exclusive=True, timeout=0.001),
            ):
                raise AssertionError("it is not free")

        for number in itertools.count(1):
            where = interrupted_at(number, block, at)
            assert not locks._engine.keeper.kept(), where
            assert [view.key for view in locks.list(state="held")] == ["operation::model"], where
            if where is None:
                break


def test_a_lease_whose_downgrade_is_interrupted_anywhere_counts_as_what_it_may_be(
    url: str, at: Where
) -> None:
    with Holdfast(url) as locks:
        for number in itertools.count(1):
            lease = locks.acquire("table")
            where = interrupted_at(number, lease.downgrade, at)
            view = locks.inspect("table")
            assert view is not None
            assert lease.mode == "shared" or view.mode == "exclusive", where
            lease.release()
            if where is None:
                break


def test_sigterm_that_waits_for_a_place_in_a_queue_finds_the_ticket_in_the_books(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process ends there: a ticket that nobody knows of would be handed the lock."""
    url = f"sqlite:///{tmp_path / 'locks.db'}"
    known = []
    with Holdfast(url) as others, Holdfast(url) as locks, others.hold("nightly", owner="bob"):
        keeper = locks._engine.keeper
        monkeypatch.setattr(exits, "told_to_end", signal.SIGTERM)
        monkeypatch.setattr(exits, "end_if_told", lambda: known.append(len(keeper.tickets())))
        with pytest.raises(LockTimeout):
            locks.acquire("nightly", timeout=0.2)
    assert known[0] == 1
