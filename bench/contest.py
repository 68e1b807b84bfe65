"""One key, many processes, each: acquire, touch, release, again. What all such contests have in common.

A barging lock looks fast when the same worker takes it again and again, so what is counted is *cross*
hand-overs: grants that went to another worker than the one before.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from resource import RUSAGE_SELF, getrusage
from statistics import median
from typing import Any

from bench.measure import percentile
from bench.processes import Ready, mixed, together
from holdfast import Holdfast

WORKERS = 8
KEY = "one"

Entry = tuple[int, int, int, int]  # token, asked, entered, leaving; times in monotonic nanoseconds
clock = time.monotonic_ns


@dataclass(frozen=True)
class Result:
    """What one contest came to."""

    cross: float  # hand-overs to another worker, a second
    p50: float
    p99: float
    worst: float
    share: float  # most grants of a worker / fewest

    def __str__(self) -> str:
        return (
            f"{self.cross:,.0f} cross/s, p50 {self.p50 * 1e6:,.0f} p99 {self.p99 * 1e6:,.0f} µs,"
            f" worst {self.worst * 1e3:,.1f} ms, share {self.share:.2f}"
        )


def middle(results: list[Result]) -> Result:
    """Return the median of each figure, but the worst of the worst waits."""
    return Result(
        median(r.cross for r in results),
        median(r.p50 for r in results),
        median(r.p99 for r in results),
        max(r.worst for r in results),
        median(r.share for r in results),
    )


def contest(worker: Callable[..., list[Entry]], seconds: float, *args: Any, workers: int = WORKERS) -> Result:
    """Let the workers take turns for a while, and sum up."""
    return sum_up(together(worker, workers, seconds, *args), seconds)


def sum_up(entries: list[list[Entry]], seconds: float) -> Result:
    """Put the entries of all workers in order, and look at each hand-over."""
    start = min(mine[0][1] for mine in entries if mine)
    stop = start + int(seconds * 1e9)
    shares = [sum(entry[2] < stop for entry in mine) for mine in entries]
    ordered = sorted((entry[2], worker, entry) for worker, mine in enumerate(entries) for entry in mine)
    ordered = [each for each in ordered if each[0] < stop]
    tokens = [entry[0] for _, _, entry in ordered if entry[0]]
    assert tokens == sorted(set(tokens)), "tokens did not rise in the order of entering"
    gaps = [new[2][2] - old[2][3] for old, new in pairwise(ordered) if old[1] != new[1]]
    return Result(
        cross=len(gaps) / seconds,
        p50=percentile(gaps, 0.5) / 1e9,
        p99=percentile(gaps, 0.99) / 1e9,
        worst=max((entry[2] - entry[1] for _, _, entry in ordered), default=stop - start) / 1e9,
        share=max(shares) / max(min(shares), 1),
    )


def holdfast_worker(index: int, ready: Ready, url: str) -> list[Entry]:
    entries = []
    with Holdfast(url) as locks:
        warm_up(locks, f"warm-up-{index}")
        stop = ready()
        while (asked := clock()) < stop:
            lease = locks.acquire(KEY)
            entered = clock()
            leaving = clock()
            lease.release()
            entries.append((lease.token, asked, entered, leaving))
    return entries


def warm_up(locks: Holdfast, key: str) -> None:
    """Do everything once that a contest does, so that all connections are there and all is prepared."""
    first = locks.acquire(key, owner="first")
    second = threading.Thread(target=lambda: locks.acquire(key, owner="second").release())
    second.start()
    while not (view := locks.inspect(key)) or not view.waiting:
        time.sleep(0.005)
    first.release()
    second.join()


def taking_worker(index: int, ready: Ready, open_: Callable[[], Callable[[str], Any]]) -> list[Entry]:
    """Take part with a lock of somebody else's: *open_* gives what takes it and returns what releases it."""
    take = open_()
    take(f"warm-up-{index}")()
    entries = []
    stop = ready()
    while (asked := clock()) < stop:
        release = take(KEY)
        entered = clock()
        leaving = clock()
        release()
        entries.append((0, asked, entered, leaving))
    return entries


def waiting_cpu(url: str, seconds: float) -> float:
    """Return the processor seconds a second that a process uses while it waits for a held lock."""
    used, _ = mixed([(_wait, (0, url)), (_hold, (1, url))], seconds)
    return used / seconds


def _wait(index: int, ready: Ready, url: str) -> float:  # noqa: ARG001
    with Holdfast(url) as locks:
        warm_up(locks, "warm-up")
        stop = ready()
        time.sleep(0.1)  # the holder is in by now
        before = getrusage(RUSAGE_SELF)
        assert locks.try_acquire(KEY) is None
        try:
            locks.acquire(KEY, timeout=max((stop - clock()) / 1e9, 0.1))
        except TimeoutError:
            after = getrusage(RUSAGE_SELF)
            return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        raise AssertionError(f"the lock was free, process {os.getpid()}")


def _hold(index: int, ready: Ready, url: str) -> None:  # noqa: ARG001
    with Holdfast(url) as locks:
        stop = ready()
        with locks.hold(KEY):
            time.sleep(max((stop - clock()) / 1e9, 0) + 0.3)
