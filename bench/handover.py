"""One key, eight processes, one SQLite file. How fast and how fairly does the lock go round?"""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import filelock
import portalocker

from bench import bare, contest
from bench.contest import KEY, WORKERS, Entry, Result, clock, middle, waiting_cpu
from bench.measure import folder
from bench.processes import Ready, mixed, together
from bench.report import Line, microseconds, milliseconds, per_second
from holdfast import Holdfast

TITLE = "Hand-over: one key, 8 processes"


def run(quick: bool) -> list[Line]:
    seconds = 1.0 if quick else 3.0
    rounds = 1 if quick else 3
    seen: dict[str, list[Result]] = {"holdfast": [], "filelock": [], "portalocker": []}
    floors = []
    for _ in range(rounds):
        seen["holdfast"].append(in_file(holdfast_worker, seconds))
        seen["filelock"].append(in_file(filelock_worker, seconds))
        seen["portalocker"].append(in_file(portalocker_worker, seconds))
        floors.append(floor(0.5))
    named = {name: middle(results) for name, results in seen.items()}
    ours, theirs, others = named.values()
    through = median(floors)
    requests, transactions, statements = per_hand_over(0.5 if quick else 1.0)
    with folder() as place:
        cpu = waiting_cpu(bare.create(place / "locks.db"), 1.0 if quick else 3.0)
    return [
        Line(
            "cross hand-overs",
            per_second(ours.cross),
            f"filelock {per_second(theirs.cross)}, portalocker {per_second(others.cross)}",
            ours.cross / theirs.cross,
            16.0,
            means="Grants that went to another process than the one before, beside filelock's; 20 × is the"
            " moonshot. Where a few pass each other by luck while all others sleep, this is high too: see"
            " worst wait and share.",
            label="SQLite hand-over: cross/s",
            data={name: result.cross for name, result in named.items()},
            data_title="SQLite, 8 processes: hand-overs a second",
        ),
        Line(
            "release → entry, p50",
            microseconds(ours.p50),
            f"UPDATE, datagram, UPDATE {microseconds(through)}",
            ours.p50 / through,
            6.0,
            least=False,
            means="From just before the old holder calls release() to just after the new one is in, beside"
            " what any queue in the file must do: one update commits, a datagram wakes the winner, the"
            " winner's update commits; two processes, bare sqlite3, nobody else.",
            label="SQLite hand-over: release → entry, p50",
        ),
        Line(
            "release → entry, p99",
            microseconds(ours.p99),
            f"filelock {microseconds(theirs.p99)}, portalocker {microseconds(others.p99)}",
            means="One hand-over in a hundred takes longer than this.",
            label="SQLite hand-over: release → entry, p99",
        ),
        Line(
            "worst wait",
            milliseconds(ours.worst),
            f"filelock {milliseconds(theirs.worst)}, portalocker {milliseconds(others.worst)}",
            ours.worst * 1e3,
            25.0,
            least=False,
            unit="ms",
            means="The longest that any process waited from asking to being in.",
            label="SQLite hand-over: worst wait",
            data={name: result.worst * 1e3 for name, result in named.items()},
            data_title="… and the longest wait of any of them, ms",
        ),
        Line(
            "max/min share",
            f"{ours.share:.3f}",
            f"filelock {theirs.share:.2f}, portalocker {others.share:.2f}",
            ours.share,
            1.05,
            least=False,
            unit="",
            means="Grants of the luckiest process over those of the unluckiest.",
            label="SQLite hand-over: max/min share",
            data={name: result.share for name, result in named.items()},
            data_title="… and the luckiest's grants over the unluckiest's",
        ),
        Line(
            "work per hand-over",
            f"{requests:.1f} requests",
            f"{transactions:.1f} transactions, {statements:.1f} statements",
            means="What the store is asked, and what SQLite is asked for it, refused attempts included.",
            label="SQLite hand-over: work",
        ),
        Line(
            "CPU of a process that waits",
            f"{cpu * 1e3:.2f} ms/s",
            "",
            means="Processor time that a process uses while it does nothing but wait for a held lock.",
        ),
    ]


