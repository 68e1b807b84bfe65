"""Taking locks and giving them back, through the public API of both clients."""

from __future__ import annotations

import os
import re
import socket
import threading
from concurrent.futures import Future
from datetime import timedelta
from typing import Any

import pytest

from holdfast import LeaseLost, LockTimeout, NotHeld, ReentryLimit, SettingsError
from tests.clients.support import PATIENCE, Stage


def enter(stage: Stage, hold: Any) -> Any:
    return stage.call(hold.__aenter__ if stage.is_async else hold.__enter__)


def leave(stage: Stage, hold: Any, error: BaseException | None = None) -> None:
    end = hold.__aexit__ if stage.is_async else hold.__exit__
    stage.call(end, type(error) if error else None, error, None)


def test_a_hold_holds_inside_its_block_and_not_after(stage: Stage) -> None:
    hold = stage.locks.hold("nightly", ttl=30, timeout=5)
    lease = enter(stage, hold)
    assert lease.held
    assert lease.key == "nightly"
    assert stage.state("nightly") == "held"
    leave(stage, hold)
    assert not lease.held
    assert stage.state("nightly") == "free"


def test_a_hold_releases_when_its_body_raises_and_the_error_goes_on(stage: Stage) -> None:
    hold = stage.locks.hold("nightly")
    enter(stage, hold)
    error = KeyError("mine")
    leave(stage, hold, error)  # returns None: the error is not swallowed
    assert stage.state("nightly") == "free"
    assert not hasattr(error, "__notes__")


def test_a_hold_serves_one_block_only(stage: Stage) -> None:
    hold = stage.locks.hold("nightly")
    enter(stage, hold)
    leave(stage, hold)
    with pytest.raises(SettingsError, match="call hold\\(\\) again"):
        enter(stage, hold)
    stage.nothing_left()


def test_a_hold_that_timed_out_may_be_tried_again(stage: Stage) -> None:
    other = stage.actor("other")
    lease = other.call(stage.locks.acquire, "nightly")
    hold = stage.locks.hold("nightly", timeout=0)
    with pytest.raises(LockTimeout):
        enter(stage, hold)
    other.call(lease.release)
    enter(stage, hold)
    leave(stage, hold)


def test_making_a_hold_asks_for_nothing(stage: Stage) -> None:
    stage.locks.hold("nightly")
    assert stage.look("nightly") is None


def test_an_acquired_lease_is_held_until_it_is_released(stage: Stage) -> None:
    lease = stage.call(stage.locks.acquire, "nightly", ttl=timedelta(seconds=20))
    assert lease.ttl == 20.0
    assert 15 < lease.remaining < 20
    lease.check()
    stage.call(lease.release)
    assert lease.remaining == 0.0
    stage.nothing_left()


def test_a_lease_is_a_context_manager_too(stage: Stage) -> None:
    lease = stage.call(stage.locks.acquire, "nightly")
    assert enter(stage, lease) is lease
    leave(stage, lease)
    assert stage.state("nightly") == "free"


def test_a_released_lease_cannot_be_entered(stage: Stage) -> None:
    lease = stage.call(stage.locks.acquire, "nightly")
    stage.call(lease.release)
    with pytest.raises(NotHeld):
        enter(stage, lease)


def test_tokens_rise_from_lease_to_lease(stage: Stage) -> None:
    tokens = []
    for _ in range(20):
        lease = stage.call(stage.locks.acquire, "nightly")
        tokens.append(lease.token)
        stage.call(lease.release)
    assert tokens == sorted(set(tokens))


def test_trying_gives_a_lease_or_none(stage: Stage) -> None:
    lease = stage.call(stage.locks.try_acquire, "nightly")
    assert lease is not None
    assert stage.actor("other").call(stage.locks.try_acquire, "nightly") is None
    assert stage.waiting("nightly") == 0
    stage.call(lease.release)


