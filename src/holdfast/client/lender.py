"""A thread that uses a task: how a store asks inside a transaction whose driver is asyncio's.

A store decides in a thread. What it runs on the caller's connection is awaited in the caller's own task, as
the caller's own statements are. So cancelling the task cancels what is under way there, in the driver's way,
and nothing of ours comes after it: nobody is left who would await it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, wait
from contextlib import suppress
from typing import Any, TypeVar

T = TypeVar("T")

A_LOOK = 1.0  # seconds: how often a thread that waits looks whether the loop is still there


class TaskGone(Exception):
    """The task that a thread worked for does not want it any more."""


class Lender:
    """A task while it is lent to a thread."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._wanted: asyncio.Queue[tuple[Callable[[], Awaitable[Any]], Future[Any]] | None] = asyncio.Queue()
        self._over = False

    async def lend(self, work: Callable[[], T]) -> T:
        """Run *work* in a thread, and await in this task what it wants awaited."""
        working = self._loop.run_in_executor(None, work)
        working.add_done_callback(lambda _: self._wanted.put_nowait(None))
        try:
            while (wanted := await self._wanted.get()) is not None:
                await _answer(*wanted)
            return working.result()
        finally:
            self._over = True
            while not self._wanted.empty():
                _refuse(self._wanted.get_nowait())
            working.cancel()  # if it has not begun; else nobody asks what becomes of it

    def wait_for(self, act: Callable[[], Awaitable[T]]) -> T:
        """Have something awaited. Called by the thread; raise `TaskGone` once the task has gone on."""
        answer: Future[T] = Future()
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._want, act, answer)
        while not wait([answer], A_LOOK).done:
            if self._loop.is_closed():
                raise TaskGone
        return answer.result()

    def _want(self, act: Callable[[], Awaitable[T]], answer: Future[T]) -> None:
        if self._over:
            _refuse((act, answer))
        else:
            self._wanted.put_nowait((act, answer))


async def _answer(act: Callable[[], Awaitable[T]], answer: Future[T]) -> None:
    try:
        answer.set_result(await act())
    except Exception as error:  # noqa: BLE001 - it is for the thread
        answer.set_exception(error)
    except BaseException:
        answer.set_exception(TaskGone())
        raise


def _refuse(wanted: tuple[Any, Future[Any]] | None) -> None:
    if wanted is not None:
        wanted[1].set_exception(TaskGone())
