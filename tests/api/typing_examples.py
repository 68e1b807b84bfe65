"""Uses of the API that type checkers must understand. Checked by mypy, never run."""

from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from typing import assert_type

from holdfast import AsyncHoldfast, AsyncLease, Broken, Event, Holdfast, Lease, LockView, Swept


def threads(locks: Holdfast) -> None:
    with locks.hold("a", ttl=30, timeout=timedelta(seconds=5)) as lease:
        assert_type(lease, Lease)
        assert_type(lease.token, int)
        assert_type(lease.remaining, float)
    assert_type(locks.acquire("a"), Lease)
    assert_type(locks.try_acquire("a"), Lease | None)
    assert_type(locks.inspect("a"), LockView | None)
    assert_type(locks.list(type="workflow", state="held"), Iterator[LockView])
    assert_type(locks.history("a"), tuple[Event, ...])
    assert_type(locks.break_lock("a", reason="stuck"), Broken | None)
    assert_type(locks.sweep(), Swept)

    @locks.guarded("a")
    def waits(n: int) -> str:
        return str(n)

    @locks.guarded("a", on_busy="skip")
    def skips(n: int) -> str:
        return str(n)

    @locks.guarded(key_from=lambda n: f"job:{n}")
    def computed(n: int) -> str:
        return str(n)

    @locks.guarded
    def bare(n: int) -> str:
        return str(n)

    assert_type(bare(1), str)
    assert_type(waits(1), str)
    assert_type(skips(1), str | None)
    assert_type(computed(1), str)
    with locks.lock("a"):
        pass


async def tasks(locks: AsyncHoldfast) -> None:
    async with locks.hold("a", ttl=30, timeout=5) as lease:
        assert_type(lease, AsyncLease)
    assert_type(await locks.acquire("a"), AsyncLease)
    assert_type(await locks.try_acquire("a"), AsyncLease | None)
    assert_type(locks.list(), AsyncIterator[LockView])

    @locks.guarded("a", on_busy="skip")
    async def skips(n: int) -> str:
        return str(n)

    assert_type(await skips(1), str | None)
