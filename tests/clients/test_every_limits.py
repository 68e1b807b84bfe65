"""What may be scheduled, and when it starts and ends: by a loop, a fence, or a client that is closed."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from typing import Any

import pytest

from holdfast import AsyncHoldfast, Holdfast, LeaseLost, SettingsError
from tests.clients.scheduling import TICK, every, nothing, stop, until
from tests.clients.support import PATIENCE, Stage, eventually


def test_two_schedules_of_one_client_cannot_have_one_name(stage: Stage) -> None:
    first = every(stage, nothing, 3600)
    with pytest.raises(SettingsError, match="name="):
        every(stage, nothing, 3600)
    stop(stage, first)
    every(stage, nothing, 3600)
    with pytest.raises(SettingsError, match="name="):
        stage.call(first.start)


@pytest.mark.parametrize(
    ("schedule", "options", "said"),
    [
        ("* * *", {}, "five fields"),
        (0, {}, "0.1 to"),
        (60, {"missed": "never"}, "'once', 'skip' or 'all'"),
        (60, {"at_most": 0}, "None for no limit"),
        (60, {"at_least": -1}, "at_least"),
        (60, {"timezone": "Europe/Atlantis"}, "timezone"),
        (60, {"on_error": "print"}, "on_error"),
        (60, {"on_error": asyncio.sleep}, "plain function"),
        (60, {"name": "a\nb"}, "forbidden"),
        (60, {"name": "x" * 250}, "characters"),
    ],
)
@pytest.mark.parametrize("kind", [Holdfast, AsyncHoldfast])
def test_what_makes_no_sense_is_refused_where_it_is_written(
    kind: Any, schedule: Any, options: Any, said: str
) -> None:
    client = kind("memory://")
    with pytest.raises(ValueError, match=said):
        client.every(schedule, **options)
    client._engine.leave()


def test_functions_that_cannot_be_run_so_are_refused() -> None:
    def plain(run: Any) -> None: ...
    async def coroutine(run: Any) -> None: ...
    def generator(run: Any) -> Any:
        yield

    def two(run: Any, more: Any) -> None: ...
    def named(*, run: Any) -> None: ...

    with Holdfast("memory://") as locks:
        for function in (coroutine, generator, two, named):
            with pytest.raises(SettingsError, match=function.__name__):
                locks.every(60)(function)
        assert locks.every(60)(plain).stop()

    async def check() -> None:
        async with AsyncHoldfast("memory://") as locks:
            for function in (plain, generator):
                with pytest.raises(SettingsError, match=function.__name__):
                    locks.every(60)(function)  # type: ignore[arg-type]

    asyncio.run(check())


def test_nothing_is_scheduled_by_a_client_that_is_closed(stage: Stage) -> None:
    mine = stage.client()
    stage.close(mine)
    with pytest.raises(RuntimeError, match="closed"):
        every(stage, nothing, client=mine)


def test_what_is_made_before_there_is_a_loop_starts_when_the_client_is_entered() -> None:
    locks = AsyncHoldfast("memory://")
    twice = asyncio.Semaphore(0)

    @locks.every(TICK)
    async def job() -> None:
        twice.release()

    with pytest.raises(SettingsError, match="name="):

        @locks.every(TICK, name=job.key.removeprefix("every:"))
        async def again() -> None: ...

    assert "stopped" in repr(job)

    async def main() -> None:
        async with locks:
            await twice.acquire()
            await twice.acquire()

    asyncio.run(main())


def test_a_loop_that_ends_gives_the_tick_back() -> None:
    """asyncio.run() cancels what is left. Nobody has closed the client by then."""
    url = "memory://a-loop-that-ends"
    with Holdfast(url) as witness:
        locks = AsyncHoldfast(url)

        async def main() -> None:
            started = asyncio.Event()

            @locks.every(TICK, name="x")
            async def job() -> None:
                started.set()
                await asyncio.sleep(PATIENCE)

            await started.wait()

        asyncio.run(main())
        view = witness.inspect("every:x")
        assert view is not None
        assert view.state == "free"
        locks._engine.leave()


def test_a_run_fences_its_writes(tmp_path: Any) -> None:
    path = tmp_path / "locks.db"
    with Holdfast(f"sqlite:///{path}") as locks:
        outcomes: list[Any] = []
        done = threading.Event()

        @locks.every(TICK, name="x")
        def job(run: Any) -> None:
            if done.is_set():
                return
            connection = sqlite3.connect(path, isolation_level=None)
            try:
                connection.execute("BEGIN IMMEDIATE")
                run.fence(connection)
                connection.execute("COMMIT")
                outcomes.append("written")
                locks.break_lock("every:x", reason="test")
                connection.execute("BEGIN IMMEDIATE")
                run.fence(connection)
            except LeaseLost as error:
                outcomes.append(error.reason)
            finally:
                connection.close()
                done.set()

        assert done.wait(PATIENCE)
    assert outcomes == ["written", "broken"]


def test_a_client_that_holds_nothing_for_long_does_not_run_for_long(stage: Stage) -> None:
    """The client's max_hold is at_most, if nothing else is said."""
    never, told = threading.Event(), []
    mine = stage.client(settings=None, max_hold=3)
    schedule = every(stage, until(stage, never), client=mine, on_error=told.append)
    eventually(lambda: told)
    never.set()
    stop(stage, schedule)
    assert told[0].reason == "at_most reached"
