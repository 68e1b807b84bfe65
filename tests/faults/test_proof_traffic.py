"""The traffic of the proof: what is written down of a turn, and what workers live through."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest

from holdfast import Holdfast, LeaseLost, OutcomeUnknown, StoreCorrupt, StoreUnavailable
from holdfast.core.data import replace
from holdfast.core.requests import Acquire
from proof.histories.recorder import Recorder
from proof.histories.records import BARE, CALLS, FENCED, RAISED, Ask, Call, Trust, read_process
from proof.traffic import resources
from proof.traffic.excuses import explains, is_drivers
from proof.traffic.fleet import Fleet, FleetFailed, Process, _joined
from proof.traffic.hands import ThreadHands, Updater, run
from proof.traffic.traffic import DOZES, Habits, Traffic, settings
from proof.traffic.turns import Turn
from proof.traffic.worker import impatient
from tests.clients.support import eventually
from tests.servers.lock_server import LockServer

Fault = Callable[[Any], BaseException | None]


class Desk:
    """One client of a store in memory, what it does recorded; *fault* says what its store fails with."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.recorder = Recorder(folder, "sync-1")
        self.before: Fault = lambda _: None  # the request is not done
        self.after: Fault = lambda _: None  # it is done, and the answer lost
        self.locks = self.client()
        self.hands = ThreadHands(self.locks, Updater({}))

    def client(self) -> Holdfast:
        # Renewed early: nothing here may be lost because the keeper had to wait for the processor.
        locks = Holdfast("memory://", settings=replace(settings(), renew_at=0.2))
        execute = locks._engine.store.execute

        def faulty(request: Any) -> Any:
            if error := self.before(request):
                raise error
            answer = execute(request)
            if error := self.after(request):
                raise error
            return answer

        locks._engine.store.execute = faulty  # type: ignore[method-assign]
        self.recorder.watch(locks)
        return locks

    def turn(self, owner: str = "sync-1.0-1", key: str = "plain:0") -> Turn:
        return Turn(self.hands, self.recorder, "sync-1.0", owner, key)

    def records(self, name: str = "sync-1") -> list[Call | Ask | Trust]:
        return list(read_process(self.folder / CALLS / f"{name}.jsonl"))

    def calls(self) -> list[tuple[str, str]]:
        return [(each.kind, each.outcome) for each in self.records() if isinstance(each, Call)]

    def asks(self) -> list[tuple[str, str, str]]:
        return [(e.kind, e.outcome, e.answer) for e in self.records() if isinstance(e, Ask)]

    def trusts(self) -> list[Trust]:
        return [each for each in self.records() if isinstance(each, Trust)]


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    desk = Desk(tmp_path)
    yield desk
    desk.before = desk.after = lambda _: None
    desk.locks.close()


def on(kind: type, error: type[Exception]) -> Fault:
    return lambda request: error("planted") if isinstance(request, kind) else None


# What is written down.


def test_a_turn_is_written_down_with_what_was_asked_of_the_store(desk: Desk) -> None:
    turn = desk.turn()
    outer = run(turn.take("acquire", ttl=1.0, wait=1.0))
    inner = run(turn.take("reenter", ttl=1.0, wait=1.0))
    assert outer is not None
    assert inner is not None
    run(turn.give(outer))
    run(turn.give(inner))
    run(turn.end())
    assert desk.calls() == [("acquire", "ok"), ("reenter", "ok"), ("release", "ok"), ("release", "ok")]
    asked = [each for each in desk.asks() if each[0] != "Renew"]  # the keeper may have had a look
    assert asked == [("Acquire", "ok", "Granted")] * 2 + [("Release", "ok", "Released")] * 2
    taken, again, *_, last = [each for each in desk.records() if isinstance(each, Call)]
    assert taken.token == again.token == outer.token
    (trust,) = desk.trusts()
    assert (trust.owner, trust.token) == (taken.owner, outer.token)
    assert taken.called < trust.since <= taken.returned
    assert again.returned < trust.until <= last.called


