"""The stores of a server, asked from its event loop.

There is one for each history that callers ask for, which is one nearly always. How it is asked is in `lanes`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar, cast

from holdfast import identity
from holdfast.core.events import HistoryLevel
from holdfast.core.requests import Request, Signal
from holdfast.errors import StoreError
from holdfast.server.lanes import Lane, call_from_thread
from holdfast.server.queues import Waiting
from holdfast.server.system.metrics import Metrics
from holdfast.stores import open_store
from holdfast.stores.base import StoreOptions, Traits
from holdfast.stores.readiness import Opening

A = TypeVar("A")


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
        store.listen(lambda signal: call_from_thread(loop, self._dispatch, signal))
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
        await asyncio.gather(*(lane.close() for lane in self._lanes.values()))

    def submit(self, request: Request[Any], waiting: Waiting) -> None:
        """Have it answered by the store that most use; *waiting* is told, never before this returns."""
        self._lanes[self._history].submit(request, waiting)

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
