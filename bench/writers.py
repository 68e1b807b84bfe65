"""Four processes, each with keys of its own, in one file: does anybody starve at the file itself?

SQLite lets one connection write at a time. How the others wait decides how much gets done and how
evenly: its own busy handler sleeps longer and longer, and whoever has bad luck sleeps through its turn.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from bench import bare
from bench.measure import folder
from bench.processes import Ready, together
from bench.report import Line, milliseconds, per_second
from holdfast import Holdfast

TITLE = "Writers: 4 processes, keys of their own, one file"
WORKERS = 4
KEYS = 100

clock = time.monotonic_ns


@dataclass(frozen=True)
class Result:
    """Pairs a second of all workers together, most over fewest, and the longest single call."""

    total: float
    share: float
    worst: float

    def __str__(self) -> str:
        return f"{self.total:,.0f} /s, share {self.share:.2f}, worst {self.worst * 1e3:,.1f} ms"


def run(quick: bool) -> list[Line]:
    seconds = 0.7 if quick else 3.0
    rounds = 1 if quick else 2
    lines = []
    for synchronous in ("normal", "full"):
        ours, alone, plain = [], [], []
        for _ in range(rounds):
            ours.append(contest(holdfast_worker, seconds, synchronous))
            plain.append(contest(bare_worker, seconds, synchronous))
            alone.append(contest(holdfast_worker, seconds / 2, synchronous, workers=1))
        four, one, other = middle(ours), middle(alone), middle(plain)
        lines += [
            Line(
                f"pairs, 4 processes, {synchronous}",
                per_second(four.total),
                f"one process {per_second(one.total)}",
                four.total / one.total,
                means="All four together, beside one process that has the file to itself.",
            ),
            Line(
                "… beside plain sqlite3",
                per_second(four.total),
                f"timeout=5 {per_second(other.total)}",
                four.total / other.total,
                means="The same four processes with the bare statements and SQLite's own busy handler.",
            ),
            Line(
                "… max/min share",
                f"{four.share:.2f}",
                f"timeout=5 {four_digits(other.share)}",
                means="Pairs of the luckiest process over those of the unluckiest.",
            ),
            Line(
                "… worst single call",
                milliseconds(four.worst),
                f"timeout=5 {milliseconds(other.worst)}",
                means="The longest that one acquire or one release of a free lock took.",
            ),
        ]
    return lines


def four_digits(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"


def middle(results: list[Result]) -> Result:
    """Return the median of each figure, but the worst of the worst calls."""
    return Result(
        median(r.total for r in results), median(r.share for r in results), max(r.worst for r in results)
    )


def contest(worker: Callable[..., Any], seconds: float, *args: Any, workers: int = WORKERS) -> Result:
    """Let the workers write for a while, and sum up."""
    with folder() as place:
        file = place / "locks.db"
        bare.create(file)
        results = together(worker, workers, seconds, file, *args)
    pairs = [done for done, _ in results]
    return Result(sum(pairs) / seconds, max(pairs) / max(min(pairs), 1), max(w for _, w in results) / 1e9)


def holdfast_worker(index: int, ready: Ready, file: Path, synchronous: str) -> tuple[int, int]:
    with Holdfast(f"sqlite:///{file}?synchronous={synchronous}") as locks:
        held: list[Any] = []

        def acquire(key: str) -> None:
            held.append(locks.acquire(key))

        return _hammer(index, ready, acquire, lambda _: held.pop().release())


def bare_worker(index: int, ready: Ready, file: Path, synchronous: str) -> tuple[int, int]:
    locks = bare.BareSQLite(bare.connect(file, synchronous))
    held: list[Any] = []
    return _hammer(
        index, ready, lambda key: held.append(locks.acquire(key)), lambda key: locks.release(key, *held.pop())
    )


def _hammer(
    index: int, ready: Ready, acquire: Callable[[str], None], release: Callable[[str], None]
) -> tuple[int, int]:
    """Acquire and release until it is time to stop; return the number of pairs and the longest call."""
    keys = [f"key-{index}-{number}" for number in range(KEYS)]
    acquire(keys[0])
    release(keys[0])
    done = worst = 0
    stop = ready()
    before = clock()
    while before < stop:
        key = keys[done % KEYS]
        acquire(key)
        between = clock()
        release(key)
        after = clock()
        worst = max(worst, between - before, after - between)
        before = after
        done += 1
    return done, worst
