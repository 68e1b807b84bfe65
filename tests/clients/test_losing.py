# ruff: noqa: PT012
"""Losing a lease: every way it can happen, how its holder learns of it, and what leaving the block says."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

from holdfast import (
    Holdfast,
    LeaseLost,
    LockTimeout,
    OutcomeUnknown,
    Settings,
    StoreCorrupt,
    StoreError,
    StoreUnavailable,
)
from holdfast.core.data import replace
from holdfast.core.requests import Acquire, Release, Renew
from tests.clients.support import PATIENCE, QUICK, Spy, Stage, eventually, is_reachable


class Listener:
    """An ``on_lost`` that can be waited for."""

    def __init__(self, then: Callable[[], None] = lambda: None) -> None:
        self.losses: list[LeaseLost] = []
        self._called = threading.Event()
        self._then = then

    def __call__(self, loss: LeaseLost) -> None:
        self.losses.append(loss)
        self._called.set()
        self._then()

    def wait(self) -> LeaseLost:
        assert self._called.wait(PATIENCE), "on_lost was never called"
        return self.losses[0]


def check_lost(lease: Any, reason: str) -> LeaseLost:
    assert not lease.held
    assert lease.remaining == 0.0
    with pytest.raises(LeaseLost) as caught:
        lease.check()
    assert caught.value.reason == reason
    assert caught.value.key == lease.key
    assert caught.value.token == lease.token
    return caught.value


def test_a_broken_lease_learns_of_it_at_once(stage: Stage) -> None:
    """Its ttl is ten minutes: without the signal it would be renewed, and learn of it, in six."""
    told = Listener()
    lease = stage.call(stage.locks.acquire, "nightly", ttl=600, on_lost=told)
    eventually(lambda: is_reachable(stage.locks))
    stage.call(stage.client().break_lock, "nightly", reason="stuck", by="olga")
    loss = told.wait()
    assert (loss.reason, loss.by, loss.detail) == ("broken", "olga", "stuck")
    error = check_lost(lease, "broken")
    assert error is not loss
    assert str(error) == f"lease of 'nightly' (token {lease.token}) is lost: broken by olga (stuck)"
    assert lease.lost.is_set()


@pytest.mark.parametrize("terms", [{"renew": False}, {"max_hold": 600}], ids=str)
def test_a_lease_that_is_not_renewed_any_more_learns_of_a_break_all_the_same(
    stage: Stage, terms: dict[str, Any]
) -> None:
    """It is asked whether it is still held, and the question does not move its end."""
    told = Listener()
    _lease = stage.call(stage.locks.acquire, "other")  # which is renewed: so the client can be told of things
    lease = stage.call(stage.locks.acquire, "nightly", ttl=600, on_lost=told, **terms)
    eventually(lambda: is_reachable(stage.locks))
    stage.call(stage.client().break_lock, "nightly", reason="stuck")
    assert told.wait().reason == "broken"
    check_lost(lease, "broken")


def test_a_lease_that_is_not_renewed_is_lost_when_its_trust_ends(stage: Stage) -> None:
    told = Listener()
    lease = stage.call(stage.locks.acquire, "nightly", ttl=0.3, renew=False, on_lost=told)
    assert told.wait().reason == "expired"
    check_lost(lease, "expired")
    with pytest.raises(LeaseLost, match="expired"):
        stage.call(lease.release)
    assert len(told.losses) == 1


def test_the_clock_alone_decides_that_a_lease_is_over(stage: Stage) -> None:
    """Nobody has to notice it: a keeper that is late, or a process that was stopped, is no excuse."""
    lease = stage.call(stage.locks.acquire, "nightly", ttl=0.1, renew=False)
    stage.locks._engine.keeper.stop()
    threading.Event().wait(0.1)
    check_lost(lease, "expired")
    assert lease.lost.is_set()


def test_an_expired_lease_goes_to_whoever_waits(stage: Stage) -> None:
    lease = stage.call(stage.locks.acquire, "nightly", ttl=0.3, renew=False)
    second = stage.actor("other").start(stage.locks.acquire, "nightly")
    assert second.result(PATIENCE).token > lease.token
    check_lost(lease, "expired")
    with pytest.raises(LeaseLost):
        stage.call(lease.release)
    second.result().check()


@pytest.mark.parametrize("error", [StoreUnavailable, OutcomeUnknown, StoreCorrupt, OSError])
def test_a_store_that_cannot_be_reached_costs_the_lease_at_its_deadline_and_not_before(
    stage: Stage, error: type[Exception]
) -> None:
    """An error is not a loss. OSError stands for what a third party's store may raise by mistake."""
    locks = stage.client(settings=replace(QUICK, renew_at=0.1))
    spy, told = Spy(locks), Listener()
    lease = stage.call(locks.acquire, "nightly", ttl=3.0, on_lost=told)
    spy.fail(Renew, lambda: error("the cable is out"))
    eventually(lambda: spy.count(Renew) >= 2)
    assert lease.held
    assert not told.losses
    loss = told.wait()
    assert loss.reason == "store unreachable"
    assert "the cable is out" in str(loss.detail)
    check_lost(lease, "store unreachable")
    spy.heal()
    with pytest.raises(LeaseLost, match="store unreachable"):
        stage.call(lease.release)
    assert stage.state("nightly") != "held"


