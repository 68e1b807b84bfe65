"""What a schedule and its runs are, as far as it is the same for threads and tasks. Nothing here waits.

A `Routine` is the state behind a `Schedule`. What a node does for it, from `start` to `stop`, is a `Shift`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any, Generic, ParamSpec, TypeVar, cast

from holdfast import identity
from holdfast.client.calendar import calendar, zone
from holdfast.client.engine import Engine
from holdfast.client.leases import BaseLease, BaseLeased
from holdfast.client.operations import as_failure
from holdfast.client.options import Wish
from holdfast.client.ticks import MISSED, Await, Begin, Cease, Job, Missed, Result, Timekeeper
from holdfast.clock import boot_time
from holdfast.core import keys
from holdfast.core.data import data
from holdfast.core.driver import Drive
from holdfast.core.keeper import Kept
from holdfast.core.plans import Wait
from holdfast.core.settings import Seconds, seconds
from holdfast.errors import SettingsError
from holdfast.log import log

P = ParamSpec("P")
R = TypeVar("R", bound="BaseRun")
T = TypeVar("T")

PREFIX = "every"
# The longest sleep. Sleeping does not count suspend, as our clock does: when a machine wakes up, what has
# become due meanwhile is looked for soon.
NAP = 30.0
WAITS = (Wait, Await)  # the steps of a plan that are not done at once
OnError = Callable[[BaseException], Any]


@data
class Rules:
    """How `every` was called. It is checked where that is written, and not when the first tick comes."""

    schedule: str | Seconds
    name: str | None
    at_least: Seconds
    at_most: Seconds | None
    missed: Missed
    timezone: str
    on_error: OnError | None

    def __post_init__(self) -> None:
        if self.missed not in MISSED:
            raise SettingsError(f"missed is {self.missed!r}; it must be 'once', 'skip' or 'all'")
        call = self.on_error
        if call is not None and (not callable(call) or inspect.iscoroutinefunction(call)):
            raise SettingsError(f"on_error is {call!r}; it must be a plain function of one exception")
        self.job(PREFIX if self.name is None else f"{PREFIX}:{self.name}")  # raises what is wrong with it

    def job(self, key: str, max_hold: float | None = None) -> Job:
        """Return what to keep time for. A run lasts *max_hold* at most, unless *at_most* was given."""
        at_most = max_hold if self.at_most is None else seconds(self.at_most, "at_most")
        if at_most == 0:
            raise SettingsError("at_most is 0; use None for no limit")
        ticks = calendar(self.schedule, self.timezone)
        return Job(keys.validate(key), ticks, self.missed, seconds(self.at_least, "at_least"), at_most)


class BaseRun(BaseLeased):
    """One run of a schedule, for a function that takes it as its argument."""

    def __init__(self, lease: BaseLease, begin: Begin, timezone: str) -> None:
        self._lease = lease
        self.tick: datetime = datetime.fromtimestamp(begin.tick, zone(timezone))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.key!r} of {self.tick.isoformat()} token={self.token}>"


class BaseSchedule(Generic[P, T, R]):
    """A function that is run once a tick, and can be called as ever."""

    def __init__(self, routine: Routine) -> None:
        # First: it takes over the attributes of the function.
        functools.update_wrapper(cast("Callable[..., Any]", self), routine.function)
        self._routine = routine
        self.key = routine.key

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._routine.function(*args, **kwargs)  # type: ignore[no-any-return]

    def start(self) -> None:
        """Run ticks here, after `stop` or in a forked child. Tasks do so in the event loop that runs now."""
        self._routine.start()

    @property
    def running(self) -> R | None:
        """The run that is under way here, if there is one."""
        shift = self._routine.shift
        return None if shift is None else shift.run

    @property
    def next_in(self) -> float | None:
        """In how many seconds the next tick comes, as the store last said; None if that is not known."""
        return self._routine.next_in

    def __repr__(self) -> str:
        return repr(self._routine)


class Routine:
    """See the module. *kind*: what its schedule is called; *scheduled_by*: what makes a scheduler."""

    def __init__(
        self,
        kind: str,
        engine: Engine,
        function: Callable[..., Any],
        rules: Rules,
        scheduled_by: Callable[[Any], Any],
    ) -> None:
        self.engine = engine
        self.function = function
        self.rules = rules
        self.takes_run = _takes_run(function)
        name = rules.name or f"{function.__module__}.{function.__qualname__}"
        self.key = keys.validate(f"{PREFIX}:{name}")
        self._kind = kind
        self._scheduled_by = scheduled_by
        self._last_shift: Any = None

    @property
    def scheduler(self) -> Any:
        """What runs the schedules of its client in this process."""
        # Atomic: one for all threads.
        return vars(self.engine).setdefault("scheduler", self._scheduled_by(self.engine))

    @property
    def shift(self) -> Any:
        """What this process does for it, if it has begun to; what its parent does is none of ours."""
        shift = self._last_shift
        return shift if shift is not None and shift.scheduler is self.engine.scheduler else None

    def start(self) -> None:
        """Run ticks here, unless we do."""
        shift = self.shift
        if shift is None or shift.timekeeper.stopping:
            self._last_shift = self.scheduler.add(self)

    @property
    def next_in(self) -> float | None:
        """See `BaseSchedule`."""
        shift = self.shift
        until = None if shift is None else shift.timekeeper.next_until
        return None if until is None else max(until - boot_time(), 0.0)

    def __repr__(self) -> str:
        shift = self.shift
        if shift is None or shift.timekeeper.stopping:
            state = "stopped"
        elif (next_in := self.next_in) is not None:
            state = f"next in {next_in:.1f} s"
        else:
            state = "started" if shift.run is None else "running"
        return f"<{self._kind} {self.key!r} {state}>"

    def wish(self) -> Wish:
        """Return how its leases are treated: like those of a caller who says no more than the key."""
        return self.engine.wish(self.key, owner=identity.new_owner(identity.program()))


class Shift:
    """What this node does for a routine from `start` to `stop`: the plan, and the run that is under way."""

    def __init__(self, scheduler: Any, routine: Routine, wish: Wish) -> None:
        self.scheduler = scheduler
        self.routine = routine
        self.engine = routine.engine
        self.run: Any = None
        self.timekeeper = _timekeeper(routine, wish)
        self.drive = Drive(self.timekeeper.plan())
        self.wish = wish
        self.kept: Kept | None = None  # the lease of the last run

    @property
    def waits(self) -> bool:
        """Whether the plan waits, and wants nothing done."""
        return isinstance(self.drive.step, WAITS)

    def keep(self, begin: Begin) -> Kept:
        """Take the lease of a run into the keeper's care."""
        self.kept = self.engine.keeper.keep(begin.grant, asked=begin.asked, max_hold=None, renew=True)
        return self.kept

    def let_go(self, cease: Cease) -> None:
        """Stop renewing the lease of a run; if it is lost by that, say so to the run."""
        kept = self.kept
        if kept is None or kept.grant.attempt != cease.attempt:
            return
        self.engine.keeper.drop(cease.attempt)
        if cease.reason:
            kept.lose(cease.reason)
            self.engine.keeper.tell(kept)

    def call(self, run: BaseRun) -> Any:
        """Call the function for a run."""
        return self.routine.function(run) if self.routine.takes_run else self.routine.function()

    def conclude(self, error: BaseException | None, kept: Kept) -> Result:
        """Return what became of a run, after *on_error* was told if it has failed."""
        error = error or kept.loss(boot_time())
        kept.leaving = True  # a renewal may find it finished before we have heard so
        kept.tell = None
        if error is None:
            return Result()
        log().error("%r has failed: %r", self.routine.key, error, exc_info=error)
        if self.routine.rules.on_error is not None:
            try:
                self.routine.rules.on_error(error)
            except (Exception, SystemExit):  # noqa: BLE001 - it is the user's code; what follows has to
                log().exception("on_error of %r failed", self.routine.key)
        return Result(as_failure(error))

    def do(self, step: Any) -> Any:
        """Do a step that waits for nothing but the store. May block."""
        return self.let_go(step) if isinstance(step, Cease) else self.engine.store.execute(step)

    def undo(self) -> None:
        """Let the plan undo what it did. May block."""
        try:
            self.drive.undo(self.do, waits=WAITS, told=Exception)
        except Exception as error:  # noqa: BLE001 - the lease ends with its ttl
            log().warning("%r was not given back: %r", self.routine, error)

    def end(self) -> None:
        """Run no more ticks."""
        self.timekeeper.stopping = True
        self.timekeeper.next_until = None
        if self.kept is not None:
            self.engine.keeper.drop(self.kept.grant.attempt)


