"""Uses of the API that type checkers must understand. Checked by mypy, never run."""

from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from typing import assert_type

from holdfast import (
    Assignment,
    AsyncAssignment,
    AsyncHoldfast,
    AsyncInstance,
    AsyncLease,
    AsyncOperation,
    AsyncSchedule,
    AsyncTerm,
    Broken,
    Event,
    Holdfast,
    Instance,
    InstanceView,
    Lease,
    Leases,
    LockView,
    Operation,
    Resized,
    Run,
    Schedule,
    Swept,
    Term,
    WorkView,
)


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
    assert_type(locks.resize("a", 4), Resized)
    assert_type(locks.watch("a:*", after=7, timeout=1), Iterator[Event])
    with locks.hold("a", mode="shared", lock_delay=5) as reader, locks.semaphore("b", 4, take=2) as permits:
        assert_type(reader, Lease)
        assert_type(permits, Lease)
    with locks.hold_all(["a", "b"]) as leases:
        assert_type(leases, Leases[Lease])
    with locks.operation("pull", "a", exclusive=True, max_attempts=3) as pull:
        assert_type(pull, Operation)
        assert_type(pull.todo, bool)

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

    @locks.every("*/5 * * * *", missed="skip")
    def report(run: Run) -> int:
        return run.token

    @locks.every(60)
    def scheduled() -> int:
        return 1

    assert_type(scheduled, Schedule[[], int])
    assert_type(scheduled(), int)
    assert_type(scheduled.running, Run | None)
    assert_type(scheduled.stop(timeout=1), bool)
    with locks.lock("a"):
        pass
    with locks.join("engine", capacity=2, retry=None) as instance:
        assert_type(instance, Instance)
        for work in instance.claims("a", timeout=1):
            with work as entered:
                assert_type(entered, Assignment)
        assert_type(instance.claim("a"), list[Assignment])
        assert_type(instance.assign("a:1", {"n": 1}), Assignment)
        assert_type(instance.assignments, tuple[Assignment, ...])
    assert_type(locks.offer(["a:1", ("a:2", 7)]).new, tuple[bool, ...])
    assert_type(locks.offer({"a:1": {"n": 1}}, max_tries=3).new, tuple[bool, ...])
    assert_type(locks.work("a:1"), WorkView | None)
    assert_type(locks.works(state="failed"), Iterator[WorkView])
    assert_type(locks.instances(), list[InstanceView])
    for term in locks.elect("a"):
        assert_type(term, Term)
    with locks.elect("a", on_elected=lambda term: term.token, on_deposed=print) as election:
        assert_type(election.term, Term | None)


async def tasks(locks: AsyncHoldfast) -> None:
    async with locks.hold("a", ttl=30, timeout=5) as lease:
        assert_type(lease, AsyncLease)
    assert_type(await locks.acquire("a"), AsyncLease)
    assert_type(await locks.try_acquire("a"), AsyncLease | None)
    assert_type(locks.list(), AsyncIterator[LockView])
    assert_type(locks.watch("a:*"), AsyncIterator[Event])
    async with locks.operation("pull", "a") as pull:
        assert_type(pull, AsyncOperation)

    @locks.guarded("a", on_busy="skip")
    async def skips(n: int) -> str:
        return str(n)

    assert_type(await skips(1), str | None)

    @locks.every(60)
    async def scheduled() -> int:
        return 1

    assert_type(scheduled, AsyncSchedule[[], int])
    assert_type(await scheduled(), int)
    assert_type(await scheduled.stop(), bool)
    async with locks.join("engine") as instance:
        assert_type(instance, AsyncInstance)
        async for work in instance.claims("a"):
            async with work as entered:
                assert_type(entered, AsyncAssignment)
        assert_type(await instance.claim("a"), list[AsyncAssignment])
    assert_type(await locks.join(), AsyncInstance)
    assert_type(await locks.work("a:1"), WorkView | None)
    assert_type(locks.works(), AsyncIterator[WorkView])
    async for term in locks.elect("a"):
        async with term as led:
            assert_type(led, AsyncTerm)
