"""`AsyncHoldfast`, the client for asyncio. The same plans and the same keeper, with tasks that wait."""

from __future__ import annotations

import asyncio
import functools
import inspect
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar, Unpack, cast, overload

from holdfast import errors
from holdfast.aio_cluster import ClusterMethods
from holdfast.aio_leases import AsyncHold, AsyncLease
from holdfast.aio_operations import AsyncOperation, run_once
from holdfast.aio_several import AsyncHoldAll
from holdfast.aio_within import Lender
from holdfast.client import BaseClient, Wish
from holdfast.clock import boot_time
from holdfast.core import keys
from holdfast.core.data import replace
from holdfast.core.events import Event, HistoryLevel
from holdfast.core.plans import Grant, Plan, Wait, ask
from holdfast.core.requests import (
    Acquire,
    Broken,
    Done,
    List,
    LockState,
    LockView,
    Queued,
    Request,
    Resized,
    Signal,
    Swept,
    Withdraw,
)
from holdfast.core.settings import Seconds, Settings, seconds
from holdfast.masking import block_signals
from holdfast.operations import countdown
from holdfast.options import (
    Guard,
    HoldOptions,
    LeaseOptions,
    OnBusy,
    WaitOptions,
    check_options,
    check_try_options,
    refuse_computed_key,
)
from holdfast.stdlock import AsyncLock
from holdfast.stores.base import Awaits
from holdfast.stores.opening import Opening

if TYPE_CHECKING:
    from holdfast.scheduling.running import OnError
    from holdfast.scheduling.tasks import AsyncSchedule
    from holdfast.scheduling.ticking import Missed

A = TypeVar("A")
T = TypeVar("T")
P = ParamSpec("P")


