"""Traffic that writes down what it believed, and a checker of what all of them together believed.

Each worker takes one of a few keys, works for a moment, and notes the key, the token, and from when until
when it trusted its lease, by the boot-time clock, which all processes of a machine share. Whatever happens to
the server meanwhile: nobody's trust may overlap with anybody else's, and later leases have larger tokens.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise

from tests.faults.processes import House, Worker, eventually

KEYS = 3
THREADS = 4  # and as many tasks

# Half of the processes ask from threads, the other half from tasks. Nobody has two locks, so nobody waits
# in a circle, unless releases were lost: see `Fleet.check`. Any other error ends a worker and the test:
# without a timeout, everything that may pass is tried again.
TRAFFIC = f"""
    import random
    from holdfast.clock import boot_time

    going, records, failures, circles, turns, broken = True, [], [], [], [0] * {THREADS}, []

    def excepthook(args):
        broken.append("".join(traceback.format_exception(args.exc_value)))

    threading.excepthook = excepthook

    def note(lease, since):
        until = min(boot_time(), lease._holding.kept.trusted_until)
        records.append([lease.key, lease.token, since, until, lease.owner])

    def how_long(dice):  # now and then for as long as a server is away
        return 0.5 if dice.random() < 0.05 else dice.random() * 0.004

    def work(n):
        dice = random.Random(f"{{os.getpid()}} {{n}}")
        pause = threading.Event()  # time.sleep fails under libfaketime
        while going:
            with_key = f"key-{{dice.randrange({KEYS})}}"
            try:
                lease = locks.acquire(with_key, ttl=2)
            except DeadlockDetected as error:
                circles.append(str(error))
                continue
            since = boot_time()
            pause.wait(how_long(dice))
            note(lease, since)
            try:
                lease.release()
            except (LeaseLost, StoreError) as error:
                failures.append(str(error))
            turns[n] += 1

    async def work_async(n):
        dice = random.Random(f"{{os.getpid()}} {{n}}")
        while going:
            with_key = f"key-{{dice.randrange({KEYS})}}"
            try:
                lease = await async_locks.acquire(with_key, ttl=2)
            except DeadlockDetected as error:
                circles.append(str(error))
                continue
            since = boot_time()
            await asyncio.sleep(how_long(dice))
            note(lease, since)
            try:
                await lease.release()
            except (LeaseLost, StoreError) as error:
                failures.append(str(error))
            turns[n] += 1

    async def all_tasks():
        global async_locks
        async with AsyncHoldfast(url, settings=locks.settings) as async_locks:
            await asyncio.gather(*(work_async(n) for n in range({THREADS})))

    def start(asynchronous):
        global threads
        if asynchronous:
            threads = [threading.Thread(target=lambda: asyncio.run(all_tasks()))]
        else:
            threads = [threading.Thread(target=work, args=(n,)) for n in range({THREADS})]
        for thread in threads:
            thread.start()
"""


class Fleet:
    """Four processes with four threads or four tasks each, all after the same keys."""

    def __init__(self, house: House, workers: list[Worker] | None = None) -> None:
        self.workers = workers or house.workers(4)
        for n, worker in enumerate(self.workers):
            worker.do(TRAFFIC)
            worker.do(f"start({n % 2})")
        self.until_all_had_turns()

    def turns(self) -> list[int]:
        found = []
        for worker in self.workers:
            turns, broken = worker.do("_ = [turns, broken]")
            assert not broken, broken[0]
            found += turns
        return found

    def until_all_had_turns(self) -> None:
        """Wait until each thread and each task has had a turn that began after this moment."""
        before = self.turns()
        eventually(
            lambda: all(now >= then + 2 for then, now in zip(before, self.turns(), strict=True)),
        )

    def check(self, *, lost_releases: bool = False) -> int:
        """Stop them, and look at what they believed. Return the number of leases.

        With *lost_releases* two may have seemed to wait for each other: by what their server knew after a
        crash, each still had what it had released.
        """
        for worker in self.workers:
            worker.do("going = False")
        for worker in self.workers:
            worker.do("[thread.join() for thread in threads]")
        circles = [circle for worker in self.workers for circle in worker.do("_ = circles")]
        assert lost_releases or not circles, circles[0]
        records = [tuple(record) for worker in self.workers for record in worker.do("_ = records")]
        assert not (wrong := violations(records)), "\n".join(wrong[:20])
        return len(records)


def violations(records: list[tuple[str, int, float, float, str]]) -> list[str]:
    """Return what should not have been believed, in words.

    A release that was lost in a crash leaves the lease to its owner, who enters it again under its old token.
    """
    wrong = []
    leases = defaultdict(list)
    for key, token, since, until, owner in records:
        leases[key].append((since, until, token, owner))
    for key, believed in leases.items():
        for (_, until, first, one), (since, _, second, two) in pairwise(sorted(believed)):
            if since < until:
                wrong.append(
                    f"{key}: {one} trusted {first} for {until - since:.6f} s after {two} got {second}"
                )
            if second < first or (second == first and one != two):
                wrong.append(f"{key}: {two} got {second} after {one} got {first}")
    return wrong
