"""What `AsyncHoldfast.lock` returns: a lock for code that expects an `asyncio.Lock`."""

from __future__ import annotations

from typing import Literal

from holdfast import errors, identity
from holdfast.client import questions
from holdfast.client.aio.engine import TaskEngine
from holdfast.client.aio.leases import AsyncLease, acquire
from holdfast.client.blocks import Error, Kind, Traceback
from holdfast.client.leases import holding_of, noted
from holdfast.client.stdlock import BaseLock


class AsyncLock(BaseLock[AsyncLease]):
    """A lock that speaks `asyncio.Lock`: any task may release what another one acquired."""

    _engine: TaskEngine

    async def acquire(self) -> Literal[True]:
        """Acquire as `asyncio.Lock.acquire` does."""
        await self._acquire()
        return True

    async def _acquire(self) -> AsyncLease:
        lease = await acquire(self._engine, self._engine.wish(self.key, ttl=self._ttl, limit=self._limit))
        self._leases.append((identity.name(), lease))
        return lease

    async def release(self) -> None:
        """Release what the current task acquired last, otherwise what any other did.

        Unlike asyncio's it asks a store: await it.
        """
        lease = self._last(self._leases)
        self._leases = [each for each in self._leases if each[1] is not lease]
        await lease.release()

    async def locked(self) -> bool:
        """Tell whether anybody holds the lock."""
        view = await self._engine.ask(questions.inspect(self.key))
        return view is not None and view.state == "held"

    async def __aenter__(self) -> None:
        lease = await self._acquire()
        holding_of(lease).enter_block()

    async def __aexit__(self, kind: Kind, error: Error, traceback: Traceback) -> None:
        try:
            await self.release()
        except errors.HoldfastError as problem:
            if not noted(error, problem):
                raise
