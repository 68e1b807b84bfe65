# ruff: noqa: PT012
"""The lock-order check: circles are found though nobody waited, and what is no circle is left alone."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import holdfast
from holdfast import AsyncHoldfast, Holdfast, LockTimeout
from holdfast.client.engine import Engine
from holdfast.core.keeper import Keeper
from holdfast.testing.lock_order import LockOrder, LockOrderViolation


@pytest.fixture
def locks() -> Iterator[Holdfast]:
    with Holdfast("memory://") as locks:
        yield locks


def in_thread(work: Any, *args: Any) -> None:
    errors: list[BaseException] = []

    def run() -> None:
        try:
            work(*args)
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, name=work.__name__)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]


def nest(locks: Holdfast, *keys: str, **options: Any) -> None:
    """Take keys, each while holding those before it."""
    if keys:
        with locks.hold(keys[0], **options):
            nest(locks, *keys[1:], **options)


def orders(order: LockOrder) -> set[tuple[str, str]]:
    return {(each.had.key, each.asked.key) for each in order.orders}


def test_opposite_orders_are_found_though_nobody_waited(locks: Holdfast) -> None:
    def forth() -> int:
        with locks.hold("a"), locks.hold("b"):
            return here()

    def back() -> int:
        with locks.hold("b"):
            locks.acquire("a").release()
            return here()

    def here() -> int:
        frame = inspect.currentframe()
        assert frame is not None
        assert frame.f_back is not None
        return frame.f_back.f_lineno

    with pytest.raises(LockOrderViolation) as caught, LockOrder():
        in_thread(forth)
        in_thread(back)
    there, again = forth(), back()
    text = str(caught.value)
    assert "'a' → 'b' → 'a'" in text
    assert f"{__file__}:{there - 1} in forth" in text
    assert f"{__file__}:{again - 2} in back" in text
    assert f"{__file__}:{again - 1} in back" in text
    first, second = caught.value.circle
    assert (first.had.key, first.asked.key) == ("a", "b")
    assert (second.had.key, second.asked.key) == ("b", "a")
    assert first.owner.startswith("forth-")
    assert second.owner.startswith("back-")
    assert isinstance(caught.value, AssertionError)


def test_one_order_everywhere_is_fine(locks: Holdfast) -> None:
    with LockOrder() as order:
        in_thread(nest, locks, "a", "b", "c")
        in_thread(nest, locks, "a", "c")
        nest(locks, "b", "c")
        order.check()
    assert orders(order) == {("a", "b"), ("a", "c"), ("b", "c")}


def test_a_longer_circle_is_found(locks: Holdfast) -> None:
    with LockOrder() as order:
        nest(locks, "a", "b")
        nest(locks, "b", "c")
        nest(locks, "c", "d")
        order.check()
        nest(locks, "d", "a")
        with pytest.raises(LockOrderViolation) as caught:
            order.check()
        assert len(caught.value.circle) == 4
        nest(locks, "c", "a")
        with pytest.raises(LockOrderViolation) as caught:
            order.check()
        assert len(caught.value.circle) == 3
        order._orders.clear()


def test_what_was_given_back_is_not_held(locks: Holdfast) -> None:
    with LockOrder() as order:
        for keys in (("a", "b"), ("b", "a")):
            for key in keys:
                locks.acquire(key).release()
        inner = locks.acquire("b")
        outer = locks.acquire("a")
        inner.release()
        nest(locks, "c")
        outer.release()
    assert orders(order) == {("b", "a"), ("a", "c")}


def test_what_was_lost_is_not_held(locks: Holdfast) -> None:
    with LockOrder() as order:
        lease = locks.acquire("a")
        locks.break_lock("a", reason="test", by="the test")
        assert lease.lost.wait(30)
        nest(locks, "b")
        expired = locks.acquire("c", ttl=0.1, renew=False)
        assert expired.lost.wait(30)
        while order._has:  # until the keeper has noticed
            threading.Event().wait(0.01)
        nest(locks, "d")
    assert not order.orders


def test_what_a_closed_client_had_is_not_held(locks: Holdfast) -> None:
    with LockOrder() as order:
        with Holdfast("memory://") as other:
            _lease = other.acquire("a")
        nest(locks, "b")
    assert not order.orders


def test_entering_again_is_no_order(locks: Holdfast) -> None:
    with LockOrder() as order:
        nest(locks, "a", "b", "a", "b")
    assert orders(order) == {("a", "b")}


def test_a_single_try_waits_for_nobody(locks: Holdfast) -> None:
    with LockOrder() as order:
        nest(locks, "a", "b")
        with locks.hold("b"):
            lease = locks.try_acquire("a")
            assert lease is not None
            nest(locks, "c")
            lease.release()
            nest(locks, "a", timeout=0)
    assert orders(order) == {("a", "b"), ("b", "c"), ("a", "c")}


def test_a_wait_that_failed_is_an_order(locks: Holdfast) -> None:
    with pytest.raises(LockOrderViolation), LockOrder():
        nest(locks, "a", "b")
        held = locks.acquire("a", owner="somebody else")
        with locks.hold("b"), pytest.raises(LockTimeout):
            locks.acquire("a", timeout=0.01)
        held.release()


def test_owners_count_and_not_threads(locks: Holdfast) -> None:
    with LockOrder() as order:
        one = locks.acquire("a", owner="one")
        two = locks.acquire("b", owner="two")
        locks.acquire("c", owner="two").release()
        one.release()
        two.release()
    assert orders(order) == {("b", "c")}
    assert order.orders[0].owner == "two"


def test_several_at_once_have_one_order(locks: Holdfast) -> None:
    with LockOrder() as order:
        for keys in (["a", "b", "c"], ["c", "b", "a"], ["b", "a"]):
            with locks.hold_all(keys):
                pass
    assert orders(order) == {("a", "b"), ("a", "c"), ("b", "c")}


def test_all_clients_count_and_all_ways_to_take_a_lock(locks: Holdfast) -> None:
    @locks.guarded("c")
    def guarded() -> None:
        lock = locks.lock("d")
        with lock:
            pass

    with LockOrder() as order, Holdfast("memory://") as other, other.hold("a"):
        guarded()
    assert orders(order) == {("a", "c"), ("a", "d"), ("c", "d")}
    asked = next(each.asked for each in order.orders if each.asked.key == "c")
    assert asked.place.endswith("in test_all_clients_count_and_all_ways_to_take_a_lock")


def test_tasks_count_each_for_itself() -> None:
    async def forth(locks: AsyncHoldfast) -> None:
        async with locks.hold("a"):
            await both_are_in.wait()
            await locks.acquire("c")

    async def back(locks: AsyncHoldfast) -> None:
        async with locks.hold("b"):
            both_are_in.set()
            async with locks.hold_all(["d"]):
                pass

    async def main() -> None:
        async with AsyncHoldfast("memory://") as locks:
            await asyncio.gather(forth(locks), back(locks))

    both_are_in = asyncio.Event()
    with LockOrder() as order:
        asyncio.run(main())
    assert orders(order) == {("a", "c"), ("b", "d")}
    assert all(__file__ in each.had.place for each in order.orders)
    assert {each.asked.place.split()[-1] for each in order.orders} == {"forth", "back"}


def test_opposite_orders_of_tasks_are_found() -> None:
    async def nested(locks: AsyncHoldfast, first: str, second: str) -> None:
        async with locks.hold(first), locks.hold(second):
            pass

    async def main() -> None:
        async with AsyncHoldfast("memory://") as locks:
            await asyncio.create_task(nested(locks, "a", "b"), name="forth")
            await asyncio.create_task(nested(locks, "b", "a"), name="back")

    with pytest.raises(LockOrderViolation, match=r"forth-.* in nested[^$]*back-.* in nested"), LockOrder():
        asyncio.run(main())


def kind(key: str) -> str:
    return key.split(":")[0]


def test_a_group_of_keys_counts_as_one(locks: Holdfast) -> None:
    with (
        pytest.raises(LockOrderViolation, match="'order' → 'user' → 'order'") as caught,
        LockOrder(group=kind),
    ):
        nest(locks, "order:2", "user:9")
        nest(locks, "user:1", "order:1")
    assert caught.value.names == ("order", "user")
    assert "had 'order:2'" in str(caught.value)


def test_within_a_group_the_keys_count(locks: Holdfast) -> None:
    with LockOrder(group=kind) as order:
        nest(locks, "order:1", "order:2", "user:1")
        nest(locks, "order:2", "order:3")
        order.check()
        nest(locks, "order:3", "order:1")
        with pytest.raises(LockOrderViolation, match="'order:1' → 'order:2' → 'order:3' → 'order:1'"):
            order.check()
        order._orders.clear()


def test_an_error_of_the_body_is_not_hidden(locks: Holdfast) -> None:
    with pytest.raises(KeyError), LockOrder():
        nest(locks, "a", "b")
        nest(locks, "b", "a")
        raise KeyError("mine")


def test_only_the_block_is_watched(locks: Holdfast) -> None:
    """Two may watch at a time, and the last that leaves puts everything back as it was."""
    before = [Engine.acquiring, Engine.keep, Keeper.drop]
    first, second = LockOrder(), LockOrder()
    with locks.hold("z"):
        first.__enter__()
        nest(locks, "a", "b")
        second.__enter__()
        nest(locks, "b", "c")
        first.__exit__(None, None, None)
        nest(locks, "c", "d")
        second.__exit__(None, None, None)
        nest(locks, "d", "a")
    assert orders(first) == {("a", "b"), ("b", "c")}
    assert orders(second) == {("b", "c"), ("c", "d")}
    assert [Engine.acquiring, Engine.keep, Keeper.drop] == before
    assert "2 orders" in repr(first)


def test_owners_whose_given_names_begin_alike_are_two(locks: Holdfast) -> None:
    with LockOrder() as order:
        with holdfast.owner("request.1"):
            lease = locks.acquire("a")
        with holdfast.owner("request.2"):
            locks.acquire("b").release()
        lease.release()
    assert orders(order) == set()
