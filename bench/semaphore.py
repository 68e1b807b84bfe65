"""A semaphore of eight, and 64 threads in eight processes that want it: how fast and how fairly?"""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from bench.contest import WORKERS, Entry, clock, warm_up
from bench.measure import percentile
from bench.processes import Ready, together
from bench.report import Line, milliseconds, per_second
from holdfast import Holdfast

PERMITS = 8
THREADS = 8
LEAST = 0.8  # of a plain lock's grants
KEY = "gpu"


@dataclass(frozen=True)
class Result:
    """What one contest came to."""

    rate: float  # grants a second
    p50: float  # of the time from asking to being in
    worst: float
    turns: int  # the most grants to others between two of one thread
    least: int  # grants of the unluckiest thread
    most: int


def middle(results: list[Result]) -> Result:
    """Return the result of the middle round."""
    return sorted(results, key=lambda result: result.rate)[len(results) // 2]


def measure(store: str, url: str, quick: bool) -> list[Line]:
    """Let them take turns at a semaphore, and for comparison at a plain lock."""
    seconds = 0.7 if quick else 1.5
    longer = 1 if url.startswith(("memory:", "sqlite:")) else 2  # each thread shall have a few turns
    # A world in memory belongs to one process; threads of one process do the same there.
    in_memory = url.startswith("memory:")
    processes, threads = (1, WORKERS * THREADS) if in_memory else (WORKERS, THREADS)
    ours, plain = [], []
    for _ in range(1 if quick else 3):
        ours.append(contest(url, longer * seconds, processes, threads, KEY, {"permits": PERMITS}, PERMITS))
        plain.append(contest(url, seconds, processes, threads, "one", {}, 1))
    return _tell(store, in_memory, middle(ours), middle(plain))


def _tell(store: str, in_memory: bool, ours: Result, plain: Result) -> list[Line]:
    where = "in one process" if in_memory else f"in {WORKERS} processes"
    everybody = WORKERS * THREADS
    return [
        Line(
            f"{store}: grants of a semaphore of {PERMITS}, {everybody} threads {where}",
            per_second(ours.rate),
            f"a plain lock, the same threads {per_second(plain.rate)}",
            ours.rate / plain.rate,
            None if in_memory else LEAST,
            means="Each thread acquires, releases, and asks again, so that nearly each grant is handed over.",
            label=f"{store} semaphore: grants",
        ),
        Line(
            "… asking → entry, p50",
            milliseconds(ours.p50),
            f"worst {milliseconds(ours.worst)}; a plain lock {milliseconds(plain.p50)},"
            f" worst {milliseconds(plain.worst)}",
            means="How long a thread waited.",
        ),
        Line(
            "… grants of the unluckiest and the luckiest thread",
            f"{ours.least:,} to {ours.most:,}",
            f"a plain lock {plain.least:,} to {plain.most:,}",
            ours.most / max(ours.least, 1),
            means="The ratio is 1 if all had the same.",
        ),
        Line(
            "… longest wait, in turns",
            f"{ours.turns}",
            f"all others once: {everybody - 1}; a plain lock {plain.turns}",
            ours.turns / (everybody - 1),
            means="The most grants to others, in the order of their tokens, between two grants to one thread."
            " It is in the queue only for a part of that time: it also has to be woken, to release and to"
            " ask again, while others go on.",
        ),
    ]


def contest(
    url: str, seconds: float, processes: int, threads: int, key: str, options: dict[str, Any], most: int
) -> Result:
    """Let all threads take turns for a while, and sum up."""
    run: Callable[..., list[list[Entry]]] = _process
    found = [
        entries for each in together(run, processes, seconds, url, threads, key, options) for entries in each
    ]
    _check([entry for mine in found for entry in mine], most)
    # All are there when each has come in once. Before that there may be nobody to wait for.
    start = max(mine[0][2] for mine in found)
    stop = min(mine[-1][2] for mine in found)
    if start >= stop:  # so slow that there is nothing else to look at
        start, stop = min(mine[0][1] for mine in found), max(mine[-1][3] for mine in found)
    within = [[entry for entry in mine if start <= entry[2] < stop] for mine in found]
    counts = [len(mine) for mine in within]
    entries = [entry for mine in within for entry in mine]
    granted = sorted(entry[0] for mine in found for entry in mine)
    turns = [
        bisect_left(granted, new[0]) - bisect_right(granted, old[0])
        for mine in within
        for old, new in pairwise(mine)
    ]
    waits = [(entry[2] - entry[1]) / 1e9 for entry in entries]
    return Result(
        rate=len(entries) / (stop - start) * 1e9,
        p50=percentile(waits, 0.5),
        worst=max(waits),
        turns=max(turns, default=0),
        least=min(counts),
        most=max(counts),
    )


def _check(entries: list[Entry], most: int) -> None:
    """See that no grant was one too many, and no token there twice."""
    tokens = {entry[0] for entry in entries}
    assert len(tokens) == len(entries), "a token was granted twice"
    moments = [(entry[2], 1) for entry in entries] + [(entry[3], -1) for entry in entries]
    inside = 0
    for _, change in sorted(moments):
        inside += change
        assert inside <= most, f"{inside} were in, and there is room for {most}"


def _process(
    index: int, ready: Ready, url: str, threads: int, key: str, options: dict[str, Any]
) -> list[list[Entry]]:
    found: list[list[Entry]] = [[] for _ in range(threads)]
    with Holdfast(url) as locks:
        warm_up(locks, f"warm-up-{index}")
        stop = 0
        all_are_warm, all_begin = threading.Barrier(threads + 1), threading.Event()

        def work(number: int, entries: list[Entry]) -> None:
            with locks.hold(f"warm-up-{index}-{number}"):
                all_are_warm.wait()
            all_begin.wait()
            while (asked := clock()) < stop:
                lease = locks.acquire(key, **options)
                entered = clock()
                leaving = clock()
                lease.release()
                entries.append((lease.token, asked, entered, leaving))

        running = [threading.Thread(target=work, args=each) for each in enumerate(found)]
        for thread in running:
            thread.start()
        all_are_warm.wait()
        stop = ready()
        all_begin.set()
        for thread in running:
            thread.join()
    return found