@pytest.mark.parametrize("timeout", [0, 0.0, timedelta(0)])
def test_no_timeout_is_one_try_without_a_ticket(stage: Stage, timeout: Any) -> None:
    lease = stage.call(stage.locks.acquire, "nightly", ttl=30)
    with pytest.raises(LockTimeout) as caught:
        stage.actor("other").call(stage.locks.acquire, "nightly", timeout=timeout)
    assert caught.value.waited == 0
    assert caught.value.position is None
    assert "not waiting" in str(caught.value)
    assert stage.waiting("nightly") == 0
    stage.call(lease.release)


@pytest.mark.parametrize("timeout", [0.05, timedelta(milliseconds=50)])
def test_a_timeout_says_who_has_it_and_what_our_place_was(stage: Stage, timeout: Any) -> None:
    holder, first, second = stage.actor("holder"), stage.actor("first"), stage.actor("second")
    lease = holder.call(stage.locks.acquire, "nightly", ttl=30)
    waiting = first.start(stage.locks.acquire, "nightly")
    stage.until_waiting("nightly", 1)
    with pytest.raises(LockTimeout) as caught:
        second.call(stage.locks.acquire, "nightly", timeout=timeout)
    error = caught.value
    assert isinstance(error, TimeoutError)
    assert error.key == "nightly"
    assert error.waited >= 0.05
    assert error.position == 2
    assert error.holder is not None
    assert error.holder.owner == lease.owner
    assert error.holder.host == socket.gethostname()
    assert error.holder.pid == os.getpid()
    assert error.holder.token == lease.token
    assert 0 <= error.holder.held_for < PATIENCE
    assert error.expires_in is not None
    assert 0 < error.expires_in <= 30
    assert re.fullmatch(
        rf"'nightly' is held by {lease.owner} \(host {socket.gethostname()}, pid {os.getpid()}\)"
        r" for \d+\.\d s,"
        r" lease ends in \d+\.\d s unless renewed; we were number 2 in the queue \(gave up after \d+\.\d s\)",
        str(error),
    )
    assert stage.waiting("nightly") == 1  # the one that gave up left no ticket
    holder.call(lease.release)
    first.call(waiting.result().release)


def test_without_a_timeout_it_waits_until_it_is_granted(stage: Stage) -> None:
    other = stage.actor("other")
    lease = stage.call(stage.locks.acquire, "nightly")
    waiting = other.start(stage.locks.acquire, "nightly", timeout=None)
    stage.until_waiting("nightly", 1)
    assert not waiting.done()
    stage.call(lease.release)
    second = waiting.result(PATIENCE)
    assert second.token > lease.token
    other.call(second.release)


def test_entering_again_keeps_the_token_and_needs_as_many_releases(stage: Stage) -> None:
    first = stage.call(stage.locks.acquire, "nightly", owner="me")
    second = stage.call(stage.locks.acquire, "nightly", owner="me")
    assert first.token == second.token
    view = stage.look("nightly")
    assert view is not None
    assert view.holds == 2
    stage.call(first.release)
    assert stage.state("nightly") == "held"
    assert second.held
    stage.call(second.release)
    assert stage.state("nightly") == "free"


def test_entering_too_often_raises_and_changes_nothing(stage: Stage) -> None:
    leases = [stage.call(stage.locks.acquire, "nightly", owner="me", limit=3) for _ in range(3)]
    with pytest.raises(ReentryLimit) as caught:
        stage.call(stage.locks.acquire, "nightly", owner="me", limit=3)
    assert (caught.value.holds, caught.value.limit) == (3, 3)
    assert caught.value.owner == leases[0].owner
    assert "3 of at most 3 holds" in str(caught.value)
    for lease in leases:
        lease.check()
        stage.call(lease.release)
    stage.nothing_left()


def test_a_limit_of_one_is_a_lock_without_re_entry(stage: Stage) -> None:
    lease = stage.call(stage.locks.acquire, "nightly", owner="me", limit=1)
    for timeout in (0, 5, None):  # it would wait for itself for ever
        with pytest.raises(ReentryLimit, match="ask with another owner="):
            stage.call(stage.locks.acquire, "nightly", owner="me", limit=1, timeout=timeout)
    stage.call(lease.release)
    stage.nothing_left()


