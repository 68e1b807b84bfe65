"""The stores of a server, asked from its event loop.

A store that waits for a disk or a network has threads of its own here, as many as it is worth, however many
requests are under way. One that can commit many requests at once (SQLite) gets whatever has come in while it
was busy with the last ones: under load a commit is shared by many, and alone nobody waits for company. Beside
that it has a thread for those who only read: they must not wait while nobody can write.
"""

from __future__ import annotations

import asyncio
import copy
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, TypeVar, cast

from holdfast import identity
from holdfast.core.events import HistoryLevel
from holdfast.core.requests import Probe, Request, Signal
from holdfast.core.wire import ROUTES
from holdfast.errors import HoldfastError, StoreError, StoreUnavailable
from holdfast.log import log
from holdfast.server.queues import Group, RequestQueue
from holdfast.server.system.metrics import Metrics
from holdfast.stores import open_store
from holdfast.stores.base import READS, Store, StoreOptions, Traits
from holdfast.stores.readiness import Opening

A = TypeVar("A")

GROUP = 64  # requests in one commit
MOST_PENDING = 20_000  # requests that wait for the store; more are refused at once

CLOSE_WITHIN = 5.0  # seconds for what the store still does, all together

_MAKES_EVENTS = frozenset(route.request for route in ROUTES if route.events)


class Backend:
    """See the module. To be used from one event loop."""

    def __init__(
        self, url: str, *, history: HistoryLevel = "notable", observer: Metrics | None = None
    ) -> None:
        self._url = url
        self._history: HistoryLevel = history
        self._observer = observer
        self._client = identity.new_client()
        self._lanes: dict[HistoryLevel, Lane] = {}
        self._listeners: list[Callable[[Signal], None]] = []
        self._callbacks: list[Callable[[], None]] = []
        self._opening = asyncio.Lock()
        self.secret = b""  # of the store, once it is open: all servers on it have the same, and nobody else

    @property
    def instance(self) -> str:
        """Where signals for this server go, and the first part of its clients' addresses."""
        return self._client.instance

    @property
    def traits(self) -> Traits:
        """What is true of the store."""
        return self._lanes[self._history].store.traits

    @property
    def kind(self) -> str:
        """What kind of store it is: the scheme of its url."""
        return self._url.partition("://")[0].lower()

    @property
    def pending(self) -> int:
        """How many requests wait for the store."""
        return sum(lane.pending for lane in self._lanes.values())

    async def open(self, patience: float = 0.0) -> None:
        """Connect, and have the store wake us. Wait for *patience* seconds for one that is not ready."""
        loop = asyncio.get_running_loop()
        store = open_store(self._url, StoreOptions(self._client, self._history))
        store.listen(lambda signal: _call(loop, self._dispatch, signal))
        opening = Opening(patience)
        while True:
            try:
                await asyncio.to_thread(store.open)
                break
            except StoreError as error:
                pause = opening.pause(error)
            await asyncio.sleep(pause)
        await asyncio.to_thread(store.be_reachable)
        self.secret = (await asyncio.to_thread(cast("Any", store).store_id)).encode()
        self._lanes[self._history] = Lane(store, self._observer, self._wrote)

    async def close(self) -> None:
        """Answer what was asked, and let go of the stores."""
        await asyncio.gather(*(asyncio.to_thread(lane.close) for lane in self._lanes.values()))

    async def ask(self, request: Request[A], history: HistoryLevel | None = None) -> A:
        """Have *request* answered by a store that keeps this much *history*."""
        return cast("A", await (await self._lane(history)).ask(request))

    async def ask_surely(self, request: Request[A], history: HistoryLevel | None = None) -> A:
        """Have *request* answered even if whoever asks is cancelled: for what gives something back."""
        return cast("A", await asyncio.shield((await self._lane(history)).ask(request)))

    async def _lane(self, history: HistoryLevel | None) -> Lane:
        history = history or self._history
        return self._lanes.get(history) or await self._open_another(history)

    async def _open_another(self, history: HistoryLevel) -> Lane:
        """Open a store for callers who want another history than most. It needs no ear of its own."""
        async with self._opening:
            if history not in self._lanes:
                store = open_store(self._url, StoreOptions(identity.new_client(), history))
                await asyncio.to_thread(store.open)
                self._lanes[history] = Lane(store, self._observer, self._wrote)
        return self._lanes[history]

    def listen(self, listener: Callable[[Signal], None]) -> None:
        """Call *listener* in the loop's thread with the signals for us and for our clients."""
        self._listeners.append(listener)

    def on_write(self, callback: Callable[[], None]) -> None:
        """Call *callback* in the loop's thread after requests that may have made events."""
        self._callbacks.append(callback)

    def _dispatch(self, signal: Signal) -> None:
        for listener in self._listeners:
            listener(signal)

    def _wrote(self) -> None:
        for callback in self._callbacks:
            callback()


