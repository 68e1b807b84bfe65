"""Results that are kept, as callers see them: late comers get them, and do not do it again."""

from __future__ import annotations

import itertools
from datetime import timedelta
from typing import Any

import pytest

from holdfast import SettingsError
from tests.clients.support import Stage
from tests.clients.test_operations import never, operate


class Doing:
    """Something expensive, which counts how often it was done."""

    def __init__(self) -> None:
        self.times = 0

    def __call__(self) -> dict[str, int]:
        self.times += 1
        return {"made": self.times}


def test_late_comers_get_the_result_and_do_not_do_it_again(stage: Stage) -> None:
    build = Doing()
    for n in range(3):
        client = stage.locks if n != 1 else stage.client()
        got = stage.actor(f"worker-{n}").call(client.run_once, "fixture:db", build, keep=3600)
        assert got == {"made": 1}
    assert build.times == 1
    stage.nothing_left()


def test_without_it_they_do_it_again(stage: Stage) -> None:
    build = Doing()
    for _ in range(3):
        stage.call(stage.locks.run_once, "fixture:db", build)
    assert build.times == 3


def test_who_says_nothing_about_it_gets_it_too(stage: Stage) -> None:
    """How long a result is good is known to who made it."""
    stage.call(stage.locks.run_once, "fixture:db", lambda: 7, keep=timedelta(hours=1))
    assert stage.call(stage.locks.run_once, "fixture:db", lambda: never(None)) == 7


def test_an_operation_is_not_ours_to_do_then(stage: Stage) -> None:
    stage.call(operate(stage, lambda it: it.succeed([1, 2]), keep=3600))
    late = stage.call(operate(stage, never, timeout=0))
    assert (late.todo, late.result, late.failures) == (False, [1, 2], ())
    assert "done" in repr(late)


def test_what_failed_is_not_kept(stage: Stage) -> None:
    def fail() -> None:
        raise OSError("no space left")

    with pytest.raises(OSError, match="no space left"):
        stage.call(stage.locks.run_once, "fixture:db", fail, keep=3600)
    assert stage.call(stage.locks.run_once, "fixture:db", lambda: "done", keep=3600) == "done"


def test_if_it_is_gone_it_is_done_again_whatever_is_kept(stage: Stage) -> None:
    """*ready* knows better; and the new result takes the place of the old one."""
    build, there, looks = Doing(), [False], itertools.count()

    def make() -> Any:
        there[0] = True
        return build()

    def ready() -> bool:
        assert next(looks) < 20, "it would look for ever"
        return there[0]

    def once(**options: Any) -> Any:
        return stage.call(stage.locks.run_once, "fixture:db", make, keep=3600, **options)

    assert once(ready=ready) == {"made": 1}
    assert once() == {"made": 1}
    there[0] = False
    assert once(ready=ready) == {"made": 2}
    assert once() == {"made": 2}
    assert build.times == 2


def test_who_finds_it_kept_and_ready_gets_the_result(stage: Stage) -> None:
    """It came between our look and our question."""
    stage.call(stage.locks.run_once, "fixture:db", lambda: 7, keep=3600)
    looks = iter([False, True])
    do = lambda: never(None)  # noqa: E731
    assert stage.call(stage.locks.run_once, "fixture:db", do, ready=lambda: next(looks)) == 7


def test_what_was_there_when_we_were_to_do_it_is_no_result(stage: Stage) -> None:
    looks = iter([False, True])
    do = lambda: never(None)  # noqa: E731
    got = stage.call(stage.locks.run_once, "fixture:db", do, ready=lambda: next(looks), keep=3600)
    assert got is None
    assert stage.call(stage.locks.run_once, "fixture:db", lambda: 7) == 7


def test_a_break_throws_it_away(stage: Stage) -> None:
    stage.call(stage.locks.run_once, "fixture:db", lambda: 1, keep=3600)
    view = stage.look("fixture:db")
    assert view is not None
    assert view.kept is not None
    assert (view.state, 3500 < view.kept_for <= 3600) == ("free", True)
    broken = stage.call(stage.locks.break_lock, "fixture:db", reason="the schema is another one")
    assert broken.holder.token == view.kept.token
    assert stage.call(stage.locks.run_once, "fixture:db", lambda: 2) == 2


def test_it_is_told_although_the_lock_stays_taken(stage: Stage) -> None:
    stage.call(stage.locks.run_once, "fixture:db", lambda: 1, keep=3600, at_least=60)
    assert stage.call(stage.locks.run_once, "fixture:db", lambda: never(None), timeout=0) == 1


@pytest.mark.parametrize(("keep", "says"), [(-1, "keep is -1"), (1e9, "at most"), ("1h", "keep is '1h'")])
def test_a_time_that_makes_no_sense_is_refused(stage: Stage, keep: Any, says: str) -> None:
    with pytest.raises(SettingsError, match=says):
        stage.call(stage.locks.run_once, "fixture:db", lambda: 1, keep=keep)
