"""Schedules of real processes that are killed, told to end, forked, and whose clocks are wrong."""

from __future__ import annotations

import time
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.faults.processes import PATIENCE, TTL, House, Worker, eventually
from tests.faults.test_forking import FORK
from tests.servers.binaries import faketime

TICK = 0.25

# Every run writes a line when it begins and one when it ends, into one file: one write each, which is atomic.
# Half of the processes have tasks, the other half threads.
SCHEDULE = f"""
    diary = os.open({{file!r}}, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    pause = threading.Event()  # time.sleep fails under libfaketime

    def note(what, run):
        line = f"{{{{what}}}} {{{{run.tick.timestamp()}}}} {{{{run.token}}}} {{{{os.getpid()}}}}\\n"
        os.write(diary, line.encode())

    def job(run):
        note("begin", run)
        pause.wait({{length}})
        note("end", run)

    async def job_async(run):
        note("begin", run)
        await asyncio.sleep({{length}})
        note("end", run)

    locks = Holdfast(url, ttl={{ttl}}, settings=Settings(heartbeat=0.3, claim=1.5, patience=3))
    async_locks = AsyncHoldfast(url, ttl={{ttl}}, settings=Settings(heartbeat=0.3, claim=1.5, patience=3))

    def serve():
        async def main():
            global loop
            loop = asyncio.get_running_loop()
            async with async_locks:
                async_locks.every({TICK}, name="x", missed="all")(job_async)
                ready.set()
                await asyncio.sleep(3600)

        asyncio.run(main())

    told = []
    ready = threading.Event()
    if {{tasks}}:
        threading.Thread(target=serve, daemon=True).start()
        assert ready.wait(30)
    else:
        tell = lambda error: told.append(repr(error))
        schedule = locks.every({TICK}, name="x", missed="all", on_error=tell)(job)
"""


