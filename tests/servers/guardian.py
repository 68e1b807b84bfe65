"""Clear a directory of servers: kill what runs in it, remove what it holds.

As a program it waits until the test run that started it is gone, however that ended, and then clears up. A
parent-death signal would be simpler, but it comes when the starting *thread* ends, and tests restart servers
from threads.

A server's processes are known by their working directory: its postmaster, the postmaster's children, orphans
and processes that are only being started all have it. Standard library only; this runs with ``-S -E``.
"""

from __future__ import annotations

import fcntl
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

PATIENCE = 20.0


def inhabitants(directory: Path) -> set[int]:
    """Tell the ids of all processes whose working directory is *directory* or below. Zombies have none."""
    home, found = str(directory), set()
    for name in os.listdir("/proc"):
        if name.isdigit():
            with suppress(OSError):  # it ended, or is somebody else's
                place = str(Path(f"/proc/{name}/cwd").readlink()).removesuffix(" (deleted)")
                if place == home or place.startswith(home + "/"):
                    found.add(int(name))
    return found - {os.getpid()}


def send(directory: Path, number: int) -> set[int]:
    """Send the signal *number* to all processes in *directory*, and tell which they are."""
    found = inhabitants(directory)
    for pid in found:
        with suppress(ProcessLookupError):
            os.kill(pid, number)
    return found


def clear(directory: Path, *first: int) -> None:
    """Kill everything that runs in *directory*, *first* these, and free the shared memory that it leaves."""
    deadline, killed = time.monotonic() + PATIENCE, set(first)
    for pid in first:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    while found := send(
        directory, signal.SIGKILL
    ):  # again: one of them may have forked just before it was killed
        if time.monotonic() > deadline:
            raise TimeoutError(f"processes in {directory} outlive SIGKILL: {inhabitants(directory)}")
        killed |= found
        time.sleep(0.002)
    for pid in killed:  # libfaketime's, which would deceive the next process of that number
        Path(f"/dev/shm/faketime_shm_{pid}").unlink(missing_ok=True)
        Path(f"/dev/shm/sem.faketime_sem_{pid}").unlink(missing_ok=True)
    for folder, _, files in os.walk(directory):  # unlike `glob` it does not mind what vanishes meanwhile
        if "postmaster.pid" not in files:
            continue
        file = Path(folder) / "postmaster.pid"
        try:
            lines = file.read_text().splitlines()
        except FileNotFoundError:
            continue
        if len(lines) > 6 and lines[6].strip():
            segment = lines[6].split()[1]
            subprocess.run(["ipcrm", "-m", segment], stderr=subprocess.DEVNULL, check=False)
        file.unlink(missing_ok=True)  # its process id may belong to somebody else by the next start


def main(mine: Path, run: Path, lock: int) -> None:
    """Wait for the end of the parent, then clear *mine*, and *run* too if no other worker is left in it."""
    parent = os.getppid()
    # The pipe ends with the test run. But a child that it forked may hold the other end, so look twice.
    while not select.select([sys.stdin], [], [], 1.0)[0] and os.getppid() == parent:
        pass
    clear(mine)
    shutil.rmtree(mine, ignore_errors=True)
    with suppress(BlockingIOError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(run, ignore_errors=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
