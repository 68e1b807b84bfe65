"""The checker of the order of grants: what is left behind, and what goes wrong. See `test_order_checker`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from holdfast.errors import DeadlockDetected, StoreMisconfigured, StoreUnavailable, TooManyRequests
from proof.checkers import order
from proof.checkers.order import rules
from proof.checkers.order.plants import KEY, a_day, change, finds, found, holds
from proof.checkers.order.story import BEGAN, Story
from proof.checkers.order.tables import PATIENCE
from proof.histories.records import Clock, Injected
from proof.traffic.excuses import explains

# What is left behind.


def a_cancelled_turn(seconds: float) -> Story:
    """Return a story of one whose call is cancelled after its grant, which is renewed for so long."""
    story = Story()
    turn = story.take(KEY, "a/1", lost=True)
    change(story.history.calls, lambda call: call.owner == "a/1", error="CancelledError: ")
    story.history.faults.append(Injected("cancel", "a", story.boot - 0.01, story.boot + 0.01))
    story.take("plain:2", "a/2").release()
    until = story.boot + seconds
    while story.boot < until:
        story.wait(0.5)
        with_answer = story.ask("Renew", KEY, turn.attempt, token=turn.token, ttl=1.0)
        story.tables.renew(KEY, turn.attempt, 1_000_000)
        with_answer("renewed")
        story.take("plain:2", f"b/{story.boot}").release()
    return story


def test_a_cancelled_call_that_is_renewed_for_ever_is_found() -> None:
    finds(a_cancelled_turn(6.0), rules.LEFT, "a/1 was done with it", "attempt-1")


def test_a_statement_of_a_cancelled_call_may_be_late() -> None:
    holds(a_cancelled_turn(1.0), rules.LEFT)


def test_a_ticket_that_is_refreshed_for_a_turn_that_is_over_is_found() -> None:
    story = Story()
    holder = story.take(KEY, "b/1", ttl=30.0)
    waits = story.take(KEY, "a/1")
    change(story.history.calls, lambda call: call.owner == "a/1", error="KeyboardInterrupt: ")
    story.history.faults.append(Injected("interrupt", "a", story.boot - 0.01, story.boot + 0.01))
    story.take("plain:2", "a/2").release()
    for _ in range(30):
        story.wait(0.2)
        waits.refresh()
        story.take("plain:2", f"c/{story.boot}").release()
    holder.release()
    finds(story, rules.LEFT, "a/1", "the ticket of attempt-2")


def a_late_request(
    *, arrives: float = 7.0, fault: str = "partition a client", target: str = "client", lost: bool = True
) -> Story:
    """Return a story of one who gives up what it asked behind a fault, and it arrives so much later."""
    story = Story()
    holder = story.take(KEY, "b/1", ttl=30.0)
    waits = story.take(KEY, "a/1")
    story.wait(0.1)
    with_answer = story.ask("Acquire", KEY, waits.attempt, owner="a/1", ttl=1.0, patience=PATIENCE, wait=True)
    began = story.boot
    if lost:
        story.wait(2.5)
    else:
        with_answer("Queued")
    change(story.history.calls, lambda call: call.owner == "a/1", error="LockTimeout: ")
    story.history.faults.append(Injected(fault, target, began - 0.05, began + 4.0))
    while story.boot < began + arrives - 0.3:
        story.take("plain:2", f"a/{story.boot}").release()
        story.wait(0.2)
    story.wait(began + arrives - story.boot)
    story.tables.acquire(waits.call, waits.attempt, 1_000_000, "")
    holder.release()
    return story


@pytest.mark.parametrize("fault", ["partition a client", "deaf network", "delays"])
def test_what_was_kept_back_by_a_fault_may_arrive_when_its_client_has_given_up(fault: str) -> None:
    target = "client" if fault == "partition a client" else "network before the database"
    holds(a_late_request(fault=fault, target=target), rules.LEFT)


@pytest.mark.parametrize(
    "planted",
    [
        {"arrives": 10.5},  # later than anything is
        {"lost": False},  # it had been answered: this is another one
        {"target": "another"},
        {"fault": "deaf network", "target": "network before the lock server"},  # who asks does not use that
        {"fault": "slow fsync", "target": "disk"},
    ],
)
def test_what_no_fault_has_kept_back_is_not_late_but_kept_alive(planted: dict[str, Any]) -> None:
    finds(a_late_request(**planted), rules.LEFT, "a/1 was done with it", "the ticket of attempt-2")


def test_what_a_program_keeps_is_its_own_business() -> None:
    """It was told that it has it, and never gave it back."""
    story = Story()
    kept = story.take(KEY, "a/1")
    story.take("plain:2", "a/2").release()
    for _ in range(12):
        story.wait(0.5)
        kept.renew()
        story.take("plain:2", f"c/{story.boot}").release()
    kept.walk_away()
    holds(story)


# Errors.


@pytest.mark.parametrize("error", ["StoreUnavailable", "OutcomeUnknown"])
def test_an_error_without_a_fault_is_found(error: str) -> None:
    story = a_day()
    change(story.history.calls, lambda call: call.kind == "try", error=f"{error}: it is away")
    finds(story, rules.CAUSE, "d/1", error)
    call = next(call for call in story.history.calls if call.error.startswith(error))
    over = call.called - 0.8
    story.history.faults.append(Injected("cut connections", "", over - 1.0, over))
    holds(story, rules.CAUSE)


def test_an_error_long_after_a_fault_is_found() -> None:
    """Everybody was served since, so what it had broken is well again. While nobody is, it is not over."""
    story = a_thread_that_stops(5.0)
    story.returns(story.call("try", KEY, "c/1"), "refused", error="StoreUnavailable: it is away")
    story.history.faults.append(Injected("kill database", "database", BEGAN, BEGAN + 0.5))
    finds(story, rules.CAUSE, "c/1")
    change(story.history.faults, lambda _: True, ended=story.boot - 0.8)
    holds(story, rules.CAUSE)


def test_a_call_is_cancelled_only_by_who_cancels_it() -> None:
    story = a_day()
    change(story.history.calls, lambda call: call.kind == "try", error="CancelledError: ")
    finds(story, rules.CAUSE, "d/1")
    story.history.faults.append(Injected("cancel", "somebody else", BEGAN, story.boot))
    finds(story, rules.CAUSE, "d/1")
    change(story.history.faults, lambda _: True, target="d")
    holds(story, rules.CAUSE)


def test_what_is_asked_inside_of_a_block_is_cancelled_with_its_lease() -> None:
    """That is no fault of the caller's; whether the lease was lost is for other rules."""
    story = a_day()
    lost = "CancelledError: lease of 'k' (token 8) is lost: expired"
    change(story.history.calls, lambda call: call.kind == "try", error=lost)
    holds(story, rules.CAUSE)


