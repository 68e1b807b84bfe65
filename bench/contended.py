"""One key, eight processes, on a server. How fast and how fairly does the lock go round, and at what cost?

The floors are measured in the same run: a lock of the server's own, which keeps nothing on the disk; and for
PostgreSQL an update that commits to the disk and wakes one listener. They are what a program does with its
driver. The targets are about these. Through libpq, as our store does it, they are lower, and told beside.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

from bench import floors, peers, servers
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
from bench.processes import Ready, together
from bench.report import Line, microseconds, milliseconds, per_second
from bench.servers import POSTGRES, Kind, Place, not_here, on_each
from holdfast import Holdfast

TITLE = "Contended: one key, 8 processes, on a server"
PEERS = ("sqlalchemy-dlock", "tooz", "redis-py", "python-redis-lock")
TIMES = {"tooz": 4.0, "redis-py": 40.0, "python-redis-lock": 0.6}  # hand-overs, as parts of theirs
LIBPQ = "advisory lock through libpq"
MOST_CPU = 5.0  # ms a second; about none


@dataclass(frozen=True)
class Floor:
    """What a hand-over's delay is measured by."""

    name: str
    p50: float
    p99: float
    times50: float | None = None
    times99: float | None = None


def run(quick: bool) -> list[Line]:
    return on_each(lambda place: measure(place, quick))


def measure(place: Place, quick: bool) -> list[Line]:
    """Let the contests take turns on one server."""
    seconds, rounds = (0.7, 1) if quick else (2.0, 3)
    url = place.database()
    raw = "pg_advisory_lock" if place.kind is POSTGRES else "GET_LOCK"
    durable: list[tuple[float, float]] = []
    direct: list[tuple[float, float]] = []
    with peers.at_hand(url, *PEERS) as (here, absent):
        contests: dict[str, Callable[[], Result]] = {
            "holdfast": lambda: contest(holdfast_worker, seconds, url),
            raw: lambda: contest(taking_worker, seconds, lambda: floors.RAW[place.kind.name](url)),
        }
        if place.kind is POSTGRES:
            contests[LIBPQ] = lambda: contest(taking_worker, seconds, lambda: floors.advisory_lock_libpq(url))
        for name, open_ in here.items():
            contests[name] = lambda open_=open_: contest(taking_worker, seconds, open_)
        seen: dict[str, list[Result]] = {name: [] for name in contests}
        for _ in range(rounds):
            for name, one_contest in contests.items():
                seen[name].append(one_contest())
            if place.kind is POSTGRES:
                durable.append(floors.update_and_notify(url, seconds / 3))
                direct.append(floors.update_and_notify(url, seconds / 3, direct=True))
    named = {name: middle(results) for name, results in seen.items()}
    theirs = named[raw]
    lowest = [Floor(raw, theirs.p50, theirs.p99, 4.0, 4.0)]
    if durable:
        lowest = [
            Floor("durable UPDATE + NOTIFY", *_medians(durable), 1.5, 2.0),
            Floor("the same through libpq", *_medians(direct)),
        ]
    trips, statements = per_hand_over(place.kind, url, seconds / 2)
    cpu = waiting_cpu(place.database(), 1.0 if quick else 3.0)
    return [
        *_rates(place.kind.name, raw, named, absent),
        *(line for floor in lowest for line in _delays(place.kind.name, floor, named["holdfast"])),
        *_fairness(place.kind.name, named),
        *_work(place.kind.name, trips, statements, cpu),
    ]


def _rates(store: str, raw: str, named: dict[str, Result], absent: dict[str, str]) -> list[Line]:
    ours = named["holdfast"]
    others = [f"{name} {per_second(result.cross)}" for name, result in named.items() if name != "holdfast"]
    shown = {name: result.cross for name, result in named.items() if name != LIBPQ}
    lines = [
        Line(
            f"{store}: cross hand-overs",
            per_second(ours.cross),
            ", ".join(others),
            ours.cross / named[raw].cross,
            0.35,
            means="Grants that went to another process than the one before, beside those of the server's own"
            " lock, which keeps nothing on the disk and knows no lease.",
            label=f"{store} contended: cross/s",
            data=shown,
            data_title=f"{store}, 8 processes: hand-overs a second",
        )
    ]
    if LIBPQ in named:
        lines.append(
            Line(
                f"… beside {LIBPQ}",
                per_second(ours.cross),
                f"{LIBPQ} {per_second(named[LIBPQ].cross)}",
                ours.cross / named[LIBPQ].cross,
                means="The same lock of the server's, without the driver's own work.",
            )
        )
    for peer, least in TIMES.items():
        if peer in absent:
            lines.append(not_here(f"… beside {peer}", absent[peer]))
            continue
        lines.append(
            Line(
                f"… beside {peer}",
                per_second(ours.cross),
                f"{peer} {per_second(named[peer].cross)}",
                ours.cross / named[peer].cross if named[peer].cross else None,
                least,
                means="The same contest with another library's lock.",
                label=f"{store} contended: cross/s beside {peer}",
            )
        )
    return lines


def _medians(pairs: list[tuple[float, float]]) -> tuple[float, float]:
    return median(p50 for p50, _ in pairs), median(p99 for _, p99 in pairs)


def _delays(store: str, floor: Floor, ours: Result) -> list[Line]:
    return [
        Line(
            f"{store}: release → entry, {name}" if most else f"… {name}, {floor.name}",
            microseconds(value),
            f"{floor.name} {microseconds(beside)}",
            value / beside,
            most,
            least=False,
            means=f"From just before the old holder calls release() to just after the new one is in, beside"
            f" {floor.name}.",
            label=f"{store} contended: release → entry, {name}",
        )
        for name, value, beside, most in (
            ("p50", ours.p50, floor.p50, floor.times50),
            ("p99", ours.p99, floor.p99, floor.times99),
        )
    ]


def _fairness(store: str, named: dict[str, Result]) -> list[Line]:
    ours = named["holdfast"]
    others = {name: result for name, result in named.items() if name not in ("holdfast", LIBPQ)}
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


def _work(store: str, trips: float, statements: float, cpu: float) -> list[Line]:
    return [
        Line(
            f"{store}: statements per hand-over",
            f"{statements:.1f}",
            f"{trips:.1f} round trips",
            statements,
            4.0,
            least=False,
            unit="",
            means="SQL statements that the eight processes send for each grant, BEGIN and COMMIT and the"
            " listeners' included; several may share a round trip.",
            label=f"{store} contended: statements per hand-over",
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


# What a hand-over costs.


def per_hand_over(kind: Kind, url: str, seconds: float) -> tuple[float, float]:
    """Return round trips and statements for each grant among eight processes."""
    seen = together(_counting_worker, WORKERS, seconds, kind, url)
    entries, trips, statements = (sum(column) for column in zip(*seen, strict=True))
    return trips / entries, statements / entries


def _counting_worker(index: int, ready: Ready, kind: Kind, url: str) -> tuple[int, int, int]:
    """Take part, and count. In a run of its own, because counting takes time."""
    entries = 0
    with servers.count_trips(kind) as trips, Holdfast(url) as locks:
        warm_up(locks, f"warm-up-{index}")
        stop = ready()
        trips.clear()
        while clock() < stop:
            with locks.hold(KEY):
                entries += 1
        counted = list(trips)
    return entries, len(counted), sum(counted)
