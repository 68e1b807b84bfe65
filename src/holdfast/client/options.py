"""What a caller may say about a lock, the checks that need no client, and what was asked for in the end."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, TypedDict

from holdfast.client.place import Place
from holdfast.core.backoff import Backoff
from holdfast.core.data import data
from holdfast.core.family import LONGEST, PLAIN, Mode, Terms
from holdfast.core.requests import Acquire
from holdfast.core.settings import Seconds, check_at_least, seconds
from holdfast.errors import LeaseLost, SettingsError

MOST = 2**31 - 1  # of anything that is counted

# How long work that has failed in a block is left alone: 1, 2, 4 … 60 s, with some jitter.
RETRY = Backoff(first=1.0, most=60.0)

OnLost = Callable[[LeaseLost], None]
Retry = Backoff | Seconds | None
Works = Mapping[str, Any] | Iterable[str | tuple[str, Any]]


class BasicOptions(TypedDict, total=False):
    """How a lock of any kind may be taken. See `Holdfast.hold`."""

    ttl: Seconds | None
    owner: str | None
    limit: int | None
    max_hold: Seconds | None
    renew: bool
    on_lost: OnLost | None
    lock_delay: Seconds
    at_least: Seconds


class LeaseOptions(BasicOptions, total=False):
    """How a lock may be taken. See `Holdfast.hold`."""

    mode: Literal["exclusive", "shared"]
    permits: int | None
    take: int


class HoldOptions(LeaseOptions, total=False):
    """How a lock may be taken and waited for. See `Holdfast.hold`."""

    timeout: Seconds | None


class WaitOptions(BasicOptions, total=False):
    """How a semaphore or an operation may be taken and waited for. See `Holdfast.hold`."""

    timeout: Seconds | None


@data
class Wish:
    """What a caller asked for: the request, and how to treat the lease."""

    request: Acquire
    timeout: float | None
    max_hold: float | None
    renew: bool
    on_lost: OnLost | None
    place: Place  # where it was asked for
    named: bool  # an owner= was given: what is inside its block is not that owner by itself
    unless: Callable[[], bool] | None = None  # give up waiting, with `Stopped`, once this is so


def check_options(options: BasicOptions, kind: type[Any] = HoldOptions) -> None:
    """Refuse a misspelt option where it is written, not where the lock is taken."""
    if options and (unknown := options.keys() - kind.__optional_keys__):
        if kind is LeaseOptions and "timeout" in unknown:
            raise TypeError("try_acquire() tries once and takes no timeout; acquire() waits")
        known = ", ".join(sorted(kind.__optional_keys__))
        raise TypeError(f"unknown option {min(unknown)!r}; there are {known}")


def terms_of(
    mode: Mode,
    permits: int | None,
    take: int,
    lock_delay: Seconds,
    at_least: Seconds,
    operation: bool,
    max_attempts: int | None,
) -> Terms:
    """Check on what terms a caller wants a lock."""
    plain = mode == "exclusive" and permits is None and take == 1 and not operation
    if plain and not lock_delay and not at_least:
        return PLAIN
    if mode not in ("exclusive", "shared"):
        raise SettingsError(f"mode is {mode!r}; it must be 'exclusive' or 'shared'")
    delay, least = lasting(lock_delay, "lock_delay"), lasting(at_least, "at_least")
    if least:
        check_at_least(mode if permits is None else "permits")
    most = 0 if max_attempts is None else whole(max_attempts, "max_attempts")
    if permits is None:
        if take != 1:
            raise SettingsError("take= is for semaphores: say permits= too, or use semaphore()")
        return Terms(mode=mode, delay=delay, operation=operation, max_attempts=most, at_least=least)
    if permits != 0:
        whole(permits, "permits")
    whole(take, "take")
    if mode != "exclusive":
        raise SettingsError("a lock has a mode or permits, not both")
    if permits and take > permits:
        raise SettingsError(f"take is {take}, and there are only {permits} permits")
    return Terms(mode="permits", take=take, permits=permits, delay=delay)


def lasting(value: Seconds, name: str) -> float:
    """Return a time in seconds for which a store is to remember something."""
    length = seconds(value, name)
    if length > LONGEST:
        raise SettingsError(f"{name} is {length:g} s; at most {LONGEST:g} s are allowed")
    return length


def whole(value: object, name: str) -> int:
    """Return *value* if it can count something."""
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST:
        raise SettingsError(f"{name} is {value!r}; it must be a whole number from 1 to {MOST}")
    return value
