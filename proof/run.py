"""One run: a store, processes that use it, faults, and what both checkers say of the history."""

from __future__ import annotations

import itertools
import platform
import shlex
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from traceback import format_exception

from holdfast import Holdfast, HoldfastError, Settings, __version__
from holdfast.clock import boot_time
from proof import goals
from proof.checkers import linear, order
from proof.faults.nemesis import Nemesis
from proof.histories import records
from proof.histories.records import KINDS, LAST_LOOK, Clock, History, Run, Verdict, Violation
from proof.report import write_report
from proof.stage.stage import Stage, StoreName
from proof.traffic.fleet import Fleet
from tests.servers.binaries import version

Say = Callable[[str], None]

LOOK_EVERY = 0.5  # seconds between two looks at the store's clock
PROGRESS_EVERY = 15.0
STUCK = 60.0  # seconds in which every lock can be taken again, once all faults are over
COMES_TO_ITS_END = "the run comes to its end"  # a rule, too
PROGRAMS = {"postgres": "postgres", "mariadb": "mariadbd"}


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


def run(
    store: StoreName, seed: int, seconds: float, folder: Path, *, quick: bool, say: Say, options: str = ""
) -> Result:
    """Run traffic and faults on *store* for so many *seconds*, check the history, and write the page.

    What keeps it from its end is a violation, too: what there is of a history is written and judged all the
    same. *options* are those of the command that the rest does not tell.
    """
    _set_aside(folder)
    history = History(
        Run(
            store,
            seed,
            began=boot_time(),
            seconds=seconds,
            settings={"quick": quick},
            versions=_versions(store),
            replay=replay_command(store, seed, seconds, quick=quick, options=options),
        )
    )
    troubles = Troubles()
    with Stage(store, folder, seed=seed, quick=quick) as stage:
        stage.install()
        fleet = Fleet(stage, seed=seed, folder=folder, quick=quick)
        nemesis = Nemesis(stage, fleet, seed=seed, quick=quick)
        with _looking_at_clocks(stage, history.clocks), _progress(fleet, nemesis, say):
            try:
                with troubles.noted("the run"):
                    fleet.start()
                    nemesis.run(seconds)
            finally:
                with troubles.noted("the fleet"):
                    fleet.stop()
            with troubles.noted("the locks, after all faults"):
                troubles.violations += _stuck(stage, fleet.settings["heartbeat"])
        history.run.ended = boot_time()
        history.run.settings |= fleet.settings | {"impossible": nemesis.impossible}
        history.faults = sorted(nemesis.injected, key=lambda one: one.began)
        with troubles.noted("the audit"):
            history.audit = stage.read_audit()
            history.resources = stage.read_resources()
    records.write(folder, history)
    history = records.read(folder)
    say(f"{store}: checking {len(history.calls):,} calls, {len(history.asks):,} requests")
    if history.audit:
        verdicts = [order.check(history), linear.check(history)]
    else:  # it could not be read, and without it nothing can be judged
        verdicts = [Verdict("order"), Verdict("linear")]
    verdicts[0].violations[:0] = [*troubles.violations, *nemesis.violations]
    missed = goals.missed(goals.QUICK if quick else goals.FULL, history, verdicts[0])
    page = folder / "report.html"
    write_report(history, verdicts, page, missed=missed)
    return Result(history, verdicts, page, missed)


def replay_command(store: str, seed: int, seconds: float, *, quick: bool, options: str = "") -> str:
    """Return what to type to have the same schedule of traffic and faults again."""
    more = " ".join(filter(None, ["--quick" if quick else "", options]))
    command = f"make proof STORES={store} SEED={seed} PROOF_SECONDS={seconds:g}"
    return f"{command} PROOF={shlex.quote(more)}" if more else command


class Troubles:
    """What kept a run from its end."""

    def __init__(self) -> None:
        self.violations: list[Violation] = []

    @contextmanager
    def noted(self, what: str) -> Iterator[None]:
        """Note what goes wrong in the block, and go on after it."""
        try:
            yield
        except Exception as error:  # of a worker, a fault, a server, or a driver
            said = str(error) if isinstance(error, AssertionError) else "".join(format_exception(error))
            self.violations.append(Violation(COMES_TO_ITS_END, "", f"{what}: {said.rstrip()}"))


def _set_aside(folder: Path) -> None:
    """Move away what an earlier run with this seed has left: it may be the only history of a failure."""
    if folder.exists():
        numbers = itertools.count(1)
        free = next(each for n in numbers if not (each := folder.with_name(f"{folder.name}.{n}")).exists())
        folder.rename(free)


def _stuck(stage: Stage, heartbeat: float) -> list[Violation]:
    """Take every lock once, now that everybody has gone and all faults are over (P8).

    With the *heartbeat* of everybody: behind the tickets of the dead, that is how soon it is noticed.
    """
    violations = []
    with Holdfast(stage.url("direct"), settings=Settings(heartbeat=heartbeat)) as locks:
        for key in sorted({view.key for view in locks.list() if view.key.partition(":")[0] in KINDS}):
            if key.partition(":")[0] in ("permits", "operation"):
                continue  # they are taken on terms of their own; `order` looks at who waits
            try:
                with locks.hold(key, owner=LAST_LOOK, timeout=STUCK, ttl=10):
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