class AsyncHoldfast(ClusterMethods, BaseClient):
    """Locks for tasks and processes: `Holdfast` for asyncio, with the same methods.

    A body that runs inside ``async with locks.hold(…)`` is cancelled when its lease is lost, and the block
    then raises `LeaseLost`. With *wait_for_store* entering ``async with AsyncHoldfast(…)`` waits so long for
    a database that comes up later than we do.
    """

    def __init__(
        self,
        url: str | Any | None = None,
        *,
        settings: Settings | None = None,
        ttl: Seconds | None = None,
        max_hold: Seconds | None = None,
        history: HistoryLevel | None = None,
        wait_for_store: Seconds | None = None,
    ) -> None:
        super().__init__(
            url,
            settings=settings,
            ttl=ttl,
            max_hold=max_hold,
            history=history,
            wait_for_store=wait_for_store,
        )

    def _start(self) -> None:
        super()._start()
        self._worker: ThreadPoolExecutor | None = None

    def hold(self, key: str, **options: Unpack[HoldOptions]) -> AsyncHold:
        """Hold the lock for the time of an ``async with`` block. The options are those of `Holdfast.hold`."""
        check_options(options)
        return AsyncHold(self, key, options)

    def hold_all(self, keys: Iterable[str], **options: Unpack[HoldOptions]) -> AsyncHoldAll:
        """Hold several locks for the time of an ``async with`` block: see `Holdfast.hold_all`."""
        check_options(options)
        return AsyncHoldAll(self, keys, options)

    def semaphore(
        self, key: str, permits: int | None = None, take: int = 1, **options: Unpack[WaitOptions]
    ) -> AsyncHold:
        """Hold permits of a semaphore for the time of an ``async with`` block: see `Holdfast.semaphore`."""
        check_options(options, WaitOptions)
        return AsyncHold(self, key, {"mode": "exclusive", **options, "permits": permits or 0, "take": take})

    async def resize(self, key: str, permits: int, *, by: str | None = None) -> Resized:
        """Change how many permits a semaphore has. Nobody who has some loses them."""
        return await self._ask(self._resizing(key, permits, by))

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
        check_options(options, WaitOptions)
        return AsyncOperation(
            self,
            keys.operation(name, resource),
            exclusive=exclusive,
            max_attempts=max_attempts,
            keep=keep,
            options=options,
        )

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
        check_options(options, WaitOptions)
        left = countdown(options)

        def operation(seen: int) -> AsyncOperation:
            return AsyncOperation(
                self,
                key,
                exclusive=exclusive,
                max_attempts=max_attempts,
                keep=keep,
                options=left(),
                seen=seen,
            )

        return await run_once(operation, do, ready)

    async def watch(
        self,
        pattern: str,
        *,
        after: int | None = None,
        timeout: Seconds | None = None,  # noqa: ASYNC109
    ) -> AsyncIterator[Event]:
        """Yield what happens to locks, as it happens: see `Holdfast.watch`."""
        request = self._watching(pattern, after)
        quiet = None if timeout is None else seconds(timeout, "timeout")
        if after is None:
            request = replace(request, after=(await self._run(self._awaiting_events(request, None))).after)
        while True:
            until = None if quiet is None else boot_time() + quiet
            feed = await self._run(self._awaiting_events(request, until))
            for event in feed.events:
                yield event
            if not feed.events:
                return
            request = replace(request, after=feed.after)

    async def acquire(self, key: str, *, within: Any = None, **options: Unpack[HoldOptions]) -> AsyncLease:
        """Take the lock until `AsyncLease.release`: see `Holdfast.acquire`."""
        check_options(options)
        if within is not None:
            return await self._acquire(self._wish_within(key, **options), within)
        return await self._acquire(self._wish(key, **options))

    async def try_acquire(
        self, key: str, *, within: Any = None, **options: Unpack[LeaseOptions]
    ) -> AsyncLease | None:
        """Take the lock if it is free; None if it is not."""
        check_try_options(options)
        try:
            return await self._acquire(self._wish(key, timeout=0, **options), within)
        except errors.LockTimeout:
            return None

    @overload
    def guarded(self, key: Callable[P, Awaitable[T]]) -> Callable[P, Awaitable[T]]: ...

    @overload
    def guarded(
        self,
        key: str | None = ...,
        *,
        key_from: Callable[..., str] | None = ...,
        on_busy: Literal["wait", "raise"] = ...,
        **options: Unpack[HoldOptions],
    ) -> Callable[[Callable[P, Awaitable[T]]], Callable[P, Awaitable[T]]]: ...

    @overload
    def guarded(
        self,
        key: str | None = ...,
        *,
        key_from: Callable[..., str] | None = ...,
        on_busy: Literal["skip"],
        **options: Unpack[HoldOptions],
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
            refuse_computed_key(key)
            return self.guarded()(key)
        guard = Guard(key, key_from, on_busy, options)

        def decorate(function: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
            if not inspect.iscoroutinefunction(function):
                raise errors.SettingsError(
                    f"{function.__qualname__} is no coroutine function: guard plain functions with Holdfast"
                )

            @functools.wraps(function)
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
        from holdfast.scheduling.running import rules
        from holdfast.scheduling.tasks import AsyncSchedule

        how = rules(
            schedule,
            name=name,
            at_least=at_least,
            at_most=at_most,
            missed=missed,
            timezone=timezone,
            on_error=on_error,
        )
        return lambda function: AsyncSchedule(self, function, how)

    def lock(self, key: str, *, ttl: Seconds | None = None, limit: int | None = None) -> AsyncLock:
        """Return an object with the methods of `asyncio.Lock` for code that expects one."""
        return AsyncLock(self, key, ttl=ttl, limit=limit)

    async def inspect(self, key: str) -> LockView | None:
        """Look at one lock: who holds it, who waits. None if the key was never used, or long ago."""
        return await self._ask(self._inspecting(key))

    def list(
        self,
        prefix: str = "",
        *,
        owner: str | None = None,
        type: str | None = None,
        state: LockState | None = None,
    ) -> AsyncIterator[LockView]:
        """Look at many locks, in the order of their keys. They are fetched a page at a time."""
        return self._pages(self._listing(prefix, owner, type, state))

    async def _pages(self, request: List) -> AsyncIterator[LockView]:
        while True:
            page = await self._ask(request)
            for view in page.locks:
                yield view
            if page.after is None:
                return
            request = replace(request, after=page.after)

    async def history(self, key: str, *, limit: int = 100) -> tuple[Event, ...]:
        """Return what happened to a lock, oldest first: as much as the *history* setting keeps."""
        return await self._ask(self._reading_history(key, limit))

    async def break_lock(
        self, key: str, *, reason: str, by: str | None = None, token: int | None = None
    ) -> Broken | None:
        """Take a lock away from its holder: see `Holdfast.break_lock`."""
        request = self._breaking(key, reason, by, token)
        return next(iter(await self._run(self._breaking_leases(request))), None)

    async def sweep(self, *, limit: int = 1000) -> Swept:
        """Settle and forget everything that is over, in batches of *limit*. Return the totals."""
        total = Swept()
        after = ""
        while True:
            swept = await self._ask(self._sweeping(limit, after))
            total = total.plus(swept)
            if swept.after is None:
                return total
            after = swept.after

    @property
    def leases(self) -> tuple[AsyncLease, ...]:
        """What this client holds at this moment, oldest first; without elections and assigned work."""
        return tuple(self._held())

    async def release_all(self) -> int:
        """Release all `leases`, and return how many there were: see `Holdfast.release_all`."""
        leases = self.leases
        trouble: BaseException | None = None
        for number, lease in enumerate(leases, 1):
            self._revoke(lease)
            try:
                await lease.release()
            except (errors.LeaseLost, errors.NotHeld) as error:
                trouble = error.__cause__ or trouble
            except BaseException:  # cancelled, perhaps because we are inside the block of one of them
                self._release_later(leases[number:])
                raise
        if trouble is not None:
            raise trouble
        return len(leases)

    async def close(self) -> None:
        """Release everything that is still held, and let go of the store."""
        if not self._closed:
            if self._scheduler is not None:
                await self._scheduler.close()
            await self._off_loop(self._shut)
            self._dismiss_worker()

    def _dismiss_worker(self) -> None:
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.shutdown(wait=False)

    async def __aenter__(self) -> AsyncHoldfast:
        opening = Opening(self.settings.wait_for_store)
        while True:
            try:
                await self._off_loop(self._store.open)
                break
            except errors.StoreError as error:
                pause = opening.pause(error)
            await asyncio.sleep(pause)
        if self._scheduler is not None:
            self._scheduler.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    # Running plans.

    async def _acquire(self, wish: Wish, within: Any = None) -> AsyncLease:
        return cast("AsyncLease", await self._obtain(wish, within))

    async def _obtain(self, wish: Wish, within: Any = None) -> AsyncLease | Done:
        """Take a lock; or learn that it is an operation that was done while we waited."""
        plan = self._acquiring(wish)
        try:
            grant = await self._run(plan, within)
        except errors.LockTimeout as error:
            self._note_own_lease(error, wish)
            raise
        if isinstance(grant, Done):
            return grant
        # No await from here on: a task that was not cancelled by now has the lease.
        try:
            kept = self._keep(grant, wish)
            lease = AsyncLease(self, kept, wish)
            self._keeping.keep_for(kept, lease, wish.place)
        except BaseException:  # an interrupt of the loop, which may go on later
            self._keeping.pursue(Withdraw(grant.key, grant.attempt), grant.ttl)
            raise
        if self._closed:  # while we asked: nobody would renew it. Whoever closes later finds it kept
            self._keeping.drop(grant.attempt)
            await asyncio.shield(self._in_worker(self._withdraw_after_closing, grant))
            raise errors.Closed(repr(self))
        return lease

    def _withdraw_after_closing(self, grant: Grant) -> None:
        with suppress(errors.StoreError):
            self._store.execute(Withdraw(grant.key, grant.attempt))
        self._store.close()  # asking has opened it again

    async def _ask(self, request: Request[A]) -> A:
        return await self._run(ask(request, settings=self.settings, clock=boot_time, roll=random.random))

    async def _execute(self, request: Request[A]) -> A:
        self._check_open()
        return await self._send(request)

    async def _send(self, request: Request[A]) -> A:
        if self._store.traits.blocking:
            return await self._off_loop(self._store.execute, request)
        return self._store.execute(request)

    async def _off_loop(self, function: Callable[..., T], *args: Any) -> T:
        """Run something that may block."""
        return await self._in_worker(function, *args)

    def _in_worker(self, function: Callable[..., T], *args: Any) -> asyncio.Future[T]:
        """Start something that may block, in a thread of the store's lanes.

        With more than one, requests can overtake each other. The protocol allows for that: a withdrawn
        attempt stays withdrawn, however late its first request arrives.
        """
        if self._worker is None and not self._closed:  # else a last wish: the loop's own threads will do
            lanes = self._store.traits.lanes
            self._worker = ThreadPoolExecutor(lanes, "holdfast-store", initializer=block_signals)
        return asyncio.get_running_loop().run_in_executor(self._worker, function, *args)

    async def _within(self, connection: Any, request: Request[A]) -> A:
        """Ask inside a caller's transaction: in this thread, as they do, or by their driver in this task."""
        self._check_open()
        if not inspect.iscoroutinefunction(getattr(connection, "execute", None)):
            return self._store.execute_within(connection, request)
        lender = Lender()
        return await lender.lend(functools.partial(self._ask_within, connection, request, lender.wait_for))

    def _ask_within(self, connection: Any, request: Request[A], awaits: Awaits) -> A:
        try:
            return self._store.execute_within(connection, request, awaits)
        finally:
            if self._closed:
                self._store.close()  # asking has opened it again

    async def _run(self, plan: Plan[T], within: Any = None) -> T:
        """Do what a plan wants, step by step, in this task. *within*: a transaction to acquire in."""
        waiting: str | None = None  # the attempt that can be signalled
        asked: Acquire | None = None
        client = self._client
        try:
            step = next(plan)
            while True:
                try:
                    if isinstance(step, Wait):
                        result: Any = await self._wait(step)
                    else:
                        if isinstance(step, Acquire):
                            asked = step
                            if step.wait and step.attempt != waiting:
                                self._stop_waiting(waiting)
                                waiting = step.attempt
                                self._mailboxes[waiting] = step.key, self._new_mailbox()
                        if within is not None and isinstance(step, Acquire):
                            result = await self._within(within, step)
                        elif within is not None and isinstance(step, Withdraw):
                            self._pursue(step, asked)  # see `_last_wish`
                            result = None
                        else:
                            result = await self._execute(step)
                        if type(result) is Queued and isinstance(step, Acquire):
                            self._keeping.wait(step.key, step.attempt)
                except errors.StoreError as error:
                    self._check_same(client)
                    if isinstance(step, Withdraw):
                        self._pursue(step, asked)
                    step = plan.throw(error)
                else:
                    self._check_same(client)
                    step = plan.send(result)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]
        except BaseException:
            if self._client is client:  # else we are a forked child, and it is the parent's
                await self._abandon(plan, asked, waits=within is None)
            raise
        finally:
            self._stop_waiting(waiting)

    async def _wait(self, step: Wait) -> Signal | None:
        _, mailbox = self._mailboxes.get(step.attempt) or ("", AsyncMailbox())
        assert isinstance(mailbox, AsyncMailbox)
        timeout = None if step.until is None else max(step.until - boot_time(), 0.0)
        return await mailbox.get(timeout)

    def _new_mailbox(self) -> AsyncMailbox:
        return AsyncMailbox()

    def _stop_waiting(self, attempt: str | None) -> None:
        if attempt is not None:
            self._mailboxes.pop(attempt, None)
            if self._keeping.waits(attempt):
                self._keeping.leave(attempt)

    async def _abandon(self, plan: Plan[Any], asked: Acquire | None, *, waits: bool) -> None:
        """Let a plan undo what it did, even if we are cancelled once more meanwhile: see `_last_wish`."""
        if plan.gi_frame is None:  # type: ignore[attr-defined]
            return  # it is over: it raised the error itself
        if not waits or not self._store.traits.blocking:
            self._last_wish(plan, asked, waits=waits)
            return
        # Not a task: when a loop ends it cancels all of them, and a last wish must not be cancelled.
        await asyncio.shield(self._in_worker(self._last_wish, plan, asked))


class AsyncMailbox:
    """Signals for one waiting task, put from any thread."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._signals: asyncio.Queue[Signal] = asyncio.Queue()

    def put(self, signal: Signal) -> None:
        """Wake the task. A loop that is gone has no tasks to wake."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._signals.put_nowait, signal)

    async def get(self, timeout: float | None) -> Signal | None:  # noqa: ASYNC109
        """Return the next signal, or None when the time is over."""
        try:
            async with asyncio.timeout(timeout):
                return await self._signals.get()
        except TimeoutError:
            return None
