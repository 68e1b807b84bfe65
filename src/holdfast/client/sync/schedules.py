"""Schedules for threads: one thread that waits for all of a client's, and one for each run."""

from __future__ import annotations

import inspect
import math
import threading
from collections.abc import Callable
from typing import Any, Generic, ParamSpec, TypeVar

from holdfast import errors
from holdfast.client.options import Wish
from holdfast.client.schedules import BaseRun, BaseSchedule, Routine, Rules, Shift, nap, refuse_second
from holdfast.client.sync.engine import ThreadEngine, ThreadHolding
from holdfast.client.sync.leases import Lease, Leased
from holdfast.client.ticks import Await, Begin, Result
from holdfast.clock import boot_time
from holdfast.core.keeper import Kept
from holdfast.core.settings import Seconds, seconds
from holdfast.log import log
from holdfast.signal_mask import block_signals, signals_unblocked

P = ParamSpec("P")
T = TypeVar("T")

LAST_WISHES = 1.0  # seconds that closing waits for what is still to be asked for


class Run(BaseRun, Leased):
    """One run of a schedule: which tick it is for, and the lease that it runs under."""


class Schedule(BaseSchedule[P, T, Run], Generic[P, T]):
    """What `Holdfast.every` makes of a function. Calling it calls the function, and changes no schedule."""

    def __init__(self, engine: ThreadEngine, function: Callable[P, T], rules: Rules) -> None:
        if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
            raise errors.SettingsError(
                f"{function.__qualname__} would not have run when it returns: schedule plain functions here,"
                " coroutine functions with AsyncHoldfast"
            )
        super().__init__(Routine(type(self).__name__, engine, function, rules, Scheduler))
        self.start()

    def stop(self, *, timeout: Seconds | None = 0) -> bool:
        """Begin no more runs here. Wait up to *timeout* for the one under way; tell whether none is left."""
        patience = None if timeout is None else seconds(timeout, "timeout")
        shift: ThreadShift | None = self._routine.shift
        if shift is None:
            return True
        shift.timekeeper.stopping = True
        shift.scheduler.wake(shift)
        shift.idle.wait(None if patience is None else min(patience, threading.TIMEOUT_MAX))
        return shift.run is None


class ThreadShift(Shift):
    """Does what the plan of a schedule wants. Used by the scheduler's thread, unless it says otherwise."""

    scheduler: Scheduler
    engine: ThreadEngine
    run: Run | None

    def __init__(self, scheduler: Scheduler, routine: Routine, wish: Wish) -> None:
        super().__init__(scheduler, routine, wish)
        self.idle = threading.Event()  # set while no run is under way and none will begin
        self.awake = True  # somebody wants it to go on
        self._result: Result | None = None  # set by the thread of the run

    def wake_at(self) -> float:
        """Return when it has to go on."""
        step = self.drive.step
        if self.awake or (isinstance(step, Await) and self._result is not None):
            return -math.inf
        until = step.until if self.waits else None
        return math.inf if until is None else until

    def go_on(self) -> bool:
        """Go on to where it has to wait. Tell whether it is to be driven any further."""
        drive = self.drive
        woken, self.awake = self.awake, False
        answer: Any = None
        if isinstance(drive.step, Await):
            if self._result is None and woken and boot_time() < (drive.step.until or math.inf):
                return True  # it has to wait all the same
            answer, self._result = self._result, None
            if answer is not None:
                self.run = None
        try:
            going = drive.tell(answer)
            # If it is stopped, the plan is abandoned where it is.
            while going and not self.waits and not self.scheduler.stopped:
                try:
                    answer = self.do(drive.step)
                except Exception as error:  # noqa: BLE001 - the plan decides what is to be done about it
                    going = drive.fail(error)
                else:
                    going = drive.tell(answer)
        except Exception:  # noqa: BLE001 - it is ours, and must not end the others in silence
            log().exception("%r has stopped", self.routine)
            self.end()
            return False
        if not going:
            self.idle.set()
        return going

    def do(self, step: Any) -> Any:
        return self._begin(step) if isinstance(step, Begin) else super().do(step)

    def end(self) -> None:
        super().end()
        self.idle.set()

    def _begin(self, begin: Begin) -> None:
        kept = self.keep(begin)
        lease = Lease(ThreadHolding(self.engine, kept, self.wish))
        self.run = run = Run(lease, begin, self.routine.rules.timezone)
        thread = threading.Thread(
            target=self._perform, args=(run, kept), name=f"holdfast-{self.routine.key}", daemon=True
        )
        try:
            thread.start()
        except RuntimeError as error:  # there are too many, or the interpreter is ending
            self._finish(error, kept)

    def _perform(self, run: Run, kept: Kept) -> None:
        """Run the function. In a thread of its own."""
        error: BaseException | None = None
        with signals_unblocked():
            try:
                self.call(run)
            except BaseException as raised:  # noqa: BLE001 - also a sys.exit() ends no more than the run
                error = raised
            if self.engine.scheduler is not self.scheduler or self.scheduler.stopped:
                return  # we are a forked child, and it is the parent's; or closed, and it was given back
            self._finish(error, kept)

    def _finish(self, error: BaseException | None, kept: Kept) -> None:
        self._result = self.conclude(error, kept)
        self.scheduler.wake(self, only_look=True)


class Scheduler:
    """The schedules of one client, and the thread that waits for what is due."""

    def __init__(self, engine: ThreadEngine) -> None:
        self._engine = engine
        self._mutex = threading.Lock()
        self._changed = threading.Condition(self._mutex)
        self._shifts: list[ThreadShift] = []
        self._thread: threading.Thread | None = None
        self.stopped = False
        self._ended = False
        self._late = False  # the thread that closes the client could not wait for our last wishes

    def add(self, routine: Routine) -> ThreadShift:
        """Run ticks of a routine from now on."""
        wish = routine.wish()  # raises if the client is closed
        with self._mutex:
            refuse_second(routine, self._shifts)
            shift = ThreadShift(self, routine, wish)
            self._shifts.append(shift)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="holdfast-every", daemon=True)
                self._thread.start()
            self._changed.notify_all()
        return shift

    def wake(self, shift: ThreadShift, *, only_look: bool = False) -> None:
        """Have the thread go on with a shift, or see whether it has to."""
        with self._mutex:
            shift.awake = shift.awake or not only_look
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
                due = [shift for shift in self._shifts if shift.wake_at() <= now]
                if not due:
                    next_at = min((shift.wake_at() for shift in self._shifts), default=math.inf)
                    self._changed.wait(nap(next_at) if self._shifts else None)
                    continue
            for shift in due:
                if not self.stopped and not shift.go_on():
                    with self._mutex:
                        self._shifts.remove(shift)
        for shift in self._shifts:
            shift.undo()
            shift.end()
        with self._mutex:
            self._ended = True
            late = self._late
        if late:
            self._engine.close_again()
