"""Schedules for tasks: a task that waits for each, and one for each run."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar

from holdfast import errors
from holdfast.aio_leases import AsyncLease
from holdfast.clock import boot_time
from holdfast.core.plans import Abandoned, Wait
from holdfast.core.settings import Seconds, seconds
from holdfast.log import log
from holdfast.scheduling.running import BaseRun, BaseSchedule, Rules, let_go
from holdfast.scheduling.ticking import Await, Begin, Cease, Result, Step, Timekeeper

if TYPE_CHECKING:
    from holdfast.aio import AsyncHoldfast
    from holdfast.client import Wish
    from holdfast.core.keeper import Kept

P = ParamSpec("P")
T = TypeVar("T")

NAP = 30.0  # see `holdfast.scheduling.threads`


class AsyncRun(BaseRun):
    """One run of a schedule: see `Run`. The body is cancelled when the lease is lost."""

    _lease: AsyncLease

    def __init__(self, lease: AsyncLease, begin: Begin, timezone: str) -> None:
        super().__init__(begin, timezone)
        self._lease = lease

    @property
    def lost(self) -> asyncio.Event:
        """An event to wait for: set when the lease is lost, and the run should end."""
        return self._lease.lost

    async def fence(self, connection: Any) -> None:
        """Make the transaction that is open on *connection* safe: see `AsyncLease.fence`."""
        await self._lease.fence(connection)


class AsyncSchedule(BaseSchedule, Generic[P, T]):
    """What `AsyncHoldfast.every` makes of a coroutine function: see `Schedule`.

    It starts when it is made if an event loop runs then; else when the client is entered, or by `start`.
    """

    _client: AsyncHoldfast

    def __init__(self, client: AsyncHoldfast, function: Callable[P, Awaitable[T]], rules: Rules) -> None:
        if not inspect.iscoroutinefunction(function):
            raise errors.SettingsError(
                f"{getattr(function, '__qualname__', function)!s} is no coroutine function: schedule plain"
                " functions with Holdfast"
            )
        super().__init__(client, function, rules)
        self._driver: Driver | None = None
        client._check_open()  # noqa: SLF001
        scheduler = scheduler_of(client)
        scheduler.check(self)
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            scheduler.pending.append(self)
        else:
            self.start()

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Awaitable[T]:
        return self._function(*args, **kwargs)  # type: ignore[no-any-return]

    @property
    def running(self) -> AsyncRun | None:
        """The run that is under way here, if there is one."""
        driver = self._current()
        return None if driver is None else driver.run

    def start(self) -> None:
        """Run ticks here, in the event loop that runs now: see `Schedule.start`."""
        driver = self._current()
        if driver is None or driver.keeper.stopping:
            self._driver = scheduler_of(self._client).add(self)

    async def stop(self, *, timeout: Seconds | None = 0) -> bool:  # noqa: ASYNC109
        """Begin no more runs here: see `Schedule.stop`."""
        patience = None if timeout is None else seconds(timeout, "timeout")
        scheduler = scheduler_of(self._client)
        if self in scheduler.pending:
            scheduler.pending.remove(self)
        driver = self._current()
        if driver is None:
            return True
        driver.keeper.stopping = True
        driver.woken.set()
        if patience != 0:
            await asyncio.wait({driver.task}, timeout=patience)
        return driver.run is None

    def _current(self) -> Driver | None:
        """Return what drives it in this process; that of the parent is none of ours."""
        driver = self._driver
        mine = driver is not None and driver.scheduler is self._client._scheduler  # noqa: SLF001
        return driver if mine else None

    def _keeper(self) -> Timekeeper | None:
        driver = self._current()
        return None if driver is None else driver.keeper

    def _is_running(self) -> bool:
        return self.running is not None


class Driver:
    """Does what the plan of one schedule wants, in a task."""

    def __init__(self, scheduler: AsyncScheduler, schedule: AsyncSchedule[..., Any], wish: Wish) -> None:
        self.scheduler = scheduler
        self.schedule = schedule
        self.keeper = schedule._timekeeper(wish)  # noqa: SLF001
        self.run: AsyncRun | None = None
        self.woken = asyncio.Event()  # somebody wants it to go on
        self.body: asyncio.Task[Result] | None = None
        self._wish = wish
        self._client = schedule._client  # noqa: SLF001
        self._plan = self.keeper.plan()
        self._kept: Kept | None = None
        self.task = asyncio.get_running_loop().create_task(self._drive(), name="holdfast-every")

    async def _drive(self) -> None:
        try:
            step = next(self._plan)
            while True:
                try:
                    result = await self._do(step)
                except Exception as error:  # noqa: BLE001 - the plan decides what is to be done about it
                    step = self._plan.throw(error)
                else:
                    step = self._plan.send(result)
        except StopIteration:
            pass
        except Exception:  # noqa: BLE001 - nobody waits for this task
            log().exception("%r has stopped", self.schedule)
        except BaseException:  # cancelled: the client is closed, or the loop ends
            await self._abandon()
            raise
        finally:
            self.keeper.stopping = True
            self.keeper.next_until = None
            if self._kept is not None:
                self._client._keeping.drop(self._kept.grant.attempt)  # noqa: SLF001

    async def _do(self, step: Step) -> Any:
        if isinstance(step, Wait):
            return await self._wait(step)
        if isinstance(step, Await):
            return await self._await(step)
        if isinstance(step, Begin):
            return self._begin(step)
        if isinstance(step, Cease):
            return let_go(self._client, self._kept, step)
        return await self._client._execute(step)  # noqa: SLF001

    async def _wait(self, step: Wait) -> None:
        while not self.woken.is_set() and (step.until is None or boot_time() < step.until):
            nap = NAP if step.until is None else min(step.until - boot_time(), NAP)
            with suppress(TimeoutError):
                async with asyncio.timeout(nap):
                    await self.woken.wait()
        self.woken.clear()

    async def _await(self, step: Await) -> Result | None:
        assert self.body is not None
        while not self.body.done():
            left = None if step.until is None else step.until - boot_time()
            if left is not None and left <= 0:
                return None
            await asyncio.wait({self.body}, timeout=NAP if left is None else min(left, NAP))
        self.run = None
        return self.body.result()

    def _begin(self, begin: Begin) -> None:
        schedule = self.schedule
        kept = self._kept = schedule._keep(begin)  # noqa: SLF001
        run = self.run = AsyncRun(
            AsyncLease(self._client, kept, self._wish),
            begin,
            schedule._rules.timezone,  # noqa: SLF001
        )
        self.body = asyncio.get_running_loop().create_task(
            self._perform(run, kept), name=f"holdfast-{schedule.key}"
        )

    async def _perform(self, run: AsyncRun, kept: Kept) -> Result:
        """Run the function. In a task of its own, which is cancelled when the lease is lost."""
        schedule, lease = self.schedule, run._lease  # noqa: SLF001
        error: BaseException | None = None
        try:
            await lease.__aenter__()
            await schedule._function(*schedule._arguments(run))  # noqa: SLF001
        except (Exception, asyncio.CancelledError) as raised:  # noqa: BLE001 - what it is, is told below
            error = raised
        if lease._end_body(error):  # noqa: SLF001
            error = kept.lost
        if self.scheduler.stopped:
            return Result("closed")  # and it was given back
        return schedule._conclude(error, kept)  # noqa: SLF001

    async def _abandon(self) -> None:
        """Let the plan undo what it did, even if we are cancelled once more meanwhile."""
        if not self._client._store.traits.blocking:  # noqa: SLF001
            self._last_wish()
            return
        await asyncio.shield(self._client._in_worker(self._last_wish))  # noqa: SLF001

    def _last_wish(self) -> None:
        try:
            step = self._plan.throw(Abandoned())
            while not isinstance(step, Wait | Await):
                try:
                    result = self._wished(step)
                except Exception as error:  # noqa: BLE001 - as above
                    step = self._plan.throw(error)
                else:
                    step = self._plan.send(result)
        except (Abandoned, StopIteration):
            pass
        except Exception as error:  # noqa: BLE001 - the lease ends with its ttl
            log().warning("%r was not given back: %r", self.schedule, error)

    def _wished(self, step: Step) -> Any:
        if isinstance(step, Cease):
            if self.body is self.scheduler.closer:  # it closes the client itself, and must come to its end
                step = Cease(step.attempt)
            return let_go(self._client, self._kept, step)
        assert not isinstance(step, Wait | Await | Begin)
        return self._client._store.execute(step)  # noqa: SLF001


class AsyncScheduler:
    """The schedules of one client."""

    def __init__(self, client: AsyncHoldfast) -> None:
        self._client = client
        self._drivers: list[Driver] = []
        self.pending: list[AsyncSchedule[..., Any]] = []  # those that were made before there was a loop
        self.stopped = False
        self.closer: asyncio.Task[Any] | None = None

    def check(self, schedule: AsyncSchedule[..., Any]) -> None:
        """Refuse a second schedule of the same name."""
        driven = [driver.schedule for driver in self._drivers if not driver.keeper.stopping]
        if any(each.key == schedule.key and each is not schedule for each in (*driven, *self.pending)):
            raise errors.SettingsError(
                f"{schedule.key!r} is run by this client already: give each of them a name=, or stop() it"
            )

    def add(self, schedule: AsyncSchedule[..., Any]) -> Driver:
        """Drive a schedule from now on, in the event loop that runs now."""
        wish = schedule._wish()  # noqa: SLF001 - raises if the client is closed
        self.check(schedule)
        self._drivers = [driver for driver in self._drivers if not driver.task.done()]
        driver = Driver(self, schedule, wish)
        self._drivers.append(driver)
        return driver

    def start(self) -> None:
        """Start what was made before there was a loop."""
        pending, self.pending = self.pending, []
        for schedule in pending:
            schedule.start()

    async def close(self) -> None:
        """Begin no more runs, cancel those under way, and give everything back."""
        self.stopped = True
        self.closer = asyncio.current_task()
        here = asyncio.get_running_loop()
        tasks = [driver.task for driver in self._drivers if driver.task.get_loop() is here]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def stop(self) -> None:
        """Begin no more runs, in whatever loop. The leases are given back by the client."""
        self.stopped = True
        for driver in self._drivers:
            with suppress(RuntimeError):  # the loop is gone, and its tasks with it
                driver.task.get_loop().call_soon_threadsafe(driver.task.cancel)


def scheduler_of(client: AsyncHoldfast) -> AsyncScheduler:
    """Return what runs the schedules of a client in this process."""
    scheduler: AsyncScheduler = vars(client).setdefault("_scheduler", AsyncScheduler(client))
    return scheduler
