"""One uncontended pair on a server: beside the same statements from C and on a bare driver, beside peers."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import cycle
from statistics import median
from typing import Any

from bench import peers
from bench.contest import WORKERS
from bench.many import KEYS, peer_worker, process_worker, rate, tasks_worker
from bench.measure import Loop, costs
from bench.report import Line, per_second
from bench.servers import Place, not_here
from bench.sqlite_pair import async_loop, public_loop
from holdfast import Holdfast

PEERS = ("sqlalchemy-dlock", "tooz", "redis-py", "python-redis-lock")


@dataclass(frozen=True)
class Limit:
    """The same statements from C."""

    name: str
    loop: Loop  # with one client
    rate: Callable[[int, float], float]  # of so many clients, for so many seconds
    other: tuple[str, Loop] | None = None  # another one to tell of, without a target


@dataclass(frozen=True)
class Targets:
    """Parts of the limit, and of a peer's rate."""

    sync: float
    bare: float
    processes: float
    task: float | None = None
    tasks: float | None = None
    dlock: float | None = None


def measure(place: Place, quick: bool, limit: Limit, bare: Callable[[str], Any], to: Targets) -> list[Line]:
    """Let all of them take turns, with one client and with eight."""
    with peers.at_hand(place.database(), *PEERS) as (here, absent):
        # Eight first: they fork, and nobody should have a connection then.
        many = _with_many(place, quick, limit, here)
        one = _with_one(place, quick, limit, bare, here)
    name = place.kind.name
    public, beside = one["public"], f"{limit.name} {per_second(one['limit'])}"
    lines = [
        Line(
            "pair, sync API",
            per_second(public),
            beside,
            public / one["limit"],
            to.sync,
            means="`with locks.hold(key): pass`, with renewal, one client, beside the same two statements"
            " from C, each committed to the disk before it is answered.",
            label=f"{name} pair, sync",
            data={"holdfast": public, limit.name: one["limit"], "bare driver": one["bare"]}
            | {peer: one[peer] for peer in here},
            data_title=f"{name}, one client: pairs a second",
        ),
        Line(
            "… beside a bare loop",
            per_second(public),
            f"{place.kind.driver} {per_second(one['bare'])}",
            public / one["bare"],
            to.bare,
            means="What the library adds: the same two statements in a loop on the same driver.",
            label=f"{name} pair beside a bare loop",
        ),
    ]
    if limit.other:
        lines.append(
            Line(
                "… beside the same shortcut from C",
                per_second(public),
                f"{limit.other[0]} {per_second(one['other'])}",
                public / one["other"],
                means="Our release does not wait for the disk: to lose it only delays the next holder. Here"
                " the limit does not wait either.",
            )
        )
    for peer in PEERS:
        if peer in absent:
            lines.append(not_here(f"… beside {peer}", absent[peer]))
            continue
        lines.append(
            Line(
                f"… beside {peer}",
                per_second(public),
                f"{peer} {per_second(one[peer])}",
                public / one[peer],
                to.dlock if peer == "sqlalchemy-dlock" else None,
                means="A lock that keeps nothing on the disk, and has no token.",
                label=f"{name} pair beside {peer}",
            )
        )
    eight = f"{limit.name}, 8 clients {per_second(many['limit'])}"
    lines += [
        Line(
            "pair, async API, 1 task",
            per_second(one["async"]),
            beside,
            one["async"] / one["limit"],
            to.task,
            means="`async with locks.hold(key): pass`.",
            label=f"{name} pair, async",
        ),
        Line(
            "pairs, 8 processes",
            per_second(many["processes"]),
            eight,
            many["processes"] / many["limit"],
            to.processes,
            means="All together, each with keys of its own.",
            label=f"{name} pairs, 8 processes",
        ),
        Line(
            "pairs, async API, 8 tasks",
            per_second(many["tasks"]),
            eight,
            many["tasks"] / many["limit"],
            to.tasks,
            means="All together, in one process.",
            label=f"{name} pairs, 8 tasks",
        ),
    ]
    if "sqlalchemy-dlock" in many:
        theirs = many["sqlalchemy-dlock"]
        lines.append(
            Line(
                "… 8 processes beside sqlalchemy-dlock",
                per_second(many["processes"]),
                f"sqlalchemy-dlock {per_second(theirs)}",
                many["processes"] / theirs,
                means="All together, each with keys of its own.",
            )
        )
    return lines


def _with_one(
    place: Place, quick: bool, limit: Limit, bare: Callable[[str], Any], here: dict[str, Any]
) -> dict[str, float]:
    keys = cycle([f"key-{number}" for number in range(KEYS)]).__next__
    with ExitStack() as closing:
        alone = bare(place.database())
        closing.callback(alone.close)
        locks = closing.enter_context(Holdfast(place.database()))
        async_pairs, close = async_loop(place.database(), keys)
        closing.callback(close)
        loops: dict[str, Loop] = {
            "limit": limit.loop,
            "bare": _repeat(lambda: alone.pair(keys())),
            "public": public_loop(locks, keys),
            "async": async_pairs,
        }
        if limit.other:
            loops["other"] = limit.other[1]
        for peer, open_ in here.items():
            loops[peer] = _taking(open_(), keys)
        for name in ("bare", "public", "async"):
            loops[name](KEYS)  # every key has its row
        # Long rounds, because a C client starts anew in each.
        rounds, seconds = (3, 0.15) if quick else (5, 0.5)
        return {
            name: cost.rate for name, cost in costs(loops, rounds=rounds, seconds=rounds * seconds).items()
        }


def _repeat(pair: Callable[[], object]) -> Loop:
    def loop(times: int) -> None:
        for _ in range(times):
            pair()

    return loop


def _taking(take: peers.Take, keys: Callable[[], str]) -> Loop:
    return _repeat(lambda: take(keys())())


def _with_many(place: Place, quick: bool, limit: Limit, here: dict[str, Any]) -> dict[str, float]:
    rounds, seconds = (1, 1.0) if quick else (3, 1.5)
    url = place.database()
    contestants: dict[str, Callable[[], float]] = {
        "limit": lambda: limit.rate(WORKERS, seconds),
        "processes": lambda: rate(process_worker, WORKERS, seconds, url),
        "tasks": lambda: rate(tasks_worker, 1, seconds, url),
    }
    if open_ := here.get("sqlalchemy-dlock"):
        contestants["sqlalchemy-dlock"] = lambda: rate(peer_worker, WORKERS, seconds, open_)
    seen: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(rounds):
        for name, contestant in contestants.items():
            seen[name].append(contestant())
    return {name: median(rates) for name, rates in seen.items()}
