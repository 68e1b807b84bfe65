"""Many processes at once: nobody meets in the block, and everybody is served in turn."""

from __future__ import annotations

import os
import shutil
import socket
import sqlite3
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest

from holdfast import Holdfast
from tests.faults.processes import HEARTBEAT, PATIENCE, PATIENT, House, Worker, eventually

COUNT = """
    import sys
    from pathlib import Path
    from holdfast import Holdfast

    url, counter, times = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    print("ready", flush=True)
    sys.stdin.readline()
    with Holdfast(url) as locks:  # on a file that is new: all of them make its tables
        for _ in range(times):
            with locks.hold("counter", timeout=60) as lease:
                tokens = counter.read_text().split()
                counter.write_text("\\n".join([*tokens, str(lease.token)]))
"""


def test_32_processes_on_one_counter_lose_no_count(url: str, tmp_path: Path) -> None:
    """P2 and P1 with nothing else to protect the file: every count is there, and the tokens rise."""
    counter = tmp_path / "counter"
    counter.write_text("")
    times = 8
    processes = [
        subprocess.Popen(
            [
                sys.executable,
                "-c",
                textwrap.dedent(COUNT),
                url,
                str(counter),
                str(times),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(32)
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    for process in processes:
        process.communicate(timeout=90)
        assert process.returncode == 0
    tokens = [int(token) for token in counter.read_text().split()]
    assert len(tokens) == 32 * times
    assert tokens == sorted(set(tokens))


def test_processes_are_served_in_the_order_of_their_coming(house: House) -> None:
    holder, *waiters = house.workers(9, settings=PATIENT)
    holder.acquire(ttl=600)
    order = house.folder / "order"
    order.touch()
    for n, waiter in enumerate(waiters):
        waiter.begin(
            f"""
            with locks.hold("nightly", ttl=600):
                with open({str(order)!r}, "a") as file:
                    file.write("{n} ")
            """
        )
        house.until_waiting(n + 1)
    holder.release()
    for waiter in waiters:
        waiter.answer()
    assert order.read_text().split() == [str(n) for n in range(8)]


def ticks(pid: int) -> tuple[int, int]:
    """Return the CPU ticks that a process has used, and how often its threads have gone to sleep."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    switches = 0
    for status in Path(f"/proc/{pid}/task").glob("*/status"):
        for line in status.read_text().splitlines():
            if line.startswith("voluntary_ctxt_switches"):
                switches += int(line.split()[1])
    return int(fields[11]) + int(fields[12]), switches


def test_a_waiting_process_does_not_poll(house: House) -> None:
    """Ten waiters sleep between heartbeats. Counted, not timed: sleeping once a millisecond is 3000 times."""
    holder, waiter = house.workers(2)
    holder.acquire(ttl=600)
    waiter.do(
        """
        waiters = [threading.Thread(target=locks.acquire, args=("nightly",), daemon=True) for _ in range(10)]
        for each in waiters:
            each.start()
        """
    )
    house.until_waiting(10)
    started = time.monotonic()
    cpu, switches = ticks(waiter.pid)
    time.sleep(3.0)
    cpu_after, switches_after = ticks(waiter.pid)
    seconds = time.monotonic() - started  # on a busy machine it is more than we asked for
    beats = seconds / HEARTBEAT
    # A heartbeat is one transaction, in turn with others that write, and wakes the one that is head.
    assert switches_after - switches < 20 * beats
    assert cpu_after - cpu < seconds / 6 * os.sysconf("SC_CLK_TCK")


def test_a_holding_process_does_not_poll(house: House) -> None:
    (holder,) = house.workers(1)
    holder.acquire(ttl=600)
    holder.until_reachable()

    def is_quiet() -> bool:
        cpu, switches = ticks(holder.pid)
        time.sleep(1.0)
        cpu_after, switches_after = ticks(holder.pid)
        return switches_after - switches <= 3 and cpu_after - cpu <= 2

    eventually(is_quiet)  # on a busy machine it may still be finishing what it began


@pytest.mark.parametrize("length", [90, 200, 240])
def test_a_path_too_long_for_a_socket_still_wakes(tmp_path: Path, length: int) -> None:
    """The kernel allows 108 bytes; without a signal the heartbeat would come in 1000 s."""
    folder = tmp_path / ("d" * (length - 40)) / ("e" * 20)
    folder.mkdir(parents=True)
    house = House(f"sqlite:///{folder}/locks.db", folder)
    try:
        holder, waiter = house.workers(2)
        for worker in (holder, waiter):
            worker.do("locks = Holdfast(url, settings=Settings(heartbeat=1000, claim=2000, patience=3000))")
        holder.acquire(ttl=600)
        waiter.queue(ttl=600)
        house.until_waiting(1)
        holder.release()
        waiter.answer()
        assert waiter.do("_ = locks.instance") in house.bells()
    finally:
        house.close()


def test_a_break_by_another_process_is_told_at_once(house: House) -> None:
    (holder,) = house.workers(1)
    holder.acquire(ttl=600)
    holder.until_reachable()
    house.locks.break_lock("nightly", reason="stuck", by="olga")
    assert holder.do(f"_ = lease.lost.wait({PATIENCE})") is True


def test_a_copy_taken_in_mid_traffic_opens_cleanly_and_its_tokens_do_not_fall(
    file_house: House, tmp_path: Path
) -> None:
    """As after a power cut: the file and its log as they were at some moment, and all who knew them gone."""
    workers = file_house.workers(3)
    for n, worker in enumerate(workers):
        worker.do(
            f"""
            going = True

            def traffic():
                while going:
                    with locks.hold("nightly", ttl=2), locks.hold("key-{n}"), locks.hold("key-{n}"):
                        pass

            thread = threading.Thread(target=traffic)
            thread.start()
            """
        )
    eventually(lambda: file_house.locks.inspect("nightly"))
    copies = []
    for n in range(15):
        before = file_house.look().token
        folder = tmp_path / f"copy-{n}"
        folder.mkdir()
        # The log after the file: what a checkpoint moves meanwhile is then in the log still, or in both.
        for suffix in ("", "-wal"):
            source = file_house.path.with_name(f"locks.db{suffix}")
            if source.exists():
                shutil.copy(source, folder / source.name)
        copies.append((folder, before))
    for worker in workers:
        worker.do("going = False; thread.join()")
    last = file_house.look().token
    opened = 0
    for folder, before in copies:
        with sqlite3.connect(folder / "locks.db") as db:
            sound = db.execute("PRAGMA integrity_check").fetchone()
        db.close()
        if sound != ("ok",):
            continue  # a checkpoint ran between the two copies: no power cut looks like that
        opened += 1
        with Holdfast(f"sqlite:///{folder}/locks.db") as locks:
            view = locks.inspect("nightly")
            assert view is not None
            lease = locks.acquire("nightly", ttl=5, timeout=PATIENCE, owner="after the cut")
            assert lease.token > max(view.token, before, last)
            lease.release()
    assert opened >= 10


def test_processes_that_come_and_go_leave_a_tidy_directory(file_house: House) -> None:
    for _ in range(3):
        workers = file_house.workers(3)
        for worker in workers:
            worker.do("with locks.hold('nightly'): pass")
        for worker in workers:
            assert worker.end() == 0
    file_house.locks.sweep()
    assert file_house.bells() <= {file_house.locks.instance}
    file_house.locks.close()
    assert sorted(path.name for path in file_house.path.parent.iterdir() if path.is_file()) == ["locks.db"]


def test_a_worker_can_be_a_server_of_threads(house: House) -> None:
    """Three processes with six threads each, on three keys: every block is entered alone."""
    workers = house.workers(3)
    folder = house.folder
    for worker in workers:
        worker.do(
            f"""
            failures = []

            def work(n):
                for _ in range(10):
                    with locks.hold(f"key-{{n % 3}}"):
                        try:
                            fd = os.open({str(folder)!r} + f"/inside-{{n % 3}}", os.O_CREAT | os.O_EXCL)
                        except FileExistsError:
                            failures.append(n)
                        else:
                            os.close(fd)
                            os.unlink({str(folder)!r} + f"/inside-{{n % 3}}")

            threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
            for thread in threads:
                thread.start()
            """
        )
    for worker in workers:
        assert worker.do("[t.join() for t in threads]; _ = failures") == []


def test_a_listener_that_was_never_there_is_no_obstacle(file_house: House) -> None:
    """The holder rings for a waiter on a file system without sockets: there is no bell at its address."""
    holder, waiter = file_house.workers(2)
    waiter.do("locks._engine.store.signals.be_reachable = lambda: None")
    holder.acquire(ttl=600)
    waiter.queue(ttl=600)
    file_house.until_waiting(1)
    holder.release()
    waiter.answer()


def test_the_pipe_of_a_test_is_not_part_of_the_test(house: House) -> None:
    """The harness itself: an error in a worker arrives as what it was."""
    worker: Worker = house.worker()
    with pytest.raises(AssertionError, match="ZeroDivisionError"):
        worker.do("1 / 0")
    assert worker.do("_ = threading.active_count()") >= 1
    assert threading.active_count() >= 1
    assert socket.gethostname() == worker.do("import socket; _ = socket.gethostname()")
