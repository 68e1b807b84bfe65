"""Functions that are run once a tick: both clients, on every store.

Ticks are short here, and with ``missed="all"`` none is left out however slow the machine is. What takes hours
is in `test_every_ticking`.
"""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from typing import Any

import pytest

from holdfast import Holdfast, LeaseLost, StoreUnavailable
from holdfast.core.cluster import Assign, Finish
from tests.clients.scheduling import TICK, Diary, every, in_order, nothing, stop, until
from tests.clients.support import PATIENCE, Spy, Stage, eventually


def test_each_tick_is_run_once_by_one_of_several_clients(stage: Stage) -> None:
    diary = Diary()
    schedules = [
        every(stage, diary, client=client, missed="all")
        for client in (stage.locks, stage.client(), stage.client())
    ]
    diary.until(10)
    stop(stage, *schedules)
    assert in_order(diary.ticks, TICK)
    assert all(tick.timestamp() * 1000 % (TICK * 1000) == 0 for tick in diary.ticks)
    tokens = [run.token for run in diary.runs]
    assert tokens == sorted(set(tokens))
    stage.nothing_left()


def test_a_run_knows_its_tick_and_has_a_lease(stage: Stage) -> None:
    seen: list[Any] = []

    def body(run: Any) -> None:
        run.check()
        view_key, left, lost = run.key, run.remaining, run.lost.is_set()
        seen.append((view_key, left, lost, repr(run), run))

    schedule = every(stage, body, timezone="Europe/Berlin")
    eventually(lambda: seen)
    stop(stage, schedule)
    key, left, lost, shown, run = seen[0]
    assert (key, lost, run.token > 0) == ("every:x", False, True)
    assert 0 < left <= stage.locks.settings.ttl
    assert shown == f"<{type(run).__name__} 'every:x' of {run.tick.isoformat()} token={run.token}>"
    assert str(run.tick.tzinfo) == "Europe/Berlin"
    assert run.tick.astimezone(UTC) <= datetime.now(UTC)


def test_the_lock_is_held_while_it_runs_and_the_work_says_which_tick(stage: Stage) -> None:
    go_on = threading.Event()
    schedule = every(stage, until(stage, go_on))
    run = eventually(lambda: schedule.running)
    assert stage.state("every:x") == "held"
    assert stage.look("every:x").token == run.token
    assert "running" in repr(schedule)
    go_on.set()
    eventually(lambda: schedule.next_in is not None)
    stop(stage, schedule)
    assert schedule.running is None
    assert schedule.next_in is None
    assert "stopped" in repr(schedule)


def test_the_function_can_be_called_as_ever(stage: Stage) -> None:
    if stage.is_async:

        @stage.locks.every(3600, name="x")
        async def job(value: int = 1) -> int:
            """Do it."""
            return value + 1

    else:

        @stage.locks.every(3600, name="x")
        def job(value: int = 1) -> int:
            """Do it."""
            return value + 1

    assert stage.call(job, 41) == 42
    assert (job.__name__, job.__doc__) == ("job", "Do it.")
    assert job.__wrapped__ is not job


def test_a_function_without_arguments_is_given_none(stage: Stage) -> None:
    seen: list[int] = []
    if stage.is_async:

        async def job() -> None:
            seen.append(1)

    else:

        def job() -> None:  # type: ignore[misc]
            seen.append(1)

    schedule = stage.call(stage.locks.every(TICK), job)
    assert schedule.key == f"every:{__name__}.{job.__qualname__}"
    eventually(lambda: len(seen) >= 2)


def test_a_run_that_raises_is_told_and_the_next_tick_comes(stage: Stage, caplog: Any) -> None:
    told: list[BaseException] = []
    seen: list[Any] = []

    def body(run: Any) -> None:
        seen.append(run)
        if len(seen) == 1:
            raise ZeroDivisionError("oh")

    schedule = every(stage, body, on_error=told.append)
    eventually(lambda: len(seen) >= 2)
    stop(stage, schedule)
    assert [str(error) for error in told] == ["oh"]
    assert "ZeroDivisionError" in caplog.text
    kinds = [event.kind for event in stage.call(stage.locks.history, "every:x")]
    assert kinds.count("failed") == 1


def test_an_error_in_on_error_stops_nothing(stage: Stage, caplog: Any) -> None:
    seen: list[Any] = []

    def body(run: Any) -> None:
        seen.append(run)
        raise ZeroDivisionError

    def on_error(error: BaseException) -> None:
        raise SystemExit("and that too") if len(seen) == 1 else LookupError

    schedule = every(stage, body, on_error=on_error)
    eventually(lambda: len(seen) >= 2)
    stop(stage, schedule)
    assert "and that too" in caplog.text


def test_a_run_that_takes_too_long_has_lost_its_lease_and_others_go_on(stage: Stage) -> None:
    told: list[Any] = []
    go_on, never = threading.Event(), threading.Event()
    diary = Diary()

    def body(run: Any) -> Any:
        diary(run)
        return until(stage, never if len(diary.runs) == 1 else go_on)(run)

    go_on.set()
    schedules = [
        every(stage, body, client=client, at_most=0.5, missed="all", on_error=told.append)
        for client in (stage.locks, stage.client())
    ]
    diary.until(4)
    stop(stage, *schedules)
    assert in_order(diary.ticks, TICK)
    with pytest.raises(LeaseLost, match="at_most reached"):
        diary.runs[0].check()
    assert [error.reason for error in told] == ["at_most reached"]


