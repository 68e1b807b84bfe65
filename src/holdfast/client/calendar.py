"""When a schedule ticks. Pure: instants go in and come out as the store counts them, in seconds since 1970.

Nobody asks this machine's clock. All nodes that know the schedule, and are told the same instant by the
store, come to the same tick.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterator
from typing import Any

from holdfast.core.data import data
from holdfast.core.settings import Seconds, seconds
from holdfast.errors import SettingsError

SHORTEST = 0.1  # seconds between two ticks
LONGEST = 86400.0 * 366 * 10
MICRO = 1_000_000

ALIASES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}


@data
class Interval:
    """Ticks at whole multiples of a length of time since 1970, so that all nodes have the same ones."""

    micros: int

    @property
    def text(self) -> dict[str, Any]:
        """What it is made of, as JSON: other nodes read it, see `read`."""
        return {"schedule": self.micros / MICRO}

    def after(self, at: float) -> float:
        """Return the first tick after *at*."""
        return (round(at * MICRO) // self.micros + 1) * self.micros / MICRO

    def latest(self, at: float) -> float:
        """Return the last tick that is not after *at*."""
        return round(at * MICRO) // self.micros * self.micros / MICRO


@data
class Cron:
    """Ticks when a cron expression says, in a time zone.

    When clocks change it does as Debian's cron: what is to run at a fixed time runs once, in spring right
    after the hour that is left out, in autumn in the first of the two hours; what has ``*`` for its minute or
    hour goes on evenly.
    """

    expression: str
    timezone: str

    def __post_init__(self) -> None:
        try:
            from cronsim import CronSimError
        except ImportError:
            raise SettingsError(
                f"{self.expression!r} is read by cronsim, which is not installed: pip install"
                " 'holdfast[cron]'. An interval in seconds needs nothing"
            ) from None
        try:
            self.after(0.0)
        except CronSimError as error:
            raise SettingsError(
                f"{self.expression!r} is no cron expression ({error}): there are five fields, as in"
                " '*/5 * * * *'"
            ) from None

    @property
    def text(self) -> dict[str, Any]:
        return {"schedule": self.expression, "timezone": self.timezone}

    def after(self, at: float) -> float:
        for tick in self._walk(at):
            # In the second of two like hours it begins in the first, where what it finds is past.
            if tick > at:
                return tick
        raise SettingsError(f"{self.expression!r} has no tick in 50 years")

    def latest(self, at: float) -> float:
        found = next((tick for tick in self._walk(at, back=True) if tick <= at), None)
        if found is None:
            raise SettingsError(f"{self.expression!r} has had no tick in 50 years")
        # Around a change of clocks it may go back too far: forwards it is right.
        while (later := self.after(found)) <= at:
            found = later
        return found

    def _walk(self, at: float, *, back: bool = False) -> Iterator[float]:
        """Yield ticks from *at* on, also *at* itself if it goes *back*."""
        from cronsim import CronSim

        start = dt.datetime.fromtimestamp(math.floor(at), zone(self.timezone))
        if back:
            start = start.replace(microsecond=1)  # so that this second is among them
        expression = ALIASES.get(self.expression, self.expression)
        return (tick.timestamp() for tick in CronSim(expression, start, reverse=back))


Calendar = Interval | Cron


def calendar(schedule: str | Seconds, timezone: str) -> Calendar:
    """Return when *schedule* ticks: a cron expression, or the time from tick to tick."""
    zone(timezone)
    if isinstance(schedule, str):
        return Cron(" ".join(schedule.split()), timezone)
    length = seconds(schedule, "schedule")
    if not SHORTEST <= length <= LONGEST:
        raise SettingsError(f"schedule is {length:g} s; it must be {SHORTEST:g} to {LONGEST:g} s")
    return Interval(round(length * MICRO))


def read(text: dict[str, Any]) -> Calendar:
    """Return the calendar that another node has written down. Raise `SettingsError` if it makes no sense."""
    return calendar(text.get("schedule", ""), text.get("timezone", "UTC"))


def zone(name: object) -> dt.tzinfo:
    """Return a time zone by its name."""
    if name == "UTC":
        return dt.UTC
    import zoneinfo  # slow to import

    if not isinstance(name, str):
        raise SettingsError(f"timezone is {name!r}; it must be a name as 'Europe/Berlin'")
    try:
        return zoneinfo.ZoneInfo(name)
    except (ValueError, OSError, zoneinfo.ZoneInfoNotFoundError):
        raise SettingsError(
            f"timezone {name!r} is not known here; it must be a name as 'Europe/Berlin'. If this machine has"
            " no time zones, install tzdata"
        ) from None
