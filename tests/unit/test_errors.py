"""Errors: one tree, with fields, messages that help, and codes."""

import pickle
import re
from pathlib import Path

import pytest

from holdfast import errors
from holdfast.core.data import replace
from holdfast.core.family import Failure, Link
from holdfast.core.requests import Holder
from holdfast.errors import CODES, HoldfastError, exit_code, http_status

HOLDER = Holder("worker-7", "alpha", 101, token=8, held_for=3.0)
TREE = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, HoldfastError)]
EXAMPLES = [
    errors.LockTimeout("nightly", waited=5.0, holder=HOLDER, expires_in=12.4, position=2),
    errors.LockTimeout("nightly", waited=0.0),
    errors.LeaseLost("nightly", "broken", token=8, by="olga", detail="stuck"),
    errors.NotHeld("nightly", "expired", detail="too late"),
    errors.ReentryLimit("nightly", owner="ann", holds=3, limit=3),
    errors.UpgradeRefused("nightly", owner="ann"),
    errors.CapacityMismatch("gpu", permits=4, stored=2),
    errors.DeadlockDetected("b", (Link("ann", "b", "alpha", 1), Link("bob", "a", "beta", 2))),
    errors.OperationFailed("pull:x", (Failure("ann", "alpha", 1, 8, "OSError: no"),)),
    errors.InstanceLost("e-1", "its heartbeats were missed"),
    errors.WorkEnded("job:1", "failed", "OSError: no"),
    errors.AtCapacity("e-1", 8),
    errors.Closed("this client"),
    errors.InvalidKey("", "is empty"),
    errors.SettingsError("ttl is 0"),
    errors.StoreError("odd"),
    errors.StoreUnavailable("busy"),
    errors.OutcomeUnknown("lost"),
    errors.SchemaMismatch("new"),
    errors.StoreMisconfigured("no"),
    errors.StoreCorrupt("bad"),
    errors.AccessDenied("ci may not break 'nightly'"),
    errors.NotAuthenticated("no access token was given"),
    errors.LimitExceeded("waiters", 100, "ci has 100 waiters already"),
    errors.TooManyRequests(2.5, "slower, please"),
    errors.RequestRefused(413, "the body is too large"),
    HoldfastError("root"),
]


def test_there_is_an_example_of_every_error():
    assert {type(error) for error in EXAMPLES} == set(TREE)


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_an_error_crosses_processes_with_all_it_says(error):
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert str(copy) == str(error)
    assert vars(copy) == vars(error)


@pytest.mark.parametrize("kind", TREE, ids=lambda kind: kind.__name__)
def test_every_error_has_its_codes(kind):
    code, status = CODES[kind]
    assert 64 <= code <= 79  # beside what shells and signals use
    assert 400 <= status <= 599


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_the_exit_code_is_that_of_the_class(error):
    assert exit_code(error) == CODES[type(error)][0]


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_the_status_is_that_of_the_class_unless_the_error_has_its_own(error):
    own = getattr(error, "status", None)
    assert http_status(error) == (own or CODES[type(error)][1])
    assert (own is None) is not isinstance(error, errors.RequestRefused)


def test_the_reference_has_one_table_of_errors_with_their_codes():
    """Error ↔ exit code ↔ HTTP status, as `CODES` has them, and the fields that each carries."""
    page = (Path(__file__).parents[2] / "docs" / "reference" / "errors.md").read_text("utf-8")
    row = re.compile(r"^\| `(\w+)` \| ([^|]*)\| (\d+) \| (\d+) \| [^|]+\|[^|]*\|$", re.MULTILINE)
    rows = {name: (fields, int(code), int(status)) for name, fields, code, status in row.findall(page)}
    assert {name: codes for name, (_, *codes) in rows.items()} == {
        kind.__name__: list(codes) for kind, codes in CODES.items()
    }
    for error in EXAMPLES:
        fields = re.findall(r"`(\w+)`", rows[type(error).__name__][0])
        assert set(fields) == set(vars(error)), error


def test_an_error_of_a_plugin_has_the_code_of_its_parent():
    class MyStoreIsDown(errors.StoreUnavailable):
        pass

    assert exit_code(MyStoreIsDown()) == CODES[errors.StoreUnavailable][0]


@pytest.mark.parametrize(
    ("kind", "parent"),
    [
        (errors.LockTimeout, TimeoutError),
        (errors.NotHeld, RuntimeError),
        (errors.ReentryLimit, RuntimeError),
        (errors.Closed, RuntimeError),
        (errors.InvalidKey, ValueError),
        (errors.SettingsError, ValueError),
        (errors.StoreUnavailable, errors.StoreError),
        (errors.OutcomeUnknown, errors.StoreError),
        (errors.SchemaMismatch, errors.StoreError),
        (errors.StoreMisconfigured, errors.StoreError),
        (errors.StoreCorrupt, errors.StoreError),
        (errors.AccessDenied, errors.StoreError),
        (errors.NotAuthenticated, errors.AccessDenied),
        (errors.LimitExceeded, errors.StoreError),
        (errors.TooManyRequests, errors.StoreUnavailable),  # so it is asked again, after a while
        (errors.RequestRefused, errors.StoreError),
    ],
)
def test_errors_are_what_python_programs_expect(kind, parent):
    assert issubclass(kind, parent)


