"""Shared locks, semaphores and lock-delay, as callers see them; and circles that are found."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import (
    CapacityMismatch,
    DeadlockDetected,
    LeaseLost,
    LockTimeout,
    NotHeld,
    Settings,
    SettingsError,
    UpgradeRefused,
)
from holdfast.core.requests import Downgrade, Request
from holdfast.errors import OutcomeUnknown, StoreUnavailable
from tests.clients.support import PATIENCE, Spy, Stage, eventually


def test_readers_are_together_and_a_writer_is_alone(stage: Stage) -> None:
    readers = [stage.actor(f"reader-{n}") for n in range(3)]
    leases = [each.call(stage.locks.acquire, "table", mode="shared") for each in readers]
    assert len({lease.token for lease in leases}) == 3
    assert {lease.mode for lease in leases} == {"shared"}
    view = stage.look("table")
    assert view is not None
    assert (view.mode, view.holds, len(view.holders)) == ("shared", 3, 3)
    writer = stage.actor("writer")
    writing = writer.start(stage.locks.acquire, "table")
    stage.until_waiting("table", 1)
    late = stage.actor("late reader")
    with pytest.raises(LockTimeout):  # behind the writer, or it would starve
        late.call(stage.locks.acquire, "table", mode="shared", timeout=0)
    reading = late.start(stage.locks.acquire, "table", mode="shared")
    stage.until_waiting("table", 2)
    for reader, lease in zip(readers, leases, strict=True):
        reader.call(lease.release)
    lease = writing.result(PATIENCE)
    assert lease.token > max(each.token for each in leases)
    assert not reading.done()
    writer.call(lease.release)
    late.call(reading.result(PATIENCE).release)
    stage.nothing_left()


def test_a_writer_that_gives_up_lets_the_readers_in(stage: Stage) -> None:
    reader, writer, late = stage.actor("reader"), stage.actor("writer"), stage.actor("late")
    lease = reader.call(stage.locks.acquire, "table", mode="shared")
    writing = writer.start(stage.locks.acquire, "table", timeout=2.5)
    stage.until_waiting("table", 1)
    reading = late.start(stage.locks.acquire, "table", mode="shared")
    with pytest.raises(LockTimeout):
        writing.result(PATIENCE)
    late.call(reading.result(PATIENCE).release)
    reader.call(lease.release)
    stage.nothing_left()


def test_a_downgrade_lets_readers_in_and_no_writer(stage: Stage) -> None:
    me, reader, writer = stage.actor("me"), stage.actor("reader"), stage.actor("writer")
    lease = me.call(stage.locks.acquire, "table")
    reading = reader.start(stage.locks.acquire, "table", mode="shared")
    stage.until_waiting("table", 1)
    writing = writer.start(stage.locks.acquire, "table")
    stage.until_waiting("table", 2)
    token = lease.token
    me.call(lease.downgrade)
    assert (lease.mode, lease.token) == ("shared", token)
    read = reading.result(PATIENCE)
    assert not writing.done()
    me.call(lease.downgrade)  # it is shared already
    me.call(lease.release)
    reader.call(read.release)
    writer.call(writing.result(PATIENCE).release)
    stage.nothing_left()


def test_a_downgrade_of_one_of_several_holds_is_refused(stage: Stage) -> None:
    outer = stage.call(stage.locks.acquire, "table", owner="me")
    inner = stage.call(stage.locks.acquire, "table", owner="me", mode="shared")  # stays exclusive
    with pytest.raises(SettingsError, match="entered more than once"):
        stage.call(outer.downgrade)
    stage.call(inner.release)
    stage.call(outer.downgrade)
    stage.call(outer.release)
    with pytest.raises(NotHeld):
        stage.call(outer.downgrade)


def lose_answers(spy: Spy, number: int) -> None:
    """Have a store downgrade, and not say so: so many times."""
    left = iter(range(number))

    def fault(request: Request[Any]) -> BaseException | None:
        if not isinstance(request, Downgrade) or next(left, None) is None:
            return None
        spy._execute(request)
        return OutcomeUnknown("the line broke")

    spy.fault = fault


def test_a_downgrade_whose_answer_is_lost_is_asked_for_again(stage: Stage) -> None:
    lease = stage.call(stage.locks.acquire, "table")
    spy = Spy(stage.locks)
    lose_answers(spy, 2)
    stage.call(lease.downgrade)
    assert spy.count(Downgrade) == 3
    assert lease.mode == "shared"
    stage.call(lease.release)


def test_a_lease_that_may_have_been_downgraded_counts_as_shared(stage: Stage) -> None:
    locks = stage.client(settings=Settings(release_timeout=0.2))
    lease = stage.call(locks.acquire, "table")
    spy = Spy(locks)
    lose_answers(spy, 1000)
    with pytest.raises(OutcomeUnknown):
        stage.call(lease.downgrade)
    assert lease.mode == "shared"
    reader = stage.actor("reader")
    reader.call(reader.call(stage.locks.acquire, "table", mode="shared", timeout=0).release)
    with pytest.raises(SettingsError, match="only an exclusive lease"):
        stage.call(lease.fence, object())
    stage.call(lease.release)


def test_a_lease_that_was_certainly_not_downgraded_stays_exclusive(stage: Stage) -> None:
    locks = stage.client(settings=Settings(release_timeout=0.2))
    lease = stage.call(locks.acquire, "table")
    Spy(locks).fail(Downgrade, lambda: StoreUnavailable("down"))
    with pytest.raises(StoreUnavailable):
        stage.call(lease.downgrade)
    assert lease.mode == "exclusive"
    stage.call(lease.release)


def test_a_lease_that_is_lost_is_not_downgraded(stage: Stage) -> None:
    lease = stage.call(stage.locks.acquire, "table")
    stage.call(stage.locks.break_lock, "table", reason="stuck")
    with pytest.raises(LeaseLost):
        stage.call(lease.downgrade)


def test_an_upgrade_is_refused_with_an_explanation(stage: Stage) -> None:
    lease = stage.call(stage.locks.acquire, "table", owner="me", mode="shared")
    again = stage.call(stage.locks.acquire, "table", owner="me", mode="shared")
    assert again.token == lease.token
    with pytest.raises(UpgradeRefused, match="downgrade"):
        stage.call(stage.locks.acquire, "table", owner="me")
    for each in (again, lease):
        stage.call(each.release)
    stage.nothing_left()


def test_a_shared_lease_is_renewed_and_cannot_be_fenced(stage: Stage) -> None:
    lease = stage.call(stage.locks.acquire, "table", mode="shared", ttl=5)
    before = lease._holding.kept.trusted_until
    eventually(lambda: lease._holding.kept.trusted_until > before)
    with pytest.raises(SettingsError, match="only an exclusive lease"):
        stage.call(lease.fence, object())
    stage.call(lease.release)


def semaphore(stage: Stage, actor: Any, *args: Any, **options: Any) -> Any:
    """Enter a semaphore and return (its hold, the lease)."""
    hold = stage.locks.semaphore(*args, **options)
    return hold, actor.call(hold.__aenter__ if stage.is_async else hold.__enter__)


def leave(stage: Stage, actor: Any, hold: Any) -> None:
    actor.call(hold.__aexit__ if stage.is_async else hold.__exit__, None, None, None)


def test_a_semaphore_lets_in_as_many_as_it_has_permits_for(stage: Stage) -> None:
    actors = [stage.actor(f"worker-{n}") for n in range(3)]
    inside = [
        semaphore(stage, actor, "gpu", 4, take=take) for actor, take in zip(actors, (2, 1, 1), strict=True)
    ]
    assert len({lease.token for _, lease in inside}) == 3
    view = stage.look("gpu")
    assert view is not None
    assert (view.mode, view.permits, [holder.take for holder in view.holders]) == ("permits", 4, [2, 1, 1])
    with pytest.raises(LockTimeout):
        semaphore(stage, stage.actor("late"), "gpu", 4, timeout=0)
    late = stage.actor("late")
    waiting = late.start(stage.locks.acquire, "gpu", permits=4, take=2)
    stage.until_waiting("gpu", 1)
    leave(stage, actors[1], inside[1][0])
    with pytest.raises(LockTimeout):  # one is free, and the first in line needs two
        stage.actor("small").call(stage.locks.acquire, "gpu", permits=4, timeout=0)
    leave(stage, actors[2], inside[2][0])
    late.call(waiting.result(PATIENCE).release)
    leave(stage, actors[0], inside[0][0])
    stage.nothing_left()


def test_a_disagreement_about_permits_names_both_numbers(stage: Stage) -> None:
    with pytest.raises(CapacityMismatch, match="pass permits="):
        semaphore(stage, stage.me, "gpu")
    hold, _ = semaphore(stage, stage.me, "gpu", 4)
    with pytest.raises(CapacityMismatch) as caught:
        semaphore(stage, stage.me, "gpu", 8)
    assert (caught.value.stored, caught.value.permits) == (4, 8)
    again, lease = semaphore(stage, stage.me, "gpu")  # not reentrant: a permit of its own
    assert lease.mode == "permits"
    with pytest.raises(CapacityMismatch, match="nobody can take 5"):
        semaphore(stage, stage.me, "gpu", take=5)
    for each in (again, hold):
        leave(stage, stage.me, each)


def test_an_operator_changes_the_number_and_takes_nothing_away(stage: Stage) -> None:
    first, second, third = (stage.actor(name) for name in ("first", "second", "third"))
    one, two = (each.call(stage.locks.acquire, "gpu", permits=2) for each in (first, second))
    waiting = third.start(stage.locks.acquire, "gpu", permits=2)
    stage.until_waiting("gpu", 1)
    resized = stage.call(stage.locks.resize, "gpu", 3)
    assert (resized.permits, resized.before) == (3, 2)
    three = waiting.result(PATIENCE)
    assert stage.call(stage.locks.resize, "gpu", 1, by="olga").before == 3
    for lease in (one, two, three):
        lease.check()
    first.call(one.release)
    second.call(two.release)
    with pytest.raises(LockTimeout):
        first.call(stage.locks.acquire, "gpu", permits=1, timeout=0)
    third.call(three.release)
    first.call(first.call(stage.locks.acquire, "gpu", permits=1, timeout=0).release)


def test_all_holders_of_a_lock_can_be_broken_or_one(stage: Stage) -> None:
    actors = [stage.actor(f"reader-{n}") for n in range(3)]
    leases = [each.call(stage.locks.acquire, "table", mode="shared") for each in actors]
    stage.call(stage.locks.break_lock, "table", reason="one", token=leases[1].token)
    eventually(lambda: leases[1].lost.is_set())
    leases[0].check()
    stage.call(stage.locks.break_lock, "table", reason="all")
    for lease in leases:
        eventually(lease.lost.is_set)
    stage.nothing_left()


def test_all_of_very_many_are_broken_and_nobody_who_came_later(stage: Stage) -> None:
    """An inspection shows the first hundred."""
    number = 120
    leases = [
        stage.call(stage.locks.acquire, "gpu", permits=number, owner=f"o-{n}", renew=False, ttl=600)
        for n in range(number)
    ]
    late = stage.actor("late")
    waiting = late.start(stage.locks.acquire, "gpu", permits=number)
    stage.until_waiting("gpu", 1)
    broken = stage.call(stage.locks.break_lock, "gpu", reason="all")
    assert broken.holder.token == leases[0].token
    lease = waiting.result(PATIENCE)
    view = stage.look("gpu")
    assert view is not None
    assert [holder.token for holder in view.holders] == [lease.token]
    late.call(lease.release)


def test_a_lock_stays_shut_for_a_while_when_its_holder_died(stage: Stage) -> None:
    lease = stage.call(stage.locks.acquire, "disk", ttl=3, lock_delay=60, renew=False)
    eventually(lease.lost.is_set)
    other = stage.actor("other")

    def is_shut() -> bool:
        with pytest.raises(LockTimeout):
            other.call(stage.locks.acquire, "disk", timeout=0)
        view = stage.look("disk")
        return view is not None and (view.state, view.holds) == ("held", 0)

    eventually(is_shut)  # we stop trusting a lease a little before the store ends it
    with pytest.raises(LeaseLost):
        stage.call(lease.release)


def test_a_lock_that_was_given_back_is_not_shut(stage: Stage) -> None:
    stage.call(stage.call(stage.locks.acquire, "disk", lock_delay=60).release)
    stage.call(stage.call(stage.locks.acquire, "disk", timeout=0).release)


def test_a_lock_stays_taken_although_the_work_was_quick(stage: Stage) -> None:
    lease = stage.call(stage.locks.acquire, "cleanup", at_least=3600, owner="host-1")
    stage.call(lease.release)
    with pytest.raises(LockTimeout) as caught:
        stage.actor("host-2").call(stage.locks.acquire, "cleanup", timeout=0)
    assert caught.value.holder is not None
    assert (caught.value.holder.owner, caught.value.holder.gone) == ("host-1", True)
    assert str(caught.value).startswith("'cleanup' is shut for another 3")
    assert "the last to have it was host-1 (host " in str(caught.value)
    view = stage.look("cleanup")
    assert view is not None
    assert (view.state, view.holds) == ("held", 0)


def test_what_is_only_shut_is_broken_open(stage: Stage) -> None:
    """By who looked at it first, as `break_lock` does."""
    stage.call(stage.call(stage.locks.acquire, "cleanup", at_least=3600).release)
    broken = stage.call(stage.locks.break_lock, "cleanup", reason="run it again")
    assert broken.holder.gone
    assert stage.call(stage.locks.break_lock, "cleanup", reason="again") is None
    stage.call(stage.call(stage.locks.acquire, "cleanup", timeout=0).release)


def test_an_operation_stays_taken_and_its_companion_does_not(stage: Stage) -> None:
    """Other operations on the resource are not kept out by it."""

    def pull() -> str:
        return "done"

    stage.call(stage.locks.run_once, "pull:7b", pull, exclusive=True, at_least=3600)
    with pytest.raises(LockTimeout):
        stage.call(stage.locks.run_once, "pull:7b", pull, exclusive=True, timeout=0)
    assert stage.call(stage.locks.run_once, "push:7b", pull, exclusive=True, timeout=0) == "done"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"mode": "written"}, "mode is 'written'"),
        ({"mode": "shared", "permits": 2}, "a mode or permits"),
        ({"take": 2}, "take= is for semaphores"),
        ({"permits": 2, "take": 3}, "only 2 permits"),
        ({"permits": -1}, "permits is -1"),
        ({"permits": 2, "take": 0}, "take is 0"),
        ({"lock_delay": -1}, "lock_delay is -1"),
        ({"lock_delay": 1e9}, "at most"),
        ({"at_least": -1}, "at_least is -1"),
        ({"at_least": 1e9}, "at_least is 1e"),
        ({"at_least": 1, "mode": "shared"}, "at_least is for exclusive locks: a shared lock"),
        ({"at_least": 1, "permits": 2}, "at_least is for exclusive locks: a semaphore"),
    ],
)
def test_terms_that_make_no_sense_are_refused(stage: Stage, options: dict[str, Any], says: str) -> None:
    with pytest.raises(SettingsError, match=says):
        stage.call(stage.locks.acquire, "table", **options)


def test_a_circle_of_waits_is_found_when_it_closes(stage: Stage) -> None:
    elsewhere = stage.client()
    ann, bob = stage.actor("ann"), stage.actor("bob")
    one = ann.call(stage.locks.acquire, "one", owner="ann")
    two = bob.call(elsewhere.acquire, "two", owner="bob")
    waiting = ann.start(stage.locks.acquire, "two", owner="ann")
    stage.until_waiting("two", 1)
    with pytest.raises(DeadlockDetected) as caught:
        bob.call(elsewhere.acquire, "one", owner="bob")
    assert [link.key for link in caught.value.cycle] == ["one", "two"]
    assert caught.value.cycle[0].owner.startswith("bob")
    bob.call(two.release)
    ann.call(waiting.result(PATIENCE).release)
    ann.call(one.release)
    stage.nothing_left()


def test_converging_waits_are_no_circle(stage: Stage) -> None:
    holder = stage.actor("holder")
    lease = holder.call(stage.locks.acquire, "shared")
    others = [stage.actor(f"other-{n}") for n in range(4)]
    own = [each.call(stage.locks.acquire, f"own-{n}") for n, each in enumerate(others)]
    waiting = []
    for n, each in enumerate(others):
        waiting.append(each.start(stage.locks.acquire, "shared"))
        stage.until_waiting("shared", n + 1)
    late = stage.actor("late")
    for_own = late.start(stage.locks.acquire, "own-0")
    stage.until_waiting("own-0", 1)
    holder.call(lease.release)
    for each, each_own, each_waiting in zip(others, own, waiting, strict=True):
        each.call(each_waiting.result(PATIENCE).release)
        each.call(each_own.release)
    late.call(for_own.result(PATIENCE).release)
    stage.nothing_left()
