# ruff: noqa: ASYNC110, PT012
"""Tasks that are cancelled: while they wait, hold, release; by others, and by the loss of their lease."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from holdfast import (
    AsyncHoldfast,
    LeaseLost,
    LockTimeout,
    NotHeld,
    OutcomeUnknown,
    Settings,
    StoreUnavailable,
)
from holdfast.core.requests import Acquire, Release, Renew
from tests.clients.support import PATIENCE, QUICK, Spy

Scenario = Callable[[AsyncHoldfast], Awaitable[None]]


@pytest.fixture
def play(url: str) -> Iterator[Callable[..., None]]:
    """Play a scenario with a client of its own; nothing may be left held or waiting after it."""

    def play(scenario: Scenario, settings: Settings = QUICK) -> None:
        async def run() -> None:
            async with AsyncHoldfast(url, settings=settings) as locks:
                await asyncio.wait_for(scenario(locks), PATIENCE)
                async for view in locks.list():
                    assert view.state == "free", view
                    assert view.waiting == 0, view
            assert len(asyncio.all_tasks()) == 1

        asyncio.run(run())

    return play


async def until(true: Callable[[], Awaitable[bool]]) -> None:
    while not await true():
        await asyncio.sleep(0.001)


async def until_waiting(locks: AsyncHoldfast, key: str, number: int = 1) -> None:
    async def there() -> bool:
        view = await locks.inspect(key)
        return view is not None and view.waiting == number

    await until(there)


def cancelling() -> int:
    task = asyncio.current_task()
    assert task is not None
    return task.cancelling()


async def break_soon(locks: AsyncHoldfast, key: str = "nightly") -> None:
    await locks.break_lock(key, reason="stuck", by="olga")


# Losing.


def test_a_lost_lease_cancels_its_body_and_raises(play: Callable[..., None]) -> None:
    async def scenario(locks: AsyncHoldfast) -> None:
        reached = False
        with pytest.raises(LeaseLost, match="broken by olga") as caught:
            async with locks.hold("nightly", ttl=60) as lease:
                await break_soon(locks)
                await asyncio.sleep(PATIENCE)
                reached = True
        assert not reached
        assert caught.value.__context__ is None or caught.value.__suppress_context__
        assert cancelling() == 0
        assert not lease.held
        await asyncio.sleep(0)  # and no stray cancellation comes after it

    play(scenario)


def test_a_body_that_finishes_in_spite_of_the_loss_is_told_on_leaving(play: Callable[..., None]) -> None:
    async def scenario(locks: AsyncHoldfast) -> None:
        with pytest.raises(LeaseLost):
            async with locks.hold("nightly", ttl=60) as lease:
                with suppress(asyncio.CancelledError):
                    await break_soon(locks)
                    await asyncio.sleep(PATIENCE)
                assert lease.lost.is_set()
        assert cancelling() == 0

    play(scenario)


def test_a_body_that_never_awaits_is_told_on_leaving(play: Callable[..., None]) -> None:
    async def scenario(locks: AsyncHoldfast) -> None:
        with pytest.raises(LeaseLost, match="expired"):
            async with locks.hold("nightly", ttl=0.2, renew=False) as lease:
                while lease.held:
                    pass
        assert cancelling() == 0
        await asyncio.sleep(0.01)

    play(scenario)


def test_the_error_of_a_body_that_was_cancelled_by_the_loss_is_not_hidden(play: Callable[..., None]) -> None:
    async def scenario(locks: AsyncHoldfast) -> None:
        with pytest.raises(KeyError) as caught:
            async with locks.hold("nightly", ttl=60):
                try:
                    await break_soon(locks)  # the loss may be told before it returns
                    await asyncio.sleep(PATIENCE)
                except asyncio.CancelledError:
                    raise KeyError("mine") from None
        assert "broken by olga" in caught.value.__notes__[0]
        assert cancelling() == 0

    play(scenario)


def test_an_outer_cancellation_stays_a_cancellation(play: Callable[..., None]) -> None:
    async def scenario(locks: AsyncHoldfast) -> None:
        inside = asyncio.Event()

        async def worker() -> None:
            async with locks.hold("nightly"):
                inside.set()
                await asyncio.sleep(PATIENCE)

        task = asyncio.create_task(worker())
        await inside.wait()
        task.cancel("enough")
        with pytest.raises(asyncio.CancelledError):
            await task
        assert task.cancelled()

    play(scenario)


def test_cancelled_and_lost_at_once_is_a_cancellation_with_a_note(play: Callable[..., None]) -> None:
    """Somebody wants the task to end: turning that into LeaseLost would let it live on."""

    async def scenario(locks: AsyncHoldfast) -> None:
        inside = asyncio.Event()
        seen: list[BaseException] = []

        async def worker() -> None:
            try:
                async with locks.hold("nightly", ttl=60) as lease:
                    inside.set()
                    try:
                        await asyncio.sleep(PATIENCE)
                    finally:
                        await asyncio.wait_for(asyncio.shield(lease.lost.wait()), PATIENCE)
            except BaseException as error:
                seen.append(error)
                raise

        task = asyncio.create_task(worker())
        await inside.wait()
        task.cancel("enough")
        await asyncio.sleep(0)
        await break_soon(locks)
        with pytest.raises(asyncio.CancelledError):
            await task
        assert isinstance(seen[0], asyncio.CancelledError)
        assert "broken by olga" in seen[0].__notes__[0]
        assert task.cancelling() == 1

    play(scenario)


def test_a_task_that_was_being_cancelled_before_keeps_its_count(play: Callable[..., None]) -> None:
    async def scenario(locks: AsyncHoldfast) -> None:
        async def worker() -> int:
            try:
                await asyncio.sleep(PATIENCE)
            except asyncio.CancelledError:
                assert cancelling() == 1
            with pytest.raises(LeaseLost):  # cleaning up needs a lock of its own, and loses it
                async with locks.hold("nightly", ttl=60):
                    await break_soon(locks)
                    await asyncio.sleep(PATIENCE)
            return cancelling()

        task = asyncio.create_task(worker())
        await asyncio.sleep(0)
        task.cancel()
        assert await task == 1

    play(scenario)


@pytest.mark.parametrize("lost", ["outer", "inner"])
def test_of_nested_holds_the_one_that_lost_its_lease_raises(play: Callable[..., None], lost: str) -> None:
    async def scenario(locks: AsyncHoldfast) -> None:
        where = []
        try:
            async with locks.hold("outer", ttl=60):
                try:
                    async with locks.hold("inner", ttl=60):
                        await break_soon(locks, lost)
                        await asyncio.sleep(PATIENCE)
                except LeaseLost as error:
                    where.append(("inner", error.key))
                    raise
        except LeaseLost as error:
            where.append(("outer", error.key))
        assert where[-1] == ("outer", lost)
        assert (("inner", "inner") in where) == (lost == "inner")
        assert cancelling() == 0

    play(scenario)


def test_of_two_nested_losses_both_are_told_and_the_task_is_whole(play: Callable[..., None]) -> None:
    async def scenario(locks: AsyncHoldfast) -> None:
        with pytest.raises(LeaseLost):
            async with locks.hold("outer", ttl=60), locks.hold("inner", ttl=60):
                await asyncio.gather(break_soon(locks, "outer"), break_soon(locks, "inner"))
                await asyncio.sleep(PATIENCE)
        assert cancelling() == 0
        await asyncio.sleep(0.01)

    play(scenario)


def test_both_holds_of_one_lock_may_be_lost_in_one_task(play: Callable[..., None]) -> None:
    async def scenario(locks: AsyncHoldfast) -> None:
        with pytest.raises(LeaseLost):
            async with locks.hold("nightly", ttl=60), locks.hold("nightly", ttl=60):
                await break_soon(locks)
                await asyncio.sleep(PATIENCE)
        assert cancelling() == 0
        await asyncio.sleep(0.01)

    play(scenario)


def test_a_store_that_cannot_be_reached_cancels_the_body_at_the_deadline(play: Callable[..., None]) -> None:
    async def scenario(locks: AsyncHoldfast) -> None:
        spy = Spy(locks)
        with pytest.raises(LeaseLost, match="store unreachable"):
            async with locks.hold("nightly"):
                spy.fail(Renew, lambda: StoreUnavailable("the cable is out"))
                await asyncio.sleep(PATIENCE)
        spy.heal()

    play(scenario, Settings(ttl=2.0, renew_at=0.1))


def test_a_body_that_blocks_the_loop_keeps_its_lease(play: Callable[..., None]) -> None:
    """The keeper has a thread of its own: computing for longer than the ttl costs nothing."""

    async def scenario(locks: AsyncHoldfast) -> None:
        spy = Spy(locks)
        async with locks.hold("nightly", ttl=2) as lease:
            while spy.count(Renew) < 3:
                pass
            lease.check()

    play(scenario)


# Timeouts of asyncio.


def test_asyncio_timeout_around_a_hold_is_a_timeout(play: Callable[..., None]) -> None:
    async def scenario(locks: AsyncHoldfast) -> None:
        with pytest.raises(TimeoutError) as caught:
            async with asyncio.timeout(0.05), locks.hold("nightly"):
                await asyncio.sleep(PATIENCE)
        assert not isinstance(caught.value, LockTimeout)
        assert cancelling() == 0

    play(scenario)


def test_asyncio_timeout_around_waiting_leaves_no_ticket(play: Callable[..., None]) -> None:
    async def scenario(locks: AsyncHoldfast) -> None:
        async with locks.hold("nightly", owner="holder"):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await locks.acquire("nightly", owner="waiter")
            view = await locks.inspect("nightly")
            assert view is not None
            assert view.waiting == 0

    play(scenario)


def test_asyncio_timeout_inside_a_hold_leaves_the_hold_alone(play: Callable[..., None]) -> None:
    async def scenario(locks: AsyncHoldfast) -> None:
        async with locks.hold("nightly") as lease:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.02):
                    await asyncio.sleep(PATIENCE)
            lease.check()

    play(scenario)


# While waiting, and while it is being handed over.


def test_a_waiter_that_is_cancelled_leaves_no_ticket(play: Callable[..., None]) -> None:
    async def scenario(locks: AsyncHoldfast) -> None:
        async with locks.hold("nightly", owner="holder"):
            waiters = [asyncio.create_task(locks.acquire("nightly")) for _ in range(3)]
            await until_waiting(locks, "nightly", 3)
            waiters[0].cancel()
            waiters[2].cancel()
            for waiter in (waiters[0], waiters[2]):
                with pytest.raises(asyncio.CancelledError):
                    await waiter
            view = await locks.inspect("nightly")
            assert view is not None
            assert view.waiting == 1
        lease = await waiters[1]
        lease.check()
        await lease.release()

    play(scenario)


def test_a_waiter_cancelled_twice_leaves_no_ticket(play: Callable[..., None]) -> None:
    """The second cancellation comes while the ticket is being withdrawn."""

    async def scenario(locks: AsyncHoldfast) -> None:
        async with locks.hold("nightly", owner="holder"):
            waiter = asyncio.create_task(locks.acquire("nightly"))
            await until_waiting(locks, "nightly", 1)
            waiter.cancel()
            await asyncio.sleep(0)
            waiter.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiter
            await until_waiting(locks, "nightly", 0)
        await asyncio.sleep(0)

    play(scenario)


def test_a_waiter_cancelled_while_its_grant_is_handed_over_gives_it_back(play: Callable[..., None]) -> None:
    """A race, many times, at every distance between the release and the cancellation."""
    dice = random.Random(7)

    async def scenario(locks: AsyncHoldfast) -> None:
        outcomes = set()
        for turn in range(150):
            holder = await locks.acquire("nightly", owner="holder", timeout=PATIENCE)
            first = asyncio.create_task(locks.acquire("nightly", owner=f"first-{turn}"))
            second = asyncio.create_task(locks.acquire("nightly", owner=f"second-{turn}"))
            await until_waiting(locks, "nightly", 2)
            release = asyncio.create_task(holder.release())
            for _ in range(dice.randrange(8)):
                await asyncio.sleep(0)
            if dice.random() < 0.5:
                await asyncio.sleep(dice.random() * 0.002)
            first.cancel()
            await release
            try:
                lease = await first
            except asyncio.CancelledError:
                outcomes.add("cancelled")
            else:
                outcomes.add("granted")
                await lease.release()
            lease = await asyncio.wait_for(second, PATIENCE)
            await lease.release()
        assert "cancelled" in outcomes

    play(scenario)


def test_an_uncontended_acquire_that_is_cancelled_holds_nothing(play: Callable[..., None]) -> None:
    dice = random.Random(8)

    async def scenario(locks: AsyncHoldfast) -> None:
        for turn in range(150):
            task = asyncio.create_task(locks.acquire("nightly", owner=f"owner-{turn}"))
            for _ in range(dice.randrange(4)):
                await asyncio.sleep(0)
            if dice.random() < 0.5:
                await asyncio.sleep(dice.random() * 0.001)
            task.cancel()
            try:
                lease = await task
            except asyncio.CancelledError:
                continue
            await lease.release()

        async def free() -> bool:
            view = await locks.inspect("nightly")
            return view is None or view.state == "free"

        await until(free)

    play(scenario)


def test_cancelling_a_block_at_any_moment_leaves_nothing(play: Callable[..., None]) -> None:
    """Entering, holding, leaving, waiting: a storm of cancellations over contending tasks."""
    dice = random.Random(9)

    async def scenario(locks: AsyncHoldfast) -> None:
        entered = 0

        async def worker(n: int) -> None:
            nonlocal entered
            while True:
                async with locks.hold(f"key-{n % 2}", ttl=60):
                    entered += 1
                    await asyncio.sleep(dice.random() * 0.002)

        tasks = [asyncio.create_task(worker(n)) for n in range(6)]
        for _ in range(150):
            await asyncio.sleep(dice.random() * 0.004)
            n = dice.randrange(len(tasks))
            tasks[n].cancel()
            with suppress(asyncio.CancelledError):
                await tasks[n]
            tasks[n] = asyncio.create_task(worker(n))
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        assert all(task.cancelled() for task in tasks)
        assert entered > 20

    play(scenario)


# While releasing.


def test_a_release_that_is_cancelled_releases_all_the_same(play: Callable[..., None]) -> None:
    async def scenario(locks: AsyncHoldfast) -> None:
        for steps in range(4):
            lease = await locks.acquire("nightly", owner="me", timeout=PATIENCE)
            task = asyncio.create_task(lease.release())
            for _ in range(steps):
                await asyncio.sleep(0)
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            if steps:  # else it had not begun
                assert not lease.held, "it was given back, and must not be trusted"
                with pytest.raises(NotHeld):
                    lease.check()
            else:
                assert lease.held
                await lease.release()

    play(scenario)


def test_a_block_cancelled_while_it_releases_releases_all_the_same(play: Callable[..., None]) -> None:
    async def scenario(locks: AsyncHoldfast) -> None:
        for turn in range(30):
            done = asyncio.Event()

            async def worker(done: asyncio.Event = done) -> None:
                async with locks.hold("nightly", timeout=PATIENCE):
                    done.set()

            task = asyncio.create_task(worker())
            await done.wait()
            for _ in range(turn % 5):
                await asyncio.sleep(0)
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    play(scenario)


def test_a_release_that_is_cancelled_while_it_waits_for_the_store_tries_once_more(
    play: Callable[..., None],
) -> None:
    async def scenario(locks: AsyncHoldfast) -> None:
        spy = Spy(locks)
        lease = await locks.acquire("nightly")
        me = asyncio.current_task()
        assert me is not None
        spy.fail(Release, lambda: OutcomeUnknown("no answer"))
        asyncio.get_running_loop().call_later(0.05, lambda: (spy.heal(), me.cancel()))
        with pytest.raises(asyncio.CancelledError):
            await lease.release()
        me.uncancel()
        assert not lease.held

    play(scenario)


def test_an_acquire_that_is_cancelled_while_the_store_fails_leaves_nothing(play: Callable[..., None]) -> None:
    async def scenario(locks: AsyncHoldfast) -> None:
        spy = Spy(locks)
        real = spy._execute

        def lose_every_answer(request: Any) -> Any:
            answer = real(request)
            if isinstance(request, Acquire):
                raise OutcomeUnknown("no answer")
            return answer

        spy._execute = lose_every_answer
        task = asyncio.create_task(locks.acquire("nightly"))
        while spy.count(Acquire) < 2:
            await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        spy._execute = real

    play(scenario)


def test_the_end_of_the_loop_releases_what_tasks_held(url: str) -> None:
    """asyncio.run cancels what is left; leaving the client's block waits for it to be given back."""

    async def program() -> None:
        async def worker() -> None:
            async with locks.hold("nightly"):
                await asyncio.sleep(PATIENCE)

        async with AsyncHoldfast(url) as locks, asyncio.TaskGroup() as group:
            group.create_task(worker())
            while not (view := await locks.inspect("nightly")) or view.state != "held":
                await asyncio.sleep(0.001)
            raise KeyError("over")

    async def look() -> Any:
        async with AsyncHoldfast(url) as locks:
            return await locks.inspect("nightly")

    keep = AsyncHoldfast(url)  # memory:// lives as long as one client of its name
    with pytest.raises(ExceptionGroup):
        asyncio.run(program())
    view = asyncio.run(look())
    assert view.state == "free"
    asyncio.run(keep.close())