def test_a_timeout_says_who_has_it_and_what_our_place_was():
    assert str(EXAMPLES[0]) == (
        "'nightly' is held by worker-7 (host alpha, pid 101) for 3.0 s, lease ends in 12.4 s unless renewed;"
        " we were number 2 in the queue (gave up after 5.0 s)"
    )


def test_a_circle_names_everybody_in_it():
    assert str(EXAMPLES[7]) == (
        "waiting for 'b' closed a circle: ann (host alpha, pid 1) waits for 'b'; bob (host beta, pid 2) waits"
        " for 'a'; and so on. Release what you hold and try again, or take several locks in one order: see"
        " hold_all()"
    )


def test_what_was_given_up_says_why():
    assert str(EXAMPLES[8]) == (
        "'pull:x' was given up: its last 1 attempts have failed, at last that of ann (host alpha, pid 1):"
        " OSError: no"
    )
    assert str(errors.OperationFailed("pull:x", ())) == (
        "'pull:x' was given up: its last 0 attempts have failed"
    )


def test_work_that_has_ended_says_how():
    assert str(errors.WorkEnded("job:1", "failed", "OSError: no")) == (
        "'job:1' has failed already (OSError: no); again=True begins it anew"
    )
    assert str(errors.WorkEnded("job:1", "completed")) == (
        "'job:1' has completed already; again=True begins it anew"
    )


def test_an_instance_that_is_lost_or_full_says_what_to_do():
    assert str(errors.InstanceLost("e-1", "missed")) == "instance 'e-1' is lost: missed; join again to go on"
    assert str(errors.AtCapacity("e-1", 8)) == (
        "instance 'e-1' has 8 assignments, which is its capacity: finish some first"
    )


def test_a_disagreement_about_permits_names_both_numbers():
    assert str(EXAMPLES[6]).startswith("'gpu' has 2 permits, not 4")
    assert "pass permits=" in str(errors.CapacityMismatch("gpu", permits=0, stored=0))
    assert "nobody can take 3" in str(errors.CapacityMismatch("gpu", permits=2, stored=2, take=3))


def test_a_timeout_without_a_known_holder():
    assert str(EXAMPLES[1]) == "'nightly' was not granted (not waiting)"


def test_a_timeout_tells_a_lock_that_is_shut_from_one_that_is_held():
    gone = replace(HOLDER, gone=True)
    error = errors.LockTimeout("nightly", waited=0, holder=gone, expires_in=12.4)
    assert str(error).startswith(
        "'nightly' is shut for another 12.4 s: the last to have it was worker-7 (host"
    )
    error = errors.LockTimeout("nightly", waited=0, holder=gone)
    assert str(error).startswith("'nightly' is shut: the last to have it was worker-7 (host")


def test_a_lock_that_a_transaction_takes_for_the_first_time_has_no_holder_to_describe():
    pinned = Holder("a transaction that is still open", "", 0, 0, 0.0)
    error = errors.LockTimeout("nightly", waited=0.0, holder=pinned, expires_in=0.25)
    assert "held by a transaction that is still open, lease" in str(error)


def test_a_timeout_does_not_speak_of_ends_in_the_past():
    error = errors.LockTimeout("nightly", waited=1.0, holder=HOLDER, expires_in=-2.0)
    assert "ends in 0.0 s" in str(error)


def test_a_timeout_that_does_not_know_the_end():
    error = errors.LockTimeout("nightly", waited=1.0, holder=HOLDER)
    assert str(error) == (
        "'nightly' is held by worker-7 (host alpha, pid 101) for 3.0 s (gave up after 1.0 s)"
    )


def test_a_loss_says_why_and_by_whom():
    assert str(EXAMPLES[2]) == "lease of 'nightly' (token 8) is lost: broken by olga (stuck)"
    assert str(errors.LeaseLost("k", "expired", token=1)) == "lease of 'k' (token 1) is lost: expired"


def test_a_copy_of_a_loss_says_the_same_without_its_traceback():
    try:
        raise EXAMPLES[2]
    except errors.LeaseLost as raised:
        copy = raised.copy()
    assert copy is not EXAMPLES[2]
    assert (str(copy), vars(copy)) == (str(EXAMPLES[2]), vars(EXAMPLES[2]))
    assert copy.__traceback__ is None


def test_not_held_says_why():
    assert str(EXAMPLES[3]) == "'nightly' is not held: expired (too late)"
    assert str(errors.NotHeld("k", "already")) == "'k' is not held: already"


def test_a_limit_of_one_and_a_limit_of_many_have_different_advice():
    assert "is a release missing" in str(EXAMPLES[4])
    single = errors.ReentryLimit("k", owner="ann", holds=1, limit=1)
    assert "ask with another owner=" in str(single)


def test_a_very_long_key_is_shown_shortened():
    message = str(errors.InvalidKey("e" * 1000, "has 1000 characters"))
    assert len(message) < 100
    assert message.endswith("… has 1000 characters")


def test_closed_says_what_is_closed():
    assert str(errors.Closed("this client")) == "this client is closed; make a new one"


def test_a_limit_says_which_and_how_much():
    assert str(errors.LimitExceeded("waiters", 100)) == "waiters: at most 100 are allowed"
    assert str(errors.LimitExceeded("waiters", 100, "too many")) == "too many"


def test_too_many_requests_say_when_to_come_back():
    assert str(errors.TooManyRequests(2.5)) == "asked too often; try again in 2.5 s"
    assert errors.TooManyRequests(2.5, "slower").retry_after == 2.5
