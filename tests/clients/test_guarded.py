"""Functions that run only while a lock is held."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from holdfast import InvalidKey, LockTimeout, SettingsError
from tests.clients.support import PATIENCE, Stage


def guard(stage: Stage, body: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """Guard a function that calls *body*: a coroutine function for the async client."""

    def report(*given: Any, **named: Any) -> Any:
        """Report."""
        return body(*given, **named)

    async def report_async(*given: Any, **named: Any) -> Any:
        """Report."""
        await asyncio.sleep(0)
        return body(*given, **named)

    return stage.locks.guarded(*args, **options)(report_async if stage.is_async else report)


def test_a_guarded_function_is_called_and_its_lock_is_free_afterwards(stage: Stage) -> None:
    seen = []

    def body(*args: Any, **named: Any) -> str:
        seen.append((args, named))
        return "done"

    report = guard(stage, body, "nightly")
    assert stage.call(report, 1, two=2) == "done"
    assert seen == [((1,), {"two": 2})]
    assert stage.state("nightly") == "free"
    assert report.__doc__ == "Report."
    assert stage.call(report) == "done"


def test_a_guarded_function_runs_while_its_lock_is_held(stage: Stage) -> None:
    entered, go_on = threading.Event(), threading.Event()

    def body() -> None:
        entered.set()
        assert go_on.wait(PATIENCE)

    if stage.is_async:

        async def slow() -> None:
            entered.set()
            await asyncio.to_thread(go_on.wait, PATIENCE)

        report = stage.locks.guarded("nightly")(slow)
    else:
        report = stage.locks.guarded("nightly")(body)
    running = stage.actor("worker").start(report)
    assert entered.wait(PATIENCE)
    assert stage.state("nightly") == "held"
    skip = guard(stage, lambda: "ran", "nightly", on_busy="skip")
    assert stage.call(skip) is None
    fail = guard(stage, lambda: "ran", "nightly", on_busy="raise")
    with pytest.raises(LockTimeout):
        stage.call(fail)
    wait = guard(stage, lambda: "ran", "nightly", on_busy="wait", timeout=0.02)
    with pytest.raises(LockTimeout):
        stage.call(wait)
    patient = stage.actor("patient").start(guard(stage, lambda: "ran", "nightly"))
    stage.until_waiting("nightly", 1)
    go_on.set()
    running.result(PATIENCE)
    assert patient.result(PATIENCE) == "ran"
    stage.nothing_left()


def test_skipping_does_not_swallow_the_timeout_of_the_body(stage: Stage) -> None:
    def body() -> None:
        raise LockTimeout("other", waited=1.0)

    with pytest.raises(LockTimeout, match="other"):
        stage.call(guard(stage, body, "nightly", on_busy="skip"))
    stage.nothing_left()


def test_the_error_of_the_body_comes_out_and_the_lock_is_free(stage: Stage) -> None:
    def body() -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        stage.call(guard(stage, body, "nightly"))
    stage.nothing_left()


def test_the_key_may_be_made_of_the_arguments(stage: Stage) -> None:
    seen = []

    def body(account: int, *, dry: bool = False) -> None:
        seen.append(account)

    transfer = guard(stage, body, key_from=lambda account, **_: f"account:{account}")
    stage.call(transfer, 7)
    stage.call(transfer, 8, dry=True)
    assert [view.key for view in stage.everything()] == ["account:7", "account:8"]


def test_the_default_key_is_the_function(stage: Stage) -> None:
    report = guard(stage, lambda: None)
    stage.call(report)
    (view,) = stage.everything()
    assert view.key == f"{report.__module__}.{report.__qualname__}"
    assert "guard" in view.key


def test_a_guarded_function_may_call_itself(stage: Stage) -> None:
    if stage.is_async:

        @stage.locks.guarded("nightly")
        async def down_async(n: int) -> int:
            return 0 if n == 0 else 1 + await down_async(n - 1)

        assert stage.call(down_async, 5) == 5
    else:

        @stage.locks.guarded("nightly")
        def down(n: int) -> int:
            return 0 if n == 0 else 1 + down(n - 1)

        assert stage.call(down, 5) == 5
    stage.nothing_left()


def test_a_bad_key_made_of_the_arguments_is_refused(stage: Stage) -> None:
    for bad in ("", None, 5, "a\nb"):
        with pytest.raises(InvalidKey):
            stage.call(guard(stage, lambda: None, key_from=lambda bad=bad: bad))
    assert stage.everything() == []


def test_on_busy_must_be_one_of_the_choices(stage: Stage) -> None:
    for bad in ("Skip", None, "", True):
        with pytest.raises(SettingsError, match="on_busy"):
            stage.locks.guarded("nightly", on_busy=bad)


def test_a_function_may_be_guarded_without_arguments(stage: Stage) -> None:
    if stage.is_async:

        @stage.locks.guarded
        async def report() -> str:
            return "done"
    else:

        @stage.locks.guarded
        def report() -> str:
            return "done"

    assert stage.call(report) == "done"
    (view,) = stage.everything()
    assert view.key.endswith("<locals>.report")


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"key": "a", "key_from": str}, SettingsError, "either a key or key_from"),
        ({"key": "a\nb"}, InvalidKey, "forbidden character"),
        ({"key": "a", "on_busy": "skip", "timeout": 5}, SettingsError, "timeout= is for on_busy='wait'"),
        ({"key": "a", "tll": 5}, TypeError, "'tll'"),
    ],
)
def test_a_mistake_is_found_where_it_is_written(
    stage: Stage, options: dict[str, Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        stage.locks.guarded(**options)


async def coroutine() -> None: ...


def generator() -> Iterator[int]:
    yield 1


async def async_generator() -> AsyncIterator[int]:
    yield 1


def plain() -> None: ...


@pytest.mark.parametrize("stage", ["sync"], indirect=True)
@pytest.mark.parametrize("function", [coroutine, generator, async_generator])
def test_threads_guard_no_function_that_runs_later(stage: Stage, function: Callable[..., Any]) -> None:
    with pytest.raises(SettingsError, match=f"{function.__name__} would run after its lock was released"):
        stage.locks.guarded("nightly")(function)


@pytest.mark.parametrize("stage", ["async"], indirect=True)
@pytest.mark.parametrize("function", [plain, generator, async_generator])
def test_tasks_guard_coroutine_functions_only(stage: Stage, function: Callable[..., Any]) -> None:
    with pytest.raises(SettingsError, match=f"{function.__name__} is no coroutine function"):
        stage.locks.guarded("nightly")(function)
