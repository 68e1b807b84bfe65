"""What is under way when a process forks is the parent's: the child has it too, and does not go on with it.

The clients are told of a fork that does not happen: so the child's side of it can be seen in one process.
Real forks are in `tests/faults/test_forking.py`.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast import AsyncHoldfast, Holdfast, HoldfastError, LeaseLost
from holdfast.client.base import BaseClient
from holdfast.core.requests import Signal
from tests.clients.support import PATIENCE, eventually


@pytest.fixture
def file(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/locks.db"


def become_a_child(locks: BaseClient) -> Callable[[], None]:
    """Return what wakes everybody who waited before: their time to wait is over in the child as well."""
    waiting = dict(locks._engine.mailboxes)
    locks._engine.before_fork()
    locks._engine.after_fork()

    def wake_all() -> None:
        for attempt, (key, mailbox) in waiting.items():
            mailbox.put(Signal("granted", key, attempt))

    return wake_all


@pytest.mark.parametrize("then", ["cancelled", "woken"])
def test_a_task_that_waits_leaves_the_ticket_to_the_parent(file: str, then: str) -> None:
    async def play() -> None:
        async with AsyncHoldfast(file) as others, AsyncHoldfast(file) as locks:
            lease = await others.acquire("k", ttl=60)
            asking = asyncio.create_task(locks.acquire("k"))
            while (await others.inspect("k")).waiting == 0:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            wake_all = become_a_child(locks)
            if then == "cancelled":
                asking.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await asking
            else:
                wake_all()
                with pytest.raises(HoldfastError, match="the process that forked this one asked"):
                    await asyncio.wait_for(asking, 3.0)  # else it would wait on
            assert (await others.inspect("k")).waiting == 1
            await lease.release()

    asyncio.run(asyncio.wait_for(play(), PATIENCE))


def test_a_thread_that_waits_leaves_the_ticket_to_the_parent(file: str) -> None:
    """As after a signal handler that forks, and returns in both."""
    told: list[BaseException] = []

    def ask() -> None:
        try:
            locks.acquire("k")
        except HoldfastError as error:
            told.append(error)

    with Holdfast(file) as others, Holdfast(file) as locks:
        lease = others.acquire("k", ttl=60)
        thread = threading.Thread(target=ask)
        thread.start()
        eventually(lambda: others.inspect("k").waiting == 1)
        become_a_child(locks)()
        thread.join(PATIENCE)
        assert "the process that forked this one asked" in str(told[0])
        assert others.inspect("k").waiting == 1
        lease.release()


def test_the_event_of_a_lease_knows_of_a_fork_by_itself(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lease that is just being released is kept by nobody, who could tell."""
    with Holdfast(file) as locks:
        lease = locks.acquire("k")
        locks._engine.keeper.drop(lease._holding.kept.grant.attempt)
        assert not lease.lost.is_set()
        monkeypatch.setattr("holdfast.identity.forks", 1)
        assert lease.lost.is_set()
        monkeypatch.undo()
        lease._holding.kept.lost = None
        lease.release()


def test_leaving_a_block_in_the_child_says_so_even_if_a_transaction_was_to_release(
    file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Holdfast(file) as locks:
        lease = locks.acquire("k")
        lease._holding.left_to_transaction = True  # as `release(within=)` does
        monkeypatch.setattr("holdfast.identity.forks", 1)
        with pytest.raises(LeaseLost, match="forked"):
            lease.__exit__(None, None, None)
