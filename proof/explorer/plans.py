"""Plans that can be copied.

A generator cannot be copied, but it can be run again: a plan does nothing but answer what it is told, and all
it reads of the world is a clock. So a `Play` remembers what its plan was told and when, and a new plan is
told it again whenever it goes on. What tells two plans apart is where they stand, not how they came there:
`Place` is read from the frames of the generator.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from holdfast.core.driver import Drive
from holdfast.core.plans import Clock, Plan, Wait
from holdfast.core.requests import Acquire, Release, Request, Withdraw

Maker = Callable[[Clock], Plan[Any]]

# The names of all locals of the plans, and what they mean for what the plan will do. A name that is not here
# stops the exploration: a new one may be something that states must not be merged without.
_COUNTS = frozenset(
    {"failures", "successors", "late", "unanswered", "unknown", "retire", "retired", "timeout"}
)
_REQUESTS = frozenset({"request", "withdraw"})
_INSTANTS = frozenset({"deadline"})
_ASKED = "asked"  # read again only when an answer comes: meaningless while the plan waits
_IGNORED = frozenset(
    {
        # the same for all plans of an exploration, or told by the request
        *("settings", "clock", "roll", "margin", "first_attempt", "outcome", "enters"),
        # only for the text of an error
        "started",
        # only for whoever abandoned it
        "abandoned",
        # written anew before they are read again, wherever a plan can stand; a `Wait` has its own `until`
        *("answer", "trusted_until", "again_at", "watch", "until", "signal", "error", "handed"),
        # told by the request: it is the same attempt under the same token
        "grant",
    }
)


class Place(NamedTuple):
    """Where a plan stands."""

    frames: tuple[Any, ...]  # of the plan and all it delegates to: where, and all locals but instants
    instants: tuple[int, ...]  # that it waits for, in seconds of the client's clock
    asked: int  # when it asked what it has no answer to yet; -1 if it does not ask


class Play(NamedTuple):
    """A plan on its way, as a value."""

    make: Maker
    past: tuple[tuple[float, Any], ...]  # when it was told what; an error class is thrown
    step: Request[Any] | Wait  # what it wants now
    place: Place


class PlayEnded(NamedTuple):
    """A plan at its end."""

    result: Any
    error: Exception | None


def begin(make: Maker, now: float) -> Play | PlayEnded:
    """Take the first step of a plan."""
    return _tell(make, (), now, None)


def go_on(play: Play, now: float, told: Any) -> Play | PlayEnded:
    """Tell a plan what came of its last wish: an answer, a signal, None for the time, or an error class."""
    return _tell(play.make, play.past, now, told)


def _tell(make: Maker, past: tuple[tuple[float, Any], ...], now: float, told: Any) -> Play | PlayEnded:
    at = [now]
    drive = Drive(make(lambda: at[0]))
    for at[0], before in past:
        _give(drive, before)
    at[0] = now
    try:
        if not _give(drive, told):
            return PlayEnded(drive.result, None)
    except Exception as error:  # noqa: BLE001 - whatever it raises is for the client to judge
        return PlayEnded(None, error)
    return Play(make, (*past, (now, told)), drive.step, _place(drive.plan, drive.step))


def _give(drive: Drive[Any], told: Any) -> bool:
    # A new error each time: one that is raised again and again would grow a traceback.
    return drive.fail(told()) if isinstance(told, type) else drive.tell(told)


def _place(plan: Any, step: Request[Any] | Wait) -> Place:
    frames: list[Any] = []
    instants: list[int] = []
    asked = -1
    while plan is not None:
        frame = plan.gi_frame
        seen: list[Any] = [plan.gi_code.co_name, frame.f_lasti]
        for name, value in frame.f_locals.items():
            if name in _IGNORED:
                continue
            if name == _ASKED:
                asked = -1 if isinstance(step, Wait) else seconds(value)
            elif name in _REQUESTS:
                seen.append((name, *_asked_for(value)))
            elif name in _COUNTS:
                seen.append((name, value))
            elif name == "queued":  # what it says is only for the text of an error
                seen.append((name, value is not None))
            elif name in _INSTANTS:
                seen.append(name)
                instants.append(seconds(value))
            else:
                raise AssertionError(f"what does {name!r} mean for what {plan.gi_code.co_name} will do?")
        frames.append(tuple(seen))
        plan = plan.gi_yieldfrom
    if isinstance(step, Wait):
        instants.append(seconds(step.until))
    return Place(tuple(frames), tuple(instants), asked)


def _asked_for(request: Any) -> tuple[Any, ...]:
    """Return what one request of a plan has that another of its kind may not have."""
    if isinstance(request, Acquire):
        return request.attempt[2:], request.wait
    if isinstance(request, Release):
        return request.attempt[2:], request.retire
    assert isinstance(request, Withdraw), request
    return (request.attempt[2:],)


NEVER = 10**9


def seconds(instant: float | None) -> int:
    """Return the whole second at which a client notices that an instant has come."""
    if instant is None or instant == float("inf"):
        return NEVER
    return -int(-instant // 1)
