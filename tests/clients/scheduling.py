"""Schedules for tests of both clients. Ticks are short; with ``missed="all"`` none is left out."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

from tests.clients.support import PATIENCE, Stage, eventually

TICK = 0.1


def every(
    stage: Stage, body: Callable[..., Any], schedule: Any = TICK, client: Any = None, **options: Any
) -> Any:
    """Schedule a function that calls *body* with its run: a coroutine function for the async client.

    What *body* returns is awaited there, if it can be.
    """
    options.setdefault("name", "x")

    def job(run: Any) -> Any:
        """Do it."""
        return body(run)

    async def job_async(run: Any) -> Any:
        """Do it."""
        result = body(run)
        return await result if inspect.isawaitable(result) else result

    decorate = (client or stage.locks).every(schedule, **options)
    return stage.call(decorate, job_async if stage.is_async else job)


def until(stage: Stage, event: threading.Event) -> Callable[[Any], Any]:
    """Return a body that waits for an event of the test's, or for the loss of its lease."""

    def wait(run: Any) -> None:
        while not event.wait(0.005):
            run.check()

    async def wait_async(run: Any) -> None:
        while not event.is_set():  # noqa: ASYNC110 - it is set by another thread
            await asyncio.sleep(0.005)

    return wait_async if stage.is_async else wait


def nothing(run: Any) -> None:
    """A body that does nothing."""


class Diary:
    """What was run, in the order in which it began."""

    def __init__(self) -> None:
        self.runs: list[Any] = []

    def __call__(self, run: Any) -> None:
        self.runs.append(run)

    @property
    def ticks(self) -> list[datetime]:
        return [run.tick for run in self.runs]

    def until(self, number: int) -> None:
        eventually(lambda: len(self.runs) >= number, f"{number} runs")


def in_order(ticks: list[datetime], length: float) -> bool:
    return all(b - a == timedelta(seconds=length) for a, b in pairwise(ticks))


def stop(stage: Stage, *schedules: Any) -> None:
    for schedule in schedules:
        assert stage.call(schedule.stop, timeout=PATIENCE)