def test_what_is_done_in_another_thread_is_written_down_as_of_the_turn_and_by_whom(desk: Desk) -> None:
    turn = desk.turn()
    lease = run(turn.enter(ttl=1.0, wait=1.0))
    assert lease is not None
    run(turn.elsewhere(turn.look(lease)))
    run(turn.elsewhere(turn.give(lease)))
    run(turn.end())
    taken, given = [each for each in desk.records() if isinstance(each, Call)]
    assert [(each.kind, each.outcome, each.owner) for each in (taken, given)] == [
        ("acquire", "ok", turn.owner),
        ("release", "ok", turn.owner),
    ]
    assert all(each.by.startswith("other-hands") for each in (taken, given))
    assert not desk.locks.leases


def test_the_owner_of_nested_blocks_is_written_down_before_the_store_hears_of_it(desk: Desk) -> None:
    turn = Turn(desk.hands, desk.recorder, "sync-1.0", "nobody", "plain:0", "block")

    async def nest() -> None:
        async with turn.block("acquire", ttl=30.0, wait=1.0) as outer:  # long: nothing is renewed meanwhile
            assert outer is not None
            async with turn.block("reenter", ttl=30.0, wait=1.0) as inner:
                assert inner is not None
                assert inner.token == outer.token

    run(nest())
    run(turn.end())
    calls = [each for each in desk.records() if isinstance(each, Call)]
    assert [each.kind for each in calls] == ["acquire", "reenter", "release", "release"]
    owners = {each.owner for each in desk.records() if isinstance(each, Ask) and each.kind == "Acquire"}
    assert {each.owner for each in calls} == owners == {turn.owner}
    assert turn.owner != "nobody"
    path = desk.folder / CALLS / "sync-1.jsonl"
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:2]))  # it was killed there
    (killed,) = desk.records()
    assert isinstance(killed, Call)
    assert (killed.owner, killed.outcome) == (turn.owner, "unknown")


def test_whoever_walks_away_is_trusted_to_the_end_and_releases_nothing(desk: Desk) -> None:
    turn = desk.turn()
    lease = run(turn.take("acquire", ttl=0.6, renew=False))
    assert lease is not None
    turn.walk_away(lease)
    run(turn.end())
    other = desk.turn("sync-1.0-2")
    taken = run(other.take("acquire", ttl=0.6, wait=10.0))
    assert taken is not None
    run(other.end())
    first, second = desk.trusts()
    assert first.until == lease._holding.kept.trusted_until
    assert first.until <= second.since
    assert ("Release", lease._holding.kept.grant.attempt) not in [
        (each.kind, each.attempt) for each in desk.records() if isinstance(each, Ask)
    ]


def test_a_turn_that_is_interrupted_at_its_end_gives_back_all_of_its_leases(desk: Desk) -> None:
    turn = desk.turn()
    for kind in ("acquire", "reenter"):
        assert run(turn.take(kind, ttl=30.0, wait=1.0)) is not None
    release = desk.hands.release
    interrupts = iter([asyncio.CancelledError("again")])

    async def interrupted(lease: Any) -> None:
        await release(lease)
        for error in interrupts:
            raise error

    desk.hands.release = interrupted  # type: ignore[method-assign]
    with pytest.raises(asyncio.CancelledError, match="again"):
        run(turn.end())
    assert desk.calls()[2:] == [("release", "unknown"), ("release", "ok")]
    assert desk.locks._engine.keeper.kept() == []
    assert desk.locks.inspect("plain:0").holder is None
    assert len(desk.trusts()) == 1


def test_a_complaint_at_the_end_of_a_turn_outlives_an_interrupt(desk: Desk) -> None:
    """Else nobody would hear of it."""
    turn = desk.turn()
    for kind in ("acquire", "reenter"):
        assert run(turn.take(kind, ttl=30.0, wait=1.0)) is not None
    errors = iter([asyncio.CancelledError("again"), StoreCorrupt("planted")])

    async def interrupted(lease: Any) -> None:
        raise next(errors)

    desk.hands.release = interrupted  # type: ignore[method-assign]
    with pytest.raises(StoreCorrupt, match="planted"):
        run(turn.end())


