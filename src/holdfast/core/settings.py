"""The timing and other choices of a client, checked when they are made and not when they hurt."""

from __future__ import annotations

import math
from datetime import timedelta

from holdfast.core.backoff import Backoff
from holdfast.core.data import data
from holdfast.core.events import HISTORY_LEVELS, HistoryLevel
from holdfast.core.family import LONGEST, Mode
from holdfast.core.requests import DEFAULT_LIMIT
from holdfast.errors import SettingsError

Seconds = float | timedelta
MAX_TTL = LONGEST


def seconds(value: object, name: str) -> float:
    """Return a duration given as a number or a `timedelta` in seconds."""
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise SettingsError(f"{name} is {value!r}; it must be seconds or a timedelta")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number) or number < 0:
        raise SettingsError(f"{name} is {value!r}; it must be a finite number of seconds, not negative")
    return number


@data
class Settings:
    """What holds for all locks of a client unless a call says otherwise."""

    ttl: float = 30.0  # how long a lease holds without renewal
    margin: float | None = None  # how much earlier than the store we stop trusting; None: see margin_for
    renew_at: float = 0.6  # when to renew, as a part of the ttl
    max_hold: float | None = None  # do not renew longer than this
    limit: int = DEFAULT_LIMIT  # holds of one owner in one lock
    heartbeat: float = 2.0  # how often a waiting client refreshes its tickets
    claim: float = 5.0  # how long a lock that was handed to us waits for us
    patience: float = 15.0  # how long our ticket lives without a heartbeat
    history: HistoryLevel = "notable"
    sweep_every: float | None = 300.0  # tidy the store this often while something is held
    release_timeout: float = 5.0  # how long to go on trying to release when the store fails
    backoff: Backoff = Backoff()
    wait_for_store: float = 0.0  # how long to wait, when the client is opened, for a store that is not ready
    enters: bool = (
        True  # by a hand-over, whose lease is short at first; if not, it is claimed for its ttl first
    )

    def __post_init__(self) -> None:
        for name, kind in Settings.__annotations__.items():
            value = getattr(self, name)
            if kind == "float" or (kind == "float | None" and value is not None):
                object.__setattr__(self, name, seconds(value, name))
        if not 0 < self.renew_at < 1:
            raise SettingsError(f"renew_at is {self.renew_at}; it is a part of the ttl, between 0 and 1")
        longest = 0.9 * self.claim * (1 + 1e-9)  # what is written as nine tenths may be a little more
        if not (0 < self.heartbeat <= longest and self.claim < self.patience):
            raise SettingsError(
                f"heartbeat {self.heartbeat} s <= 0.9 * claim {self.claim} s, and claim < patience"
                f" {self.patience} s must hold: a waiter that loses a signal would else lose its turn"
            )
        if isinstance(self.limit, bool) or not isinstance(self.limit, int) or self.limit < 1:
            raise SettingsError(f"limit is {self.limit!r}; it must be a whole number, 1 or more")
        if self.max_hold == 0:
            raise SettingsError("max_hold is 0; use None for no limit")
        if not isinstance(self.backoff, Backoff):
            raise SettingsError(f"backoff is {self.backoff!r}; it must be a Backoff")
        if self.sweep_every == 0:
            raise SettingsError("sweep_every is 0; use None to switch sweeping off")
        if self.history not in HISTORY_LEVELS:
            raise SettingsError(f"history is {self.history!r}; it must be one of {HISTORY_LEVELS}")
        if not isinstance(self.enters, bool):
            raise SettingsError(f"enters is {self.enters!r}; it must be True or False")
        self.check_ttl(self.ttl)

    def margin_for(self, ttl: float) -> float:
        """Return how much earlier than the store we stop trusting a lease of *ttl*.

        One per cent covers clocks that run at different rates (an NTP slew is 0.05 %), 20 ms the
        resolution of the store's clock and being scheduled late.
        """
        return self.margin if self.margin is not None else 0.02 + 0.01 * ttl

    def check_ttl(self, ttl: object) -> float:
        """Return *ttl* in seconds if heartbeats, renewal and margin fit into it (R13)."""
        value = seconds(ttl, "ttl")
        if value > MAX_TTL:
            raise SettingsError(f"ttl is {value:g} s; at most {MAX_TTL:g} s are allowed")
        margin = self.margin_for(value)
        if value <= margin:
            raise SettingsError(f"ttl is {value:g} s, and not longer than the margin of {margin:g} s")
        if value * self.renew_at >= value - margin:
            raise SettingsError(
                f"a lease of {value:g} s would be renewed after {value * self.renew_at:g} s, when it is"
                f" not trusted any more (margin {margin:g} s): use a longer ttl, or a smaller renew_at"
            )
        return value


def pause_in_queue(settings: Settings, failures: int, roll: float) -> float:
    """Return how long whoever waits for a lock may wait to ask again after so many *failures*.

    No longer than a heartbeat: once the store is back, a lock that is handed to us waits for its claim
    window and no longer.
    """
    return min(settings.backoff.delay(failures, roll), settings.heartbeat)


def check_at_least(mode: Mode) -> None:
    """Refuse to keep a lock taken that others have at the same time."""
    if mode != "exclusive":
        kind = "a shared lock" if mode == "shared" else "a semaphore"
        raise SettingsError(
            f"at_least is for exclusive locks: {kind} is not taken by one, so that there is nothing which"
            " could stay taken when that one is done"
        )