def refuse_second(routine: Routine, shifts: Iterable[Shift], pending: Iterable[Routine] = ()) -> None:
    """Refuse a second schedule of the same name."""
    active = [shift.routine for shift in shifts if not shift.timekeeper.stopping]
    if any(each.key == routine.key for each in (*active, *pending)):
        raise SettingsError(
            f"{routine.key!r} is run by this client already: give each of them a name=, or stop() it"
        )


def nap(until: float | None) -> float:
    """Return how long to sleep before looking at the clock again."""
    return NAP if until is None else min(max(until - boot_time(), 0.0), NAP)


def _timekeeper(routine: Routine, wish: Wish) -> Timekeeper:
    engine = routine.engine
    return Timekeeper(
        routine.rules.job(routine.key, engine.settings.max_hold),
        client=engine.client,
        owner=wish.request.owner,
        ttl=wish.request.ttl,
        attempts=engine.attempts.new,
        repeats=engine.store.traits.repeats,
        **engine.how(),
    )


def _takes_run(function: Callable[..., Any]) -> bool:
    """Tell whether a function takes the run that it is called for."""
    wanted = [
        each
        for each in inspect.signature(function).parameters.values()
        if each.default is each.empty and each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
    ]
    positional = [each for each in wanted if each.kind is not each.KEYWORD_ONLY]
    if len(wanted) > 1 or len(positional) != len(wanted):
        raise SettingsError(
            f"{getattr(function, '__qualname__', function)!s} wants {len(wanted)} arguments: a function that"
            " is run on a schedule is given nothing, or the run"
        )
    return bool(positional)
