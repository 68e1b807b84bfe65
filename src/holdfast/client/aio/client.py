"""`AsyncHoldfast`, the client for asyncio. The same plans and the same keeper, with tasks that wait."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from functools import wraps
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar, Unpack, overload

from holdfast import errors
from holdfast.client import questions
from holdfast.client.aio.cluster import ClusterMethods
from holdfast.client.aio.engine import TaskEngine
from holdfast.client.aio.leases import AsyncHold, AsyncLease, acquire
from holdfast.client.aio.operations import AsyncOperation, run_once
from holdfast.client.aio.several import AsyncHoldAll
from holdfast.client.aio.stdlock import AsyncLock
from holdfast.client.guards import Guard, GuardOptions, OnBusy
from holdfast.client.leases import permits_of, release_all
from holdfast.client.operations import Undertaking
from holdfast.client.options import HoldOptions, LeaseOptions, WaitOptions, check_options
from holdfast.core import keys
from holdfast.core.data import replace
from holdfast.core.events import Event
from holdfast.core.requests import Broken, LockState, LockView, Resized, Swept
from holdfast.core.settings import Seconds, seconds
from holdfast.stores.readiness import Opening

if TYPE_CHECKING:
    from holdfast.client.aio.schedules import AsyncSchedule
    from holdfast.client.schedules import OnError
    from holdfast.client.ticks import Missed

T = TypeVar("T")
P = ParamSpec("P")


class AsyncHoldfast(ClusterMethods):
    """Locks for tasks and processes: `Holdfast` for asyncio, with the same methods.

    A body that runs inside ``async with locks.hold(…)`` is cancelled when its lease is lost, and the block
    then raises `LeaseLost`. With *wait_for_store* entering ``async with AsyncHoldfast(…)`` waits so long for
    a database that comes up later than we do.
    """

    _engine_class = TaskEngine
    _engine: TaskEngine

    def hold(self, key: str, **options: Unpack[HoldOptions]) -> AsyncHold:
        """Hold the lock for the time of an ``async with`` block. The options are those of `Holdfast.hold`."""
        check_options(options)
        return AsyncHold(self._engine, key, options)

    def hold_all(self, keys: Iterable[str], **options: Unpack[HoldOptions]) -> AsyncHoldAll:
        """Hold several locks for the time of an ``async with`` block: see `Holdfast.hold_all`."""
        return AsyncHoldAll(self._engine, keys, options)

    def semaphore(
        self, key: str, permits: int | None = None, take: int = 1, **options: Unpack[WaitOptions]
    ) -> AsyncHold:
        """Hold permits of a semaphore for the time of an ``async with`` block: see `Holdfast.semaphore`."""
        return AsyncHold(self._engine, key, permits_of(permits, take, options))

    async def resize(self, key: str, permits: int, *, by: str | None = None) -> Resized:
        """Change how many permits a semaphore has. Nobody who has some loses them."""
        return await self._engine.ask(questions.resize(self._engine, key, permits, by))

    def operation(
        self,
        name: str,
        resource: str,
        *,
        exclusive: bool = False,
        max_attempts: int | None = None,
        keep: Seconds = 0,
        **options: Unpack[WaitOptions],
    ) -> AsyncOperation:
        """Do something once for all who want it, in an ``async with`` block: see `Holdfast.operation`."""
        operation = keys.operation(name, resource)
        it = Undertaking(self._engine, operation, exclusive, max_attempts, keep, options)
        return AsyncOperation(self._engine, it)

    async def run_once(
        self,
        key: str,
        do: Callable[[], T | Awaitable[T]],
        *,
        ready: Callable[[], Any] | None = None,
        exclusive: bool = False,
        max_attempts: int | None = None,
        keep: Seconds = 0,
        **options: Unpack[WaitOptions],
    ) -> T | Any:
        """Have *do* called by one of all who ask: see `Holdfast.run_once`.

        *do* and *ready* may be functions or coroutine functions.
        """
        it = Undertaking(self._engine, key, exclusive, max_attempts, keep, options)
        return await run_once(it, do, ready)

    async def watch(
        self,
        pattern: str,
        *,
        after: int | None = None,
        timeout: Seconds | None = None,  # noqa: ASYNC109
    ) -> AsyncIterator[Event]:
        """Yield what happens to locks, as it happens: see `Holdfast.watch`."""
        quiet = None if timeout is None else seconds(timeout, "timeout")
        request = await self._engine.run(questions.from_now(self._engine, questions.watch(pattern, after)))
        while True:
            feed = await self._engine.run(questions.events(self._engine, request, quiet))
            for event in feed.events:
                yield event
            if not feed.events:
                return
            request = replace(request, after=feed.after)

    async def acquire(self, key: str, *, within: Any = None, **options: Unpack[HoldOptions]) -> AsyncLease:
        """Take the lock until `AsyncLease.release`: see `Holdfast.acquire`."""
        check_options(options)
        wish = self._engine.wish if within is None else self._engine.wish_within
        return await acquire(self._engine, wish(key, **options), within)

    async def try_acquire(
        self, key: str, *, within: Any = None, **options: Unpack[LeaseOptions]
    ) -> AsyncLease | None:
        """Take the lock if it is free; None if it is not."""
        check_options(options, LeaseOptions)
        try:
            return await acquire(self._engine, self._engine.wish(key, timeout=0, **options), within)
        except errors.LockTimeout:
            return None

    @overload
    def guarded(self, key: Callable[P, Awaitable[T]]) -> Callable[P, Awaitable[T]]: ...

    @overload
    def guarded(
        self, key: str | None = ..., *, on_busy: Literal["wait", "raise"] = ..., **how: Unpack[GuardOptions]
    ) -> Callable[[Callable[P, Awaitable[T]]], Callable[P, Awaitable[T]]]: ...

    @overload
    def guarded(
        self, key: str | None = ..., *, on_busy: Literal["skip"], **how: Unpack[GuardOptions]
    ) -> Callable[[Callable[P, Awaitable[T]]], Callable[P, Awaitable[T | None]]]: ...

    def guarded(
        self,
        key: Any = None,
        *,
        key_from: Callable[..., str] | None = None,
        on_busy: OnBusy = "wait",
        **options: Unpack[HoldOptions],
    ) -> Any:
        """Run a coroutine function only while holding a lock: see `Holdfast.guarded`."""
        if callable(key):
            Guard.check_bare(key)
            return self.guarded()(key)
        guard = Guard(key, key_from, on_busy, options)

        def decorate(function: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
            if not inspect.iscoroutinefunction(function):
                raise errors.SettingsError(
                    f"{function.__qualname__} is no coroutine function: guard plain functions with Holdfast"
                )

            @wraps(function)
            async def guarded_function(*args: Any, **kwargs: Any) -> Any:
                try:
                    lease = await self.acquire(guard.key_of(function, args, kwargs), **guard.options)
                except errors.LockTimeout:
                    if on_busy == "skip":
                        return None
                    raise
                async with lease:
                    return await function(*args, **kwargs)

            return guarded_function

        return decorate

    def every(
        self,
        schedule: str | Seconds,
        *,
        name: str | None = None,
        at_least: Seconds = 0,
        at_most: Seconds | None = None,
        missed: Missed = "once",
        timezone: str = "UTC",
        on_error: OnError | None = None,
    ) -> Callable[[Callable[P, Awaitable[T]]], AsyncSchedule[P, T]]:
        """Have a coroutine function run once a tick by one of all nodes: see `Holdfast.every`.

        It begins when an event loop runs: at once, or with ``async with locks``. A run that loses its lease
        is cancelled.
        """
        from holdfast.client.aio.schedules import AsyncSchedule
        from holdfast.client.schedules import Rules

        rules = Rules(schedule, name, at_least, at_most, missed, timezone, on_error)
        return lambda function: AsyncSchedule(self._engine, function, rules)

    def lock(self, key: str, *, ttl: Seconds | None = None, limit: int | None = None) -> AsyncLock:
        """Return an object with the methods of `asyncio.Lock` for code that expects one."""
        return AsyncLock(self._engine, key, ttl=ttl, limit=limit)

    async def inspect(self, key: str) -> LockView | None:
        """Look at one lock: who holds it, who waits. None if the key was never used, or long ago."""
        return await self._engine.ask(questions.inspect(key))

    def list(
        self,
        prefix: str = "",
        *,
        owner: str | None = None,
        type: str | None = None,
        state: LockState | None = None,
    ) -> AsyncIterator[LockView]:
        """Look at many locks, in the order of their keys. They are fetched a page at a time."""
        return self._engine.pages(questions.listing(prefix, owner, type, state), "locks")

    async def history(self, key: str, *, limit: int = 100) -> tuple[Event, ...]:
        """Return what happened to a lock, oldest first: as much as the *history* setting keeps."""
        return await self._engine.ask(questions.history(key, limit))

    async def break_lock(
        self, key: str, *, reason: str, by: str | None = None, token: int | None = None
    ) -> Broken | None:
        """Take a lock away from its holder: see `Holdfast.break_lock`."""
        return await self._engine.run(questions.break_lock(self._engine, key, reason, by, token))

    async def sweep(self, *, limit: int = 1000) -> Swept:
        """Settle and forget everything that is over, in batches of *limit*. Return the totals."""
        return await self._engine.run(questions.sweep(self._engine, limit))

    @property
    def leases(self) -> tuple[AsyncLease, ...]:
        """What this client holds at this moment, oldest first; without elections and assigned work."""
        return tuple(self._engine.leases())

    async def release_all(self) -> int:
        """Release all `leases`, and return how many there were: see `Holdfast.release_all`."""
        return await self._engine.run(release_all(self.leases))

    async def close(self) -> None:
        """Release everything that is still held, and let go of the store."""
        await self._engine.close()

    async def __aenter__(self) -> AsyncHoldfast:
        opening = Opening(self.settings.wait_for_store)
        while True:
            try:
                await self._engine.in_worker(self._engine.store.open)
                break
            except errors.StoreError as error:
                pause = opening.pause(error)
            await asyncio.sleep(pause)
        if self._engine.scheduler is not None:
            self._engine.scheduler.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