@pytest.mark.parametrize("error", [DeadlockDetected, StoreMisconfigured, TooManyRequests])
def test_no_fault_explains_a_circle_or_a_store_that_is_set_up_wrongly(error: type[Exception]) -> None:
    """An owner of this traffic has one key at a time: there is nothing to make a circle of."""
    assert not explains(error.__new__(error))
    assert explains(StoreUnavailable("planted"))


# Going on.


def a_thread_that_stops(seconds: float) -> Story:
    """Return a story of two threads, one of which does nothing any more for so long."""
    story = Story()
    story.take(KEY, "a/1").release()
    until = story.boot + seconds
    while story.boot < until:
        story.take(KEY, f"b/{story.boot}").release()
        story.wait(1.0)
    return story


def test_a_thread_that_does_nothing_any_more_is_found() -> None:
    finds(a_thread_that_stops(22.0), rules.GOES_ON, "a.0 did nothing")
    holds(a_thread_that_stops(18.0), rules.GOES_ON)


def test_a_thread_that_comes_back_too_late_is_found() -> None:
    story = a_thread_that_stops(22.0)
    story.take(KEY, "a/2").release()
    finds(story, rules.GOES_ON, "a.0 did nothing")


@pytest.mark.parametrize(
    ("fault", "ended"), [("pause client", 5.0), ("kill client", 0.2)], ids=["paused", "killed"]
)
def test_a_process_that_is_stopped_or_dead_does_nothing(fault: str, ended: float) -> None:
    story = a_thread_that_stops(22.0)
    story.history.faults.append(Injected(fault, "a", BEGAN + 0.1, BEGAN + ended))
    holds(story, rules.GOES_ON)
    change(story.history.faults, lambda _: True, target="b")
    if fault == "pause client":
        finds(story, rules.GOES_ON, "a.0 did nothing")