def test_another_owner_is_not_a_re_entry(stage: Stage) -> None:
    lease = stage.call(stage.locks.acquire, "nightly", owner="ann")
    assert stage.call(stage.locks.try_acquire, "nightly", owner="bob") is None
    again = stage.actor("elsewhere").call(stage.locks.try_acquire, "nightly", owner="ann")
    assert again.token == lease.token
    stage.call(again.release)
    stage.call(lease.release)


def test_a_lease_with_an_owner_travels(stage: Stage) -> None:
    lease = stage.call(stage.locks.acquire, "nightly", owner="worker-7")
    assert lease.owner == "worker-7"
    stage.actor("elsewhere").call(lease.release)
    assert stage.state("nightly") == "free"


def test_an_owner_travels_between_clients(stage: Stage) -> None:
    lease = stage.call(stage.locks.acquire, "nightly", owner="worker-7")
    again = stage.call(stage.client().acquire, "nightly", owner="worker-7", timeout=0)
    assert again.token == lease.token
    stage.call(lease.release)
    stage.call(again.release)
    stage.nothing_left()


def test_releasing_twice_says_so_and_changes_nothing(stage: Stage) -> None:
    other = stage.actor("other")
    lease = stage.call(stage.locks.acquire, "nightly")
    stage.call(lease.release)
    second = other.call(stage.locks.acquire, "nightly")
    with pytest.raises(NotHeld, match="released already"):
        stage.call(lease.release)
    with pytest.raises(NotHeld, match="released already"):
        lease.check()
    assert second.held
    assert stage.state("nightly") == "held"
    other.call(second.release)


def test_of_two_releases_at_once_one_is_told_that_it_was_released(stage: Stage) -> None:
    ann, bob = stage.actor("ann"), stage.actor("bob")
    for _ in range(20):
        lease = stage.call(stage.locks.acquire, "nightly", owner="both")
        ends: list[Future[Any]] = [actor.start(lease.release) for actor in (ann, bob)]
        errors = [end.exception(PATIENCE) for end in ends]
        assert errors.count(None) == 1
        assert [type(error) for error in errors if error] == [NotHeld]
        assert stage.state("nightly") == "free"


def test_releasing_what_was_lost_raises_and_the_next_holder_keeps_it(stage: Stage) -> None:
    other = stage.actor("other")
    lease = stage.call(stage.locks.acquire, "nightly")
    stage.call(stage.locks.break_lock, "nightly", reason="stuck", by="olga")
    second = other.call(stage.locks.acquire, "nightly")
    with pytest.raises(LeaseLost, match="broken by olga"):
        stage.call(lease.release)
    second.check()
    assert stage.look("nightly").token == second.token  # type: ignore[union-attr]
    other.call(second.release)


def test_a_lease_shows_its_state(stage: Stage) -> None:
    name = "AsyncLease" if stage.is_async else "Lease"
    lease = stage.call(stage.locks.acquire, "nightly", ttl=30)
    assert re.fullmatch(rf"<{name} 'nightly' token={lease.token}, trusted \d\d\.\d s>", repr(lease))
    stage.call(lease.release)
    assert repr(lease) == f"<{name} 'nightly' token={lease.token}, released>"
    lease = stage.call(stage.locks.acquire, "nightly", ttl=30)
    stage.call(stage.locks.break_lock, "nightly", reason="stuck")
    with pytest.raises(LeaseLost):
        stage.call(lease.release)
    lost = stage.call(stage.locks.acquire, "gone", ttl=0.1, renew=False)
    threading.Event().wait(0.1)
    assert repr(lost) == f"<{name} 'gone' token={lost.token}, lost: expired>"


def test_a_client_shows_its_state(stage: Stage) -> None:
    locks = stage.client()
    lease = stage.call(locks.acquire, "nightly")
    assert "1 leases" in repr(locks)
    assert stage.url in repr(locks)
    stage.call(lease.release)
    stage.close(locks)
    assert "closed" in repr(locks)