def test_a_refusal_is_certain_and_a_lost_answer_is_unknown(desk: Desk) -> None:
    turn = desk.turn()
    desk.before = on(Acquire, StoreUnavailable)
    assert run(turn.take("try", ttl=1.0)) is None
    desk.before, desk.after = lambda _: None, on(Acquire, OutcomeUnknown)
    assert run(turn.take("try", ttl=1.0)) is None
    desk.after = lambda _: None
    run(turn.end())
    assert desk.calls() == [("try", "refused"), ("try", "unknown")]
    assert desk.asks()[:2] == [("Acquire", "refused", ""), ("Acquire", "unknown", "")]
    refused, unknown = [each for each in desk.records() if isinstance(each, Call)]
    assert refused.returned < unknown.called < unknown.returned == float("inf")


def test_whoever_gives_up_waiting_is_refused_unless_an_answer_was_lost(desk: Desk) -> None:
    holder = desk.turn("sync-1.0-1")
    run(holder.take("acquire", ttl=1.5))
    run(desk.turn("sync-1.0-2").take("acquire", ttl=1.0, wait=0.05))
    failures = iter([OutcomeUnknown("planted")])
    desk.after = lambda request: next(failures, None) if isinstance(request, Acquire) else None
    run(desk.turn("sync-1.0-3").take("acquire", ttl=1.0, wait=0.3))
    assert desk.calls() == [("acquire", "ok"), ("acquire", "refused"), ("acquire", "unknown")]
    run(holder.end())


def test_a_release_that_the_store_has_made_is_ok_even_if_the_lease_was_lost(desk: Desk) -> None:
    turn = desk.turn()
    lease = run(turn.take("acquire", ttl=1.0))
    assert lease is not None
    lease._holding.kept.lose("expired")  # by our own clock, which is ahead of the store's by a margin
    run(turn.give(lease))
    lost = run(turn.take("acquire", ttl=1.0))
    assert lost is not None
    desk.locks.break_lock("plain:0", reason="a test")
    run(turn.give(lost))
    assert desk.calls() == [("acquire", "ok"), ("release", "ok"), ("acquire", "ok"), ("release", "refused")]
    assert [each.error.partition(":")[0] for each in desk.records() if isinstance(each, Call)] == [
        "",
        "LeaseLost",
        "",
        "LeaseLost",
    ]
    assert ("Break", "ok", "Broken") in desk.asks()


def test_renewals_and_refreshes_are_noted_one_by_one(desk: Desk) -> None:
    turn, other = desk.turn("sync-1.0-1"), desk.turn("sync-1.0-2", "plain:1")
    first, second = run(turn.take("acquire", ttl=4.0)), run(other.take("acquire", ttl=4.0))
    run(desk.turn("sync-1.0-3").take("acquire", ttl=4.0, wait=4.5))
    run(turn.end())
    run(other.end())
    renewed = [each for each in desk.records() if isinstance(each, Ask) and each.answer == "renewed"]
    assert first is not None
    assert second is not None
    assert {each.token for each in renewed} == {first.token, second.token}
    assert ("Refresh", "ok", "waiting") in desk.asks()
    (trust,) = [each for each in desk.trusts() if each.owner == "sync-1.0-1"]
    assert trust.until > trust.since + 4.0, "it was trusted for longer than its first ttl"


def test_a_forked_child_writes_into_a_file_of_its_own(desk: Desk) -> None:
    size = (desk.folder / CALLS / "sync-1.jsonl").stat().st_size
    pid = os.fork()
    if pid == 0:
        desk.recorder.asked(worker="x", kind="acquire", key="plain:0", owner="x")
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    assert (desk.folder / CALLS / "sync-1.jsonl").stat().st_size == size
    (child,) = desk.records("sync-1-fork1")
    assert isinstance(child, Call)
    assert child.outcome == "unknown"


def test_a_question_without_an_answer_and_half_a_line_are_left_by_a_kill(desk: Desk) -> None:
    turn = desk.turn()
    run(turn.take("acquire", ttl=1.0))
    desk.locks.close()  # else its renewal adds a line
    path = desk.folder / CALLS / "sync-1.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:2]) + lines[2][:20])  # the call, its request, and half of the answer
    assert desk.calls() == [("acquire", "unknown")]
    assert desk.asks() == [("Acquire", "unknown", "")]


