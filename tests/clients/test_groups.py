"""Tasks whose requests share a commit, on PostgreSQL: to each it is as if it had asked by itself."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast import AsyncHoldfast, OutcomeUnknown
from holdfast.core.requests import Acquire, Release
from tests.clients.support import PATIENCE, QUICK

TASKS = 12


def client(url: str) -> AsyncHoldfast:
    return AsyncHoldfast(url, settings=QUICK)


def watch(locks: AsyncHoldfast, monkeypatch: pytest.MonkeyPatch) -> list[list[Any]]:
    """Return the list of groups that the store is asked."""
    groups: list[list[Any]] = []
    store: Any = locks._engine.store
    try_together = store.try_together

    def spy(requests: list[Any]) -> list[Any]:
        groups.append(list(requests))
        found: list[Any] = try_together(requests)
        return found

    monkeypatch.setattr(store, "try_together", spy)
    return groups


async def nothing_is_left(locks: AsyncHoldfast) -> None:
    async for view in locks.list():
        assert (view.state, view.waiting) == ("free", 0), view


def test_tasks_share_round_trips(postgres_locks: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        async with client(postgres_locks) as locks:
            groups = watch(locks, monkeypatch)
            tokens: dict[str, list[int]] = {}

            async def pairs(number: int) -> None:
                for _ in range(10):
                    key = f"key-{number % (TASKS - 2)}"  # some have one key between them
                    async with locks.hold(key) as lease:
                        tokens.setdefault(key, []).append(lease.token)

            await asyncio.wait_for(asyncio.gather(*map(pairs, range(TASKS))), PATIENCE)
            assert sum(map(len, tokens.values())) == 10 * TASKS
            assert all(seen == sorted(set(seen)) for seen in tokens.values())
            assert max(map(len, groups)) > 2
            assert all(len({request.key for request in group}) == len(group) for group in groups)
            assert {type(request) for group in groups for request in group} == {Acquire, Release}
            await nothing_is_left(locks)

    asyncio.run(work())


@pytest.mark.parametrize("steps", range(8))
def test_a_task_of_a_group_can_be_cancelled(postgres_locks: str, steps: int) -> None:
    async def work() -> None:
        async with client(postgres_locks) as locks:
            entered: list[int] = []

            async def hold(number: int) -> None:
                async with locks.hold(f"key-{number}"):
                    entered.append(number)

            tasks = [asyncio.create_task(hold(number)) for number in range(TASKS)]
            for _ in range(steps):
                await asyncio.sleep(0.0005)
            for task in tasks[::2]:
                task.cancel()
            await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), PATIENCE)
            assert set(range(1, TASKS, 2)) <= set(entered)
            await nothing_is_left(locks)

    asyncio.run(work())


def test_a_lost_answer_of_a_group_is_asked_for_again(
    postgres_locks: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each group was committed, and nobody was told."""

    async def work() -> None:
        async with client(postgres_locks) as locks:
            store: Any = locks._engine.store
            try_together, lost = store.try_together, 3

            def lose(requests: list[Any]) -> list[Any]:
                nonlocal lost
                found: list[Any] = try_together(requests)
                lost -= 1
                return [OutcomeUnknown("lost") for _ in requests] if lost >= 0 else found

            monkeypatch.setattr(store, "try_together", lose)

            async def hold(number: int) -> None:
                async with locks.hold(f"key-{number}"):
                    pass

            await asyncio.wait_for(asyncio.gather(*map(hold, range(TASKS))), PATIENCE)
            assert lost < 0
            await nothing_is_left(locks)

    asyncio.run(work())


def test_tasks_that_ask_while_their_client_closes_are_not_forgotten(postgres_locks: str) -> None:
    async def work() -> None:
        locks = client(postgres_locks)

        async def pairs(number: int) -> None:
            while True:
                async with locks.hold(f"key-{number}"):
                    pass

        async with locks:
            tasks = [asyncio.create_task(pairs(number)) for number in range(TASKS)]
            await asyncio.sleep(0.05)
        told = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), PATIENCE)
        assert all(isinstance(each, Exception) for each in told)
        async with client(postgres_locks) as others:
            await nothing_is_left(others)

    asyncio.run(work())


def test_a_client_can_go_on_in_another_loop(postgres_locks: str) -> None:
    locks = client(postgres_locks)

    async def work() -> None:
        async def hold(number: int) -> None:
            async with locks.hold(f"key-{number}"):
                pass

        await asyncio.wait_for(asyncio.gather(*map(hold, range(TASKS))), PATIENCE)

    asyncio.run(work())
    asyncio.run(work())
    asyncio.run(locks.close())
