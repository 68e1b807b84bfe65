"""One key, eight processes that ask a lock server. How fast and how fairly does the lock go round?

A hand-over is: one process posts its release, the server commits it and signals the next in line on the
stream that it listens to, and that one enters by what the signal says. On PostgreSQL there are two servers,
and half of the processes ask each: what one is told, the other has to hear from the database.
"""

from __future__ import annotations

from contextlib import ExitStack

from bench import contest, serving
from bench.contest import Entry, Result, middle, taking_worker
from bench.measure import folder
from bench.processes import Ready
from bench.report import Line, microseconds, milliseconds, per_second
from bench.servers import LEFT_OUT, POSTGRES, not_here, running

TITLE = "Lock server: one key, 8 processes"
MOST = 1.0  # times etcd's delay, for half of them


def run(quick: bool) -> list[Line]:
    seconds, rounds = (1.0, 1) if quick else (2.0, 3)
    absent = {}
    with ExitStack() as stack:
        place = stack.enter_context(folder())
        one = stack.enter_context(serving.lock_server(f"sqlite:///{place}/locks.db", place))
        contests = {"SQLite, 1 server": lambda: contest.contest(worker, seconds, [one.url])}
        if missing := LEFT_OUT if quick else POSTGRES.missing():
            absent[POSTGRES.name] = missing
        else:
            database = stack.enter_context(running(POSTGRES)).database()
            two = [stack.enter_context(serving.lock_server(database, place)).url for _ in range(2)]
            contests["PostgreSQL, 2 servers"] = lambda: contest.contest(worker, seconds, two)
        if etcd := stack.enter_context(serving.etcd(place)):
            contests["etcd"] = lambda: contest.contest(
                taking_worker, seconds, lambda: serving.etcd_lock(etcd[0])
            )
        else:
            absent["etcd"] = serving.NO_ETCD
        seen: dict[str, list[Result]] = {name: [] for name in contests}
        for _ in range(rounds):
            for name, one_contest in contests.items():
                seen[name].append(one_contest())
    named = {name: middle(results) for name, results in seen.items()}
    theirs = named.pop("etcd", None)
    lines = [line for name, result in named.items() for line in _tell(name, result, theirs)]
    return lines + [not_here(name, why) for name, why in absent.items()]


def worker(index: int, ready: Ready, urls: list[str]) -> list[Entry]:
    return contest.holdfast_worker(index, ready, urls[index % len(urls)])


def _tell(name: str, ours: Result, theirs: Result | None) -> list[Line]:
    def beside(value: str) -> str:
        return f"etcd {value}" if theirs else ""

    return [
        Line(
            f"{name}: release → entry, p50",
            microseconds(ours.p50),
            beside(microseconds(theirs.p50) if theirs else ""),
            ours.p50 / theirs.p50 if theirs else None,
            MOST if "1 server" in name else None,
            least=False,
            means="From just before the old holder calls release() to just after the new one is in. Beside"
            " etcd's lock through its gateway, where who waits has a request under way.",
            label=f"server hand-over, {name}: p50",
        ),
        Line(
            f"{name}: … p99",
            microseconds(ours.p99),
            beside(microseconds(theirs.p99) if theirs else ""),
            means="One hand-over in a hundred takes longer than this.",
            label=f"server hand-over, {name}: p99",
        ),
        Line(
            f"{name}: cross hand-overs",
            per_second(ours.cross),
            beside(per_second(theirs.cross) if theirs else ""),
            ours.cross / theirs.cross if theirs else None,
            means="Grants that went to another process than the one before.",
            label=f"server hand-over, {name}: cross/s",
            data={"holdfast": ours.cross, "etcd": theirs.cross} if theirs else {},
            data_title=f"Hand-overs a second through a server, 8 processes ({name})",
        ),
        Line(
            f"{name}: worst wait; max/min share",
            f"{milliseconds(ours.worst)}; {ours.share:.2f}",
            beside(f"{milliseconds(theirs.worst)}; {theirs.share:.2f}" if theirs else ""),
            means="The longest that any process waited from asking to being in; and the grants of the"
            " luckiest process over those of the unluckiest.",
        ),
    ]
