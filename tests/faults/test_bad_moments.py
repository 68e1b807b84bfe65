"""Interrupts, cancellations and forks at the worst moments: nothing is left behind, nothing is given away."""

import asyncio
import os
import signal
import sqlite3
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from holdfast import AsyncHoldfast, Holdfast, exits


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/locks.db"


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

    async def main() -> None:
        waiting = AsyncHoldfast(url)
        task = asyncio.create_task(waiting.acquire("nightly"))
        await asyncio.to_thread(until, lambda: locks.inspect("nightly").waiting == 1)
        task.cancel()
        await asyncio.sleep(0)  # and the program ends without waiting for it

    with locks.hold("nightly"):
        asyncio.run(main())
        until(lambda: locks.inspect("nightly").waiting == 0)


def test_a_loop_that_ends_leaves_no_lease_that_was_on_its_way(url, locks, tmp_path):
    writer = sqlite3.connect(tmp_path / "locks.db", isolation_level=None, check_same_thread=False)

    async def main() -> None:
        late = AsyncHoldfast(url)
        await late.inspect("nightly")
        writer.execute("BEGIN IMMEDIATE")
        task = asyncio.create_task(late.acquire("nightly"))
        await asyncio.sleep(0.05)  # its request waits for the writer now
        task.cancel()
        await asyncio.sleep(0)
        writer.execute("COMMIT")

    asyncio.run(main())
    writer.close()
    until(lambda: next(locks.list(state="held"), None) is None)


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
    mutex = locks._store._mutex
    inside, leave = threading.Event(), threading.Event()

    def busy() -> None:
        with mutex:
            inside.set()
            leave.wait(10)

    thread = threading.Thread(target=busy)
    thread.start()
    inside.wait(10)
    threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    with suppress(KeyboardInterrupt):
        in_child(lambda: None)
    assert mutex.locked()  # by the other thread, which is still inside
    assert not exits._forking.locked()
    leave.set()
    thread.join()
    in_child(lambda: None)
    with locks.hold("nightly"):
        pass


def test_a_grant_that_was_too_slow_to_be_trusted_is_not_entered(url, tmp_path):
    """The file is locked for longer than the ttl; being inside must mean to hold it."""
    writer = sqlite3.connect(tmp_path / "locks.db", isolation_level=None, check_same_thread=False)
    with Holdfast(url) as locks:
        writer.execute("BEGIN IMMEDIATE")
        threading.Timer(0.5, lambda: writer.execute("COMMIT")).start()
        with locks.hold("nightly", ttl=0.3) as lease:
            assert lease.held
    writer.close()
