"""Many clients at once, each with keys of its own, that do pairs until it is time to stop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import cycle
from typing import Any

from bench import peers
from bench.contest import WORKERS, clock
from bench.processes import Ready, together
from holdfast import AsyncHoldfast, Holdfast

KEYS = 200  # of all of them together


def rate(worker: Callable[..., int], workers: int, seconds: float, *args: Any) -> float:
    """Return the pairs a second of so many processes."""
    return sum(together(worker, workers, seconds, *args)) / seconds


def _keys(index: int) -> list[str]:
    return [f"key-{index}-{number}" for number in range(KEYS // WORKERS)]


def process_worker(index: int, ready: Ready, url: str) -> int:
    with Holdfast(url) as locks:

        def pair(key: str) -> None:
            with locks.hold(key):
                pass

        return hammer(index, ready, pair)


def peer_worker(index: int, ready: Ready, open_: Callable[[], peers.Take]) -> int:
    take = open_()
    return hammer(index, ready, lambda key: take(key)())


def hammer(index: int, ready: Ready, pair: Callable[[str], object]) -> int:
    names = _keys(index)
    for key in names:
        pair(key)
    keys = cycle(names).__next__
    done = 0
    stop = ready()
    while clock() < stop:
        pair(keys())
        done += 1
    return done


def tasks_worker(index: int, ready: Ready, url: str) -> int:  # noqa: ARG001
    async def work() -> int:
        async with AsyncHoldfast(url) as locks:

            async def pairs(task: int, stop: int | None) -> int:
                names = _keys(task)
                keys = cycle(names).__next__
                done = 0
                while clock() < stop if stop else done < len(names):
                    async with locks.hold(keys()):
                        done += 1
                return done

            await asyncio.gather(*(pairs(task, None) for task in range(WORKERS)))
            stop = ready()
            return sum(await asyncio.gather(*(pairs(task, stop) for task in range(WORKERS))))

    return asyncio.run(work())