def test_a_store_that_comes_back_in_time_costs_nothing(stage: Stage) -> None:
    locks = stage.client(settings=replace(QUICK, renew_at=0.1))
    spy = Spy(locks)
    lease = stage.call(locks.acquire, "nightly", ttl=5)
    spy.fail(Renew, lambda: StoreUnavailable("a hiccup"))
    eventually(lambda: spy.count(Renew) >= 2)
    spy.heal()
    before = lease._holding.kept.trusted_until
    eventually(lambda: lease._holding.kept.trusted_until > before)
    lease.check()
    stage.call(lease.release)


def test_a_store_that_never_comes_back_does_not_hide_the_loss(stage: Stage) -> None:
    """Releasing fails as well; what matters is that the lock was lost."""
    locks = stage.client(settings=Settings(ttl=3.0, renew_at=0.1, release_timeout=0.1))
    spy, told = Spy(locks), Listener()
    lease = stage.call(locks.acquire, "nightly", on_lost=told)
    spy.fault = lambda _: StoreUnavailable("gone")
    told.wait()
    with pytest.raises(LeaseLost, match="store unreachable") as caught:
        stage.call(lease.release)
    assert isinstance(caught.value.__cause__, StoreUnavailable)
    spy.heal()


def test_a_release_that_cannot_be_delivered_says_so_and_may_be_tried_again(stage: Stage) -> None:
    locks = stage.client(settings=Settings(release_timeout=0.1))
    spy = Spy(locks)
    lease = stage.call(locks.acquire, "nightly")
    spy.fail(Release, lambda: StoreUnavailable("gone"))
    with pytest.raises(StoreUnavailable, match="gone"):
        stage.call(lease.release)
    spy.heal()
    stage.call(lease.release)
    assert stage.state("nightly") == "free"


def test_a_release_whose_answer_was_lost_is_no_loss(stage: Stage) -> None:
    spy = Spy(stage.locks)
    lease = stage.call(stage.locks.acquire, "nightly")
    real, lost = spy._execute, []

    def lose_the_answer(request: Any) -> Any:
        answer = real(request)
        if isinstance(request, Release) and not lost:
            lost.append(request)
            raise OutcomeUnknown("the answer was lost")
        return answer

    spy._execute = lose_the_answer
    stage.call(lease.release)
    assert lost
    assert stage.state("nightly") == "free"


def test_a_grant_whose_answer_was_lost_is_asked_for_again(stage: Stage) -> None:
    spy = Spy(stage.locks)
    real, lost = spy._execute, []

    def lose_the_answer(request: Any) -> Any:
        answer = real(request)
        if isinstance(request, Acquire) and not lost:
            lost.append(answer)
            raise OutcomeUnknown("the answer was lost")
        return answer

    spy._execute = lose_the_answer
    lease = stage.call(stage.locks.acquire, "nightly", timeout=PATIENCE)
    assert lease.token == lost[0].token
    stage.call(lease.release)
    stage.nothing_left()


def test_max_hold_ends_a_lease_however_often_it_is_renewed(stage: Stage) -> None:
    locks = stage.client(settings=replace(QUICK, renew_at=0.1))
    spy, told = Spy(locks), Listener()
    lease = stage.call(locks.acquire, "nightly", ttl=2.9, max_hold=3.0, on_lost=told)
    assert told.wait().reason == "max_hold reached"
    assert spy.count(Renew) >= 1
    check_lost(lease, "max_hold reached")
    with pytest.raises(LeaseLost, match="max_hold"):
        stage.call(lease.release)
    other = stage.actor("other")
    other.call(other.call(stage.locks.acquire, "nightly", timeout=PATIENCE).release)


def test_max_hold_shorter_than_the_ttl_shortens_it(stage: Stage) -> None:
    lease = stage.call(stage.locks.acquire, "nightly", ttl=60, max_hold=5)
    assert lease.ttl == 5.0
    stage.call(lease.release)


