"""Schedules for tasks: a task that waits for each, and one for each run."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Generic, ParamSpec, TypeVar

from holdfast import errors
from holdfast.client.aio.engine import TaskEngine, TaskHolding
from holdfast.client.aio.leases import AsyncLease, AsyncLeased, body_of
from holdfast.client.options import Wish
from holdfast.client.schedules import BaseRun, BaseSchedule, Routine, Rules, Shift, nap, refuse_second
from holdfast.client.ticks import Await, Begin, Cease, Result
from holdfast.clock import boot_time
from holdfast.core.keeper import Kept
from holdfast.core.plans import Wait
from holdfast.core.settings import Seconds, seconds
from holdfast.log import log

P = ParamSpec("P")
T = TypeVar("T")


class AsyncRun(BaseRun, AsyncLeased):
    """One run of a schedule: see `Run`. The body is cancelled when the lease is lost."""


class AsyncSchedule(BaseSchedule[P, Awaitable[T], AsyncRun], Generic[P, T]):
    """What `AsyncHoldfast.every` makes of a coroutine function: see `Schedule`.

    It starts when it is made if an event loop runs then; otherwise when the client is entered, or by `start`.
    """

    def __init__(self, engine: TaskEngine, function: Callable[P, Awaitable[T]], rules: Rules) -> None:
        if not inspect.iscoroutinefunction(function):
            raise errors.SettingsError(
                f"{getattr(function, '__qualname__', function)!s} is no coroutine function: schedule plain"
                " functions with Holdfast"
            )
        super().__init__(Routine(type(self).__name__, engine, function, rules, AsyncScheduler))
        engine.check_open()
        scheduler: AsyncScheduler = self._routine.scheduler
        scheduler.check(self._routine)
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            scheduler.pending.append(self._routine)
        else:
            self.start()

    async def stop(self, *, timeout: Seconds | None = 0) -> bool:  # noqa: ASYNC109
        """Begin no more runs here: see `Schedule.stop`."""
        patience = None if timeout is None else seconds(timeout, "timeout")
        pending = self._routine.scheduler.pending
        if self._routine in pending:
            pending.remove(self._routine)
        shift: TaskShift | None = self._routine.shift
        if shift is None:
            return True
        shift.timekeeper.stopping = True
        shift.woken.set()
        if patience != 0:
            await asyncio.wait({shift.task}, timeout=patience)
        return shift.run is None


class TaskShift(Shift):
    """Does what the plan of a schedule wants, in a task."""

    scheduler: AsyncScheduler
    engine: TaskEngine
    run: AsyncRun | None

    def __init__(self, scheduler: AsyncScheduler, routine: Routine, wish: Wish) -> None:
        super().__init__(scheduler, routine, wish)
        self.woken = asyncio.Event()  # somebody wants it to go on
        self._body: asyncio.Task[Result] | None = None
        self.task = asyncio.get_running_loop().create_task(self._go_on(), name="holdfast-every")

    async def _go_on(self) -> None:
        try:
            going = self.drive.tell(None)
            while going:
                try:
                    answer = await self._do(self.drive.step)
                except Exception as error:  # noqa: BLE001 - the plan decides what is to be done about it
                    going = self.drive.fail(error)
                else:
                    going = self.drive.tell(answer)
        except Exception:  # noqa: BLE001 - nobody waits for this task
            log().exception("%r has stopped", self.routine)
        except BaseException:  # cancelled: the client is closed, or the loop ends
            if self.engine.store.traits.blocking:
                await self.engine.finish(self.undo)  # even if we are cancelled once more meanwhile
            else:
                self.undo()
            raise
        finally:
            self.end()

    async def _do(self, step: Any) -> Any:
        if isinstance(step, Wait):
            return await self._wait(step)
        if isinstance(step, Await):
            return await self._await(step)
        if isinstance(step, Begin):
            return self._begin(step)
        if isinstance(step, Cease):
            return self.let_go(step)
        return await self.engine.execute(step)

    async def _wait(self, step: Wait) -> None:
        while not self.woken.is_set() and (step.until is None or boot_time() < step.until):
            with suppress(TimeoutError):
                async with asyncio.timeout(nap(step.until)):
                    await self.woken.wait()
        self.woken.clear()

    async def _await(self, step: Await) -> Result | None:
        assert self._body is not None
        while not self._body.done():
            if step.until is not None and boot_time() >= step.until:
                return None
            await asyncio.wait({self._body}, timeout=nap(step.until))
        self.run = None
        return self._body.result()

    def _begin(self, begin: Begin) -> None:
        kept = self.keep(begin)
        lease = AsyncLease(TaskHolding(self.engine, kept, self.wish))
        self.run = run = AsyncRun(lease, begin, self.routine.rules.timezone)
        self._body = asyncio.get_running_loop().create_task(
            self._perform(run, lease, kept), name=f"holdfast-{self.routine.key}"
        )

    async def _perform(self, run: AsyncRun, lease: AsyncLease, kept: Kept) -> Result:
        """Run the function. In a task of its own, which is cancelled when the lease is lost."""
        error: BaseException | None = None
        try:
            await lease.__aenter__()
            await self.call(run)
        except (Exception, asyncio.CancelledError) as raised:  # noqa: BLE001 - what it is, is told below
            error = raised
        if body_of(lease).end(error):
            error = kept.lost
        if self.scheduler.stopped:
            return Result("closed")  # and it was given back
        return self.conclude(error, kept)

    def do(self, step: Any) -> Any:
        if isinstance(step, Cease) and self._body is self.scheduler.closer:
            step = Cease(step.attempt)  # the run closes the client itself, and must come to its end
        return super().do(step)


class AsyncScheduler:
    """The schedules of one client."""

    def __init__(self, engine: TaskEngine) -> None:
        self._shifts: list[TaskShift] = []
        self.pending: list[Routine] = []  # those that were made before there was a loop
        self.stopped = False
        self.closer: asyncio.Task[Any] | None = None

    def check(self, routine: Routine) -> None:
        """Refuse a second schedule of the same name."""
        refuse_second(routine, self._shifts, (each for each in self.pending if each is not routine))

    def add(self, routine: Routine) -> TaskShift:
        """Run ticks of a routine from now on, in the event loop that runs now."""
        wish = routine.wish()  # raises if the client is closed
        self.check(routine)
        self._shifts = [shift for shift in self._shifts if not shift.task.done()]
        shift = TaskShift(self, routine, wish)
        self._shifts.append(shift)
        return shift

    def start(self) -> None:
        """Start what was made before there was a loop."""
        pending, self.pending = self.pending, []
        for routine in pending:
            routine.start()

    async def close(self) -> None:
        """Begin no more runs, cancel those under way, and give everything back."""
        self.stopped = True
        self.closer = asyncio.current_task()
        here = asyncio.get_running_loop()
        tasks = [shift.task for shift in self._shifts if shift.task.get_loop() is here]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def stop(self) -> None:
        """Begin no more runs, in whatever loop. The leases are given back by the client."""
        self.stopped = True
        for shift in self._shifts:
            with suppress(RuntimeError):  # the loop is gone, and its tasks with it
                shift.task.get_loop().call_soon_threadsafe(shift.task.cancel)
