"""`Drive`: how every runner takes a plan from step to step."""

import pytest

from holdfast.core.driver import Drive
from holdfast.core.plans import Abandoned, Wait
from holdfast.errors import StoreUnavailable

WAIT = Wait("nightly", "a-1", None)


def asking_twice(log):
    try:
        first = yield "one"
        second = yield "two"
    except Abandoned:
        log.append((yield "undo"))
        raise
    except StoreUnavailable:
        second = yield "again"
        first = None
    return first, second


def test_a_plan_is_told_what_came_of_each_step_and_ends_with_its_result():
    drive = Drive(asking_twice([]))
    assert drive.tell(None)
    assert drive.step == "one"
    assert drive.tell(1)
    assert drive.step == "two"
    assert not drive.tell(2)
    assert drive.result == (1, 2)


def test_a_failure_is_the_plans_to_deal_with():
    drive = Drive(asking_twice([]))
    drive.tell(None)
    assert drive.fail(StoreUnavailable())
    assert drive.step == "again"
    assert not drive.tell("at last")
    assert drive.result == (None, "at last")


def test_a_failure_may_be_the_end_of_a_plan():
    def careless():
        try:
            yield "one"
        except StoreUnavailable:
            return "never mind"

    drive = Drive(careless())
    drive.tell(None)
    assert not drive.fail(StoreUnavailable())
    assert drive.result == "never mind"


def test_what_a_plan_raises_goes_through():
    def refusing():
        yield "one"
        raise ValueError("no")

    drive = Drive(refusing())
    drive.tell(None)
    with pytest.raises(ValueError, match="no"):
        drive.tell(1)


def test_an_abandoned_plan_has_its_last_wish():
    log = []
    drive = Drive(asking_twice(log))
    drive.tell(None)
    drive.undo(lambda step: f"did {step}", waits=(Wait,))
    assert log == ["did undo"]


def test_a_last_wish_that_fails_is_told_to_the_plan():
    heard = []

    def stubborn():
        try:
            yield "one"
        except Abandoned:
            try:
                yield "undo"
            except StoreUnavailable as error:
                heard.append(error)
            raise

    def fail(_):
        raise StoreUnavailable

    drive = Drive(stubborn())
    drive.tell(None)
    drive.undo(fail, waits=(Wait,))
    assert len(heard) == 1


def test_nobody_waits_for_a_last_wish():
    def waiting():
        try:
            yield "one"
        except Abandoned:
            yield WAIT

    drive = Drive(waiting())
    drive.tell(None)
    drive.undo(lambda step: step, waits=(Wait,))
    assert drive.step == WAIT


def test_a_plan_that_has_ended_wants_nothing_undone():
    drive = Drive(asking_twice([]))
    drive.tell(None)
    drive.tell(1)
    drive.tell(2)
    drive.undo(lambda step: pytest.fail(f"asked for {step}"), waits=(Wait,))


def test_a_plan_that_does_not_wait_is_run_to_its_end():
    drive = Drive(asking_twice([]))
    drive.finish(str.upper, drive.tell(None), waits=(Wait,))
    assert drive.result == ("ONE", "TWO")
