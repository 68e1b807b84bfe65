"""One run: a store, processes that use it, faults, and what both checkers say of the history."""

from __future__ import annotations

import platform
import shutil
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from holdfast import Holdfast, HoldfastError, __version__
from holdfast.clock import boot_time
from tests.faults.proof import linear, order, records
from tests.faults.proof.fleet import Fleet
from tests.faults.proof.nemesis import Nemesis
from tests.faults.proof.records import KINDS, Clock, History, Run, Verdict, Violation
from tests.faults.proof.report import write_report
from tests.faults.proof.stage import Stage, StoreName
from tests.servers.binaries import version

Say = Callable[[str], None]

LOOK_EVERY = 0.5  # seconds between two looks at the store's clock
PROGRESS_EVERY = 15.0
STUCK = 60.0  # seconds in which every lock can be taken again, once all faults are over
PROGRAMS = {"postgres": "postgres", "mariadb": "mariadbd"}


@dataclass(frozen=True)
class Goals:
    """What a run has to show, beside that nothing is violated: a calm run proves nothing."""

    seconds: float  # a run that is shorter has to show as much less
    calls: int
    takeovers: int
    classes: int
    bare_lost: int

    def of(self, seconds: float) -> dict[str, int]:
        """Return what a run of so many *seconds* has to show."""
        part = min(seconds / self.seconds, 1.0)
        whole = {"calls": self.calls, "takeovers": self.takeovers}
        some = {"classes": self.classes, "bare_lost": self.bare_lost} if part == 1.0 else {}
        return {name: int(part * number) for name, number in whole.items()} | some


FULL = Goals(seconds=840.0, calls=100_000, takeovers=1_000, classes=12, bare_lost=1)
QUICK = Goals(seconds=40.0, calls=1_000, takeovers=10, classes=8, bare_lost=0)


@dataclass
class Result:
    """What came of a run."""

    history: History
    verdicts: list[Verdict]
    page: Path
    missed: list[str] = field(default_factory=list)  # goals

    @property
    def held(self) -> bool:
        """Whether nothing was violated, all was decided, and the goals were met."""
        return not self.missed and not any(v.violations or v.undecided for v in self.verdicts)


def run(store: StoreName, seed: int, seconds: float, folder: Path, *, quick: bool, say: Say) -> Result:
    """Run traffic and faults on *store* for so many *seconds*, check the history, and write the page."""
    goals = QUICK if quick else FULL
    if (folder / records.CALLS).exists():  # of an earlier run with this seed, which would be taken for ours
        shutil.rmtree(folder)
    history = History(
        Run(
            store,
            seed,
            began=boot_time(),
            seconds=seconds,
            settings={"quick": quick},
            versions=_versions(store),
            replay=replay_command(store, seed, seconds, quick=quick),
        )
    )
    with Stage(store, folder, seed=seed, quick=quick) as stage:
        stage.install()
        fleet = Fleet(stage, seed=seed, folder=folder, quick=quick)
        nemesis = Nemesis(stage, fleet, seed=seed, quick=quick)
        with _looking_at_clocks(stage, history.clocks), _progress(fleet, nemesis, say):
            try:
                fleet.start()
                history.faults = nemesis.run(seconds)
            finally:
                fleet.stop()
            stuck = _stuck(stage)
        history.run.ended = boot_time()
        history.run.settings |= fleet.settings
        history.audit = stage.read_audit()
        history.resources = stage.read_resources()
    records.write(folder, history)
    history = records.read(folder)
    say(f"{store}: checking {len(history.calls):,} calls, {len(history.asks):,} requests")
    verdicts = [order.check(history), linear.check(history)]
    verdicts[0].violations += [*nemesis.violations, *stuck]
    missed = _missed(goals, history, verdicts[0])
    page = folder / "report.html"
    write_report(history, verdicts, page, missed=missed)
    return Result(history, verdicts, page, missed)


def replay_command(store: str, seed: int, seconds: float, *, quick: bool) -> str:
    """Return what to type to have the same schedule of traffic and faults again."""
    return (
        f"make proof STORES={store} SEED={seed} PROOF_SECONDS={seconds:g}{' PROOF=--quick' if quick else ''}"
    )


def _missed(goals: Goals, history: History, verdict: Verdict) -> list[str]:
    classes = Counter(fault.fault for fault in history.faults)
    have = {
        "calls": len(history.calls),
        "takeovers": int(verdict.figures.get("takeovers", 0)),
        "classes": len(classes),
        "bare_lost": int(verdict.figures.get("bare_lost", 0)),
    }
    return [
        f"{name}: {have[name]:,} of {wanted:,}"
        for name, wanted in goals.of(history.run.seconds).items()
        if have[name] < wanted
    ]


def _stuck(stage: Stage) -> list[Violation]:
    """Take every lock once, now that everybody has gone and all faults are over (P8)."""
    violations = []
    with Holdfast(stage.url("direct")) as locks:
        for key in sorted({view.key for view in locks.list() if view.key.partition(":")[0] in KINDS}):
            if key.partition(":")[0] in ("permits", "operation"):
                continue  # they are taken on terms of their own; `order` looks at who waits
            try:
                with locks.hold(key, timeout=STUCK, ttl=10):
                    pass
            except HoldfastError as error:
                violations.append(Violation("nothing stays stuck", key, f"after all faults: {error}"))
    return violations


@contextmanager
def _looking_at_clocks(stage: Stage, clocks: list[Clock]) -> Iterator[None]:
    """Note the store's clock beside ours, now and then."""
    over = threading.Event()

    def look() -> None:
        while not over.wait(LOOK_EVERY):
            with suppress(Exception):  # the database is being killed, paused or promoted
                clocks.append(stage.store_clock())

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(10.0)


@contextmanager
def _progress(fleet: Fleet, nemesis: Nemesis, say: Say) -> Iterator[None]:
    """Tell now and then how far it is."""
    over, began = threading.Event(), time.monotonic()

    def tell() -> None:
        while not over.wait(PROGRESS_EVERY):
            say(f"{time.monotonic() - began:6.0f} s  {nemesis.now}  {len(fleet.workers)} processes")

    thread = threading.Thread(target=tell, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(10.0)


def _versions(store: StoreName) -> dict[str, str]:
    found = {"holdfast": __version__, "python": platform.python_version(), "system": platform.release()}
    if store in PROGRAMS:
        found[store] = version(PROGRAMS[store]) or "?"
    else:
        found["sqlite"] = sqlite3.sqlite_version
    return found
