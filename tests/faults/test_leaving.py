"""The end of a process, wanted or not: what it held is free at once, and its exit status is its own."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from tests.faults.processes import PATIENCE, House, nobody_can_write


def test_the_end_of_the_interpreter_releases_what_was_forgotten(house: House) -> None:
    worker, waiter = house.workers(2)
    first = worker.acquire(ttl=600)
    worker.do("again = locks.acquire('another', ttl=600)")
    waiter.queue(ttl=600)
    house.until_waiting(1)
    assert worker.end() == 0
    assert waiter.answer() > first
    assert house.look("another").state == "free"


@pytest.mark.parametrize(
    ("way", "status"), [("sys.exit(3)", 3), ("sys.exit('so long')", 1), ("raise SystemExit", 0)]
)
def test_sys_exit_releases_and_keeps_its_status(house: House, way: str, status: int) -> None:
    worker = house.worker()
    worker.acquire(ttl=600)
    worker.begin(way)
    assert worker.wait() == status
    assert house.look().state == "free"


def test_sys_exit_in_a_thread_ends_that_thread_only(house: House) -> None:
    worker = house.worker()
    worker.acquire("kept", ttl=600)
    worker.do(
        """
        def leave():
            with locks.hold("nightly", ttl=600):
                sys.exit(3)

        thread = threading.Thread(target=leave)
        thread.start()
        thread.join()
        lease.check()
        """
    )
    assert house.look().state == "free"
    assert house.look("kept").state == "held"
    assert worker.end() == 0
    assert house.look("kept").state == "free"


def test_an_error_that_ends_the_process_releases(house: House) -> None:
    worker = house.worker()
    worker.acquire(ttl=600)
    worker.do("def hook(*_): pass\nsys.excepthook = hook")
    worker.begin("raise SystemExit(1) from KeyError('mine')")
    assert worker.wait() == 1
    assert house.look().state == "free"


def test_sigterm_releases_at_once_and_still_kills(house: House) -> None:
    worker, waiter = house.workers(2)
    first = worker.acquire(ttl=600)
    waiter.queue(ttl=600)
    house.until_waiting(1)
    assert worker.terminate() == -signal.SIGTERM
    assert waiter.answer() > first  # its ttl was ten minutes


def test_sigterm_while_waiting_leaves_no_ticket(house: House) -> None:
    holder, waiter = house.workers(2)
    holder.acquire(ttl=600)
    waiter.queue(ttl=600)
    house.until_waiting(1)
    waiter.until_asleep()
    assert waiter.terminate() == -signal.SIGTERM
    assert house.look().waiting == 0


def test_sigterm_in_the_middle_of_requests_releases_as_well(house: House) -> None:
    """The main thread is inside the store, with its mutex held, when the signal comes: it may finish."""
    workers = house.workers(5)
    for worker in workers:
        worker.acquire(f"kept-{worker.pid}", ttl=600)
        worker.begin(
            """
            answer(ok="going")
            while True:
                with locks.hold("nightly", ttl=600), locks.hold("nightly", ttl=600):
                    pass
            """
        )
        assert worker.answer() == "going"
    for worker in workers:
        assert worker.terminate() == -signal.SIGTERM
    assert [view.key for view in house.locks.list(state="held")] == []
    assert sum(view.waiting for view in house.locks.list()) == 0


def test_sigterm_ends_an_async_program_and_releases(house: House) -> None:
    worker = house.worker()
    worker.do(
        f"""
        async def program():
            async with AsyncHoldfast(url) as async_locks:
                async with async_locks.hold("nightly", ttl=600):
                    answer(ok="inside")
                    await asyncio.sleep({PATIENCE})
        """
    )
    worker.begin("asyncio.run(program())")
    assert worker.answer() == "inside"
    assert worker.terminate() == -signal.SIGTERM
    assert house.look().state == "free"


def test_a_handler_of_the_users_is_left_alone(house: House) -> None:
    worker = house.worker()
    worker.do(
        """
        told = []
        signal.signal(signal.SIGTERM, lambda *_: told.append("mine"))
        another = Holdfast(url)
        """
    )
    worker.acquire(ttl=600)
    worker.send(signal.SIGTERM)
    assert worker.do("time.sleep(0.01); _ = told") == ["mine"]
    worker.do("lease.check()")
    assert worker.end() == 0


def test_a_handler_that_was_there_first_is_left_alone(house: House) -> None:
    code = (
        "import signal; told = []; mine = lambda *_: told.append(1); signal.signal(signal.SIGTERM, mine);"
        f" from holdfast import Holdfast; locks = Holdfast({house.url!r}); lease = locks.acquire('nightly');"
        " assert signal.getsignal(signal.SIGTERM) is mine; signal.raise_signal(signal.SIGTERM); assert told;"
        " signal.signal(signal.SIGTERM, signal.SIG_IGN); Holdfast('memory://');"
        " assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    assert house.look().state == "free"


def test_a_client_made_in_a_thread_installs_no_handler(house: House) -> None:
    code = (
        "import signal, threading; from holdfast import Holdfast\n"
        f"thread = threading.Thread(target=lambda: Holdfast({house.url!r}).acquire('nightly'))\n"
        "thread.start(); thread.join()\n"
        "assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    assert house.look().state == "free"


def test_an_async_client_that_was_never_closed_releases_at_the_end(house: House) -> None:
    worker = house.worker()
    worker.do(
        """
        async def forget():
            global forgotten, kept
            forgotten = AsyncHoldfast(url)
            kept = await forgotten.acquire("nightly", ttl=600)

        asyncio.run(forget())
        """
    )
    assert house.look().state == "held"
    assert worker.end() == 0
    assert house.look().state == "free"


def test_the_end_does_not_take_long_when_the_store_is_stuck(house: House) -> None:
    """Somebody keeps everybody from writing: a dying process tries, and then dies all the same."""
    worker = house.worker()
    worker.acquire(ttl=600)
    with nobody_can_write(house.url):
        assert worker.terminate() == -signal.SIGTERM
    # Until its ttl ends, unless a server still had its last wish.
    assert house.look().state in (["held"] if house.url.startswith("sqlite") else ["held", "free"])
