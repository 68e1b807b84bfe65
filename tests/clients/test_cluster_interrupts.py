"""An interrupt at each line of ours in turn: an instance that nobody has has left, and so has its work.

Threads only: a task is interrupted where it awaits, see `test_cluster_trouble`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from holdfast import Holdfast
from tests.clients.test_interrupts import interrupted_at, url

__all__ = ["url"]


def everywhere(function: Callable[[], Any], check: Callable[[Any, str], None]) -> None:
    """Interrupt *function* at each line of ours in turn; check with what it had returned, if it had."""
    for number in itertools.count(1):
        returned: list[Any] = []
        where = interrupted_at(number, lambda returned=returned: returned.append(function()))
        if where is None:
            assert number > 100, "nothing was interrupted"
        check(returned[0] if returned else None, where or "the end")
        if where is None:
            return


def test_who_is_interrupted_while_it_joins_is_no_instance(url: str) -> None:
    with Holdfast(url) as locks:

        def check(instance: Any, where: str) -> None:
            assert (instance is not None) == (where == "the end")
            if instance is not None:
                instance.leave()
            assert {each.state for each in locks.instances()} <= {"left"}, where
            assert not locks._engine.members, where
            assert not locks._engine.keeper._keeper.members, where

        everywhere(locks.join, check)


def test_who_is_interrupted_while_it_leaves_has_left(url: str) -> None:
    with Holdfast(url) as locks:

        def block() -> None:
            with locks.join() as instance:
                instance.assign("workflow:1")

        places = []

        def check(_: None, where: str) -> None:
            if locks._engine.members:
                places.append(where)
            for member in list(locks._engine.members.values()):
                locks._engine.run(member.leave())
            assert {each.state for each in locks.instances()} <= {"left"}, where
            assert not locks._engine.keeper._keeper.members, where
            assert not locks._engine.keeper.kept(), where
            view = locks.work("workflow:1")
            assert view is None or view.state == "offered", where

        everywhere(block, check)
        # The first line of an __exit__, and of what it calls, cannot be protected; everything else can.
        assert set(places) <= {"instances.py Instance.__enter__", "instances.py Instance.__exit__"}, places


@pytest.mark.parametrize("how", ["assign", "claim", "claims"])
def test_work_that_nobody_has_is_returned(url: str, how: str) -> None:
    with Holdfast(url) as locks, locks.join() as instance:
        locks.offer(["workflow:1", "workflow:2"])
        loops: list[Any] = []  # a finalizer that is interrupted tells nobody of it

        def take() -> Any:
            if how == "assign":
                return instance.assign("workflow:1")
            if how == "claim":
                return instance.claim("workflow", limit=1)[0]
            loops.append(instance.claims("workflow"))
            return next(loops[-1])

        def check(work: Any, where: str) -> None:
            assert (work is not None) == (where == "the end")
            for each in loops:
                each.close()
            if work is not None:
                assert instance.assignments == (work,)
                work.release()
            assert not instance.assignments, where
            assert {view.state for view in locks.works()} == {"offered"}, where
            assert not locks._engine.keeper.kept(), where
            assert not instance._workload.asker, where
            assert not instance._workload.waiting, where

        everywhere(take, check)


def test_a_block_that_is_interrupted_anywhere_leaves_nothing(url: str) -> None:
    with Holdfast(url) as locks, locks.join() as instance:

        def block() -> None:
            with instance.assign("workflow:1", again=True):
                pass

        places = []

        def check(_: None, where: str) -> None:
            if instance.assignments or locks._engine.keeper.kept():
                places.append(where)
                for each in instance.assignments:
                    each.release()
            view = locks.work("workflow:1")
            assert view is None or view.state in ("offered", "completed"), where
            lock = locks.inspect("workflow:1")
            assert lock is None or lock.state == "free", where

        everywhere(block, check)
        # The first line of an __enter__ or __exit__ cannot be protected; everything else can.
        assert set(places) <= {"instances.py Assignment.__enter__", "instances.py Assignment.__exit__"}, (
            places
        )
