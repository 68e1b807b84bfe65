"""Interrupts, cancellations and forks at the worst moments: nothing is left behind, nothing is given away."""

import asyncio
import os
import signal
import threading
import time
from contextlib import suppress

import pytest

from holdfast import AsyncHoldfast, Holdfast
from holdfast.client import exits
from tests.faults.processes import nobody_can_write


@pytest.fixture
def locks(url: str):
    with Holdfast(url) as locks:
        yield locks


def until(true, seconds: float = 10.0) -> None:
    """Wait for something that is about to be so. A ttl is three times as long."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.01)


def in_child(work) -> None:
    child = os.fork()
    if child == 0:
        work()
        os._exit(0)
    os.waitpid(child, 0)


def test_a_loop_that_ends_leaves_no_ticket_of_a_cancelled_task(url, locks):
    """When a loop ends it cancels all tasks; a last wish is none of them."""

    waiting = AsyncHoldfast(url)

    async def main() -> None:
        task = asyncio.create_task(waiting.acquire("nightly"))
        await asyncio.to_thread(until, lambda: locks.inspect("nightly").waiting == 1)
        task.cancel()
        await asyncio.sleep(0)  # and the program ends without waiting for it

    with locks.hold("nightly"):
        asyncio.run(main())
        until(lambda: locks.inspect("nightly").waiting == 0)
    waiting._engine.leave()


def test_a_loop_that_ends_leaves_no_lease_that_was_on_its_way(url, locks):
    late = AsyncHoldfast(url)

    async def main() -> None:
        await late.inspect("nightly")
        with nobody_can_write(url):
            task = asyncio.create_task(late.acquire("nightly"))
            await asyncio.sleep(0.05)  # its request waits for the writer now
            task.cancel()
            await asyncio.sleep(0)

    asyncio.run(main())
    until(lambda: next(locks.list(state="held"), None) is None)
    late._engine.leave()


def test_a_child_that_is_interrupted_while_leaving_gives_nothing_back(locks, monkeypatch):
    """Ctrl-C goes to the whole process group; the lease is the parent's all the same."""
    hold = locks.hold("nightly")
    lease = hold.__enter__()

    def interrupted() -> None:
        def interrupt() -> None:
            raise KeyboardInterrupt

        lease.release = interrupt
        with suppress(KeyboardInterrupt):
            hold.__exit__(None, None, None)

    in_child(interrupted)
    assert lease.held
    assert locks.inspect("nightly").state == "held"
    hold.__exit__(None, None, None)


def test_an_interrupt_while_a_fork_waits_for_a_store_leaves_forking_possible(url, locks, monkeypatch):
    """What an interrupted fork has not prepared, it must not undo either."""
    monkeypatch.setattr("sys.unraisablehook", lambda _: None)  # CPython reports what at-fork hooks raise
    in_child(lambda: None)
    store = locks._engine.store
    pool = store._pool if hasattr(store, "_pool") else getattr(store.sessions, "pool", None)
    mutex = store.sessions.mutex if pool is None else pool._mutex
    inside, leave = threading.Event(), threading.Event()

    def busy() -> None:
        with mutex:
            inside.set()
            leave.wait(10)

    thread = threading.Thread(target=busy)
    thread.start()
    inside.wait(10)
    with suppress(KeyboardInterrupt):
        threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        in_child(lambda: None)
    assert mutex.locked()  # by the other thread, which is still inside
    assert not exits._forking.locked()
    leave.set()
    thread.join()
    in_child(lambda: None)
    with locks.hold("nightly"):
        pass


def test_a_grant_that_was_too_slow_to_be_trusted_is_not_entered(url):
    """Nobody can write for longer than the ttl; being inside must mean to hold it."""
    with Holdfast(url) as locks, nobody_can_write(url) as go_on:
        threading.Timer(1.5, go_on).start()
        with locks.hold("nightly", ttl=1) as lease:
            assert lease.held
