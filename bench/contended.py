"""One key, eight processes, on a server. How fast and how fairly does the lock go round, and at what cost?

Beside it in the same run: the smallest hand-over that is as durable, in C; and a lock of the server's own,
which keeps nothing on the disk.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from bench import before, floors, peers, wire
from bench.contest import (
    KEY,
    WORKERS,
    Result,
    clock,
    contest,
    holdfast_worker,
    middle,
    taking_worker,
    waiting_cpu,
    warm_up,
)
from bench.crowd import CLIENTS, crowd
from bench.processes import Ready, together
from bench.report import Line, microseconds, milliseconds, per_second
from bench.servers import POSTGRES, Kind, Place, not_here, on_each
from holdfast import Holdfast

TITLE = "Contended: one key, 8 processes, on a server"
PEERS = ("sqlalchemy-dlock", "tooz", "redis-py", "python-redis-lock")
TIMES = {"tooz": 4.0, "redis-py": 40.0, "python-redis-lock": 0.6}  # hand-overs, as parts of theirs
LEAST = {"PostgreSQL": 0.7, "MariaDB": 0.5}  # of the floor in C
MOST_DELAY = {"PostgreSQL": 1.5}  # times the floor's
WORK = {"PostgreSQL": (4.0, 2.0), "MariaDB": (6.0, 3.0)}  # statements and round trips
FLOOR = "C floor"
IDLE, WAITING = f"{CLIENTS} idle clients", f"{CLIENTS} waiting clients"
MOST_CPU = 5.0  # ms a second; about none


def run(quick: bool) -> list[Line]:
    return on_each(lambda place: measure(place, quick))


def measure(place: Place, quick: bool) -> list[Line]:
    """Let the contests take turns on one server."""
    seconds, rounds = (0.7, 1) if quick else (2.0, 3)
    kind, url = place.kind, place.database()
    raw = "pg_advisory_lock" if kind is POSTGRES else "GET_LOCK"
    smallest = floors.CFloor(kind, place.database())
    with peers.at_hand(url, *PEERS) as (here, absent):
        contests: dict[str, Callable[[], Result]] = {
            "holdfast": lambda: contest(holdfast_worker, seconds, url),
            FLOOR: lambda: contest(smallest.worker, seconds),
            raw: lambda: contest(taking_worker, seconds, lambda: floors.RAW[kind.name](url)),
        }
        if kind is POSTGRES:
            contests[IDLE] = lambda: _among(url, seconds, waiting=False)
            contests[WAITING] = lambda: _among(url, seconds, waiting=True)
        for name, open_ in here.items():
            contests[name] = lambda open_=open_: contest(taking_worker, seconds, open_)
        seen: dict[str, list[Result]] = {name: [] for name in contests}
        for _ in range(rounds):
            for name, one_contest in contests.items():
                seen[name].append(one_contest())
    named = {name: middle(results) for name, results in seen.items()}
    crowds = {name: named.pop(name) for name in (IDLE, WAITING) if name in named}
    trips, statements, used = per_hand_over(kind, url, seconds)
    cpu = waiting_cpu(place.database(), 1.0 if quick else 3.0)
    return [
        *_rates(kind.name, raw, named),
        *_beside_peers(kind.name, named, absent),
        *_crowds(kind.name, named["holdfast"], crowds),
        *_delays(kind.name, named),
        *_fairness(kind.name, named),
        *_work(kind.name, trips, statements, used, cpu),
    ]


def _among(url: str, seconds: float, *, waiting: bool) -> Result:
    with crowd(url, waiting=waiting):
        return contest(holdfast_worker, seconds, url)


def _rates(store: str, raw: str, named: dict[str, Result]) -> list[Line]:
    ours, theirs = named["holdfast"].cross, named[raw].cross
    own = f"{store} contended: cross/s beside {raw}"
    lines = [
        Line(
            f"{store}: cross hand-overs",
            per_second(ours),
            f"{FLOOR} {per_second(named[FLOOR].cross)}",
            ours / named[FLOOR].cross,
            LEAST[store],
            means="Grants that went to another process than the one before, beside the smallest FIFO queue"
            " that is as durable, written in C on the smallest tables.",
            label=f"{store} contended: cross/s",
            data={name: result.cross for name, result in named.items()},
            data_title=f"{store}, 8 processes: hand-overs a second",
        ),
        Line(
            f"… beside {raw}",
            per_second(ours),
            f"{raw} {per_second(theirs)}",
            ours / theirs,
            means="The server's own lock keeps nothing on the disk and knows no lease.",
            label=own,
        ),
    ]
    if store == "MariaDB":
        then = before.ratio(own)
        lines.append(
            Line(
                "… the same, beside before",
                f"{ours / theirs:.2f}×",
                f"before {then:.2f}×",
                ours / theirs / then,
                3.0,
                means=f"How much larger the part of {raw}'s hand-overs is than it was.",
                label=f"{store} contended: cross/s beside before",
            )
        )
    return lines


def _beside_peers(store: str, named: dict[str, Result], absent: dict[str, str]) -> list[Line]:
    ours = named["holdfast"].cross
    lines = []
    for peer in PEERS:
        if peer in absent:
            lines.append(not_here(f"… beside {peer}", absent[peer]))
            continue
        theirs = named[peer].cross
        lines.append(
            Line(
                f"… beside {peer}",
                per_second(ours),
                f"{peer} {per_second(theirs)}",
                ours / theirs if theirs else None,
                TIMES.get(peer),
                means="The same contest with another library's lock.",
                label=f"{store} contended: cross/s beside {peer}",
            )
        )
    return lines


def _crowds(store: str, alone: Result, crowds: dict[str, Result]) -> list[Line]:
    return [
        Line(
            f"… with {name} beside",
            per_second(result.cross),
            f"without {per_second(alone.cross)}",
            result.cross / alone.cross,
            0.8 if name == IDLE else None,
            means="Clients of the same database that have nothing to do with the contest: idle ones have"
            " used a lock before, the others wait for another one.",
            label=f"{store} contended: with {name}",
        )
        for name, result in crowds.items()
    ]


def _delays(store: str, named: dict[str, Result]) -> list[Line]:
    ours, floor = named["holdfast"], named[FLOOR]
    return [
        Line(
            f"{store}: release → entry, {name}",
            microseconds(value),
            f"{FLOOR} {microseconds(least)}",
            value / least,
            most,
            least=False,
            means="From just before the old holder calls release() to just after the new one is in, beside"
            f" the {FLOOR}'s.",
            label=f"{store} contended: release → entry, {name}",
        )
        for name, value, least, most in (
            ("p50", ours.p50, floor.p50, MOST_DELAY.get(store)),
            ("p99", ours.p99, floor.p99, None),
        )
    ]


def _fairness(store: str, named: dict[str, Result]) -> list[Line]:
    ours = named["holdfast"]
    others = {name: result for name, result in named.items() if name != "holdfast"}
    return [
        Line(
            f"{store}: worst wait",
            milliseconds(ours.worst),
            ", ".join(f"{name} {milliseconds(result.worst)}" for name, result in others.items()),
            ours.worst * 1e3,
            25.0,
            least=False,
            unit="ms",
            means="The longest that any process waited from asking to being in. All were connected before.",
            label=f"{store} contended: worst wait",
        ),
        Line(
            f"{store}: max/min share",
            f"{ours.share:.3f}",
            ", ".join(f"{name} {result.share:.2f}" for name, result in others.items()),
            ours.share,
            1.02,
            least=False,
            unit="",
            means="Grants of the luckiest process over those of the unluckiest.",
            label=f"{store} contended: max/min share",
        ),
    ]


def _work(store: str, trips: float, statements: float, used: float, cpu: float) -> list[Line]:
    counted = zip(("statements", "round trips"), (statements, trips), WORK[store], strict=True)
    return [
        *(
            Line(
                f"{store}: {what} per hand-over",
                f"{value:.1f}",
                "",
                value,
                most,
                least=False,
                unit="",
                means="What the eight processes send for each grant, counted on the wire, with BEGIN and"
                " COMMIT and what listeners send. Several statements may share a round trip.",
                label=f"{store} contended: {what} per hand-over",
            )
            for what, value, most in counted
        ),
        Line(
            f"{store}: processor time of the clients per hand-over",
            microseconds(used),
            means="What the eight processes use for each grant, in Python for the most part. The server and"
            " they share two cores.",
        ),
        Line(
            f"{store}: CPU of a process that waits",
            f"{cpu * 1e3:.2f} ms/s",
            "",
            cpu * 1e3,
            MOST_CPU,
            least=False,
            unit="ms/s",
            means="Processor time that a process uses while it does nothing but wait for a held lock. The"
            " target is about none.",
            label=f"{store} contended: CPU of a waiter",
        ),
    ]


def per_hand_over(kind: Kind, url: str, seconds: float) -> tuple[float, float, float]:
    """Return round trips, statements and processor seconds for each grant among eight processes."""
    with wire.counted(kind, url) as (counted_url, count):
        seen = together(_counted_worker, WORKERS, seconds, counted_url)
        trips, statements = count(min(each.start for each in seen), max(each.stop for each in seen))
    entries = sum(each.entries for each in seen)
    return trips / entries, statements / entries, sum(each.used for each in seen) / entries


class _Counted(NamedTuple):
    """How often a process was in, from when and until when, and the processor seconds that it has used."""

    entries: int
    start: int
    stop: int
    used: float


def _counted_worker(index: int, ready: Ready, url: str) -> _Counted:
    entries = 0
    with Holdfast(url) as locks:
        warm_up(locks, f"warm-up-{index}")
        stop = ready()
        started, before = clock(), time.process_time()
        while clock() < stop:
            with locks.hold(KEY):
                entries += 1
        return _Counted(entries, started, clock(), time.process_time() - before)
