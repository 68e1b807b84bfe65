"""Operations for tasks: see `holdfast.operations`."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast.aio_leases import AsyncLease
from holdfast.operations import BaseOperation
from holdfast.ownership import owner

if TYPE_CHECKING:
    from holdfast.aio import AsyncHoldfast

T = TypeVar("T")


class AsyncOperation(BaseOperation):
    """What `AsyncHoldfast.operation` returns: see `Operation`. A lost lease cancels the body."""

    _client: AsyncHoldfast
    _lease: AsyncLease | None
    _companion: AsyncLease | None = None

    @property
    def lease(self) -> AsyncLease:
        """What we hold while we do it."""
        self._check_ours()
        assert self._lease is not None
        return self._lease

    async def __aenter__(self) -> AsyncOperation:
        wish = self._wish()
        self._take(await self._client._obtain(wish))  # noqa: SLF001
        if self._lease is not None:
            try:
                await self._lease.__aenter__()  # first: a loss then ends the wait for the companion, too
                if self._companion_key is not None:
                    with owner(self._lease.owner):
                        options = self._for_companion()
                        self._companion = await self._client.acquire(self._companion_key, **options)
                        await self._companion.__aenter__()
                    self._lease.check()
            except BaseException as problem:
                await self._leave(problem)
                raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._lease is not None:
            await self._leave(error)

    async def _leave(self, error: BaseException | None) -> None:
        """Tell the outcome; then let in the others on this resource, who shall find it told."""
        assert self._lease is not None
        self._conclude(error)
        companion = self._companion
        lost_it = companion is not None and companion._end_body(error)  # noqa: SLF001
        try:
            await self._lease.__aexit__(type(error) if error else None, error, None)
        except BaseException as problem:
            if companion is not None:
                await companion._leave(problem, lost_it=False)  # noqa: SLF001
            raise
        if companion is not None:
            await companion._leave(error, lost_it)  # noqa: SLF001


async def run_once(
    operation: Callable[[int], AsyncOperation],
    do: Callable[[], T | Awaitable[T]],
    ready: Callable[[], Any | Awaitable[Any]] | None,
) -> T | Any:
    """Do something unless it is there already or somebody else does it; see `Holdfast.run_once`."""

    async def is_there() -> bool:
        return ready is not None and bool(await _awaited(ready))

    seen = 0
    while not await is_there():
        async with operation(seen) as mine:
            if mine.todo:
                # Somebody may have finished it between our look and our grant.
                if await is_there():
                    mine._keep = 0.0  # noqa: SLF001 - there is no result
                    return None
                result = await _awaited(do)
                problem = mine._pass_on(result)  # noqa: SLF001
        if mine.todo:
            if problem is not None:  # it is done all the same, and nobody is to do it again
                raise problem
            return result
        if ready is None or await is_there():
            return mine.result
        seen = mine._seen  # noqa: SLF001 - it was done, and is not there any more: that result is of no use
    return None


async def _awaited(function: Callable[[], Any]) -> Any:
    """Call a function or a coroutine function."""
    result = function()
    return await result if inspect.isawaitable(result) else result
