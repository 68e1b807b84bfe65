"""What is raised for an answer: the same error by every client, and told by the server."""

import pytest

from holdfast import errors
from holdfast.core import cluster as c
from holdfast.core import requests as r
from holdfast.core.family import Failure, Terms
from holdfast.core.refusals import error_for, refusal

ME = r.Client("i-1/s-1", "alpha", 101)
ACQUIRE = r.Acquire("k", "a-1", "ann", 30.0, ME, terms=Terms("permits", take=2, permits=3))
RELEASE = r.Release("k", "a-1", 8)
ASSIGN = c.Assign("w:1", "a-1", "ann", 30.0, ME, id="i-1")
HEARTBEAT = c.Heartbeat("i-1", ME, 90.0)
HOLDER = r.Holder("bob", "beta", 7, token=8, held_for=3.0)
WORK = c.WorkView("w:1", "failed", "null", "boom", 3, 3, "i-1", 8, 0.0, None, 0.0)


@pytest.mark.parametrize(
    ("request_", "answer", "error", "says"),
    [
        (ACQUIRE, r.Busy(HOLDER, 12.5), errors.LockTimeout, "12.5"),
        (RELEASE, r.NotHeld("broken", "olga", "stuck"), errors.NotHeld, "by olga stuck"),
        (ACQUIRE, r.TooManyHolds(7), errors.ReentryLimit, "7"),
        (ACQUIRE, r.Refused("upgrade"), errors.UpgradeRefused, "ann"),
        (ACQUIRE, r.Refused("permits", 5), errors.CapacityMismatch, "5"),
        (RELEASE, r.Refused("holds"), errors.NotHeld, "other holds"),
        (RELEASE, r.Refused("tired"), errors.NotHeld, "tired"),
        (ACQUIRE, r.Deadlocked(()), errors.DeadlockDetected, "k"),
        (ACQUIRE, r.Failed((Failure("ann", "alpha", 101, 8, "boom"),)), errors.OperationFailed, "boom"),
        (HEARTBEAT, c.Beat("dead"), errors.InstanceLost, "declared it dead"),
        (HEARTBEAT, c.Beat("left"), errors.InstanceLost, "it has left"),
        (ASSIGN, c.Beat("draining"), errors.InstanceLost, "draining"),
        (ASSIGN, c.Full(8), errors.AtCapacity, "8"),
        (ASSIGN, c.Ended(WORK), errors.WorkEnded, "failed"),
        (ASSIGN, c.NotDue(2.5), errors.LockTimeout, "was not granted"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_an_answer_that_was_not_asked_for_is_an_error_with_its_values(request_, answer, error, says):
    raised = refusal(request_, answer)
    assert type(raised) is error
    assert says in str(raised)


@pytest.mark.parametrize(
    ("request_", "answer"),
    [
        (ACQUIRE, r.Granted(8, 30.0)),
        (RELEASE, r.Released()),
        (HEARTBEAT, c.Beat("draining")),
        (HEARTBEAT, c.Beat("alive")),
        (ASSIGN, r.Granted(8, 30.0)),
        (r.Inspect("k"), None),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_was_asked_for_is_not_an_error(request_, answer):
    assert error_for(request_, answer) is None
