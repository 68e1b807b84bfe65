"""Instances and assignments for tasks: see `sync`. A lost assignment cancels its body."""

from __future__ import annotations

from collections.abc import AsyncIterator, Generator
from contextlib import suppress
from typing import Any

from holdfast import errors
from holdfast.client.aio.engine import TaskEngine, TaskHolding
from holdfast.client.aio.leases import AsyncLease, AsyncLeased, body_of
from holdfast.client.assignments import BaseAssignment, WorkHolding
from holdfast.client.blocks import Error, Kind, Traceback
from holdfast.client.claims import BaseClaims, Claimant, check_types
from holdfast.client.instances import BaseInstance
from holdfast.client.leases import noted
from holdfast.client.workload import Workload
from holdfast.core.settings import Seconds


class AsyncInstance(BaseInstance["AsyncAssignment"]):
    """What `AsyncHoldfast.join` gives: a member of the cluster. See `Instance`."""

    _engine: TaskEngine

    async def assign(
        self, key: str, data: Any = None, *, ttl: Seconds | None = None, again: bool = False
    ) -> AsyncAssignment:
        """Take one piece of work, whether it was offered or not: see `Instance.assign`."""
        request = self._workload.assignment(key, data, ttl, again)
        return await self._engine.run(self._workload.assign(request))

    async def claim(self, *types: str, limit: int | None = None) -> list[AsyncAssignment]:
        """Take work of these types that is offered: see `Instance.claim`."""
        claimant = Claimant(self._workload, check_types(types))
        try:
            return await self._engine.run(claimant.claim(limit))
        except BaseException:  # cancelled when there was something to return: nobody has what it got
            claimant.return_soon()
            raise

    def claims(self, *types: str, batch: int | None = None, timeout: Seconds | None = None) -> AsyncClaims:
        """Yield work of these types as it comes, to ``async for``: see `Instance.claims`."""
        return AsyncClaims(self._engine, self._workload, self, types, batch, timeout)

    async def drain(self, timeout: Seconds = 0.0) -> None:  # noqa: ASYNC109
        """Take no more work, and return what is not done in time: see `Instance.drain`."""
        await self._engine.run(self._workload.drain(timeout))

    async def leave(self) -> None:
        """Stop being an instance: see `Instance.leave`."""
        await self._engine.run(self._workload.leave())

    async def __aenter__(self) -> AsyncInstance:
        self.check()
        return self

    async def __aexit__(self, kind: Kind, error: Error, traceback: Traceback) -> None:
        try:
            await self.leave()
        except errors.HoldfastError as problem:
            if not noted(error, problem):
                raise


class Joining:
    """What `AsyncHoldfast.join` returns: to be awaited, or entered with ``async with``."""

    def __init__(self, engine: TaskEngine, name: str | None, *options: Any) -> None:
        self._engine = engine
        self._workload = Workload(engine, TaskWorkHolding, name, *options)
        self._instance = AsyncInstance(engine, self._workload)
        self._begun = False

    def __await__(self) -> Generator[Any, None, AsyncInstance]:
        return self._join().__await__()

    async def _join(self) -> AsyncInstance:
        if self._begun:
            raise errors.SettingsError(f"{self._workload.id!r} was joined before; call join() again")
        self._begun = True
        await self._engine.run(self._workload.join())
        if self._engine.closed:  # while we asked: nobody would heartbeat
            await self._engine.finish(self._workload.leave_at_once)
            raise errors.Closed(repr(self._engine))
        return self._instance

    async def __aenter__(self) -> AsyncInstance:
        return await self._join()

    async def __aexit__(self, kind: Kind, error: Error, traceback: Traceback) -> None:
        await self._instance.__aexit__(kind, error, traceback)


class AsyncClaims(BaseClaims["AsyncAssignment"], AsyncIterator["AsyncAssignment"]):
    """Work as it comes: see `AsyncInstance.claims`. May be shared by tasks."""

    _engine: TaskEngine

    async def __anext__(self) -> AsyncAssignment:
        claimant = self._claimant()
        if self._open:
            with suppress(errors.Closed):  # it leaves when its client is closed
                await self._engine.run(claimant.wait(self._timeout))
        if not claimant.taken:
            raise StopAsyncIteration
        return claimant.taken[0].face

    async def close(self) -> None:
        """Claim no more, and return what was taken and not yielded yet."""
        if self._stop():
            await self._engine.run(self._workload.give_back_unwanted())

    async def __aenter__(self) -> AsyncClaims:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class AsyncAssignment(BaseAssignment[AsyncLease], AsyncLeased):
    """Work that is ours: see `Assignment`. As a context manager it cancels its body when it is lost."""

    _holding: TaskWorkHolding

    def __init__(self, work: TaskWorkHolding) -> None:
        super().__init__(work, AsyncLease(work))

    async def complete(self, result: Any = None) -> None:
        """Say that it is done, and what came of it: JSON, at most 64 KiB."""
        await self._holding.engine.run(self._holding.completing(result))

    async def fail(self, error: object, retry: Seconds | None = None) -> None:
        """Say that it has failed: see `Assignment.fail`."""
        await self._holding.engine.run(self._holding.failing(error, retry))

    async def release(self) -> None:
        """Return it: others are offered it at once, and it was not tried."""
        await self._holding.engine.run(self._holding.releasing())

    async def __aenter__(self) -> AsyncAssignment:
        self.check()
        await self._lease.__aenter__()
        return self

    async def __aexit__(self, kind: Kind, error: Error, traceback: Traceback) -> None:
        lost_it = body_of(self._lease).end(error)
        if lost_it and (loss := self._holding.loss()):
            raise loss.copy() from None
        if self._holding.ended is not None:
            return
        try:
            await self._holding.engine.run(self._holding.ending(error))
        except errors.HoldfastError as problem:
            if not noted(error, problem):
                raise


class TaskWorkHolding(WorkHolding[AsyncAssignment], TaskHolding):
    """The state of an assignment, in a program with tasks."""

    engine: TaskEngine

    def make_face(self) -> AsyncAssignment:
        return AsyncAssignment(self)
