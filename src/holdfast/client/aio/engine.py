"""The engine of `AsyncHoldfast`: it runs plans in the task that calls. What may block runs in threads."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, TypeVar, cast

from holdfast import errors
from holdfast.client.engine import Engine, Running
from holdfast.client.groups import Groups
from holdfast.client.holdings import Holding
from holdfast.client.lender import Lender
from holdfast.client.options import Wish
from holdfast.clock import boot_time
from holdfast.core.data import replace
from holdfast.core.plans import Grant, Handed, Plan, Wait
from holdfast.core.requests import Acquire, Done, Request, Signal, Withdraw
from holdfast.signal_mask import block_signals
from holdfast.stores.base import AtOnce, Awaits, Together

A = TypeVar("A")
L = TypeVar("L")
T = TypeVar("T")


MOST_AT_ONCE = 16  # requests that are answered without waiting, until other tasks have a turn


class TaskHolding(Holding):
    """What a caller holds, in a program with tasks."""

    __slots__ = ()
    engine: TaskEngine


class TaskEngine(Engine):
    """See the module."""

    def start(self) -> None:
        super().start()
        self._worker: ThreadPoolExecutor | None = None
        self._groups: dict[type, Groups] = {}
        self._at_once = 0

    def new_mailbox(self) -> AsyncMailbox:
        return AsyncMailbox()

    async def obtain(self, wish: Wish, make: Callable[[TaskHolding], L], within: Any = None) -> L | Done:
        """Take a lock; or learn that it is an operation that was done while we waited."""
        try:
            grant = await self.run(self.acquiring(wish), within)
        except errors.LockTimeout as error:
            self.note_own_lease(error, wish)
            raise
        if isinstance(grant, Done):
            return grant
        # No await from here on: a task that was not cancelled by now has the lease.
        try:
            kept = self.keep(grant, wish)
            lease = make(TaskHolding(self, kept, wish))
            self.keeper.keep_for(kept, lease, wish)
        except BaseException:  # an interrupt of the loop, which may go on later
            self.keeper.pursue(Withdraw(grant.key, grant.attempt), grant.ttl)
            raise
        if self.closed:  # while we asked: nobody would renew it. What closes later finds it kept
            self.keeper.drop(grant.attempt)
            await self.finish(self._withdraw_after_closing, grant)
            raise errors.Closed(repr(self))
        return lease

    def _withdraw_after_closing(self, grant: Grant) -> None:
        with suppress(errors.StoreError):
            self.store.execute(Withdraw(grant.key, grant.attempt))
        self.close_again()

    async def ask(self, request: Request[A]) -> A:
        """Ask for something, again while the store is unavailable."""
        return await self.run(self.asking(request))

    async def pages(self, request: Any, what: str) -> AsyncIterator[Any]:
        """Yield *what* pages of answers are made of; they are fetched one at a time."""
        while True:
            page = await self.ask(request)
            for each in getattr(page, what):
                yield each
            if page.after is None:
                return
            request = replace(request, after=page.after)

    async def execute(self, request: Request[A]) -> A:
        """Ask the store once."""
        self.check_open()
        store = self.store
        if not store.traits.blocking:
            return store.execute(request)
        if store.traits.at_once:
            self._at_once += 1
            if self._at_once % MOST_AT_ONCE == 0:
                await asyncio.sleep(0)
            if (answer := cast("AtOnce", store).execute_at_once(request)) is not None:
                return answer
        if store.traits.together and cast("Together", store).may_go_together(request):
            return await self._in_company(request)
        return await self.in_worker(store.execute, request)

    def _in_company(self, request: Request[A]) -> asyncio.Future[A]:
        # Of its own kind: a release need not wait for the disk, and would have to with a grant.
        groups = self._groups.get(type(request))
        if groups is None or groups.loop is not asyncio.get_running_loop():
            groups = self._groups[type(request)] = Groups(self.store, self.in_worker)
        return groups.ask(request)

    async def ask_within(self, connection: Any, request: Request[A]) -> A:
        """Ask inside a caller's transaction: in this thread, as they do, or by their driver in this task."""
        self.check_open()
        if not inspect.iscoroutinefunction(getattr(connection, "execute", None)):
            return self.store.execute_within(connection, request)
        lender = Lender()
        return await lender.lend(functools.partial(self._ask_in_thread, connection, request, lender.wait_for))

    def _ask_in_thread(self, connection: Any, request: Request[A], awaits: Awaits) -> A:
        try:
            return self.store.execute_within(connection, request, awaits)
        finally:
            self.close_again()

    def in_worker(self, function: Callable[..., T], *args: Any) -> asyncio.Future[T]:
        """Start something that may block, in a thread of the store's lanes.

        With more than one, requests can overtake each other. The protocol allows for that: a withdrawn
        attempt stays withdrawn, however late its first request arrives.
        """
        if self.closed:  # a last wish: a loop that ends waits for its own threads, and for no others
            worker = None
        elif (worker := self._worker) is None:
            lanes = self.store.traits.lanes
            worker = ThreadPoolExecutor(lanes, "holdfast-store", initializer=block_signals)
            self._worker = worker
        return asyncio.get_running_loop().run_in_executor(worker, function, *args)

    async def finish(self, function: Callable[..., T], *args: Any) -> T:
        """Do something that may block to its end, even if we are cancelled meanwhile."""
        # Not a task: when a loop ends it cancels all of them, and a last wish must not be cancelled.
        return await asyncio.shield(self.in_worker(function, *args))

    async def close(self) -> None:
        """Give everything back, and let go of the store and of the threads."""
        if self.closed:
            return
        if self.scheduler is not None:
            await self.scheduler.close()
        await self.in_worker(self.shut)
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.shutdown(wait=False)

    async def run(self, plan: Plan[T], within: Any = None) -> T:
        """Do what a plan wants, step by step, in this task. *within*: a transaction to acquire in."""
        running = Running(plan, self.client, within)
        try:
            going = running.tell(None)
            while going:
                step = running.step
                try:
                    # Two lines: an interrupt between a choice and its `await` would leave a coroutine behind.
                    if type(step) is Wait:
                        answer = await self._wait(step)
                    else:
                        answer = await self._do(running, step)
                except errors.StoreError as error:
                    going = self.failed(running, error)
                else:
                    going = self.answered(running, answer)
            return running.result  # type: ignore[return-value]
        except BaseException:
            if self.client is running.client:  # otherwise we are a forked child, and it is the parent's
                await self._abandon(running)
            raise
        finally:
            self.stop_waiting(running.waiting)

    async def _do(self, running: Running[Any], step: Any) -> Any:
        """Ask the store for one step of a plan."""
        acquires = type(step) is Acquire
        if acquires:
            self.prepare(running, step)
        if running.within is None or not (acquires or isinstance(step, Withdraw)):
            return await self.execute(step)
        if acquires:
            return await self.ask_within(running.within, step)
        return self.pursue(running, step)

    async def _wait(self, step: Wait) -> Signal | Handed | None:
        _, mailbox = self.mailboxes.get(step.attempt) or ("", self.new_mailbox())
        assert isinstance(mailbox, AsyncMailbox)
        timeout = None if step.until is None else max(step.until - boot_time(), 0.0)
        return await mailbox.get(timeout)

    async def _abandon(self, running: Running[Any]) -> None:
        """Let a plan undo what it did, even if we are cancelled once more meanwhile."""
        if running.plan.gi_frame is None:  # type: ignore[attr-defined]
            return  # it is over: it raised the error itself
        if running.within is not None or not self.store.traits.blocking:
            self.undo(running)
        else:
            await self.finish(self.undo, running)


class AsyncMailbox:
    """Signals for one waiting task, put from any thread."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._signals: asyncio.Queue[Signal | Handed] = asyncio.Queue()

    def put(self, signal: Signal | Handed) -> None:
        """Wake the task. A loop that is gone has no tasks to wake."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._signals.put_nowait, signal)

    async def get(self, timeout: float | None) -> Signal | Handed | None:  # noqa: ASYNC109
        """Return the next signal, or None when the time is over."""
        try:
            async with asyncio.timeout(timeout):
                return await self._signals.get()
        except TimeoutError:
            return None
