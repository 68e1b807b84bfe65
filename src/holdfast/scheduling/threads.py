"""Schedules for threads: one thread that waits for all of a client's, and one for each run."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar

from holdfast import errors
from holdfast.clock import boot_time
from holdfast.core.plans import Abandoned, Wait
from holdfast.core.settings import Seconds, seconds
from holdfast.log import log
from holdfast.masking import block_signals, signals_unblocked
from holdfast.scheduling.running import BaseRun, BaseSchedule, Rules, let_go
from holdfast.scheduling.ticking import Await, Begin, Cease, Result, Step, Timekeeper
from holdfast.sync_leases import Lease, Lost

if TYPE_CHECKING:
    from holdfast.client import Wish
    from holdfast.core.keeper import Kept
    from holdfast.sync import Holdfast

P = ParamSpec("P")
T = TypeVar("T")

# The longest sleep. Sleeping does not count suspend, as our clock does: when a machine wakes up, what has
# become due meanwhile is looked for soon.
NAP = 30.0
LAST_WISHES = 1.0  # seconds that closing waits for what is still to be asked for


class Run(BaseRun):
    """One run of a schedule: which tick it is for, and the lease that it runs under."""

    _lease: Lease

    def __init__(self, lease: Lease, begin: Begin, timezone: str) -> None:
        super().__init__(begin, timezone)
        self._lease = lease

    @property
    def lost(self) -> Lost:
        """An event to wait for: set when the lease is lost, and the run should end."""
        return self._lease.lost

    def fence(self, connection: Any) -> None:
        """Make the transaction that is open on *connection* safe: see `Lease.fence`."""
        self._lease.fence(connection)


class Schedule(BaseSchedule, Generic[P, T]):
    """What `Holdfast.every` makes of a function. Calling it calls the function, and changes no schedule."""

    _client: Holdfast

    def __init__(self, client: Holdfast, function: Callable[P, T], rules: Rules) -> None:
        import inspect

        if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
            raise errors.SettingsError(
                f"{function.__qualname__} would not have run when it returns: schedule plain functions here,"
                " coroutine functions with AsyncHoldfast"
            )
        super().__init__(client, function, rules)
        self._driver: Driver | None = None
        self.start()

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._function(*args, **kwargs)  # type: ignore[no-any-return]

    @property
    def running(self) -> Run | None:
        """The run that is under way here, if there is one."""
        driver = self._current()
        return None if driver is None else driver.run

    def start(self) -> None:
        """Run ticks here, after `stop`, or in a forked child. It was started when it was made."""
        driver = self._current()
        if driver is not None and not driver.keeper.stopping:
            return
        scheduler = scheduler_of(self._client)
        self._driver = scheduler.add(self)

    def stop(self, *, timeout: Seconds | None = 0) -> bool:
        """Begin no more runs here. Wait up to *timeout* for the one under way; tell whether none is left."""
        patience = None if timeout is None else seconds(timeout, "timeout")
        driver = self._current()
        if driver is None:
            return True
        driver.keeper.stopping = True
        driver.scheduler.wake(driver)
        driver.idle.wait(None if patience is None else min(patience, threading.TIMEOUT_MAX))
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
    """Does what the plan of one schedule wants. Used by the scheduler's thread, but for what is said."""

    def __init__(self, scheduler: Scheduler, schedule: Schedule[..., Any], wish: Wish) -> None:
        self.scheduler = scheduler
        self.schedule = schedule
        self.keeper = schedule._timekeeper(wish)  # noqa: SLF001
        self.run: Run | None = None
        self.idle = threading.Event()  # set while no run is under way and none will begin
        self.awake = True  # somebody wants it to go on
        self._wish = wish
        self._plan = self.keeper.plan()
        self._kept: Kept | None = None
        self._result: Result | None = None  # set by the thread of the run
        self._step: Step | None = None  # what it waits for; None: it has not begun

    def wake_at(self) -> float:
        """Return when it has to go on."""
        if self.awake or (isinstance(self._step, Await) and self._result is not None):
            return -math.inf
        until = self._step.until if isinstance(self._step, Wait | Await) else None
        return math.inf if until is None else until

    def go_on(self) -> bool:
        """Go on to where it has to wait. Tell whether it is to be driven any further."""
        woken, self.awake = self.awake, False
        if isinstance(self._step, Await):
            if self._result is None and woken and boot_time() < (self._step.until or math.inf):
                return True  # it has to wait all the same
            answer, self._result = self._result, None
            if answer is not None:
                self.run = None
        else:
            answer = None
        try:
            step = self._plan.send(answer)
            while not isinstance(step, Wait | Await):
                if self.scheduler.stopped:
                    break  # it will be abandoned
                try:
                    result = self._do(step)
                except Exception as error:  # noqa: BLE001 - the plan decides what is to be done about it
                    step = self._plan.throw(error)
                else:
                    step = self._plan.send(result)
        except StopIteration:
            self.idle.set()
            return False
        except Exception:  # noqa: BLE001 - it is ours, and must not end the others in silence
            log().exception("%r has stopped", self.schedule)
            self._over()
            return False
        self._step = step
        return True

    def abandon(self) -> None:
        """Let the plan undo what it did."""
        try:
            step = self._plan.throw(Abandoned())
            while not isinstance(step, Wait | Await):
                try:
                    result = self._do(step)
                except Exception as error:  # noqa: BLE001 - as above
                    step = self._plan.throw(error)
                else:
                    step = self._plan.send(result)
        except (Abandoned, StopIteration):
            pass
        except Exception as error:  # noqa: BLE001 - the lease ends with its ttl
            log().warning("%r was not given back: %r", self.schedule, error)
        self._over()

    def _over(self) -> None:
        self.keeper.stopping = True
        self.keeper.next_until = None
        if self._kept is not None:
            self.schedule._client._keeping.drop(self._kept.grant.attempt)  # noqa: SLF001
        self.idle.set()

    def _do(self, step: Step) -> Any:
        if isinstance(step, Begin):
            return self._begin(step)
        if isinstance(step, Cease):
            return let_go(self.schedule._client, self._kept, step)  # noqa: SLF001
        assert not isinstance(step, Wait | Await)
        return self.schedule._client._store.execute(step)  # noqa: SLF001

    def _begin(self, begin: Begin) -> None:
        schedule = self.schedule
        kept = self._kept = schedule._keep(begin)  # noqa: SLF001
        run = Run(
            Lease(schedule._client, kept, self._wish),  # noqa: SLF001
            begin,
            schedule._rules.timezone,  # noqa: SLF001
        )
        self.run = run
        thread = threading.Thread(
            target=self._perform, args=(run, kept), name=f"holdfast-{schedule.key}", daemon=True
        )
        try:
            thread.start()
        except RuntimeError as error:  # there are too many, or the interpreter is ending
            self._end(error, kept)

    def _perform(self, run: Run, kept: Kept) -> None:
        """Run the function. In a thread of its own."""
        schedule = self.schedule
        error: BaseException | None = None
        with signals_unblocked():
            try:
                schedule._function(*schedule._arguments(run))  # noqa: SLF001
            except BaseException as raised:  # noqa: BLE001 - also a sys.exit() ends no more than the run
                error = raised
            if schedule._client._scheduler is not self.scheduler or self.scheduler.stopped:  # noqa: SLF001
                return  # we are a forked child, and it is the parent's; or closed, and it was given back
            self._end(error, kept)

    def _end(self, error: BaseException | None, kept: Kept) -> None:
        self._result = self.schedule._conclude(error, kept)  # noqa: SLF001
        self.scheduler.wake(self, only_look=True)