class Lane:
    """One store, and the queues of those who ask it."""

    def __init__(self, store: Store, observer: Metrics | None, wrote: Callable[[], None]) -> None:
        self.store = store
        self._observer = observer
        self._wrote = wrote
        self._loop = asyncio.get_running_loop()
        self._queues: list[RequestQueue] = []  # none for a store that never waits
        traits = store.traits
        if traits.blocking and traits.groups:
            names = ("holdfast-store", "holdfast-reads")
            self._queues = [RequestQueue(self._answer, 1, GROUP, name) for name in names]
        elif traits.blocking:
            self._queues = [RequestQueue(self._answer, max(traits.lanes, 1), 1, "holdfast-store")]

    @property
    def pending(self) -> int:
        return sum(map(len, self._queues))

    def ask(self, request: Request[Any]) -> asyncio.Future[Any]:
        """Return the answer, when it is there."""
        answer: asyncio.Future[Any] = self._loop.create_future()
        if not self._queues:
            self._deliver([(request, answer)], self._execute([request]))
            return answer
        queue = self._queues[-1 if type(request) in READS else 0]
        if queue.closed or len(queue) >= MOST_PENDING:
            answer.set_exception(
                StoreUnavailable(f"{len(queue)} requests wait for the store already; try again later")
            )
        else:
            # How long the queue is says nothing of whether a write works.
            queue.put((request, answer), first=type(request) is Probe)
        return answer

    def close(self) -> None:
        """Answer what was asked, and close the store."""
        for queue in self._queues:
            queue.close()
        deadline = time.monotonic() + CLOSE_WITHIN
        for thread in (thread for queue in self._queues for thread in queue.threads):
            thread.join(timeout=max(deadline - time.monotonic(), 0.0))
        self.store.close()

    def _answer(self, group: Group) -> None:
        _call(self._loop, self._deliver, group, self._execute([request for request, _ in group]))

    def _execute(self, requests: Sequence[Request[Any]]) -> list[Any]:
        began = time.perf_counter()
        try:
            if len(requests) == 1:
                answers = [self.store.execute(requests[0])]
            else:
                answers = self.store.execute_many(requests)
        except HoldfastError as error:
            answers = [copy.copy(error) for _ in requests]  # each collects a traceback, where it is raised
        except Exception as error:  # noqa: BLE001 - a thread that died would leave all who wait for it
            log().exception("the store failed in an unknown way")
            answers = [StoreError(f"the store failed: {type(error).__name__}")] * len(requests)
        if self._observer is not None:
            took = time.perf_counter() - began
            self._observer.group_committed(len(requests))
            for request, answer in zip(requests, answers, strict=True):
                failed = type(answer).__name__ if isinstance(answer, HoldfastError) else None
                self._observer.store_answered(type(request).__name__, took, failed)
        return answers

    def _deliver(self, group: Group, answers: list[Any]) -> None:
        wrote = False
        for (request, future), answer in zip(group, answers, strict=True):
            failed = isinstance(answer, HoldfastError)
            wrote = wrote or (type(request) in _MAKES_EVENTS and not failed)
            if self._observer is not None and not failed:
                self._observer.observe_answer(request, answer)
            if future.done():  # cancelled: whoever asked has gone
                continue
            if failed:
                answer.from_store = True  # what it says is for the log: it names hosts, files and statements
                future.set_exception(answer)
            else:
                future.set_result(answer)
        if wrote:
            self._wrote()


def _call(loop: asyncio.AbstractEventLoop, function: Callable[..., None], *args: Any) -> None:
    """Call something in the loop's thread, from any thread. A loop that is gone has nobody to tell."""
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(function, *args)
