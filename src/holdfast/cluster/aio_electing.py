"""Elections for tasks: see `electing`. Who is deposed is cancelled."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any

from holdfast import errors
from holdfast.aio_leases import AsyncLease
from holdfast.cluster.electing import GRACE, BaseElection, BaseTerm
from holdfast.core.plans import Stopped
from holdfast.core.requests import Holder
from holdfast.core.settings import Seconds, seconds
from holdfast.log import log

if TYPE_CHECKING:
    from holdfast.aio import AsyncHoldfast


class AsyncTerm(BaseTerm):
    """A time for which we are the leader: see `Term`. As a context manager it cancels its body at the end.

    Being deposed is no error there: the block is left as if it had ended, and the election goes on.
    """

    def __init__(self, election: AsyncElection, lease: AsyncLease) -> None:
        self._election = election
        self._lease: AsyncLease = lease
        self._deposed: asyncio.Future[bool] | None = None  # once it is told that it is over

    @property
    def lease(self) -> AsyncLease:
        """The lease of the lock that leaders hold."""
        return self._lease

    @property
    def lost(self) -> asyncio.Event:
        """An event to wait for: set when the term is over, or has to end because the election is stopped."""
        return self._lease.lost

    async def fence(self, connection: Any) -> None:
        """Make the transaction that is open on *connection* safe from later leaders: see `Lease.fence`."""
        await self._lease.fence(connection)

    async def resign(self) -> None:
        """End the term: the next who waits is elected at once. Harmless if it is over."""
        self.lost.set()
        await self._election._depose(self)  # noqa: SLF001
        await self._give_back()

    async def _give_back(self) -> None:
        try:
            await self._lease.release()
        except errors.LeaseLost as loss:
            log().info("%s", loss)
        except errors.NotHeld:
            pass  # resigned before
        except errors.StoreError as problem:
            log().warning("could not give back the lease of %r, which ends by itself: %s", self.key, problem)

    async def __aenter__(self) -> AsyncTerm:
        await self._lease.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        lost_it = self._lease._end_body(error)  # noqa: SLF001
        await self.resign()
        return lost_it or self._is_own_loss(error)


class AsyncElection(BaseElection):
    """What `AsyncHoldfast.elect` returns: iterate over it, or give it callbacks."""

    _client: AsyncHoldfast

    def __init__(
        self,
        client: AsyncHoldfast,
        key: str,
        *,
        on_elected: Callable[[AsyncTerm], Awaitable[object]] | None = None,
        on_deposed: Callable[[AsyncTerm], object] | None = None,
        ttl: Seconds | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(client, key, on_elected=on_elected, on_deposed=on_deposed, ttl=ttl, name=name)
        self._term: AsyncTerm | None = None
        self._stopped = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        if self._by_itself:
            self._task = asyncio.get_running_loop().create_task(self._campaign(), name=f"elect {self.key}")

    @property
    def term(self) -> AsyncTerm | None:
        """Our term, while we are the leader."""
        term = self._term
        return term if term is not None and term.held else None

    @property
    def leading(self) -> bool:
        """Whether we are the leader, and can be sure of it."""
        return self.term is not None

    async def leader(self) -> Holder | None:
        """Look who leads, us or anybody else; None if nobody does."""
        view = await self._client.inspect(self.key)
        return view.holder if view is not None and view.state == "held" else None

    async def stop(self, timeout: Seconds = GRACE) -> None:  # noqa: ASYNC109
        """Take part no more: see `Election.stop`. What *on_elected* began is cancelled."""
        patience = seconds(timeout, "timeout")
        self._stopping = True
        self._stopped.set()
        self._wake()
        term, task = self._term, self._task
        if term is not None:
            term.lost.set()
        if task is None or task is asyncio.current_task():
            return
        _, late = await asyncio.wait([task], timeout=patience)
        if late and term is not None:
            log().warning("on_elected of %r has not ended in %g s, and leads no more", self.key, patience)
            await term._give_back()  # noqa: SLF001

    async def __aiter__(self) -> AsyncIterator[AsyncTerm]:
        self._check_iterable()
        while (term := await self._win()) is not None:
            try:
                yield term
            finally:
                self._term = None
                await term.resign()

    async def __aenter__(self) -> AsyncElection:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.stop()

    def _state(self) -> str:
        return f"leading in {self.term!r}" if self.leading else super()._state()

    async def _win(self) -> AsyncTerm | None:
        """Wait to be elected; None once it is stopped."""
        try:
            lease = await self._client._acquire(self._candidacy(None))  # noqa: SLF001
        except Stopped:
            return None
        self._term = term = AsyncTerm(self, lease)
        if self._stopping:  # while we were elected
            self._term = None
            await term.resign()
            return None
        return term

    # By itself.

    async def _campaign(self) -> None:
        failures = 0
        while not self._stopping:
            try:
                term = await self._win()
                if term is None:
                    return
                failures = 0 if await self._serve(term) else failures + 1
            except errors.Closed:
                return
            except Exception as error:  # noqa: BLE001 - an election goes on until it is stopped
                log().warning("the election of %r failed, trying again: %r", self.key, error)
                failures += 1
            if failures:
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._pause(failures)):
                        await self._stopped.wait()

    async def _serve(self, term: AsyncTerm) -> bool:
        """Be the leader for a term. Tell whether nothing went wrong."""
        lease = term._lease  # noqa: SLF001
        lease._watch()  # noqa: SLF001 - and not only the keeper: it may be waiting for the store
        body = asyncio.ensure_future(self._call("on_elected", self._on_elected, term))
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
            lease._end_body(None)  # noqa: SLF001
            over.cancel()
            body.cancel()
            try:
                await asyncio.wait([body])
            finally:
                await term.resign()
        return fine

    async def _depose(self, term: AsyncTerm) -> None:
        """Tell that a term is over: once, and before the next one can begin."""
        if self._on_deposed is None:
            return
        if term._deposed is None:  # noqa: SLF001
            term._deposed = asyncio.ensure_future(  # noqa: SLF001
                self._call("on_deposed", self._on_deposed, term)
            )
        if term._deposed is not asyncio.current_task():  # noqa: SLF001
            await asyncio.shield(term._deposed)  # noqa: SLF001

    async def _call(self, what: str, function: Callable[[AsyncTerm], Any] | None, term: AsyncTerm) -> bool:
        try:
            if function is not None:
                result = function(term)
                if inspect.isawaitable(result):
                    await result
        except Exception as error:  # noqa: BLE001 - it is the user's code
            if not term._is_own_loss(error):  # noqa: SLF001
                log().error("%s of %r failed", what, self.key, exc_info=error)
                return False
        return True