class Scheduler:
    """The schedules of one client, and the thread that waits for what is due."""

    def __init__(self, client: Holdfast) -> None:
        self._client = client
        self._mutex = threading.Lock()
        self._changed = threading.Condition(self._mutex)
        self._drivers: list[Driver] = []
        self._thread: threading.Thread | None = None
        self.stopped = False
        self._ended = False
        self._late = False  # whoever closes could not wait for our last wishes

    def add(self, schedule: Schedule[..., Any]) -> Driver:
        """Drive a schedule from now on."""
        wish = schedule._wish()  # noqa: SLF001 - raises if the client is closed
        with self._mutex:
            if any(
                driver.schedule.key == schedule.key and not driver.keeper.stopping for driver in self._drivers
            ):
                raise errors.SettingsError(
                    f"{schedule.key!r} is run by this client already: give each of them a name=, or stop() it"
                )
            driver = Driver(self, schedule, wish)
            self._drivers.append(driver)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="holdfast-every", daemon=True)
                self._thread.start()
            self._changed.notify_all()
        return driver

    def wake(self, driver: Driver, *, only_look: bool = False) -> None:
        """Have the thread go on with a driver, or see whether it has to."""
        with self._mutex:
            driver.awake = driver.awake or not only_look
            self._changed.notify_all()

    def stop(self) -> None:
        """Begin no more runs, tell those under way, and give everything back."""
        with self._mutex:
            self.stopped = True
            self._changed.notify_all()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(LAST_WISHES)
            with self._mutex:
                self._late = not self._ended

    def _run(self) -> None:
        block_signals()
        while True:
            with self._mutex:
                if self.stopped:
                    break
                now = boot_time()
                due = [driver for driver in self._drivers if driver.wake_at() <= now]
                if not due:
                    next_at = min((driver.wake_at() for driver in self._drivers), default=math.inf)
                    self._changed.wait(min(max(next_at - now, 0.0), NAP) if self._drivers else None)
                    continue
            for driver in due:
                if not self.stopped and not driver.go_on():
                    with self._mutex:
                        self._drivers.remove(driver)
        for driver in self._drivers:
            driver.abandon()
        with self._mutex:
            self._ended = True
            late = self._late
        if late:
            self._client._store.close()  # noqa: SLF001 - asking has opened it again


def scheduler_of(client: Holdfast) -> Scheduler:
    """Return what runs the schedules of a client in this process."""
    scheduler: Scheduler = vars(client).setdefault("_scheduler", Scheduler(client))  # atomic: one for all
    return scheduler
