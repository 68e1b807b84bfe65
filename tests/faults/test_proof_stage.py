"""The stage of the proof does what faults, traffic and checkers rely on."""

from __future__ import annotations

import os
import random
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from holdfast import Holdfast, HoldfastError, LeaseLost, Settings
from holdfast.clock import boot_time
from proof.faults import Fault, Scene
from proof.faults.base import DATABASE_CLOCK
from proof.faults.clocks import DatabaseClockStep
from proof.faults.disks import FailingFsync, FullDisk
from proof.faults.servers import KillDatabase, PromoteStandby
from proof.histories.records import Audit
from proof.stage.disks import Disk, NoDisk
from proof.stage.stage import Stage
from proof.traffic import resources
from tests.faults.conftest import STORES
from tests.faults.processes import PATIENCE, eventually
from tests.servers import guardian
from tests.servers.fixtures import require
from tests.servers.scratch import RUN

ROOT = Path(__file__).parents[2]
QUICK = Settings(heartbeat=0.2, claim=0.5, patience=1.5, sweep_every=None)


@pytest.fixture(params=STORES, scope="module")
def set_stage(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    store = request.param
    if store != "sqlite":
        require({"postgres": "postgres", "mariadb": "mariadbd"}[store])
    with Stage(store, tmp_path_factory.mktemp(store), seed=1, quick=True) as stage:
        yield stage
    assert not stage._place.exists()
    assert str(stage._place) not in Path("/proc/mounts").read_text()


@pytest.fixture
def stage(set_stage: Stage) -> Iterator[Stage]:
    yield set_stage
    set_stage.heal()


@pytest.fixture(scope="module")
def stage_with_standby(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    require("postgres")
    with Stage("postgres", tmp_path_factory.mktemp("standby"), seed=1, quick=False) as stage:
        yield stage


@pytest.fixture
def locks(stage: Stage) -> Iterator[Holdfast]:
    with Holdfast(stage.url("direct"), settings=QUICK) as locks:
        yield locks


@pytest.fixture
def served(stage: Stage) -> Iterator[Holdfast]:
    """A client of the lock server: on SQLite that one flushes and looks at the clock, and not we."""
    with Holdfast(stage.url("http"), settings=QUICK) as served:
        yield served


@pytest.fixture
def thread() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as thread:
        yield thread


def needs(stage: Stage, fault: str) -> None:
    if (reason := stage.can(fault)) is not None:
        pytest.skip(f"missing: {fault}: {reason}")


def changes(stage: Stage, key: str, what: str = "lock") -> list[Audit]:
    """Return what happened to a key, without what only moves an end: the keeper may look at any moment."""
    rows = [row for row in stage.iterate_audit() if row.key == key and row.what == what]
    moved = [
        after == replace(before, id=after.id, at=after.at, expires_at=after.expires_at)
        for before, after in pairwise(rows)
    ]
    return [row for row, only_moved in zip(rows, [False, *moved], strict=False) if not only_moved]


@pytest.mark.parametrize("store", STORES)
def test_a_killed_run_leaves_nothing_behind(store: str, tmp_path: Path) -> None:
    """No server, no lock server, nothing mounted, no files."""
    if store != "sqlite":
        require({"postgres": "postgres", "mariadb": "mariadbd"}[store])
    program = (
        "import os, pathlib, sys\n"
        "from proof.stage.stage import Stage\n"
        "with Stage(sys.argv[1], pathlib.Path(sys.argv[2]), seed=1, quick=True) as stage:\n"
        "    database = stage.database\n"
        "    print(stage.lock_server.pid, stage._place, database.directory if database else '', flush=True)\n"
        "    os.kill(os.getpid(), 9)\n"
    )
    run = [sys.executable, "-c", program, store, str(tmp_path)]
    environment = {**os.environ, RUN: f"killed{store}"}  # its directories are its own, and nobody else's
    said = subprocess.run(
        run, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=False
    ).stdout.split()
    pid, places = int(said[0]), [Path(place) for place in said[1:]]
    assert len(places) == (1 if store == "sqlite" else 2)
    eventually(lambda: not any(place.exists() for place in places))
    eventually(lambda: not Path(f"/proc/{pid}").exists())
    for place in places:
        assert guardian.inhabitants(place) == set()
        assert str(place) not in Path("/proc/mounts").read_text()


# The audit.


def test_every_grant_is_in_the_audit_with_the_token_that_the_client_was_told(
    stage: Stage, locks: Holdfast, served: Holdfast
) -> None:
    """The first grant of a key and later ones, by either way; triggers must not change the answers."""
    before = stage.store_clock().store
    tokens = []
    for n in range(6):
        lease = (locks, served)[n % 2].acquire("plain:0", owner=f"turn-{n}", ttl=30, timeout=PATIENCE)
        tokens.append(lease.token)
        lease.release()
    found = changes(stage, "plain:0")
    assert [(row.owner, row.token) for row in found if row.owner] == [
        (f"turn-{n}", token) for n, token in enumerate(tokens)
    ]
    assert [bool(row.owner) for row in found] == [True, False] * 6
    assert all(one.id < two.id and one.at <= two.at for one, two in pairwise(found))
    assert all(before - 1000 <= row.at <= stage.store_clock().store for row in found)
    assert all(row.expires_at > row.at and row.granted_at <= row.at + 1000 for row in found if row.owner)


def test_a_hand_over_is_in_the_audit_with_its_ticket_and_its_claim(
    stage: Stage, locks: Holdfast, served: Holdfast, thread: ThreadPoolExecutor
) -> None:
    first = locks.acquire("plain:1", owner="first", ttl=30)
    # Not to be renewed: so it claims, and does not enter by the hand-over.
    options = {"ttl": 30, "timeout": PATIENCE, "renew": False}
    waiting = thread.submit(lambda: served.acquire("plain:1", owner="second", **options))
    eventually(lambda: changes(stage, "plain:1", "ticket"))
    first.release()
    second = waiting.result(PATIENCE)
    assert second.token > first.token
    found = changes(stage, "plain:1")
    assert [row.claimed for row in found if row.token == second.token][:2] == [False, True]
    (ticket,) = changes(stage, "plain:1", "ticket")
    (gone,) = changes(stage, "plain:1", "unticket")
    assert ticket.owner == gone.owner == "second"
    assert ticket.number == gone.number > 0
    second.release()


def test_shared_holds_and_outcomes_are_in_the_audit(
    stage: Stage, locks: Holdfast, served: Holdfast, thread: ThreadPoolExecutor
) -> None:
    def wait_for_it() -> object:
        with served.operation("operation", "0", ttl=30, timeout=PATIENCE) as operation:
            return operation.result

    with locks.hold("shared:0", owner="reader", mode="shared", ttl=30):
        assert [row.owner for row in changes(stage, "shared:0", "hold")] == ["reader"]
    assert [row.owner for row in changes(stage, "shared:0", "unhold")] == ["reader"]
    with locks.operation("operation", "0", ttl=30) as operation:
        waiting = thread.submit(wait_for_it)
        eventually(lambda: changes(stage, "operation:0", "ticket"))
        operation.succeed("done")
    assert waiting.result(PATIENCE) == "done"
    assert [(row.claimed, row.terms) for row in changes(stage, "operation:0", "outcome")] == [
        (True, '"done"')
    ]


def test_what_is_rolled_back_is_not_in_the_audit(stage: Stage, locks: Holdfast) -> None:
    lease = locks.acquire("plain:2", ttl=30)
    connected = resources.connect(stage.resource_url("fenced"))
    with suppress(ZeroDivisionError), connected.transaction():
        lease.release(within=connected.connection)
        raise ZeroDivisionError
    assert [row.owner for row in changes(stage, "plain:2") if row.owner != lease.owner] == []
    lease.release()
    assert [row.owner for row in changes(stage, "plain:2") if row.owner != lease.owner] == [""]


# Resources.


def test_updates_one_after_the_other_all_survive_in_order(stage: Stage, locks: Holdfast) -> None:
    updates = {
        "fenced": resources.fenced_update,
        "raised": resources.raised_update,
        "bare": resources.bare_update,
    }
    for kind, update in updates.items():
        with closing(resources.connect(stage.resource_url(kind))) as connected:
            for n in range(3):
                with locks.hold(f"{kind}:0", ttl=30) as lease:
                    update(lease, connected, f"{kind}:0", f"value-{n}")
        assert stage.read_resources()[f"{kind}:0"] == ["value-0", "value-1", "value-2"]


@pytest.mark.parametrize("kind", ["raised", "bare"])
def test_an_update_by_a_holder_who_slept_too_long(kind: str, stage: Stage, locks: Holdfast) -> None:
    """It is refused where the token was raised; where nothing was, it takes the other's with it."""
    key = f"{kind}:1"
    early, late = (resources.connect(stage.resource_url(kind)) for _ in range(2))

    def be_overtaken() -> None:
        locks.break_lock(key, reason="as if it had run out")
        with locks.hold(key, owner="next", ttl=30, timeout=PATIENCE) as lease:
            update = resources.raised_update if kind == "raised" else resources.bare_update
            update(lease, early, key, "next")

    lease = locks.acquire(key, owner="sleeper", ttl=30)
    with closing(early), closing(late):
        if kind == "raised":
            with pytest.raises(LeaseLost):
                resources.raised_update(lease, late, key, "sleeper", be_overtaken)
            assert not late.alive
        else:
            resources.bare_update(lease, late, key, "sleeper", be_overtaken, check=False)
    assert stage.read_resources()[key] == [{"raised": "next", "bare": "sleeper"}[kind]]


def test_a_fenced_update_of_a_lease_that_is_lost_is_refused(stage: Stage, locks: Holdfast) -> None:
    lease = locks.acquire("fenced:1", owner="first", ttl=30)
    locks.break_lock("fenced:1", reason="as if it had run out")
    with closing(resources.connect(stage.resource_url("fenced"))) as connected, pytest.raises(LeaseLost):
        resources.fenced_update(lease, connected, "fenced:1", "late")
    assert "fenced:1" not in stage.read_resources()


def test_who_was_stopped_just_after_looking_at_its_lease_is_refused_by_the_guard(
    stage: Stage, locks: Holdfast
) -> None:
    """The library has looked at our clock by then, so that it is the database's word alone."""
    for kind, update in (("fenced", resources.fenced_update), ("raised", resources.raised_update)):
        key = f"{kind}:2"
        sleeper = resources.looked_at(locks.acquire(key, owner="sleeper", ttl=30))
        locks.break_lock(key, reason="as if it had run out")
        with closing(resources.connect(stage.resource_url(kind))) as early:
            with locks.hold(key, owner="next", ttl=30) as lease:
                update(lease, early, key, "next")
            sleeper._holding.kept.lose("expired")
            with closing(resources.connect(stage.resource_url(kind))) as late, pytest.raises(LeaseLost):
                update(sleeper, late, key, "late")
        assert stage.read_resources()[key] == ["next"]


# What can be done to it.


def test_the_clock_of_the_store_can_be_set(stage: Stage, served: Holdfast) -> None:
    needs(stage, "clock step")
    for offset in (100.0, -100.0):
        right = stage.store_clock()
        stage.step_database_clock(offset)
        lease = served.acquire(f"plain:clock{offset}", ttl=30)
        stage.step_database_clock(0)
        (grant,) = changes(stage, lease.key)
        assert grant.at - right.store > 90e6 if offset > 0 else grant.at - right.store < -90e6


def test_a_step_of_the_clock_is_over_when_a_database_that_stood_still_answers_again(
    stage: Stage, thread: ThreadPoolExecutor
) -> None:
    """It has not looked at its clock before."""
    needs(stage, "clock step")
    if stage.database is None:
        return
    scene = Scene(stage, cast("Any", SimpleNamespace(workers=[])))

    def step() -> float:
        with DatabaseClockStep().inject(scene, DATABASE_CLOCK, random.Random(1)):
            pass
        return boot_time()

    stage.database.pause()
    try:
        ended = thread.submit(step)
        time.sleep(0.5)
        assert stage.clock_offset == 0
    finally:
        resumed = boot_time()
        stage.database.resume()
    assert ended.result(PATIENCE) >= resumed


def test_nothing_is_granted_before_it_is_on_the_disk(
    stage: Stage, served: Holdfast, thread: ThreadPoolExecutor
) -> None:
    needs(stage, "slow fsync")
    assert stage._preload is not None
    served.acquire("plain:3", ttl=30).release()
    stage.slow_fsync(600)
    before = stage._preload.flushes
    asked = thread.submit(lambda: served.acquire("plain:3", owner="patient", ttl=30, timeout=PATIENCE))
    eventually(lambda: stage._preload and stage._preload.flushes > before)
    assert not asked.done()
    stage.slow_fsync(0)
    asked.result(PATIENCE).release()


def test_a_store_outlives_a_disk_that_fails(stage: Stage, served: Holdfast) -> None:
    needs(stage, "failing fsync")
    lease = served.acquire("plain:4", owner="before", ttl=600)
    stage.fail_fsync(True)
    with pytest.raises(HoldfastError):
        served.acquire("plain:5", ttl=30, timeout=1)
    stage.fail_fsync(False)
    stage.revive()
    again = served.acquire("plain:4", owner="before", ttl=600, timeout=PATIENCE)
    assert again.token == lease.token


def test_a_full_disk_takes_no_more_grants(stage: Stage, served: Holdfast) -> None:
    needs(stage, "full disk")
    assert stage.disk is not None
    stage.disk.fill()
    assert stage.disk.free == 0

    def is_refused() -> bool:
        try:
            served.acquire("plain:6", ttl=5, timeout=0.5).release()
        except HoldfastError:
            return True
        return False

    eventually(is_refused)
    stage.disk.empty()
    stage.revive()
    served.acquire("plain:6", ttl=5, timeout=PATIENCE).release()


def test_a_cut_of_the_power_takes_nothing_that_was_acknowledged(stage: Stage, served: Holdfast) -> None:
    if stage.store != "sqlite":
        assert stage.can("power cut") is not None
        return
    needs(stage, "power cut")
    lease = served.acquire("plain:7", ttl=30)
    copy = stage.cut_power()
    with closing(sqlite3.connect(copy)) as file:
        query = "SELECT token FROM holdfast_locks WHERE lock_key = 'plain:7'"
        assert file.execute(query).fetchall() == [(lease.token,)]
    assert stage.disk is not None
    stage.disk.discard(copy)
    assert not copy.parent.exists()


def test_a_cut_of_the_power_takes_what_was_not_flushed(tmp_path: Path) -> None:
    """Else a copy of the disk would show nothing."""
    try:
        disk = Disk(tmp_path / "disk", size=64 << 20)
    except NoDisk as error:
        pytest.skip(f"missing: a disk: {error}")
    with closing(disk):
        for name in ("flushed", "written"):
            with (disk.path / name).open("w") as file:
                file.write(name)
                file.flush()
                if name == "flushed":
                    os.fsync(file.fileno())
        copy = disk.cut()
        assert (copy / "flushed").read_text() == "flushed"
        assert not (copy / "written").exists()


def test_a_killed_database_is_revived_with_all_that_it_knew(stage: Stage, locks: Holdfast) -> None:
    if stage.database is None:
        assert stage.can("database") is not None
        return
    lease = locks.acquire("plain:8", owner="before", ttl=600)
    stage.database.kill()
    stage.lock_server.kill()
    stage.revive()
    again = locks.acquire("plain:8", owner="before", ttl=600, timeout=PATIENCE)
    assert again.token == lease.token
    assert stage.lock_server.is_ready()


def test_a_promotion_keeps_leases_audit_and_resources(tmp_path: Path) -> None:
    require("postgres")
    with (
        Stage("postgres", tmp_path, seed=1, quick=False) as stage,
        Holdfast(stage.url("direct"), settings=QUICK) as locks,
    ):
        tokens = []
        for turn in ("first", "second"):  # the standby's standby as well
            old, standby = stage.database, stage.standby
            with locks.hold("fenced:0", ttl=600, timeout=PATIENCE) as lease:
                with closing(resources.connect(stage.resource_url("fenced"))) as connected:
                    resources.fenced_update(lease, connected, "fenced:0", turn)
                stage.promote()
                assert stage.database is standby is not old
                assert stage.can_promote
                with locks.hold("fenced:0", ttl=600, timeout=PATIENCE) as again:
                    assert again.token == lease.token
            tokens.append(lease.token)
        assert stage.read_resources()["fenced:0"] == ["first", "second"]
        assert sorted({row.token for row in changes(stage, "fenced:0")}) == tokens
        assert stage.disk is not None or stage.can("full disk")


@pytest.mark.parametrize("fault", [FailingFsync(), FullDisk(), KillDatabase(), PromoteStandby()], ids=repr)
def test_a_database_with_a_standby_commits_again_when_a_fault_is_over(
    fault: Fault, stage_with_standby: Stage
) -> None:
    """It answers sooner than that: each commit waits for the standby, which may have died as well."""
    stage = stage_with_standby
    if (reason := fault.possible(stage)) is not None:
        pytest.skip(f"missing: {fault.name}: {reason}")
    scene = Scene(stage, cast("Any", SimpleNamespace(workers=[])))
    with (
        Holdfast(stage.url("direct"), settings=QUICK) as locks,
        fault.inject(scene, fault.place, random.Random(1)),
    ):
        with suppress(HoldfastError):
            locks.acquire("plain:0", ttl=1, timeout=0.5)
        assert stage.standby is not None
        stage.standby.kill()  # of some faults it dies by itself, but not each time
    assert stage.standby.is_running
    stage._looking.commit()  # in LOOK seconds, or it raises


def test_a_database_whose_standby_is_away_answers_and_does_not_commit(stage_with_standby: Stage) -> None:
    """That is what reviving has to look for."""
    stage = stage_with_standby
    assert stage.standby is not None
    stage.standby.kill()
    stage.store_clock()
    with pytest.raises(TimeoutError):
        stage._looking.commit()
    stage.revive()
    stage._looking.commit()
