"""Operations for tasks: what `AsyncHoldfast.operation` returns, and `AsyncHoldfast.run_once`."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from holdfast.client.aio.engine import TaskEngine
from holdfast.client.aio.leases import AsyncLease, acquire, body_of, leave
from holdfast.client.blocks import Error, Kind, Traceback
from holdfast.client.operations import BaseOperation, Undertaking
from holdfast.client.ownership import owner

T = TypeVar("T")


class AsyncOperation(BaseOperation[AsyncLease]):
    """What `AsyncHoldfast.operation` returns: see `Operation`. A lost lease cancels the body."""

    _engine: TaskEngine
    _companion: AsyncLease | None = None

    async def __aenter__(self) -> AsyncOperation:
        it = self._it
        it.take(await self._engine.obtain(it.wish(), AsyncLease))
        if it.lease is not None:
            try:
                await it.lease.__aenter__()  # first: a loss then ends the wait for the companion, too
                if it.companion_key is not None:
                    with owner(it.lease.owner):
                        wish = self._engine.wish(it.companion_key, **it.for_companion())
                        self._companion = await acquire(self._engine, wish)
                        await self._companion.__aenter__()
                    it.lease.check()
            except BaseException as problem:
                await self._leave(problem)
                raise
        return self

    async def __aexit__(self, kind: Kind, error: Error, traceback: Traceback) -> None:
        if self._it.lease is not None:
            await self._leave(error)

    async def _leave(self, error: BaseException | None) -> None:
        """Tell the outcome; then let in the others on this resource, who shall find it told."""
        self._it.conclude(error)
        companion = self._companion
        lost_it = companion is not None and body_of(companion).end(error)
        try:
            await self._it.lease.__aexit__(type(error) if error else None, error, None)
        except BaseException as problem:
            if companion is not None:
                await leave(companion, problem, lost_it=False)
            raise
        if companion is not None:
            await leave(companion, error, lost_it=lost_it)


async def run_once(
    it: Undertaking, do: Callable[[], T | Awaitable[T]], ready: Callable[[], Any | Awaitable[Any]] | None
) -> T | Any:
    """Do something unless it is there already or somebody else does it; see `Holdfast.run_once`."""

    async def is_there() -> bool:
        return ready is not None and bool(await _awaited(ready))

    while not await is_there():
        it = it.again()
        async with AsyncOperation(it.engine, it) as mine:
            if mine.todo:
                # Somebody may have finished it between our look and our grant.
                if await is_there():
                    it.keep = 0.0  # there is no result
                    return None
                result = await _awaited(do)
                problem = it.pass_on(result)
        if mine.todo:
            if problem is not None:  # it is done all the same, and nobody is to do it again
                raise problem
            return result
        if ready is None or await is_there():
            return mine.result
        # It was done, and is not there any more: `again` asks for another result than the one that was seen.
    return None


async def _awaited(function: Callable[[], Any]) -> Any:
    """Call a function or a coroutine function."""
    result = function()
    return await result if inspect.isawaitable(result) else result
