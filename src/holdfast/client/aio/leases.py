"""A lease for tasks, and the ``async with`` blocks that take and release one."""

from __future__ import annotations

import asyncio
import weakref
from contextlib import suppress
from typing import Any

from holdfast import errors
from holdfast.client.aio.engine import TaskEngine, TaskHolding
from holdfast.client.blocks import Error, Kind, Traceback
from holdfast.client.leases import BaseHold, BaseLease, BaseLeased, holding_of, noted
from holdfast.client.options import Wish
from holdfast.client.ownership import Block


class AsyncLease(BaseLease):
    """A lock that we hold. As a context manager it guards its block as `AsyncHoldfast.hold` does."""

    _holding: TaskHolding

    def __init__(self, holding: TaskHolding) -> None:
        self._holding = holding
        self._loop = asyncio.get_running_loop()
        self._lost: _Lost | None = None
        self._body = Body(holding)
        holding.kept.tell = self._tell

    @property
    def lost(self) -> asyncio.Event:
        """An event to wait for: set when the lease is lost."""
        if self._lost is None:
            self._lost = _Lost(self)
        if self._holding.loss() is not None:
            self._lost.set()
        return self._lost

    async def fence(self, connection: Any) -> None:
        """Make the transaction that is open on *connection* safe: see `Lease.fence`.

        The connection may be psycopg's or SQLAlchemy's for asyncio as well.
        """
        self._holding.hear(await self._holding.engine.ask_within(connection, self._holding.fencing()))

    async def release(self, *, within: Any = None) -> None:
        """Give the lock back: see `Lease.release`."""
        if within is None:
            await self._holding.engine.run(self._holding.releasing())
            return
        self._holding.hear(await self._holding.engine.ask_within(within, self._holding.leaving()))
        self._holding.left_to_transaction = True

    async def downgrade(self) -> None:
        """Go on with the lock shared: see `Lease.downgrade`."""
        await self._holding.engine.run(self._holding.downgrading())

    async def __aenter__(self) -> AsyncLease:
        self._holding.check()
        self._holding.enter_block()
        self._body.begin()
        return self

    async def __aexit__(self, kind: Kind, error: Error, traceback: Traceback) -> None:
        await leave(self, error, lost_it=self._body.end(error))

    def _tell(self) -> None:
        with suppress(RuntimeError):  # the loop is gone, and the body with it
            self._loop.call_soon_threadsafe(self._tell_here)
        self._holding.lease_lost()

    def _tell_here(self) -> None:
        if self._lost is not None:
            self._lost.set()
        self._body.cancel()
        self._holding.report_loss()


async def acquire(engine: TaskEngine, wish: Wish, within: Any = None) -> AsyncLease:
    """Take a lock."""
    return await engine.obtain(wish, AsyncLease, within)  # type: ignore[return-value]


async def leave(lease: AsyncLease, error: BaseException | None, *, lost_it: bool) -> None:
    """Give a lease back at the end of its block. *lost_it*: its loss has cancelled the body."""
    holding = holding_of(lease)
    if holding.leave_to_transaction() and not lost_it:
        return
    try:
        await lease.release()
    except errors.HoldfastError as problem:
        if lost_it or not noted(error, problem):
            raise problem from None
    else:
        if lost_it and (loss := holding.loss()):  # an outcome was accepted, but the body was cancelled
            raise loss.copy() from None


class Body:
    """The task in the block of a lease, which is cancelled when the lease is lost."""

    def __init__(self, holding: TaskHolding) -> None:
        self._holding = holding
        self._task: asyncio.Task[Any] | None = None
        self._cancelling = 0
        self._cancelled = False
        self._watcher: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """Guard the task that runs now."""
        self._task = asyncio.current_task()
        self._cancelling = self._task.cancelling() if self._task is not None else 0
        self.watch()

    def watch(self) -> None:
        """Be there when the trust ends: the keeper may be waiting for the store at that moment."""
        holding = self._holding
        if holding.loss() is None:
            # The loop has only a weak reference: what nobody else has is given back.
            loop = asyncio.get_running_loop()
            self._watcher = loop.call_later(max(holding.remaining, 0.001), _watch, weakref.ref(self))
        else:
            holding.engine.keeper.tell(holding.kept)

    def cancel(self) -> None:
        """Cancel the task: its lease is lost."""
        if self._task is not None and not self._task.done():
            self._cancelled = True
            self._task.cancel(str(self._holding.kept.lost))

    def end(self, error: BaseException | None) -> bool:
        """Do not cancel anything from now on. Tell whether it was our loss that cancelled the body."""
        task, self._task = self._task, None
        if self._watcher is not None:
            self._watcher.cancel()
        if not self._cancelled or task is None or task is not asyncio.current_task():
            return False
        # As in asyncio.timeout: it was our cancellation, unless somebody else wants the task to end.
        return task.uncancel() <= self._cancelling and isinstance(error, asyncio.CancelledError)


def _watch(body: weakref.ref[Body]) -> None:
    if (found := body()) is not None:
        found.watch()


def body_of(lease: AsyncLease) -> Body:
    """Return what guards the block of a lease, for the other parts of the client."""
    return lease._body  # noqa: SLF001 - the one door to it


class _Lost(asyncio.Event):
    """Code that waits for it has the lease: what nobody has is given back."""

    def __init__(self, lease: AsyncLease) -> None:
        super().__init__()
        self._lease = lease


class AsyncLeased(BaseLeased):
    """What is ours as long as its lease is, in a program with tasks."""

    _lease: AsyncLease

    @property
    def lost(self) -> asyncio.Event:
        """An event to wait for: set when it is lost, with its lease or its instance, or is to be stopped."""
        return self._lease.lost

    async def fence(self, connection: Any) -> None:
        """Make the transaction that is open on *connection* safe from later holders: see `Lease.fence`."""
        self.check()
        await self._lease.fence(connection)


class AsyncHold(BaseHold):
    """What `AsyncHoldfast.hold` returns: acquires on entering the block, releases on leaving it."""

    _engine: TaskEngine
    _lease: AsyncLease | None = None

    async def __aenter__(self) -> AsyncLease:
        if self._lease is not None:
            self._refuse_twice()
        wish = self._engine.wish(self._key, **self._options)
        self._lease = lease = await acquire(self._engine, wish)
        lease.check()
        if not wish.named:
            self._block = Block(lease.owner)
        body_of(lease).begin()
        return lease

    async def __aexit__(self, kind: Kind, error: Error, traceback: Traceback) -> None:
        assert self._lease is not None
        self._leave_block()
        await self._lease.__aexit__(kind, error, traceback)