def test_a_body_that_does_not_listen_keeps_its_node_from_the_next_tick() -> None:
    """Others have it. Here nothing of this schedule is begun beside what is still running."""
    go_on = threading.Event()
    diary = Diary()

    def body(run: Any) -> None:
        diary(run)
        if len(diary.runs) == 1:
            assert go_on.wait(PATIENCE)

    with Holdfast("memory://a-deaf-body") as locks, Holdfast("memory://a-deaf-body") as others:
        deaf = locks.every(TICK, name="x", at_most=0.2)(body)
        diary.until(1)
        other = others.every(TICK, name="x")(body)
        diary.until(4)
        assert deaf.running is diary.runs[0]
        go_on.set()
        assert deaf.stop(timeout=PATIENCE)
        assert other.stop(timeout=PATIENCE)


def test_closing_tells_the_run_and_gives_its_tick_to_another(stage: Stage) -> None:
    never, diary = threading.Event(), Diary()

    def body(run: Any) -> Any:
        diary(run)
        return until(stage, never)(run) if len(diary.runs) == 1 else None

    mine = stage.client()
    first = every(stage, body, client=mine)
    diary.until(1)
    assert first.running is diary.runs[0]
    stage.close(mine)
    with pytest.raises(LeaseLost, match="client closed"):
        diary.runs[0].check()
    other = every(stage, body, missed="all")
    diary.until(3)
    stop(stage, other)
    assert diary.ticks[0] == diary.ticks[1]
    assert in_order(diary.ticks[1:], TICK)
    assert diary.runs[1].token > diary.runs[0].token
    stage.nothing_left()


def test_a_run_may_close_the_client_itself(stage: Stage) -> None:
    done = threading.Event()
    mine = stage.client()

    def body(run: Any) -> None:
        mine.close()
        done.set()

    async def body_async(run: Any) -> None:
        await mine.close()
        done.set()

    every(stage, body_async if stage.is_async else body, client=mine)
    assert done.wait(PATIENCE)
    with pytest.raises(RuntimeError, match="closed"):
        stage.call(mine.inspect, "x")


def test_what_is_stopped_ends_its_run_and_begins_no_other_until_it_is_started(stage: Stage) -> None:
    go_on, diary = threading.Event(), Diary()

    def body(run: Any) -> Any:
        diary(run)
        return until(stage, go_on)(run)

    schedule = every(stage, body)
    diary.until(1)
    assert stage.call(schedule.stop) is False
    go_on.set()
    stop(stage, schedule)
    others = Diary()
    other = every(stage, others, client=stage.client())
    others.until(3)
    stop(stage, other)
    assert len(diary.runs) == 1
    stage.call(schedule.start)
    stage.call(schedule.start)
    diary.until(3)
    stop(stage, schedule)


def test_a_long_run_does_not_hold_up_another_schedule(stage: Stage) -> None:
    go_on, diary = threading.Event(), Diary()
    long = every(stage, until(stage, go_on), name="long")
    eventually(lambda: long.running)
    short = every(stage, diary, name="short", missed="all")
    diary.until(5)
    assert long.running is not None
    go_on.set()
    stop(stage, long, short)


def test_a_broken_run_is_told_and_run_again(stage: Stage) -> None:
    never, diary, told = threading.Event(), Diary(), []

    def body(run: Any) -> Any:
        diary(run)
        return until(stage, never)(run) if len(diary.runs) == 1 else None

    schedule = every(stage, body, on_error=told.append, missed="all")
    diary.until(1)
    stage.call(stage.locks.break_lock, "every:x", reason="stuck", by="operator")
    diary.until(3)
    stop(stage, schedule)
    assert told[0].reason == "broken"
    assert diary.ticks[0] == diary.ticks[1]


def test_a_changed_schedule_takes_effect_when_it_is_started(stage: Stage) -> None:
    diary = Diary()
    for client in (stage.locks, stage.client()):
        old = every(stage, diary, 86400 * 365, client=client)
        eventually(lambda old=old: old.next_in)
    every(stage, diary, client=stage.client(), missed="all")
    diary.until(3)
    assert in_order(diary.ticks, TICK)


def test_trouble_with_the_store_passes(stage: Stage) -> None:
    diary = Diary()
    spy = Spy(stage.locks)
    schedule = every(stage, diary, missed="all")
    diary.until(2)
    spy.fail(Assign, lambda: StoreUnavailable("away"))
    failed = spy.count(Assign)
    eventually(lambda: spy.count(Assign) > failed + 3)
    spy.fail(Finish, lambda: StoreUnavailable("away"))
    number = len(diary.runs)
    diary.until(number + 1)
    failed = spy.count(Finish)
    eventually(lambda: spy.count(Finish) > failed + 3)
    spy.heal()
    diary.until(number + 5)
    stop(stage, schedule)
    assert in_order(diary.ticks, TICK)


def test_while_it_waits_nothing_is_asked(stage: Stage) -> None:
    spy = Spy(stage.locks)
    schedule = every(stage, nothing, 86400)
    eventually(lambda: schedule.next_in is not None)
    asked = spy.count(Assign)
    other = every(stage, diary := Diary(), name="other")
    diary.until(5)
    stop(stage, other)
    assert sum(isinstance(r, Assign) and r.key == "every:x" for r in spy.seen) <= asked
    assert 0 < schedule.next_in <= 86400
