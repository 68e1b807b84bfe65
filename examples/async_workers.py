"""Tasks of one event loop share a lock: first come, first served, and a busy loop loses nothing.

Run it: python examples/async_workers.py
"""

import asyncio
import tempfile
import time

from holdfast import AsyncHoldfast, LockTimeout


async def take_turns(locks: AsyncHoldfast) -> None:
    order: list[int] = []

    async def worker(number: int) -> None:
        async with locks.hold("printer"):
            order.append(number)
            await asyncio.sleep(0.01)

    async with asyncio.TaskGroup() as group:
        for number in range(8):
            group.create_task(worker(number), name=f"worker-{number}")
    print("order of entry:", *order)
    assert order == sorted(order), "somebody barged in"


async def ask_who_has_it(locks: AsyncHoldfast) -> None:
    async def hold_it_for_a_while() -> None:
        async with locks.hold("printer"):
            await asyncio.sleep(0.3)

    holder = asyncio.create_task(hold_it_for_a_while(), name="long-print")
    await asyncio.sleep(0.05)
    try:
        async with locks.hold("printer", timeout=0.1):
            raise AssertionError("this cannot be reached")
    except LockTimeout as error:
        print("a timeout explains itself:", error)
    await holder


async def block_the_loop(locks: AsyncHoldfast) -> None:
    async with locks.hold("model", ttl=3) as lease:
        time.sleep(4)  # noqa: ASYNC251  (bad manners, on purpose: nothing else runs meanwhile)
        lease.check()
        print(f"blocked the loop for 4 s with a ttl of {lease.ttl:g} s: still ours, {lease!r}")


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with AsyncHoldfast(f"sqlite:///{folder}/locks.db") as locks:
            await take_turns(locks)
            await ask_who_has_it(locks)
            await block_the_loop(locks)


if __name__ == "__main__":
    asyncio.run(main())