def in_file(worker: Callable[..., list[Entry]], seconds: float) -> Result:
    """Let the workers take turns at a file for a while."""
    with folder() as place:
        file = place / "locks.db"
        if worker is holdfast_worker:
            bare.create(file)
        return contest.contest(worker, seconds, file)


def holdfast_worker(index: int, ready: Ready, file: Path) -> list[Entry]:
    return contest.holdfast_worker(index, ready, f"sqlite:///{file}")


def filelock_worker(index: int, ready: Ready, file: Path) -> list[Entry]:  # noqa: ARG001
    lock = filelock.FileLock(file.with_suffix(".lock"))
    entries = []
    stop = ready()
    while (asked := clock()) < stop:
        lock.acquire()
        entered = clock()
        leaving = clock()
        lock.release()
        entries.append((0, asked, entered, leaving))
    return entries


def portalocker_worker(index: int, ready: Ready, file: Path) -> list[Entry]:  # noqa: ARG001
    lock = portalocker.Lock(file.with_suffix(".lock"))
    entries = []
    stop = ready()
    while (asked := clock()) < stop:
        try:
            lock.acquire()
        except portalocker.LockException:  # its timeout is over: it waited in vain
            entries.append((0, asked, clock(), clock()))
            continue
        entered = clock()
        leaving = clock()
        lock.release()
        entries.append((0, asked, entered, leaving))
    return entries


# The floor of a hand-over.


def floor(seconds: float) -> float:
    """Return the median time of: an update commits, a datagram arrives, another update commits."""
    with folder() as place:
        file = place / "floor.db"
        with bare.connect(file) as connection:
            connection.execute("CREATE TABLE lock (id INTEGER PRIMARY KEY, token INTEGER, owner INTEGER)")
            connection.execute("INSERT INTO lock VALUES (1, 1, 0)")
        connection.close()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        with ours, theirs:
            seen = mixed([(_hand_on, (0, ours, file)), (_hand_on, (1, theirs, file))], seconds)
    return median(gap for gaps in seen for gap in gaps) / 1e9


def _hand_on(index: int, ready: Ready, line: socket.socket, file: Path) -> list[int]:
    update = bare.connect(file).execute
    gaps = []
    stop = ready()
    if index == 0:
        line.send(json.dumps(clock()).encode())
    while message := line.recv(64):
        update("UPDATE lock SET owner = ? WHERE id = 1", (index,))
        entered = clock()
        gaps.append(entered - json.loads(message))
        if entered >= stop:
            line.send(b"")
            break
        leaving = clock()
        update("UPDATE lock SET token = token + 1 WHERE id = 1")
        line.send(json.dumps(leaving).encode())
    return gaps


# What a hand-over costs the store, and what waiting costs.


def counting_worker(index: int, ready: Ready, file: Path) -> dict[str, int]:
    """Take part, and count. In a run of its own, because counting takes time."""
    seen = {"entries": 0, "requests": 0, "transactions": 0, "statements": 0}
    inside = False

    def trace(statement: str) -> None:
        nonlocal inside
        seen["statements"] += 1
        word = statement.split(None, 1)[0].upper()
        if word == "BEGIN":
            inside = True
        elif word in ("COMMIT", "ROLLBACK"):
            inside = False
            seen["transactions"] += 1
        elif not inside:
            seen["transactions"] += 1

    with Holdfast(f"sqlite:///{file}") as locks:
        with locks.hold(f"warm-up-{index}"):
            pass
        store = locks._engine.store
        execute = store.execute

        def counted(request: Any) -> Any:
            seen["requests"] += 1
            return execute(request)

        store.execute = counted
        store.sessions.database._connection.set_trace_callback(trace)
        stop = ready()
        while clock() < stop:
            with locks.hold(KEY):
                seen["entries"] += 1
    return seen


def per_hand_over(seconds: float) -> tuple[float, float, float]:
    """Return requests, transactions and statements for each grant among eight processes."""
    with folder() as place:
        file = place / "locks.db"
        bare.create(file)
        seen = together(counting_worker, WORKERS, seconds, file)
    entries = sum(each["entries"] for each in seen)
    counted = ("requests", "transactions", "statements")
    return tuple(sum(each[name] for each in seen) / entries for name in counted)
