"""What is worth waiting for when a store is not ready: decided without waiting."""

import pytest

from holdfast import errors
from holdfast.stores.base import not_made_yet
from holdfast.stores.mysql import failures as mysql
from holdfast.stores.postgres import failures as postgres
from holdfast.stores.readiness import Opening
from holdfast.stores.sql.schema import mismatch


class Time:
    now = 100.0

    def __call__(self):
        return self.now


def opening(patience, time):
    return Opening(patience, clock=time, roll=lambda: 1.0)


def test_what_may_pass_is_tried_again_until_the_time_is_up():
    time = Time()
    waiting = opening(10, time)
    error = errors.StoreUnavailable("nobody listens")
    pauses = [waiting.pause(error) for _ in range(7)]
    assert pauses == sorted(pauses)
    assert pauses[-1] == 2.0
    time.now += 9.5
    assert waiting.pause(error) == 0.5
    time.now += 0.5
    with pytest.raises(errors.StoreUnavailable):
        waiting.pause(error)


def test_without_patience_the_first_error_is_the_last():
    error = errors.StoreUnavailable("nobody listens")
    with pytest.raises(errors.StoreUnavailable) as raised:
        opening(0, Time()).pause(error)
    assert raised.value is error


@pytest.mark.parametrize(
    "error",
    [
        errors.StoreUnavailable("x"),
        errors.OutcomeUnknown("x"),
        not_made_yet(errors.SchemaMismatch("x")),
        mismatch(found=1, ours=2),
        *(postgres.translate(state, "x") for state in ("57P03", "3D000", "42P01", "3F000", "42501")),
        *(mysql.refused(number, "x") for number in (2003, 1040, 1044, 1049, 1142, 1146)),
    ],
    ids=str,
)
def test_what_somebody_may_be_about_to_make_is_waited_for(error):
    assert opening(10, Time()).pause(error) > 0


@pytest.mark.parametrize(
    "error",
    [
        errors.StoreMisconfigured("x"),
        errors.StoreCorrupt("x"),
        errors.AccessDenied("x"),
        mismatch(found=3, ours=2),
        *(postgres.translate(state, "x") for state in ("28P01", "28000", "42703", "XX001")),
        *(mysql.refused(number, "x") for number in (1045, 1698, 1130, 1054)),
    ],
    ids=str,
)
def test_what_only_we_can_correct_is_not_waited_for(error):
    with pytest.raises(type(error)):
        opening(10, Time()).pause(error)


def test_it_is_said_once_what_is_waited_for_and_again_when_that_changes(caplog):
    waiting = opening(10, Time())
    for text in ("nobody listens", "nobody listens", "no tables", "no tables"):
        waiting.pause(errors.StoreUnavailable(text))
    assert [record.getMessage() for record in caplog.records] == [
        "the store is not ready, trying for another 10 s: nobody listens",
        "the store is not ready, trying for another 10 s: no tables",
    ]