class Diary:
    """What the processes have written down."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "runs"

    def lines(self) -> list[tuple[str, float, int, int]]:
        if not self.file.exists():
            return []
        found = [line.split() for line in self.file.read_text().splitlines()]
        return [(what, float(tick), int(token), int(pid)) for what, tick, token, pid in found]

    def ended(self) -> list[float]:
        return [tick for what, tick, *_ in self.lines() if what == "end"]

    def until(self, number: int) -> None:
        eventually(lambda: len(set(self.ended())) >= number)

    def open_run(self, pid: int) -> bool:
        """Whether a process is in the middle of a run."""
        mine = [what for what, *_, each in self.lines() if each == pid]
        return bool(mine) and mine[-1] == "begin"

    def check(self, killed: set[int] | None = None) -> None:
        """Each tick has been run to its end; twice only if who began it first was killed."""
        lines = self.lines()
        ticks = sorted(set(self.ended()))
        assert all(round(b - a, 6) == TICK for a, b in pairwise(ticks))
        for tick, number in Counter(tick for what, tick, *_ in lines if what == "begin").items():
            pids = [pid for what, each, _, pid in lines if (what, each) == ("begin", tick)]
            assert number == 1 or set(pids[:-1]) <= (killed or set()), (tick, pids)
        tokens = [token for what, _, token, _ in lines if what == "begin"]
        assert tokens == sorted(set(tokens))


@pytest.fixture
def diary(tmp_path: Path) -> Diary:
    return Diary(tmp_path)


def start(
    diary: Diary, worker: Worker, *, tasks: Any = False, length: float = 0.02, ttl: float = 30.0
) -> Worker:
    worker.do(SCHEDULE.format(file=str(diary.file), length=length, tasks=bool(tasks), ttl=ttl))
    return worker


def stop_in_a_run(diary: Diary, workers: list[Worker]) -> Worker:
    """Stop one of the processes in the middle of a run."""
    while True:
        worker: Worker = eventually(lambda: next((w for w in workers if diary.open_run(w.pid)), None))
        worker.stop()
        if diary.open_run(worker.pid):  # else it was faster
            return worker
        worker.go_on()


def test_processes_share_the_ticks(house: House, diary: Diary) -> None:
    for n, worker in enumerate(house.workers(4)):
        start(diary, worker, tasks=n % 2)
    diary.until(16)
    diary.check()


def test_a_process_that_is_killed_in_the_middle_costs_its_lease_and_no_tick(
    house: House, diary: Diary
) -> None:
    workers = house.workers(4)
    for n, worker in enumerate(workers):
        start(diary, worker, tasks=n % 2, length=0.15, ttl=4.0)
    killed = set()
    for _ in range(2):
        victim = stop_in_a_run(diary, workers)
        victim.kill()
        killed.add(victim.pid)
        workers.remove(victim)
        diary.until(len(set(diary.ended())) + 4)
    diary.until(12)
    diary.check(killed)


@pytest.mark.parametrize("tasks", [False, True])
def test_a_process_that_is_told_to_end_gives_its_tick_to_another_at_once(
    file_house: House, diary: Diary, tasks: bool
) -> None:
    """It is not there any more, and its lease is not either: nobody waits for the end of it."""
    first = start(diary, file_house.worker(), tasks=tasks, length=3600)
    eventually(lambda: diary.open_run(first.pid))
    first.terminate()
    assert file_house.look("every:x").state == "free"
    start(diary, file_house.worker())
    diary.until(3)
    diary.check({first.pid})


def test_a_process_that_ends_by_itself_gives_its_tick_back(house: House, diary: Diary) -> None:
    first = start(diary, house.worker(), length=3600)
    eventually(lambda: diary.open_run(first.pid))
    assert first.end() == 0
    assert house.look("every:x").state == "free"
    start(diary, house.worker())
    diary.until(3)
    diary.check({first.pid})


def test_a_process_that_stood_still_past_its_lease_knows_and_the_tick_is_run_again(
    house: House, diary: Diary
) -> None:
    sleeper, other = house.workers(2)
    start(diary, sleeper, length=0.5, ttl=TTL)
    stop_in_a_run(diary, [sleeper])
    tick = diary.lines()[-1][1]
    start(diary, other)
    eventually(
        lambda: ("end", tick, other.pid) in [(what, each, pid) for what, each, _, pid in diary.lines()]
    )
    sleeper.go_on()
    eventually(lambda: sleeper.do("_ = told"))
    assert "LeaseLost" in sleeper.do("_ = told[0]")
    *before, last = [pid for what, each, _, pid in diary.lines() if (what, each) == ("begin", tick)]
    assert (set(before), last) == ({sleeper.pid}, other.pid)  # stopping it may have cost it a lease before
    diary.until(len(set(diary.ended())) + 3)


def test_a_forked_child_runs_nothing_until_it_is_started_there(file_house: House, diary: Diary) -> None:
    parent = start(diary, file_house.worker())
    parent.do(FORK)
    diary.until(2)
    told = parent.do(
        """
        def child():
            before = [schedule.running is None, schedule.next_in, repr(schedule), schedule.stop()]
            seen = threading.Event()
            mine = locks.every(0.1, name="mine")(seen.set)
            ran = seen.wait(30)
            threads = sorted(thread.name for thread in threading.enumerate())
            schedule.start()
            eager = "stopped" not in repr(schedule)
            locks.close()
            return [*before, ran, threads, eager]

        _ = in_child(child)
        """
    )
    idle, next_in, shown, stopped, ran, threads, eager = told
    assert (idle, next_in, stopped, ran, eager) == (True, None, True, True, True)
    assert "stopped" in shown
    assert threads.count("holdfast-every") == 1
    assert "holdfast-every:x" not in threads
    diary.until(len(set(diary.ended())) + 2)
    diary.check()


def test_a_fork_in_the_middle_of_a_run_leaves_the_run_to_the_parent(file_house: House, diary: Diary) -> None:
    parent = start(diary, file_house.worker(), length=1.0)
    parent.do(FORK)
    eventually(lambda: diary.open_run(parent.pid))
    told = parent.do("run = schedule.running; _ = in_child(lambda: name_of(run.check) if run else 'none')")
    assert told == "none" or "forked" in told
    diary.until(2)
    diary.check()


def test_clocks_that_are_hours_apart_make_one_fleet(server_house: House, diary: Diary) -> None:
    """The server's clock says when a tick has come: none is run early, twice or not at all."""
    if (library := faketime()) is None:
        pytest.skip("missing: libfaketime, from the package libfaketime")
    offsets = ("+3h", "-5h", "+40d", "+0")
    workers = [
        server_house.worker(
            LD_PRELOAD=str(library), FAKETIME=offset, FAKETIME_DONT_FAKE_MONOTONIC="1", FAKETIME_NO_CACHE="1"
        )
        for offset in offsets
    ]
    times = [float(worker.do("_ = time.time()")) for worker in workers]
    assert times[0] - times[1] > 7 * 3600  # else the clocks were not changed, and this shows nothing
    for n, worker in enumerate(workers):
        start(diary, worker, tasks=n % 2)
    diary.until(16)
    eventually(lambda: len({pid for *_, pid in diary.lines()}) > 1)
    diary.check()
    assert (
        abs(max(diary.ended()) - time.time()) < PATIENCE * 10
    )  # by the right clock, and not three hours off
