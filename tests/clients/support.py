"""A stage for both clients: the same questions, asked from threads and from tasks.

An `Actor` is one owner: a thread that makes blocking calls, or a task that awaits them. `start` gives a
future, `call` waits for it. Leases, errors and views are the same for both and are looked at directly.
"""

from __future__ import annotations

import asyncio
import inspect
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from holdfast import AsyncHoldfast, Holdfast, LockView, Settings
from holdfast.core.requests import Request

PATIENCE = 30.0  # seconds until a test gives up on something that should happen at once

# Short enough for tests in which a signal is lost or somebody dies, long enough for a loaded machine.
# Renewals come early: a keeper that has to wait for the processor still comes in time.
QUICK = Settings(heartbeat=0.2, claim=1.0, patience=2.0, renew_at=0.4)


def eventually(true: Callable[[], Any], what: str = "", *, within: float = PATIENCE) -> Any:
    """Return the first true answer. For what another thread is about to do and tells nobody of."""
    deadline = time.monotonic() + within
    while not (answer := true()):
        assert time.monotonic() < deadline, f"never: {what or true}"
        time.sleep(0.002)
    return answer


def until_renewed(lease: Any) -> None:
    """Wait for the next renewal."""
    before = lease._holding.kept.trusted_until
    eventually(lambda: lease._holding.kept.trusted_until > before, f"{lease!r} renewed")


def is_reachable(locks: Any) -> bool:
    """Tell whether signals arrive: the keeper's thread sees to that, a moment after the first grant.

    Where a store does not tell holders by itself, it is asked to.
    """
    store = locks._engine.store
    if not store.traits.tells_holders:
        store.be_reachable()
    signals = getattr(store, "signals", None) or getattr(store, "_signals", None)
    if hasattr(signals, "_bell"):
        return signals._bell is not None
    return signals is None or bool(signals._ready.is_set())


def has_let_go(locks: Any) -> bool:
    """Tell whether a client has neither a connection to its store nor anything that listens."""
    store = locks._engine.store
    sessions = getattr(store, "sessions", None)
    if hasattr(sessions, "database"):
        return sessions.database._connection is None and store.signals._bell is None
    if sessions is not None:
        return sessions.pool.open == 0 and store.signals._thread is None
    return not hasattr(store, "_pool") or (store._pool.open == 0 and store._signals._thread is None)


class Actor:
    """Somebody who takes locks: a thread or a task of its own, and so an owner of its own."""

    def start(self, function: Callable[..., Any], *args: Any, **options: Any) -> Future[Any]:
        raise NotImplementedError

    def call(self, function: Callable[..., Any], *args: Any, **options: Any) -> Any:
        return self.start(function, *args, **options).result(PATIENCE)

    def stop(self) -> None:
        raise NotImplementedError


class ThreadActor(Actor):
    def __init__(self, name: str) -> None:
        self._jobs: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def start(self, function: Callable[..., Any], *args: Any, **options: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self._jobs.put((future, function, args, options))
        return future

    def stop(self) -> None:
        self._jobs.put(None)
        self._thread.join(PATIENCE)

    def _run(self) -> None:
        while job := self._jobs.get():
            future, function, args, options = job
            try:
                future.set_result(function(*args, **options))
            except BaseException as error:
                future.set_exception(error)
            del job, future, function, args, options


class TaskActor(Actor):
    def __init__(self, name: str, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._jobs: asyncio.Queue[Any] = asyncio.Queue()
        self.task: asyncio.Task[None] = asyncio.run_coroutine_threadsafe(self._begin(name), loop).result(
            PATIENCE
        )

    async def _begin(self, name: str) -> asyncio.Task[None]:
        return asyncio.get_running_loop().create_task(self._run(), name=name)

    def start(self, function: Callable[..., Any], *args: Any, **options: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self._loop.call_soon_threadsafe(self._jobs.put_nowait, (future, function, args, options))
        return future

    def stop(self) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(PATIENCE)

    async def _end(self) -> None:
        self._jobs.put_nowait(None)
        _, still = await asyncio.wait([self.task], timeout=1.0)
        if still:  # its last job waits for something that never comes
            self.task.cancel()
            self._jobs.put_nowait(None)
            await asyncio.wait([self.task])

    async def _run(self) -> None:
        while job := await self._jobs.get():
            future, function, args, options = job
            try:
                result = function(*args, **options)
                if inspect.isawaitable(result):
                    result = await result
                future.set_result(result)
            except BaseException as error:
                future.set_exception(error)
            del job, future, function, args, options


class Stage:
    """A client under test, more clients of the same store, and actors who use them."""

    def __init__(self, kind: str, url: str) -> None:
        self.kind = kind
        self.url = url
        self._loop: asyncio.AbstractEventLoop | None = None
        self._actors: list[Actor] = []
        self._clients: list[Any] = []
        if kind == "async":
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
            self._thread.start()
        self.me = self.actor("me")
        self.locks: Any = self.client()

    @property
    def is_async(self) -> bool:
        return self.kind == "async"

    def actor(self, name: str) -> Actor:
        actor = ThreadActor(name) if self._loop is None else TaskActor(name, self._loop)
        self._actors.append(actor)
        return actor

    def client(self, **options: Any) -> Any:
        """Return one more client of the same kind and store."""
        options.setdefault("settings", QUICK)
        client: Any = (AsyncHoldfast if self.is_async else Holdfast)(self.url, **options)
        self._clients.append(client)
        return client

    def call(self, function: Callable[..., Any], *args: Any, **options: Any) -> Any:
        return self.me.call(function, *args, **options)

    def look(self, key: str) -> LockView | None:
        return self.call(self.locks.inspect, key)  # type: ignore[no-any-return]

    def state(self, key: str) -> str:
        view = self.look(key)
        return "free" if view is None else view.state

    def waiting(self, key: str) -> int:
        view = self.look(key)
        return 0 if view is None else view.waiting

    def until_waiting(self, key: str, number: int) -> None:
        eventually(lambda: self.waiting(key) == number, f"{number} waiters for {key}")

    def nothing_left(self) -> None:
        """Check that nobody holds or waits for anything."""
        for view in self.everything():
            assert view.state == "free", view
            assert view.waiting == 0, view

    def everything(self) -> list[LockView]:
        async def collect() -> list[LockView]:
            return [view async for view in self.locks.list()]

        return self.call(collect if self.is_async else lambda: list(self.locks.list()))  # type: ignore[no-any-return]

    def close(self, client: Any) -> None:
        self.call(client.close)

    def end(self) -> None:
        for client in self._clients:
            self.close(client)
        for actor in self._actors:
            actor.stop()
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(PATIENCE)
            self._loop.close()


class Spy:
    """Stands before a client's store: counts requests, and answers some of them itself."""

    def __init__(self, client: Any) -> None:
        self.seen: list[Request[Any]] = []
        self.fault: Callable[[Request[Any]], BaseException | None] = lambda _: None
        self._execute = client._engine.store.execute
        client._engine.store.execute = self.execute
        client._engine.store.execute_at_once = lambda _: None  # all are to be seen
        client._engine.store.may_go_together = lambda _: False

    def execute(self, request: Request[Any]) -> Any:
        self.seen.append(request)
        if error := self.fault(request):
            raise error
        return self._execute(request)

    def count(self, kind: type) -> int:
        return sum(isinstance(request, kind) for request in list(self.seen))

    def fail(self, kind: type, error: Callable[[], BaseException]) -> None:
        self.fault = lambda request: error() if isinstance(request, kind) else None

    def heal(self) -> None:
        self.fault = lambda _: None
