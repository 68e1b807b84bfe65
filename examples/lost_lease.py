"""A lease can be lost. Three ways to notice: ask, wait for the event, or be cancelled.

Run it: python examples/lost_lease.py
"""

import asyncio
import logging
import tempfile
import time

from holdfast import AsyncHoldfast, Holdfast, LeaseLost

logging.getLogger("holdfast").setLevel(logging.ERROR)  # it warns of every lost lease; we tell it ourselves


def too_slow(locks: Holdfast) -> None:
    """Ask between the steps of a long job. Not renewed here, as if the process had been paused."""
    done = 0
    try:
        with locks.hold("import:customers", ttl=0.3, renew=False) as lease:
            for _ in range(10):
                lease.check()  # raises LeaseLost: stop before doing harm
                time.sleep(0.1)
                done += 1
    except LeaseLost as error:
        print(f"1. after {done} of 10 steps: {error}")


def broken_by_an_operator(locks: Holdfast) -> None:
    """Wait for the event instead of asking."""
    try:
        with locks.hold("import:orders") as lease:
            locks.break_lock("import:orders", reason="looks stuck", by="alice")
            lease.lost.wait(lease.ttl)  # a moment; should the signal be lost, until the next renewal
    except LeaseLost as error:
        print(f"2. reason={error.reason!r} by={error.by!r} detail={error.detail!r}")


async def cancelled(url: str) -> None:
    """Under asyncio the body is cancelled, and the block raises LeaseLost."""
    async with AsyncHoldfast(url) as locks:
        started = time.monotonic()
        try:
            async with locks.hold("import:invoices", ttl=0.3, renew=False):
                await asyncio.sleep(60)
        except LeaseLost as error:
            print(f"3. stopped after {time.monotonic() - started:.1f} s of 60: {error.reason}")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/locks.db"
        with Holdfast(url) as locks:
            too_slow(locks)
            broken_by_an_operator(locks)
            asyncio.run(cancelled(url))
            print("kept in the history:", *(event.kind for event in locks.history("import:orders")))


if __name__ == "__main__":
    main()
