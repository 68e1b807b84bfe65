"""A lease for tasks, and the ``async with`` blocks that take and release one."""

from __future__ import annotations

import asyncio
import weakref
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any

from holdfast import errors
from holdfast.core.keeper import Kept
from holdfast.core.requests import NotHeld
from holdfast.leases import BaseLease, with_note
from holdfast.options import HoldOptions

if TYPE_CHECKING:
    from holdfast.aio import AsyncHoldfast
    from holdfast.client import Wish


class AsyncLease(BaseLease):
    """A lock that we hold. As a context manager it guards its block as `AsyncHoldfast.hold` does."""

    def __init__(self, client: AsyncHoldfast, kept: Kept, wish: Wish) -> None:
        super().__init__(kept, wish)
        self._client = client
        self._loop = asyncio.get_running_loop()
        self._lost: _Lost | None = None
        self._body: asyncio.Task[Any] | None = None
        self._cancelling = 0
        self._cancelled = False
        self._watcher: asyncio.TimerHandle | None = None
        kept.tell = self._tell

    @property
    def lost(self) -> asyncio.Event:
        """An event to wait for: set when the lease is lost."""
        if self._lost is None:
            self._lost = _Lost(self)
        if self._loss() is not None:
            self._lost.set()
        return self._lost

    async def fence(self, connection: Any) -> None:
        """Make the transaction that is open on *connection* safe: see `Lease.fence`.

        The connection may be psycopg's or SQLAlchemy's for asyncio as well.
        """
        answer = await self._client._within(connection, self._fencing())  # noqa: SLF001
        if isinstance(answer, NotHeld):
            self._lose_in_transaction(self._client, answer)

    async def release(self, *, within: Any = None) -> None:
        """Give the lock back: see `Lease.release`."""
        if within is None:
            await self._client._run(self._releasing(self._client))  # noqa: SLF001
            return
        answer = await self._client._within(within, self._leaving())  # noqa: SLF001
        if isinstance(answer, NotHeld):
            self._lose_in_transaction(self._client, answer)
        self._left()

    async def downgrade(self) -> None:
        """Go on with the lock shared: see `Lease.downgrade`."""
        await self._client._run(self._downgrading(self._client))  # noqa: SLF001

    async def __aenter__(self) -> AsyncLease:
        self.check()
        self._enter_block()
        self._body = asyncio.current_task()
        self._cancelling = self._body.cancelling() if self._body is not None else 0
        self._watch()
        return self

    def _watch(self) -> None:
        """Be there when the trust ends: the keeper may be waiting for the store at that moment."""
        if self._loss() is None:
            # The loop has only a weak reference: what nobody else has is given back.
            self._watcher = self._loop.call_later(max(self.remaining, 0.001), _watch, weakref.ref(self))
        else:
            self._client._keeping.tell(self._kept)  # noqa: SLF001

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._leave(error, self._end_body(error))

    def _end_body(self, error: BaseException | None) -> bool:
        """Do not cancel anything from now on. Tell whether it was our loss that cancelled the body."""
        body, self._body = self._body, None
        if self._watcher is not None:
            self._watcher.cancel()
        if not self._cancelled or body is None or body is not asyncio.current_task():
            return False
        # As in asyncio.timeout: it was our cancellation, unless somebody else wants the task to end.
        return body.uncancel() <= self._cancelling and isinstance(error, asyncio.CancelledError)

    async def _leave(self, error: BaseException | None, lost_it: bool) -> None:
        if self._leave_to_transaction(self._client) and not lost_it:
            return
        try:
            await self.release()
        except errors.HoldfastError as problem:
            if lost_it or error is None:
                raise problem from None
            with_note(error, problem)
        else:
            if lost_it and (loss := self._loss()):  # an outcome was accepted, but the body was cancelled
                raise loss.copy() from None

    def _tell(self) -> None:
        with suppress(RuntimeError):  # the loop is gone, and the body with it
            self._loop.call_soon_threadsafe(self._tell_here)

    def _tell_here(self) -> None:
        if self._lost is not None:
            self._lost.set()
        if self._body is not None and not self._body.done():
            self._cancelled = True
            self._body.cancel(str(self._kept.lost))
        self._report_loss()


def _watch(lease: weakref.ref[AsyncLease]) -> None:
    if (found := lease()) is not None:
        found._watch()  # noqa: SLF001


class _Lost(asyncio.Event):
    """Whoever waits for it has the lease: what nobody has is given back."""

    def __init__(self, lease: AsyncLease) -> None:
        super().__init__()
        self._lease = lease


class AsyncHold:
    """What `AsyncHoldfast.hold` returns: acquires on entering the block, releases on leaving it."""

    def __repr__(self) -> str:
        return f"<AsyncHold {self._key!r} {self._lease or 'not entered'}>"

    def __init__(self, client: AsyncHoldfast, key: str, options: HoldOptions) -> None:
        self._client = client
        self._key = key
        self._options = options
        self._lease: AsyncLease | None = None

    async def __aenter__(self) -> AsyncLease:
        if self._lease is not None:
            raise errors.SettingsError(f"this hold of {self._key!r} was entered before; call hold() again")
        self._lease = await self._client.acquire(self._key, **self._options)
        return await self._lease.__aenter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._lease is not None
        await self._lease.__aexit__(kind, error, traceback)
