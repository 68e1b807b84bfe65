"""A lock server inside a test: real sockets, a thread of its own, and requests that may tell the time."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Sequence
from typing import Any, Self, TypeVar, cast

from holdfast.core.requests import Request
from holdfast.server import Server, ServerSettings
from holdfast.stores.base import Store, Traits
from holdfast.stores.http import HTTPStore

A = TypeVar("A")
T = TypeVar("T")


class ServerThread:
    """A `Server` in a thread with an event loop. A context manager."""

    def __init__(self, settings: ServerSettings) -> None:
        self.server = Server(settings)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="lock-server", daemon=True)

    def start(self) -> str:
        """Return the url once it listens."""
        self._thread.start()
        return self.run(self.server.start())

    def stop(self) -> None:
        """Stop it, and wait until it has."""
        self.run(self.server.stop(drain=0))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run something in its loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()


class Settled:
    """An HTTP store whose signals are there when the answer is, as the suite expects within one client."""

    def __init__(self, store: HTTPStore) -> None:
        self._store = store

    @property
    def traits(self) -> Traits:
        """Return what the store says of itself."""
        return self._store.traits

    def open(self) -> None:
        """Open the store, and its stream: the suite also counts the signals to who never waited."""
        self._store.open()
        self._store.listen(lambda _: None)
        self._store.be_reachable()

    def execute(self, request: Request[A]) -> A:
        """Answer *request*, and wait for what it signalled to us."""
        answer = self._store.execute(request)
        self._store.settle()
        return answer

    def execute_many(self, requests: Sequence[Request[Any]]) -> list[Any]:
        """Answer *requests*, and wait for what they signalled to us."""
        answers = self._store.execute_many(requests)
        self._store.settle()
        return answers

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


def settled(store: Store) -> Store:
    """Wrap an HTTP store for the suite."""
    assert isinstance(store, HTTPStore)
    return cast("Store", Settled(store))
