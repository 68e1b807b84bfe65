"""The script of the demo: three acts, as a generator that yields what has to be true to go on."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator, Mapping

from examples.demo.cast import NAMES, Cast
from examples.demo.record import Record
from examples.demo.worker import TTL

Condition = Callable[[], bool]
Script = Iterator[Condition]

ACTS = 3
ROUNDS = 3
KILLED, PAUSED = "cleo", "dan"
ALIVE = tuple(name for name in NAMES if name != KILLED)

# Not all the same, so that it can be seen that the order does not depend on it.
WORK = {"ada": 0.30, "ben": 0.20, "cleo": 0.35, "dan": 0.25, "eve": 0.30}
SHORT = 0.25
LONG = 30.0  # nobody gets there: the holder is struck before


def perform(record: Record, cast: Cast) -> Script:
    """Play all acts."""
    record.planned = len(NAMES) * ROUNDS + len(NAMES) + len(ALIVE)
    yield lambda: all(state == "idle" for state in record.states.values())
    yield from _in_turn(record, cast)
    yield from _killed(record, cast)
    yield from _paused(record, cast)
    yield _after(0.6)


def _in_turn(record: Record, cast: Cast) -> Script:
    record.begin_act(
        "first come, first served",
        f"{len(NAMES)} processes want the lock {ROUNDS} times each. A release hands it to the next.",
    )
    for name in NAMES:
        cast.order(name, [WORK[name]] * ROUNDS)
        yield from _asked(record, name)
    yield lambda: len(record.completed()) == len(NAMES) * ROUNDS and _idle(record, NAMES)


def _killed(record: Record, cast: Cast) -> Script:
    record.begin_act(
        "the holder is killed",
        f"Nobody releases {KILLED}'s lock. Its lease ends after {TTL:g} s; the next takes over.",
    )
    yield from _hold_before_others(record, cast, KILLED, LONG, dict.fromkeys(ALIVE, SHORT))
    record.struck(KILLED, "killed", cast.signal(KILLED, signal.SIGKILL))
    done = len(record.completed()) + len(ALIVE)
    yield lambda: len(record.completed()) == done and _idle(record, ALIVE)


def _paused(record: Record, cast: Cast) -> Script:
    others = tuple(name for name in ALIVE if name != PAUSED)
    record.begin_act(
        "the holder is paused, and comes back too late",
        f"{PAUSED} sleeps through the end of its lease, and wakes up when it is another's.",
    )
    works = {**dict.fromkeys(others, SHORT), others[0]: 1.0}  # it shall still hold when the other is back
    yield from _hold_before_others(record, cast, PAUSED, 2.4, works)
    record.struck(PAUSED, "paused", cast.signal(PAUSED, signal.SIGSTOP))
    turn = record.last(PAUSED)
    yield lambda: turn.lapsed is not None
    yield _after(0.4)
    cast.signal(PAUSED, signal.SIGCONT)
    record.say(PAUSED, "wakes up (SIGCONT)")
    done = len(record.completed()) + len(others)
    yield lambda: len(record.refusals) == 2 and len(record.completed()) == done and _idle(record, others)


def _hold_before_others(
    record: Record, cast: Cast, first: str, seconds: float, others: Mapping[str, float]
) -> Script:
    """Let *first* hold the lock and all *others* queue behind it, in their order."""
    yield _after(0.3)
    cast.order(first, [seconds])
    yield lambda: record.states[first] == "holding"
    for name, work in others.items():
        cast.order(name, [work])
        yield from _asked(record, name)
    yield _after(0.4)


def _asked(record: Record, name: str) -> Script:
    yield lambda: record.states[name] != "idle"


def _idle(record: Record, names: tuple[str, ...]) -> bool:
    return all(record.states[name] == "idle" for name in names)


def _after(seconds: float) -> Condition:
    end = time.monotonic() + seconds
    return lambda: time.monotonic() >= end
