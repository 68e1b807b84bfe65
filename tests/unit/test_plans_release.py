"""The releasing plan, and plain asking, driven by hand."""

import pytest

from holdfast.core.backoff import Backoff
from holdfast.core.plans import Abandoned, Grant, Wait, ask, release
from holdfast.core.requests import Inspect, NotHeld, Release, Released
from holdfast.core.settings import Settings
from holdfast.errors import OutcomeUnknown, SchemaMismatch, StoreUnavailable

SETTINGS = Settings(release_timeout=5.0, backoff=Backoff(first=0.1, most=2.0))
GRANT = Grant("nightly", "a-1", "worker-7", token=8, ttl=30.0, trusted_until=29.0)
RETIRED = Grant("nightly", "a-1", "worker-7", token=8, ttl=30.0, trusted_until=29.0, retire=True)
RELEASE = Release("nightly", "a-1", 8)
RETIRE = Release("nightly", "a-1", 8, retire=True)


def plan_for(grant: Grant = GRANT, now: float = 0.0):
    return release(grant, settings=SETTINGS, clock=lambda: now, roll=lambda: 0.0)


def result(plan, answer):
    with pytest.raises(StopIteration) as stopped:
        plan.send(answer)
    return stopped.value.value


def test_a_hold_is_given_back():
    plan = plan_for()
    assert next(plan) == RELEASE
    assert result(plan, Released(0, next="worker-1")) == Released(0, next="worker-1")


def test_an_attempt_that_is_to_be_retired_is_retired():
    assert next(plan_for(RETIRED)) == RETIRE


@pytest.mark.parametrize("why", ["expired", "taken over", "broken", "already", "unknown"])
def test_what_was_not_held_any_more_is_said(why):
    plan = plan_for()
    next(plan)
    assert result(plan, NotHeld(why)) == NotHeld(why)


def test_a_release_that_was_certainly_not_applied_is_asked_again():
    plan = plan_for()
    next(plan)
    assert plan.throw(StoreUnavailable()) == Wait("nightly", "a-1", until=0.05)
    assert plan.send(None) == RELEASE
    assert result(plan, NotHeld("expired")) == NotHeld("expired")


def test_a_release_that_may_have_been_applied_is_asked_again_and_retires():
    """P6: a copy of the first may arrive later, and so may a copy of the acquire."""
    plan = plan_for()
    next(plan)
    plan.throw(OutcomeUnknown())
    assert plan.send(None) == RETIRE


@pytest.mark.parametrize("why", ["already", "taken over", "expired", "unknown"])
def test_after_a_lost_answer_not_held_means_that_it_was_released(why):
    plan = plan_for()
    next(plan)
    plan.throw(OutcomeUnknown())
    plan.send(None)
    assert result(plan, NotHeld(why)) == Released()


def test_after_a_lost_answer_a_break_is_still_told():
    plan = plan_for()
    next(plan)
    plan.throw(OutcomeUnknown())
    plan.send(None)
    assert result(plan, NotHeld("broken", "olga", "stuck")) == NotHeld("broken", "olga", "stuck")


def test_failures_are_borne_until_it_is_not_worth_it():
    """The lease ends by itself."""
    time = iter((0.0, 1.0, 4.96))
    plan = release(GRANT, settings=SETTINGS, clock=lambda: next(time), roll=lambda: 0.0)
    next(plan)
    assert plan.throw(StoreUnavailable()) == Wait("nightly", "a-1", until=1.05)
    plan.send(None)
    with pytest.raises(StoreUnavailable):
        plan.throw(StoreUnavailable())


def test_other_errors_are_raised_at_once():
    plan = plan_for()
    next(plan)
    with pytest.raises(SchemaMismatch):
        plan.throw(SchemaMismatch("new"))


@pytest.mark.parametrize("moment", ["asking", "backing off"])
def test_whoever_is_interrupted_still_gives_it_back(moment):
    """R21: the request may not have been sent yet, and releasing twice is harmless."""
    plan = plan_for()
    next(plan)
    if moment == "backing off":
        plan.throw(StoreUnavailable())
    assert plan.throw(Abandoned()) == RETIRE
    with pytest.raises(Abandoned):
        plan.send(NotHeld("already"))


def test_an_interruption_goes_on_even_if_the_last_wish_fails():
    plan = plan_for()
    next(plan)
    plan.throw(Abandoned())
    with pytest.raises(Abandoned):
        plan.throw(StoreUnavailable())


def test_a_plan_that_is_merely_closed_asks_for_nothing():
    plan = plan_for()
    next(plan)
    plan.close()
    with pytest.raises(StopIteration):
        next(plan)


def test_a_question_is_asked_again_while_the_store_is_unavailable():
    time = iter((0.0, 1.0, 4.96))
    plan = ask(Inspect("nightly"), settings=SETTINGS, clock=lambda: next(time), roll=lambda: 0.0)
    assert next(plan) == Inspect("nightly")
    assert plan.throw(StoreUnavailable()) == Wait("", "", until=1.05)
    assert plan.send(None) == Inspect("nightly")
    with pytest.raises(StoreUnavailable):
        plan.throw(StoreUnavailable())


def test_the_answer_to_a_question_is_returned():
    plan = ask(Inspect("nightly"), settings=SETTINGS, clock=lambda: 0.0, roll=lambda: 0.0)
    next(plan)
    assert result(plan, None) is None
