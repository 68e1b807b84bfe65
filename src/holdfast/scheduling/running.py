"""What a schedule and its runs are, as far as it is the same for threads and tasks. Nothing here waits."""

from __future__ import annotations

import functools
import inspect
import random
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any, cast

from holdfast import errors, identity
from holdfast.clock import boot_time
from holdfast.core import keys
from holdfast.core.data import data
from holdfast.core.settings import Seconds, seconds
from holdfast.log import log
from holdfast.operations import as_failure
from holdfast.scheduling.calendar import Calendar, calendar, instant
from holdfast.scheduling.ticking import MISSED, Begin, Cease, Job, Missed, Result, Timekeeper

if TYPE_CHECKING:
    from holdfast.client import BaseClient, Wish
    from holdfast.core.keeper import Kept
    from holdfast.leases import BaseLease

PREFIX = "every"
OnError = Callable[[BaseException], Any]


@data
class Rules:
    """How `every` was called, checked."""

    calendar: Calendar
    name: str | None
    at_least: float
    at_most: float | None
    missed: Missed
    timezone: str
    on_error: OnError | None


def rules(
    schedule: str | Seconds,
    *,
    name: str | None,
    at_least: Seconds,
    at_most: Seconds | None,
    missed: Missed,
    timezone: str,
    on_error: OnError | None,
) -> Rules:
    """Check how `every` is called, where that is written and not when the first tick comes."""
    if missed not in MISSED:
        raise errors.SettingsError(f"missed is {missed!r}; it must be 'once', 'skip' or 'all'")
    if on_error is not None and (not callable(on_error) or inspect.iscoroutinefunction(on_error)):
        raise errors.SettingsError(f"on_error is {on_error!r}; it must be a plain function of one exception")
    longest = None if at_most is None else seconds(at_most, "at_most")
    if longest == 0:
        raise errors.SettingsError("at_most is 0; use None for no limit")
    if name is not None:
        keys.validate(f"{PREFIX}:{name}")
    return Rules(
        calendar(schedule, timezone), name, seconds(at_least, "at_least"), longest, missed, timezone, on_error
    )


class BaseSchedule:
    """A function that is run once a tick, and can be called as ever."""

    def __init__(self, client: BaseClient, function: Callable[..., Any], rules: Rules) -> None:
        self._function = function
        self._client = client
        self._rules = rules
        self._takes_run = _takes_run(function)
        name = rules.name or f"{function.__module__}.{function.__qualname__}"
        self.key = keys.validate(f"{PREFIX}:{name}")
        functools.update_wrapper(cast("Callable[..., Any]", self), function)

    @property
    def next_in(self) -> float | None:
        """In how many seconds the next tick comes, as the store last said; None if that is not known."""
        keeper = self._keeper()
        until = None if keeper is None else keeper.next_until
        return None if until is None else max(until - boot_time(), 0.0)

    def __repr__(self) -> str:
        keeper = self._keeper()
        if keeper is None or keeper.stopping:
            state = "stopped"
        elif (next_in := self.next_in) is not None:
            state = f"next in {next_in:.1f} s"
        else:
            state = "running" if self._is_running() else "started"
        return f"<{type(self).__name__} {self.key!r} {state}>"

    def _keeper(self) -> Timekeeper | None:
        raise NotImplementedError

    def _is_running(self) -> bool:
        raise NotImplementedError

    def _wish(self) -> Wish:
        """Return how its leases are to be treated: as anybody's who said no more than the key."""
        return self._client._wish(self.key, owner=identity.new_owner(identity.program()))  # noqa: SLF001

    def _timekeeper(self, wish: Wish) -> Timekeeper:
        rules, client = self._rules, self._client
        at_most = client.settings.max_hold if rules.at_most is None else rules.at_most
        return Timekeeper(
            Job(self.key, rules.calendar, rules.missed, rules.at_least, at_most),
            client=client._client,  # noqa: SLF001
            owner=wish.request.owner,
            ttl=wish.request.ttl,
            settings=client.settings,
            attempts=client._attempts.new,  # noqa: SLF001
            clock=boot_time,
            roll=random.random,
            repeats=client._store.traits.repeats,  # noqa: SLF001
        )

    def _keep(self, begin: Begin) -> Kept:
        """Take the lease of a run into the keeper's care."""
        return self._client._keeping.keep(begin.grant, asked=begin.asked, max_hold=None, renew=True)  # noqa: SLF001

    def _arguments(self, run: Any) -> tuple[Any, ...]:
        return (run,) if self._takes_run else ()

    def _conclude(self, error: BaseException | None, kept: Kept) -> Result:
        """Return what became of a run, after who wants to know has been told if it has failed."""
        error = error or kept.loss(boot_time())
        kept.leaving = True  # a renewal may find it finished before we have heard so
        kept.tell = None
        if error is None:
            return Result()
        log().error("%r has failed: %r", self.key, error, exc_info=error)
        if self._rules.on_error is not None:
            try:
                self._rules.on_error(error)
            except (Exception, SystemExit):  # noqa: BLE001 - it is the user's code; what follows has to
                log().exception("on_error of %r failed", self.key)
        return Result(as_failure(error))


class BaseRun:
    """One run of a schedule, for the function that wants to know about it."""

    _lease: BaseLease

    def __init__(self, begin: Begin, timezone: str) -> None:
        self.tick: datetime = instant(begin.tick, timezone)

    @property
    def key(self) -> str:
        """The key of the schedule: its work, and the lock that is held while it runs."""
        return self._lease.key

    @property
    def token(self) -> int:
        """The fencing token: larger than that of every run before."""
        return self._lease.token

    @property
    def remaining(self) -> float:
        """For how many seconds the lease can be trusted if it is not renewed; 0 when it is over."""
        return self._lease.remaining

    def check(self) -> None:
        """Raise `LeaseLost` if the run should end: others may be at this tick, or the next one."""
        self._lease.check()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.key!r} of {self.tick.isoformat()} token={self.token}>"


def let_go(client: BaseClient, kept: Kept | None, cease: Cease) -> None:
    """Stop renewing the lease of a run; if it is lost by that, say so to the run."""
    if kept is None or kept.grant.attempt != cease.attempt:
        return
    client._keeping.drop(cease.attempt)  # noqa: SLF001
    if cease.reason:
        kept.lose(cease.reason)
        client._keeping.tell(kept)  # noqa: SLF001


def _takes_run(function: Callable[..., Any]) -> bool:
    """Tell whether a function wants the run it is called for."""
    wanted = [
        each
        for each in inspect.signature(function).parameters.values()
        if each.default is each.empty and each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
    ]
    positional = [each for each in wanted if each.kind is not each.KEYWORD_ONLY]
    if len(wanted) > 1 or len(positional) != len(wanted):
        raise errors.SettingsError(
            f"{getattr(function, '__qualname__', function)!s} wants {len(wanted)} arguments: a function that"
            " is run on a schedule is given nothing, or the run"
        )
    return bool(positional)
