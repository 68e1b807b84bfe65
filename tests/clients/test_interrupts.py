"""An interrupt at each line of ours in turn: what was begun is undone, and nobody renews what nobody has.

Threads only: a task is interrupted where it awaits, see `test_cancelling`.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import holdfast
from holdfast import Holdfast

OURS = str(Path(holdfast.__file__).parent)
NOT_HERE = ("keeper.py", "keeping.py", "masking.py")  # they are told of a lease, and not who takes it

_names = itertools.count()


@pytest.fixture(params=["memory", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return (
        f"memory://interrupts-{next(_names)}" if request.param == "memory" else f"sqlite:///{tmp_path}/l.db"
    )


def is_ours(code_file: str) -> bool:
    return code_file.startswith(OURS) and "stores" not in code_file and not code_file.endswith(NOT_HERE)


def interrupted_at(number: int, function: Callable[[], Any]) -> str | None:
    """Call *function* with an interrupt at that line of ours; return which it was, None if there is none."""
    lines, where = 0, None

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal lines, where
        if not is_ours(frame.f_code.co_filename):
            return None
        if event == "line":
            lines += 1
            if lines == number:
                where = f"{Path(frame.f_code.co_filename).name} {frame.f_code.co_qualname}"
                sys.settrace(None)
                raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        function()
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(before)
    return where


def left_behind(locks: Holdfast, function: Callable[[], Any]) -> list[str]:
    """Interrupt *function* everywhere; return where something was left."""
    found = []
    for number in itertools.count(1):
        where = interrupted_at(number, function)
        if where is None:
            assert number > 100, "nothing was interrupted"
            return found
        kept = locks._keeping.kept()
        if kept or list(locks.list(state="held")):
            found.append(where)
            for each in kept:
                locks._forget(each.grant.key, each.grant.attempt)
            assert not list(locks.list(state="held")), where
    raise AssertionError


@pytest.mark.parametrize("kind", ["hold", "operation", "exclusive"])
def test_a_block_that_is_interrupted_anywhere_leaves_nothing(url: str, kind: str) -> None:
    with Holdfast(url) as locks:

        def block() -> None:
            if kind == "hold":
                with locks.hold("pull:model"):
                    return
            with locks.operation("pull", "model", exclusive=kind == "exclusive") as pull:
                pull.succeed(1)

        # The first line of an __exit__ cannot be protected; everything else can.
        first = "sync_leases.py Hold" if kind == "hold" else "operations.py Operation"
        assert left_behind(locks, block) == [f"{first}.__exit__"]


def test_who_is_interrupted_while_waiting_for_the_shared_lock_leaves_nothing(url: str) -> None:
    with Holdfast(url) as locks, Holdfast(url) as others, others.hold("operation::model", owner="other"):

        def block() -> None:
            with (
                pytest.raises(holdfast.LockTimeout),
                locks.operation("pull", "model", exclusive=True, timeout=0.001),
            ):
                raise AssertionError("it is not free")

        for number in itertools.count(1):
            where = interrupted_at(number, block)
            assert not locks._keeping.kept(), where
            assert [view.key for view in locks.list(state="held")] == ["operation::model"], where
            if where is None:
                break


def test_a_lease_whose_downgrade_is_interrupted_anywhere_counts_as_what_it_may_be(url: str) -> None:
    with Holdfast(url) as locks:
        for number in itertools.count(1):
            lease = locks.acquire("table")
            where = interrupted_at(number, lease.downgrade)
            view = locks.inspect("table")
            assert view is not None
            assert lease.mode == "shared" or view.mode == "exclusive", where
            lease.release()
            if where is None:
                break
