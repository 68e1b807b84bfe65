"""The tickets of all for whom the server waits: who is woken by which signal, and what keeps them alive.

One request refreshes them all, every heartbeat, in one task. What it answers is what a lost signal would have
said.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Literal

from holdfast.clock import boot_time
from holdfast.core.keeper import BATCH
from holdfast.core.requests import Acquire, Queued, RefreshTicket, Renew, Signal
from holdfast.log import log
from holdfast.server.admission.access import Principal
from holdfast.server.backend import Backend

ALL = ""  # no attempt is called so

Away = Literal["draining", "revoked"]
OnQueued = Callable[[Queued, str], None]


class SentAway(Exception):
    """We shall not wait for somebody any longer."""

    def __init__(self, reason: Away) -> None:
        self.reason: Away = reason
        super().__init__(reason)


class Waiter:
    """One acquire that is waited for."""

    def __init__(self, request: Acquire, principal: Principal | None, on_queued: OnQueued | None) -> None:
        self.request = request
        self.key = request.key
        self.attempt = ""  # which can be signalled now
        self.patience = request.patience
        self.principal = principal
        self.sent_away: Away | None = None
        self.on_queued = on_queued  # told how it moves up, with its attempt
        self.queued: Queued | None = None  # what it was told last
        self._signal: Signal | None = None
        self._woken: asyncio.Future[None] | None = None

    def put(self, signal: Signal) -> None:
        """Wake it. Of several signals the most urgent is enough: each says to ask, or when to."""
        if signal.kind == "head" and self.on_queued and self.queued is not None and self.queued.position > 1:
            signal = Signal("granted", self.key, self.attempt)  # asking tells who is before it now
        if self._signal is None or self._signal.kind == "head":
            self._signal = signal
        self._wake()

    def send_away(self, reason: Away) -> None:
        """End its wait for good. A request that is under way may still be answered."""
        self.sent_away = self.sent_away or reason
        self._wake()

    def _wake(self) -> None:
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)

    async def wait(self, until: float | None) -> Signal | None:
        """Return the next signal, or None when the time has come. Raise `SentAway` if it is."""
        if self._signal is None and self.sent_away is None:
            self._woken = asyncio.get_running_loop().create_future()
            left = None if until is None else max(until - boot_time(), 0.0)
            try:
                await asyncio.wait([self._woken], timeout=left)
            finally:
                self._woken = None
        signal, self._signal = self._signal, None
        if self.sent_away is not None and (signal is None or self.sent_away == "revoked"):
            raise SentAway(self.sent_away)
        return signal


class Tickets:
    """All waiters by their attempts, of which several may have the same: whoever came back for it."""

    def __init__(self, backend: Backend, heartbeat: float) -> None:
        self._backend = backend
        self._heartbeat = heartbeat
        self._waiters: dict[tuple[str, str], dict[Waiter, None]] = {}
        self._queued: dict[Waiter, None] = {}
        self._task: asyncio.Task[None] | None = None
        backend.listen(self.signalled)

    def add(self, waiter: Waiter, attempt: str) -> None:
        """Have *waiter* woken for *attempt*, and for nothing else any more."""
        if waiter.attempt != attempt:
            self.remove(waiter)
            waiter.attempt = attempt
            for name in (attempt, ALL):
                self._waiters.setdefault((waiter.key, name), {})[waiter] = None

    def remove(self, waiter: Waiter) -> None:
        """Neither wake it nor refresh its ticket any more."""
        self._queued.pop(waiter, None)
        if waiter.attempt:
            for name in (waiter.attempt, ALL):
                others = self._waiters[waiter.key, name]
                del others[waiter]
                if not others:
                    del self._waiters[waiter.key, name]
            waiter.attempt = ""

    def keep(self, waiter: Waiter, queued: Queued) -> None:
        """Refresh its ticket from now on."""
        waiter.queued = queued
        self._queued[waiter] = None
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._beat(), name="holdfast-tickets")

    def signalled(self, signal: Signal) -> None:
        """Pass a signal on, if it is for one of those who wait here."""
        if not signal.to:
            attempt = ALL if signal.kind == "over" else signal.attempt
            for waiter in list(self._waiters.get((signal.key, attempt), ())):
                waiter.put(signal)

    def all(self) -> list[Waiter]:
        """Return all who wait."""
        return [w for (_, name), waiters in self._waiters.items() if name == ALL for w in waiters]

    def close(self) -> None:
        """Refresh nothing any more."""
        if self._task is not None:
            self._task.cancel()
            self._task = None

    async def _beat(self) -> None:
        while self._queued:
            await asyncio.sleep(self._heartbeat)
            tickets = list({(w.key, w.attempt): w.patience for w in self._queued}.items())
            for start in range(0, len(tickets), BATCH):
                batch = [
                    RefreshTicket(*ticket, patience) for ticket, patience in tickets[start : start + BATCH]
                ]
                await self._refresh(Renew(tickets=tuple(batch)))
        self._task = None

    async def _refresh(self, request: Renew) -> None:
        try:
            answer = await self._backend.ask(request)
        except Exception as error:  # noqa: BLE001 - a task that died would lose everybody's place
            log().warning("could not refresh %d tickets, trying again: %r", len(request.tickets), error)
            return
        for ticket, told in zip(request.tickets, answer.tickets, strict=True):
            if told.outcome != "waiting":
                self.signalled(Signal("granted", ticket.key, ticket.attempt))
            elif told.head:
                self.signalled(Signal("head", ticket.key, ticket.attempt, told.expires_in))
