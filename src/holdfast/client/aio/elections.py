"""Elections for tasks: see `holdfast.client.elections`. A deposed leader is cancelled."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any

from holdfast.client.aio.engine import TaskEngine
from holdfast.client.aio.leases import AsyncLease, AsyncLeased, acquire, body_of
from holdfast.client.blocks import Error, Kind, Traceback
from holdfast.client.elections import GRACE, BaseElection, BaseTerm, Candidacy, giving_back, is_loss_of
from holdfast.core.plans import Stopped
from holdfast.core.requests import Holder
from holdfast.core.settings import Seconds, seconds
from holdfast.log import log


class AsyncTerm(BaseTerm[AsyncLease], AsyncLeased):
    """A time for which we are the leader: see `Term`. As a context manager it cancels its body at the end.

    Being deposed is no error there: the block is left as if it had ended, and the election goes on.
    """

    def __init__(
        self, lease: AsyncLease, depose: Callable[[AsyncTerm], Awaitable[object]] | None = None
    ) -> None:
        self._lease = lease
        self._depose = depose
        self._deposed: asyncio.Future[object] | None = None  # once it is told that it is over

    async def resign(self) -> None:
        """End the term: the next who waits is elected at once. Harmless if it is over."""
        self.lost.set()
        if self._depose is not None:  # once, and before the next one can begin
            if self._deposed is None:
                self._deposed = asyncio.ensure_future(self._depose(self))
            if self._deposed is not asyncio.current_task():
                await asyncio.shield(self._deposed)
        with giving_back(self):
            await self._lease.release()

    async def __aenter__(self) -> AsyncTerm:
        await self._lease.__aenter__()
        return self

    async def __aexit__(self, kind: Kind, error: Error, traceback: Traceback) -> bool:
        lost_it = body_of(self._lease).end(error)
        await self.resign()
        return lost_it or is_loss_of(self, error)


class AsyncElection(BaseElection[AsyncTerm]):
    """What `AsyncHoldfast.elect` returns: iterate over it, or give it callbacks."""

    _engine: TaskEngine

    def __init__(self, engine: TaskEngine, candidacy: Candidacy) -> None:
        super().__init__(engine, candidacy)
        self._stopped = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        if candidacy.by_itself:
            self._task = asyncio.get_running_loop().create_task(self._campaign(), name=f"elect {self.key}")

    async def leader(self) -> Holder | None:
        """Look who leads, us or anybody else; None if nobody does."""
        return await self._engine.run(self._candidacy.look())

    async def stop(self, timeout: Seconds = GRACE) -> None:  # noqa: ASYNC109
        """Take part no more: see `Election.stop`. What *on_elected* began is cancelled."""
        patience = seconds(timeout, "timeout")
        term, task = self._begin_to_stop(), self._task
        if task is None or task is asyncio.current_task():
            return
        _, late = await asyncio.wait([task], timeout=patience)
        if late and term is not None:
            log().warning("on_elected of %r has not ended in %g s, and leads no more", self.key, patience)
            with giving_back(term):
                await term.lease.release()

    async def __aiter__(self) -> AsyncIterator[AsyncTerm]:
        self._candidacy.check_iterable()
        while (term := await self._win()) is not None:
            try:
                yield term
            finally:
                self._term = None
                await term.resign()

    async def __aenter__(self) -> AsyncElection:
        return self

    async def __aexit__(self, kind: Kind, error: Error, traceback: Traceback) -> None:
        await self.stop()

    async def _win(self) -> AsyncTerm | None:
        """Wait to be elected; None once it is stopped."""
        try:
            lease = await acquire(self._engine, self._candidacy.wish())
        except Stopped:
            return None
        deposed = self._candidacy.on_deposed
        depose = None if deposed is None else partial(self._call, "on_deposed", deposed)
        self._term = term = AsyncTerm(lease, depose)
        if self._candidacy.stopping:  # while we were elected
            self._term = None
            await term.resign()
            return None
        return term

    # By itself.

    async def _campaign(self) -> None:
        while self._candidacy.campaigning:
            with self._candidacy.trying():
                if (term := await self._win()) is not None:
                    self._candidacy.went(await self._serve(term))
            if self._candidacy.failures:
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._candidacy.pause()):
                        await self._stopped.wait()

    async def _serve(self, term: AsyncTerm) -> bool:
        """Be the leader for a term. Tell whether nothing went wrong."""
        guard = body_of(term.lease)
        guard.watch()  # and not only the keeper: it may be waiting for the store
        body = asyncio.ensure_future(self._call("on_elected", self._candidacy.on_elected, term))
        over = asyncio.ensure_future(term.lost.wait())
        fine = True
        try:
            await asyncio.wait([body, over], return_when=asyncio.FIRST_COMPLETED)
            if body.done():
                fine = not body.cancelled() and body.result()
                if fine:
                    await over
        finally:
            self._term = None
            guard.end(None)
            over.cancel()
            body.cancel()
            try:
                await asyncio.wait([body])
            finally:
                await term.resign()
        return fine

    async def _call(self, what: str, function: Callable[[AsyncTerm], Any] | None, term: AsyncTerm) -> bool:
        try:
            if function is not None:
                result = function(term)
                if inspect.isawaitable(result):
                    await result
        except Exception as error:  # noqa: BLE001 - it is the user's code
            return not self._candidacy.failed(what, term, error)
        return True