def test_a_store_that_serves_nobody_is_found() -> None:
    story = a_thread_that_stops(1.0)
    began = story.boot
    for number in range(8):
        story.wait(0.5)
        story.returns(story.call("try", KEY, f"c/{number}"), "refused", error="LockTimeout")
    story.take(KEY, "d/1").release()
    finds(story, rules.SERVED, "nobody was served")
    story.history.faults.append(Injected("pause database", "", began, story.boot))
    holds(story, rules.SERVED)


# What can be said at all.


def test_rules_that_were_applied_to_nothing_are_told() -> None:
    nothing = order.idle(order.check(Story().history))
    assert rules.RISE.name in nothing
    some = order.idle(order.check(a_day().history))
    assert rules.RISE.name not in some
    assert rules.REPORTED.name in some


def test_a_run_by_a_clock_that_somebody_has_set_is_not_decided() -> None:
    story = a_day()
    assert order.check(story.history).undecided == 0
    story.history.clocks.append(Clock(story.boot + 20, story.now + 20_200_000))
    assert order.check(story.history).undecided == 1


# A stepped clock.


@pytest.mark.parametrize(("detail", "is_right"), [("+0.5 s", False), ("+4 s", True), ("", True)])
def test_a_step_of_the_clock_excuses_what_it_can_explain(detail: str, is_right: bool) -> None:
    """An end that is three seconds too late is not explained by a step of half a second."""
    story = Story()
    story.wait(10.0)
    turn = story.take(KEY, "a/1")
    turn.release()
    end = story.history.audit[0].expires_at + 3_000_000
    story.history.audit[0] = replace(story.history.audit[0], expires_at=end)
    step = Injected("database clock step", "", BEGAN + 9.5, BEGAN + 10.5, 0, detail, ("belief",))
    story.history.faults.append(step)
    assert (rules.LASTS.name in found(story)) != is_right


@pytest.mark.parametrize(("ttl", "is_stepped"), [(0.6, True), (1.5, True), (0.6, False)])
def test_what_ran_out_by_a_clock_that_was_set_back_since_has_run_out(ttl: float, is_stepped: bool) -> None:
    """It is decided by the clock as it was; then that is set back by two seconds, and the trigger looks.

    What had half a second left has not run out, nor has anything by a clock that nobody has set.
    """
    story = Story()
    story.wait(10.0)
    first = story.take(KEY, "a/1", ttl=ttl)
    story.take(KEY, "a/1", kind="reenter", ttl=9.0).walk_away()
    story.wait(0.9)
    story.tables.locks[KEY].holds[first.attempt].end = story.now  # the store goes by that, and wrote another
    before = len(story.history.audit)
    story.take(KEY, "b/1")
    for place, row in enumerate(story.history.audit[before:], before):
        story.history.audit[place] = replace(row, at=row.at - 2_000_000)
    if is_stepped:
        step = Injected("database clock step", "", BEGAN + 10.5, BEGAN + 11.0, 0, "+2 s", ("belief",))
        story.history.faults.append(step)
    is_right = is_stepped and ttl == 0.6
    assert (rules.LET_GO.name in found(story)) != is_right
