"""What the server could not give back for callers who have gone: it goes on trying, in one task for all."""

from __future__ import annotations

import asyncio
import random

from holdfast.clock import boot_time
from holdfast.core.keeper import Keeper
from holdfast.core.requests import Acquire, Withdraw
from holdfast.core.settings import Settings
from holdfast.log import log
from holdfast.server.backend import Backend


class Withdrawals:
    """Withdraws what nobody has any more, until it is answered, or has ended by itself."""

    def __init__(self, backend: Backend, settings: Settings) -> None:
        self._backend = backend
        self._keeper = Keeper(settings, random.random)
        self._task: asyncio.Task[None] | None = None

    def add(self, request: Withdraw, asked: Acquire) -> None:
        """Go on withdrawing what *asked* may have left in the store."""
        self._keeper.pursue(request, lasts=asked.lasts, now=boot_time())
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run(), name="holdfast-withdrawals")

    async def close(self, timeout: float) -> None:  # noqa: ASYNC109 - of a last try, which may not be in time
        """Try once more, and stop."""
        if self._task is not None:
            self._keeper.pursue_at = boot_time()
            self._task.cancel()
            await asyncio.wait([asyncio.create_task(self._try_all())], timeout=timeout)

    async def _run(self) -> None:
        while self._keeper.pursued:
            await self._try_all()
            await asyncio.sleep(max(self._keeper.pursue_at - boot_time(), 0.0))
        self._task = None

    async def _try_all(self) -> None:
        while (request := self._keeper.withdrawal(boot_time())) is not None:
            try:
                await self._backend.ask(request)
            except Exception as error:  # noqa: BLE001 - a task that died would give nothing back any more
                log().warning("could not give back %r, trying again: %r", request.key, error)
                self._keeper.not_withdrawn(boot_time())
                return
            self._keeper.withdrawn(request)
