"""Instances and assignments for tasks: see `sync`. A lost assignment cancels its body."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Generator
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any

from holdfast import errors
from holdfast.aio_leases import AsyncLease
from holdfast.cluster.assignments import BaseAssignment
from holdfast.cluster.instances import BaseInstance
from holdfast.cluster.options import check_types
from holdfast.core import cluster_plans as plans
from holdfast.core.keeper import Kept
from holdfast.core.settings import Seconds, seconds
from holdfast.keeping import RETURNED
from holdfast.leases import with_note
from holdfast.options import whole

if TYPE_CHECKING:
    from holdfast.aio import AsyncHoldfast


class AsyncInstance(BaseInstance["AsyncAssignment"]):
    """What `AsyncHoldfast.join` gives: a member of the cluster. See `Instance`."""

    _client: AsyncHoldfast

    async def assign(
        self, key: str, data: Any = None, *, ttl: Seconds | None = None, again: bool = False
    ) -> AsyncAssignment:
        """Take one piece of work, whether it was offered or not: see `Instance.assign`."""
        request = self._assignment(key, data, ttl, again)
        return await self._client._run(self._assigning(request))  # noqa: SLF001

    async def claim(self, *types: str, limit: int | None = None) -> list[AsyncAssignment]:
        """Take work of these types that is offered: see `Instance.claim`."""
        taken: list[AsyncAssignment] = []
        most = None if limit is None else whole(limit, "limit")
        me = self._client._attempts.new()  # noqa: SLF001
        plan = self._claiming_now(me, check_types(types), most, taken)
        try:
            await self._client._run(plan)  # noqa: SLF001
        except BaseException:  # cancelled when there was something to return: nobody has what it got
            self._return_soon(taken)
            raise
        return taken

    def claims(
        self,
        *types: str,
        batch: int | None = None,
        timeout: Seconds | None = None,
    ) -> AsyncClaims:
        """Yield work of these types as it comes: ``async for work in instance.claims("workflow"):``.

        See `Instance.claims`.
        """
        return AsyncClaims(self, check_types(types), batch, timeout)

    async def drain(self, timeout: Seconds = 0.0) -> None:  # noqa: ASYNC109
        """Take no more work, and return what is not done in time: see `Instance.drain`."""
        await self._client._run(self._draining(seconds(timeout, "timeout")))  # noqa: SLF001

    async def leave(self) -> None:
        """Stop being an instance: see `Instance.leave`."""
        await self._client._run(self._leaving())  # noqa: SLF001

    async def __aenter__(self) -> AsyncInstance:
        self.check()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            await self.leave()
        except errors.HoldfastError as problem:
            if error is None:
                raise
            with_note(error, problem)

    def _make(self, task: plans.Task, kept: Kept) -> AsyncAssignment:
        return AsyncAssignment(self, task, kept)

    async def _begin(self) -> AsyncInstance:
        client = self._client
        await client._run(self._joining())  # noqa: SLF001
        if client._closed:  # noqa: SLF001 - while we asked: nobody would heartbeat
            await asyncio.shield(client._in_worker(self._leave_at_once))  # noqa: SLF001
            raise errors.Closed(repr(client))
        return self

    async def _be_reachable(self) -> None:
        store = self._client._store  # noqa: SLF001
        if store.traits.blocking:
            await self._client._off_loop(store.be_reachable)  # noqa: SLF001


class Joining:
    """What `AsyncHoldfast.join` returns: to be awaited, or entered with ``async with``."""

    def __init__(self, instance: AsyncInstance) -> None:
        self._instance = instance
        self._begun = False

    def __await__(self) -> Generator[Any, None, AsyncInstance]:
        return self._join().__await__()

    async def _join(self) -> AsyncInstance:
        if self._begun:
            raise errors.SettingsError(f"{self._instance.id!r} was joined before; call join() again")
        self._begun = True
        return await self._instance._begin()  # noqa: SLF001

    async def __aenter__(self) -> AsyncInstance:
        return await self._join()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._instance.__aexit__(kind, error, traceback)


class AsyncClaims(AsyncIterator["AsyncAssignment"]):
    """Work as it comes: see `AsyncInstance.claims`. May be shared by tasks."""

    def __init__(
        self,
        instance: AsyncInstance,
        types: tuple[str, ...],
        batch: int | None,
        timeout: Seconds | None,
    ) -> None:
        self._instance = instance
        self._types = types
        self._batch = None if batch is None else whole(batch, "batch")
        self._timeout = None if timeout is None else seconds(timeout, "timeout")
        self._open = True
        self._reachable = False
        instance._iterating.append(types)  # noqa: SLF001

    def __repr__(self) -> str:
        return f"<AsyncClaims of {', '.join(map(repr, self._types))} by {self._instance!r}>"

    async def __anext__(self) -> AsyncAssignment:
        instance = self._instance
        taken: list[AsyncAssignment] = []
        if self._open:
            if not self._reachable:
                await instance._be_reachable()  # noqa: SLF001
                self._reachable = True
            me = instance._client._attempts.new()  # noqa: SLF001
            plan = instance._next(me, self._types, self._batch, self._timeout, taken)  # noqa: SLF001
            with suppress(errors.Closed):  # it leaves when its client is closed
                await instance._client._run(plan)  # noqa: SLF001
        if not taken:
            raise StopAsyncIteration
        return taken[0]

    async def close(self) -> None:
        """Claim no more, and return what was taken and not yielded yet."""
        if self._stop():
            instance = self._instance
            plan = instance._returning(instance._unwanted(), RETURNED)  # noqa: SLF001
            await instance._client._run(plan)  # noqa: SLF001

    def _stop(self) -> bool:
        was_open, self._open = self._open, False
        if was_open:
            with suppress(ValueError):
                self._instance._iterating.remove(self._types)  # noqa: SLF001
        return was_open

    async def __aenter__(self) -> AsyncClaims:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __del__(self) -> None:
        with suppress(Exception):  # it was not made, or the interpreter is ending
            if self._stop() and self._instance._ready:  # noqa: SLF001
                keeping = self._instance._client._keeping  # noqa: SLF001
                keeping.do_soon(self._instance._return_unwanted, finalizing=True)  # noqa: SLF001


class AsyncAssignment(BaseAssignment):
    """Work that is ours: see `Assignment`. As a context manager it cancels its body when it is lost."""

    _instance: AsyncInstance

    def __init__(self, instance: AsyncInstance, task: plans.Task, kept: Kept) -> None:
        super().__init__(instance, task, kept)
        self._lease: AssignedLease = AssignedLease(self, kept)

    @property
    def lease(self) -> AsyncLease:
        """The lease of its key: token, trust, loss, fence are those of every lease."""
        return self._lease

    @property
    def lost(self) -> asyncio.Event:
        """An event to wait for: set when the work is lost, with its lease or with the instance."""
        return self._lease.lost

    async def fence(self, connection: Any) -> None:
        """Make the transaction that is open on *connection* safe: see `AsyncLease.fence`."""
        self.check()
        await self._lease.fence(connection)

    async def complete(self, result: Any = None) -> None:
        """Say that it is done, and what came of it: JSON, at most 64 KiB."""
        await self._instance._client._run(self._completing(result))  # noqa: SLF001

    async def fail(self, error: object, retry: Seconds | None = None) -> None:
        """Say that it has failed: see `Assignment.fail`."""
        await self._instance._client._run(self._failing(error, retry))  # noqa: SLF001

    async def release(self) -> None:
        """Return it: others are offered it at once, and it was not tried."""
        await self._instance._client._run(self._releasing())  # noqa: SLF001

    async def __aenter__(self) -> AsyncAssignment:
        self.check()
        await self._lease.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        lost_it = self._lease._end_body(error)  # noqa: SLF001
        if lost_it and (loss := self._loss()):
            raise loss.copy() from None
        if self._ended is not None:
            return
        try:
            await self._instance._client._run(self._leaving_block(error))  # noqa: SLF001
        except errors.HoldfastError as problem:
            if error is None:
                raise
            with_note(error, problem)


class AssignedLease(AsyncLease):
    """The lease of an assignment, which ends with it."""

    def __init__(self, assignment: AsyncAssignment, kept: Kept) -> None:
        instance = assignment._instance  # noqa: SLF001
        self._assignment = assignment
        super().__init__(instance._client, kept, instance._wish(assignment._task))  # noqa: SLF001

    async def release(self, *, within: Any = None) -> None:
        """Return the work: see `AsyncAssignment.release`."""
        if within is not None:
            raise errors.SettingsError(
                f"the work of {self.key!r} cannot be ended inside a transaction: fence() that, and end the"
                " work when it has committed"
            )
        await self._assignment.release()

    async def downgrade(self) -> None:
        """Refuse: work is for one at a time."""
        raise errors.SettingsError(f"{self.key!r} is work, which is for one at a time")

    def _tell(self) -> None:
        super()._tell()
        self._assignment._lost_it()  # noqa: SLF001