def test_an_error_in_on_lost_is_logged_and_the_other_leases_are_kept(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> None:
        raise KeyError("in on_lost")

    told = Listener(fail)
    _lease = stage.call(stage.locks.acquire, "first", ttl=60, on_lost=told)
    second = stage.call(stage.locks.acquire, "second", ttl=5)
    with caplog.at_level(logging.ERROR, "holdfast"):
        stage.call(stage.locks.break_lock, "first", reason="stuck")
        told.wait()
        eventually(lambda: "on_lost" in caplog.text)
    assert "in on_lost" in caplog.text
    before = second._holding.kept.trusted_until
    eventually(lambda: second._holding.kept.trusted_until > before)
    stage.call(second.release)


@pytest.mark.parametrize("stage", ["sync"], indirect=True)
def test_sys_exit_in_on_lost_does_not_end_the_keeper(stage: Stage) -> None:
    """A natural thing to write, and in a thread it ends that thread without a word."""
    told = Listener(lambda: sys.exit("lost it"))
    _lease = stage.call(stage.locks.acquire, "first", ttl=60, on_lost=told)
    second = stage.call(stage.locks.acquire, "second", ttl=5)
    stage.call(stage.locks.break_lock, "first", reason="stuck")
    told.wait()
    before = second._holding.kept.trusted_until
    eventually(lambda: second._holding.kept.trusted_until > before)
    stage.call(second.release)


def test_a_client_that_is_closed_tells_its_holders(stage: Stage) -> None:
    told = Listener()
    locks = stage.client()
    lease = stage.call(locks.acquire, "nightly", on_lost=told)
    stage.close(locks)
    assert told.wait().reason == "client closed"
    check_lost(lease, "client closed")
    with pytest.raises(LeaseLost, match="client closed"):
        stage.call(lease.release)
    assert stage.state("nightly") == "free"


def test_every_hold_of_a_broken_lease_is_lost(stage: Stage) -> None:
    leases = [stage.call(stage.locks.acquire, "nightly", owner="me", ttl=60) for _ in range(3)]
    stage.call(stage.locks.break_lock, "nightly", reason="stuck")
    for lease in leases:
        eventually(lambda lease=lease: not lease.held)
        check_lost(lease, "broken")
        with pytest.raises(LeaseLost, match="broken"):
            stage.call(lease.release)
    stage.nothing_left()


def test_breaking_with_a_token_breaks_that_lease_only(stage: Stage) -> None:
    lease = stage.call(stage.locks.acquire, "nightly")
    assert stage.call(stage.locks.break_lock, "nightly", reason="old", token=lease.token - 1) is None
    lease.check()
    broken = stage.call(stage.locks.break_lock, "nightly", reason="now", token=lease.token)
    assert broken.holder.token == lease.token
    assert stage.call(stage.locks.break_lock, "nightly", reason="again") is None


# With blocks of threads. Those of tasks are in test_cancelling.py.


@pytest.fixture
def locks(url: str) -> Any:
    with Holdfast(url, settings=QUICK) as locks:
        yield locks


def test_leaving_the_block_of_a_lost_lease_raises(locks: Holdfast) -> None:
    with pytest.raises(LeaseLost, match="broken by olga"):  # noqa: SIM117
        with locks.hold("nightly", ttl=60) as lease:
            locks.break_lock("nightly", reason="stuck", by="olga")
            assert lease.lost.wait(PATIENCE)


def test_a_loss_never_hides_the_error_of_the_body(locks: Holdfast) -> None:
    with pytest.raises(KeyError) as caught:  # noqa: SIM117
        with locks.hold("nightly", ttl=60):
            locks.break_lock("nightly", reason="stuck", by="olga")
            raise KeyError("mine")
    assert caught.value.__notes__ == [
        note
        for note in caught.value.__notes__
        if "while leaving the block" in note and "broken by olga" in note
    ]
    assert len(caught.value.__notes__) == 1


def test_a_store_error_on_leaving_never_hides_the_error_of_the_body(url: str) -> None:
    with Holdfast(url, settings=Settings(release_timeout=0.05)) as locks:
        spy = Spy(locks)
        with pytest.raises(KeyError) as caught, locks.hold("nightly"):
            spy.fail(Release, lambda: StoreUnavailable("gone"))
            raise KeyError("mine")
        assert "gone" in caught.value.__notes__[0]
        spy.heal()


def test_the_lost_event_can_be_waited_for(locks: Holdfast) -> None:
    lease = locks.acquire("nightly", ttl=60)
    assert not lease.lost.is_set()
    assert not lease.lost.wait(0)
    assert not lease.lost.wait(0.01)
    assert lease.lost is lease.lost
    waiting = threading.Thread(target=lease.lost.wait, args=(PATIENCE,))
    waiting.start()
    locks.break_lock("nightly", reason="stuck")
    waiting.join(PATIENCE)
    assert not waiting.is_alive()
    assert lease.lost.is_set()


def test_nothing_is_lost_by_waiting_for_a_loss_that_does_not_come(locks: Holdfast) -> None:
    with locks.hold("nightly") as lease:
        assert lease.lost.wait(timeout=0.01) is False
        lease.check()


def test_an_error_while_acquiring_leaves_nothing(stage: Stage) -> None:
    """Whatever the store says, and whether or not it had granted: nothing stays locked."""
    spy = Spy(stage.locks)
    real = spy._execute
    for after in (False, True):
        for error in (StoreUnavailable, OutcomeUnknown, StoreCorrupt, StoreError):

            def fail(request: Any, after: bool = after, error: type[StoreError] = error) -> Any:
                if isinstance(request, Acquire):
                    if after and error is OutcomeUnknown:
                        real(request)
                    raise error("no")
                return real(request)

            spy._execute = fail
            for timeout in (0, 0.05):
                with pytest.raises(error):
                    stage.call(stage.locks.acquire, "nightly", timeout=timeout)
    spy._execute = real
    stage.nothing_left()
    _lease = stage.actor("holder").call(stage.locks.acquire, "nightly")
    with pytest.raises(LockTimeout):
        stage.call(stage.locks.acquire, "nightly", timeout=0)
