"""Whether the server is ready: whether a write works, and not only whether somebody answers.

Whoever asks has a small write done, as durable as a grant. All who ask at the same time share it, and what
came of it is told for a moment more: however many ask, the store has one write a second to do. While one is
under way no other is begun, however long it takes.
"""

from __future__ import annotations

import asyncio
import time

from holdfast.core.plans import Clock
from holdfast.core.requests import Probe
from holdfast.errors import HoldfastError, kind_of
from holdfast.server.backend import Backend
from holdfast.server.system.logs import ServerLog

FRESH = 1.0  # seconds for which an outcome is told again
WITHIN = 2.0  # seconds for the store to write


class Readiness:
    """See the module. To be used from one event loop. The log says what is wrong, and when it changes."""

    def __init__(
        self, backend: Backend, log: ServerLog, *, within: float = WITHIN, clock: Clock = time.monotonic
    ) -> None:
        self._backend = backend
        self._log = log
        self._within = within
        self._clock = clock
        self._probe: asyncio.Task[None] | None = None
        self._began = 0.0
        self._ended = -1e9
        self._trouble = ""  # of the last write
        self._told = ""  # in the log

    async def look(self) -> str:
        """Return why the server is not ready; nothing if it is."""
        if self._probe is None and self._clock() - self._ended >= FRESH:
            self._began = self._clock()
            self._probe = asyncio.create_task(self._write(), name="holdfast-readiness")
        if self._probe is not None:
            left = self._began + self._within - self._clock()
            await asyncio.wait({self._probe}, timeout=max(left, 0.0))
        if self._probe is not None:
            trouble = f"a write takes longer than {self._within:g} s"
            self._tell(trouble, trouble)
            return trouble
        return self._trouble

    async def _write(self) -> None:
        try:
            await self._backend.ask(Probe())
        except HoldfastError as error:
            # By its kind: everybody may ask, and messages name hosts and files.
            self._trouble = f"a write fails: {kind_of(error).__name__}"
            self._tell(self._trouble, str(error))
        else:
            self._trouble = ""
            self._tell("", "")
        finally:
            self._ended = self._clock()
            self._probe = None

    def _tell(self, trouble: str, more: str) -> None:
        """Write into the log what is wrong, once, and when it is well again."""
        if trouble != self._told:
            self._told = trouble
            if trouble:
                self._log.say(f"not ready: {more}", "error")
            else:
                self._log.say("ready again: a write works")

    async def close(self) -> None:
        """End what is under way."""
        if self._probe is not None:
            self._probe.cancel()
            await asyncio.wait({self._probe})