def test_keys_are_compared_byte_for_byte(stage: Stage) -> None:
    leases = [
        stage.call(stage.locks.acquire, key, timeout=0, limit=1)
        for key in (
            "key",
            "Key",
            "kéy",
            "ke\u0301y",
            "key ",
            " key",
            "%",
            "_",
            "'; DROP TABLE holdfast_locks --",
            "键",
        )
    ]
    assert len(stage.everything()) == len(leases)
    for lease in leases:
        stage.call(lease.release)


# The locks that speak threading.Lock and asyncio.Lock.


def test_a_lock_speaks_the_standard_library(stage: Stage) -> None:
    lock = stage.locks.lock("nightly")
    other = stage.actor("other")
    assert stage.call(lock.locked) is False
    assert stage.call(lock.acquire) is True
    assert stage.call(lock.locked) is True
    other.call(lock.release)  # as theirs can be by any thread or task
    assert stage.call(lock.locked) is False
    with pytest.raises(RuntimeError):  # as threading.Lock and asyncio.Lock do
        stage.call(lock.release)


def test_a_lock_is_a_context_manager_and_keeps_the_error_of_its_body(stage: Stage) -> None:
    lock = stage.locks.lock("nightly", ttl=5)
    enter(stage, lock)
    assert stage.call(lock.locked)
    error = KeyError("mine")
    stage.call(stage.locks.break_lock, "nightly", reason="stuck")
    leave(stage, lock, error)
    assert "broken" in error.__notes__[0]
    enter(stage, lock)
    leave(stage, lock)
    stage.nothing_left()


def test_a_lock_may_be_entered_again_from_inside_unless_its_limit_says_no(stage: Stage) -> None:
    lock, strict = stage.locks.lock("nightly"), stage.locks.lock("strict", limit=1)

    def twice() -> None:
        with lock, lock:
            assert lock.locked()
        with strict, pytest.raises(ReentryLimit):
            strict.acquire()

    async def twice_in_a_task() -> None:
        async with lock, lock:
            assert await lock.locked()
        async with strict:
            with pytest.raises(ReentryLimit):
                await strict.acquire()

    stage.call(twice_in_a_task if stage.is_async else twice)
    stage.nothing_left()


def test_who_has_lost_a_lock_does_not_release_that_of_the_next(stage: Stage) -> None:
    lock = stage.locks.lock("nightly")
    other = stage.actor("other")
    stage.call(lock.acquire)
    stage.call(stage.locks.break_lock, "nightly", reason="stuck")
    other.call(lock.acquire)
    with pytest.raises(LeaseLost):
        stage.call(lock.release)
    assert stage.call(lock.locked)
    other.call(lock.release)
    stage.nothing_left()


@pytest.mark.parametrize("stage", ["sync"], indirect=True)
def test_a_lock_is_released_while_others_come_and_go(stage: Stage) -> None:
    """Another thread left between a look at all leases and the first of them: the holder found none."""

    class Crowd(list[Any]):
        def __reversed__(self) -> Any:
            found = super().__reversed__()
            del self[0]
            return found

    lock = stage.locks.lock("nightly")
    stage.call(lock.acquire)
    lock._leases = Crowd([("other", stage.call(stage.locks.acquire, "of another thread")), *lock._leases])
    stage.call(lock.release)
    assert not stage.call(lock.locked)


@pytest.mark.parametrize("stage", ["sync"], indirect=True)
def test_a_threading_lock_has_its_timeouts(stage: Stage) -> None:
    lock = stage.locks.lock("nightly")
    other = stage.actor("other")
    stage.call(lock.acquire)
    assert other.call(lock.acquire, False) is False
    assert other.call(lock.acquire, blocking=False) is False
    assert other.call(lock.acquire, timeout=0.02) is False
    assert other.call(lock.acquire, True, 0.02) is False
    with pytest.raises(ValueError, match="non-blocking"):
        other.call(lock.acquire, False, 5)
    assert stage.waiting("nightly") == 0
    stage.call(lock.release)
    assert other.call(lock.acquire, timeout=5) is True
    other.call(lock.release)