def test_the_same_seed_takes_the_same_turns(desk: Desk) -> None:
    habits = Habits(rest=0.0, walks=0.0, lasts=0.0)  # else it depends on how fast the others' locks are free

    def turns(worker: str, seed: str) -> list[tuple[str, str, float]]:
        (desk.folder / CALLS / "sync-1.jsonl").write_bytes(b"")
        traffic = Traffic(desk.hands, desk.recorder, worker, seed, habits)
        for kind in ("plain", "shared", "permits", "operation") * 5:
            run(traffic.turn(kind))
        return [(each.kind, each.key, each.ttl) for each in desk.records() if isinstance(each, Call)]

    assert turns("w", "1") == turns("w", "1")
    assert turns("w", "1") != turns("w", "2")
    assert turns("w", "1") != turns("v", "1")


def test_a_lease_that_says_too_long_that_it_is_held_is_believed_so_long(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What programs are told counts, not what the library has in its books."""
    turn = desk.turn()
    lease = run(turn.take("acquire", ttl=0.6, renew=False))
    assert lease is not None
    monkeypatch.setattr(type(lease), "held", property(lambda _: True))
    run(desk.hands.pause(0.7))
    run(turn.give(lease))
    run(turn.end())
    (trust,) = desk.trusts()
    assert trust.until > lease._holding.kept.trusted_until + 0.05


def test_a_guard_that_refuses_who_had_just_looked_is_told_from_our_own_clock(desk: Desk) -> None:
    class Refusing(ThreadHands):
        async def update(self, *_: Any) -> None:
            raise LeaseLost("fenced:0", "expired", token=1)

    desk.hands = Refusing(desk.locks, Updater({}))
    for looked in (True, False):
        turn = desk.turn(key="fenced:0")
        lease = run(turn.take("acquire", ttl=1.0))
        assert lease is not None
        run(turn.update(FENCED, resources.looked_at(lease), seconds=0.0, looked=looked, asleep=0.7))
        run(turn.end())
    updates = [each for each in desk.records() if isinstance(each, Call) and each.kind == "update"]
    assert [(each.outcome, each.error.partition(":")[0]) for each in updates] == [
        ("refused", "FencedOff"),
        ("refused", "LeaseLost"),
    ]
    assert {each.wait for each in updates} == {0.7}


def test_the_control_differs_from_what_is_guarded_by_the_guard_alone(tmp_path: Path) -> None:
    steps: dict[str, list[str]] = {}
    for kind, update in ((RAISED, resources.raised_update), (BARE, resources.bare_update)):
        url = f"sqlite:///{tmp_path}/{kind}.db"
        connected = resources.connect(url)
        for statement in resources.statements("sqlite"):
            connected.run(statement)
        seen = steps[kind] = []
        lease: Any = SimpleNamespace(key="k", token=7, check=lambda seen=seen: seen.append("look"))
        connected.connection.set_trace_callback(seen.append)
        update(lease, connected, "k", "v", lambda seen=seen: seen.append("pause"), check=True)  # type: ignore[misc]
        connected.close()
    assert [step for step in steps[RAISED] if "holdfast_fences" not in step] == steps[BARE]
    assert len(steps[RAISED]) == len(steps[BARE]) + 2
    assert steps[BARE].count("look") == 2
    assert DOZES[RAISED] == DOZES[BARE]


def test_what_no_fault_explains_is_a_complaint() -> None:
    assert explains(StoreUnavailable("planted"))
    assert explains(LeaseLost("plain:0", "expired", token=1))
    assert not explains(StoreCorrupt("planted"))
    assert not explains(OSError(22, "planted"))
    assert not explains(KeyboardInterrupt())
    assert is_drivers(psycopg.errors.LockNotAvailable())
    assert is_drivers(sqlite3.OperationalError("database is locked"))
    assert not is_drivers(psycopg.errors.UndefinedTable())
    assert not is_drivers(sqlite3.IntegrityError())


def test_urls_are_made_impatient_unless_they_say_how_patient() -> None:
    assert impatient("http://h:1") == "http://h:1?timeout=3&connect_timeout=2"
    assert impatient("http://h:1?timeout=9") == "http://h:1?timeout=9&connect_timeout=2"
    assert impatient("sqlite:///x.db?synchronous=full&busy_timeout=1") == (
        "sqlite:///x.db?synchronous=full&busy_timeout=1"
    )


def test_libraries_to_be_loaded_first_are_loaded_all() -> None:
    assert _joined({"LD_PRELOAD": "a", "X": "1"}, {}, {"LD_PRELOAD": "b", "X": "2"}) == {
        "LD_PRELOAD": "a:b",
        "X": "2",
    }


# Real processes.


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Any]:
    """A SQLite file, a lock server over it, and resources: as little as a fleet needs."""
    locks, other = f"sqlite:///{tmp_path}/locks.db", f"sqlite:///{tmp_path}/other.db"
    Holdfast(locks).close()
    for url in (locks, other):
        connection = resources.connect(url)
        for statement in resources.TABLES["sqlite"].split(";"):
            connection.run(statement)
        connection.close()
    with LockServer(locks, tmp_path / "server.log") as server:
        urls = {"direct": locks, "http": server.url}
        yield SimpleNamespace(
            store="sqlite",
            folder=tmp_path,
            client_environment={},
            url=lambda way: urls[way],
            resource_url=lambda kind: locks if kind == FENCED else other,
        )


def made(folder: Path, process: Process) -> list[Call]:
    path = folder / CALLS / f"{process.name}.jsonl"
    return [each for each in read_process(path) if isinstance(each, Call)] if path.exists() else []


def test_a_fleet_lives_through_what_is_done_to_it(stage: Any) -> None:
    folder = stage.folder
    fleet = Fleet(stage, seed=1, folder=folder, quick=True)
    fleet.start()
    try:
        killed = fleet.workers[0]
        eventually(lambda: made(folder, killed))
        killed.kill()
        assert not killed.alive
        new = fleet.replace(killed)
        assert new in fleet.workers
        assert killed not in fleet.workers
        assert (new.name, new.kind) != (killed.name, killed.kind) == (killed.name, new.kind)
        paused = fleet.workers[1]
        paused.pause()
        before = len(made(folder, paused))
        eventually(lambda: len(made(folder, new)) > 10)
        assert len(made(folder, paused)) == before
        paused.go_on()
        for process in fleet.workers:
            for command in ("fork", "cancel", "interrupt"):
                process.send(command)
        marks = [len(made(folder, each)) + 20 for each in fleet.workers]
        eventually(
            lambda: all(len(made(folder, p)) > mark for p, mark in zip(fleet.workers, marks, strict=True))
        )
        forking = [process for process in fleet.workers if process.clock is None]
        assert len(forking) == 3
        eventually(lambda: all(list((folder / CALLS).glob(f"{p.name}-fork*")) for p in forking))
    finally:
        workers = fleet.workers
        fleet.stop()
    assert not any(process.alive for process in workers)
    calls = [call for path in (folder / CALLS).iterdir() for call in read_process(path)]
    updates = [
        call for call in calls if isinstance(call, Call) and call.kind == "update" and call.outcome == "ok"
    ]
    survived = {
        kind: resources.surviving(resources.connect(stage.resource_url(kind))) for kind in (FENCED, RAISED)
    }
    for update in updates:
        kind = update.key.partition(":")[0]
        assert kind not in survived or update.value in survived[kind][update.key]


def test_a_complaint_of_a_worker_is_raised(stage: Any) -> None:
    with sqlite3.connect(stage.folder / "locks.db") as file:
        file.execute("UPDATE holdfast_meta SET version = 999")
    file.close()
    fleet = Fleet(stage, seed=1, folder=stage.folder, quick=True)
    fleet.start()
    with pytest.raises(FleetFailed, match="SchemaMismatch"):
        fleet.stop()


def test_nobody_is_inside_of_sqlite_when_a_program_forks(tmp_path: Path) -> None:
    """Else a mutex of SQLite's may stay locked in the child for ever."""
    file = resources.connect(f"sqlite:///{tmp_path}/data.db")
    began, forked = threading.Event(), []

    def fork() -> None:
        began.set()
        with resources.REST.kept():
            forked.append(file.connection.in_transaction)

    thread = threading.Thread(target=fork)
    with file.transaction():
        thread.start()
        began.wait()
        thread.join(0.2)
        assert not forked
    thread.join()
    assert forked == [False]
    with file.transaction():  # and afterwards others go on
        pass
    file.close()
