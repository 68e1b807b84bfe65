"""Who keeps a file locked, as far as the system tells: for the message of whoever did not get a turn.

Linux lists all file locks. To ask for one by a descriptor of our own would be worse than not to know: closing
it drops the locks that SQLite has on the file in this process.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

_LOCKS = Path("/proc/locks")
_LOG_WRITERS = range(120, 123)  # bytes of the -shm file: to write, to checkpoint, to recover


def advice(path: Path) -> str:
    """Say who has *path* locked against other writers, and what to do."""
    pids = lockers(path)
    if pids == {os.getpid()}:
        return "another connection of this same process keeps it locked: commit or roll back its transaction"
    if pids and os.getpid() not in pids:
        return f"another process keeps it locked: pid {', '.join(map(str, sorted(pids)))}"
    return "another connection keeps it locked, of this process or another: it has to commit or roll back"


def lockers(path: Path) -> set[int]:
    """Return the processes that have a lock to write to the database at *path*; none if that is not known."""
    real = path.resolve()
    found: set[int] = set()
    with suppress(OSError, ValueError):
        listed = _LOCKS.read_text("ascii").splitlines()
        for name, concerned in ((real, None), (Path(f"{real}-shm"), _LOG_WRITERS)):
            with suppress(FileNotFoundError):
                found |= _writers(listed, name.stat(), concerned)
    return {pid for pid in found if pid > 0}  # of those in other containers it is not told


def _writers(listed: list[str], file: os.stat_result, concerned: range | None) -> set[int]:
    """Return who has a lock to write on *file*: ``1: POSIX ADVISORY WRITE 4711 fe:00:2146 120 120``."""
    device = f"{os.major(file.st_dev):02x}:{os.minor(file.st_dev):02x}:{file.st_ino}"
    lines = [line.split() for line in listed]
    return {
        int(line[4])
        for line in lines
        if len(line) == 8 and line[3] == "WRITE" and line[5] == device  # who waits has an arrow, and 9 words
        if concerned is None or int(line[6]) in concerned
    }
