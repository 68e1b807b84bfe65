"""Timing: interleaved rounds, medians, percentiles, and a line about the machine.

Others may be using the machine, so nothing is timed once and nothing is compared across runs: the
contestants take turns in short rounds, and what is told is the median round of each.
"""

from __future__ import annotations

import os
import platform
import sqlite3
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from resource import RUSAGE_CHILDREN, RUSAGE_SELF, getrusage
from statistics import median

Loop = Callable[
    [int], object
]  # does a thing so many times; returns the seconds that took, if it knows better
Preparing = Callable[[], AbstractContextManager[None]]  # around what is done before anything is timed


@dataclass(frozen=True)
class Cost:
    """How often a second a thing is done, and the processor seconds that doing it once takes."""

    rate: float
    cpu: float


def costs(loops: Mapping[str, Loop], *, rounds: int, seconds: float) -> dict[str, Cost]:
    """Return what each loop's thing costs: medians of interleaved rounds of *seconds* / rounds."""
    times = {name: _calibrate(loop, seconds / rounds) for name, loop in loops.items()}
    wall: dict[str, list[float]] = {name: [] for name in loops}
    cpu: dict[str, list[float]] = {name: [] for name in loops}
    for _ in range(rounds):
        for name, loop in loops.items():
            used = time.process_time()
            wall[name].append(_time(loop, times[name]) / times[name])
            cpu[name].append((time.process_time() - used) / times[name])
    return {name: Cost(1 / median(wall[name]), median(cpu[name])) for name in loops}


def _calibrate(loop: Loop, seconds: float) -> int:
    """Return how many times take about *seconds*; also the warm-up."""
    count = 10
    while True:
        took = _time(loop, count)
        if took > seconds / 10:
            return max(int(count * seconds / took), 10)
        count *= 3


def _time(loop: Loop, count: int) -> float:
    started = time.perf_counter()
    told = loop(count)
    return told if isinstance(told, float) else time.perf_counter() - started


def percentile(values: Sequence[float], part: float) -> float:
    """Return the value that *part* (0 to 1) of the values do not exceed."""
    ordered = sorted(values)
    return ordered[min(int(len(ordered) * part), len(ordered) - 1)] if ordered else float("nan")


@contextmanager
def folder():
    """Give a directory on the disk that temporary files are on, and remove it afterwards."""
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        yield Path(name)


def machine(*servers: str) -> str:
    """Say what was measured on. No names: the numbers are the machine's, not its owner's."""
    return (
        f"{os.cpu_count()} cores, {platform.system()} {platform.machine()},"
        f" {platform.python_implementation()} {platform.python_version()},"
        f" {', '.join((f'SQLite {sqlite3.sqlite_version}', *servers))}, one fsync {fsync() * 1e6:.0f} µs"
    )


class Others:
    """How much of the machine others used meanwhile; None where the system does not tell."""

    def __init__(self) -> None:
        self._started = (time.monotonic(), _busy(), _own())

    def share(self) -> float | None:
        """Return the part of all cores that was busy, and not with us."""
        since, busy, own = self._started
        now = _busy()
        if busy is None or now is None:
            return None
        used = now - busy - (_own() - own)
        return max(used, 0.0) / (time.monotonic() - since) / (os.cpu_count() or 1)


def _busy() -> float | None:
    try:
        user, nice, system, _, _, irq, softirq, steal = map(
            int, Path("/proc/stat").read_text().split(None, 9)[1:9]
        )
    except (OSError, ValueError):
        return None
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def _own() -> float:
    used = [getrusage(who) for who in (RUSAGE_SELF, RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def fsync() -> float:
    """Return how long this disk takes to make one page durable."""
    took = []
    with tempfile.TemporaryFile() as file:
        for _ in range(50):
            file.write(b"x" * 1024)
            file.flush()
            started = time.perf_counter()
            os.fsync(file.fileno())
            took.append(time.perf_counter() - started)
    return median(took)
