"""What fits beside what, and how terms and notes are kept as text."""

import json

import pytest

from holdfast.core.data import as_dict
from holdfast.core.family import (
    NO_NOTES,
    PLAIN,
    Failure,
    KeptResult,
    Link,
    Notes,
    Terms,
    dump,
    fits,
    load_cycle,
    load_failures,
    load_notes,
    load_terms,
)
from holdfast.core.settings import check_at_least
from holdfast.errors import SettingsError

SHARED = Terms(mode="shared")
FAILURE = Failure("ann", "alpha", 101, token=7, error="no space left")


def permits(take: int = 1) -> Terms:
    return Terms(mode="permits", take=take)


def test_what_a_later_release_has_added_is_passed_over():
    assert load_terms('{"delay":1.5,"colour":"red"}') == Terms(delay=1.5)
    assert load_notes('{"permits":3,"colour":"red"}') == Notes(permits=3)
    kept = KeptResult(token=7, until=9, owner="ann", host="alpha", pid=101, granted_at=5)
    text = json.dumps({"kept": {**as_dict(kept), "colour": "red"}})
    assert load_notes(text) == load_notes(dump(Notes(kept=kept))) == Notes(kept=kept)


@pytest.mark.parametrize(("mode", "kind"), [("shared", "a shared lock"), ("permits", "a semaphore")])
def test_only_what_is_exclusive_can_stay_taken(mode, kind):
    check_at_least("exclusive")
    with pytest.raises(SettingsError, match=f"at_least is for exclusive locks: {kind} is not taken by one"):
        check_at_least(mode)


@pytest.mark.parametrize("wanted", [PLAIN, SHARED, permits(3)])
def test_everything_fits_beside_nothing(wanted):
    assert fits(wanted, [], permits=3)


@pytest.mark.parametrize("held", [PLAIN, SHARED, permits()])
def test_what_is_exclusive_fits_beside_nothing_else(held):
    assert not fits(PLAIN, [held], permits=3)
    assert not fits(held, [PLAIN], permits=3)


def test_readers_fit_beside_readers():
    assert fits(SHARED, [SHARED, SHARED], permits=0)


def test_readers_and_permits_do_not_mix():
    assert not fits(SHARED, [permits()], permits=3)
    assert not fits(permits(), [SHARED], permits=3)


@pytest.mark.parametrize(("take", "fit"), [(1, True), (2, True), (3, False)])
def test_no_more_permits_are_taken_than_there_are(take, fit):
    assert fits(permits(take), [permits(), permits(2)], permits=5) == fit


def test_more_may_be_taken_than_there_are_now_and_then_nothing_fits():
    """An operator took some away."""
    assert not fits(permits(), [permits(3)], permits=2)


@pytest.mark.parametrize(
    "terms",
    [
        PLAIN,
        SHARED,
        Terms(mode="permits", take=2, permits=4),
        Terms(delay=1.5),
        Terms(operation=True, max_attempts=3),
        Terms(at_least=30.0),
    ],
)
def test_terms_are_what_they_were(terms):
    assert load_terms(dump(terms)) == terms


@pytest.mark.parametrize(
    "notes",
    [
        NO_NOTES,
        Notes(mode="permits", permits=4),
        Notes(shut_until=1_700_000_000_000_000),
        Notes(failed=21, failures=(FAILURE, FAILURE)),
    ],
)
def test_notes_are_what_they_were(notes):
    assert load_notes(dump(notes)) == notes


def test_what_is_usual_is_not_kept():
    assert dump(PLAIN) is None
    assert dump(NO_NOTES) is None
    assert dump(Terms(mode="shared")) == '{"mode":"shared"}'
    assert dump(Notes(permits=4)) == '{"permits":4}'


def test_failures_and_cycles_are_what_they_were():
    cycle = (Link("ann", "k1", "alpha", 101), Link("bob", "k2", "beta", 202))
    assert load_cycle(json.loads(json.dumps(as_dict(cycle)))) == cycle
    assert load_failures(json.loads(json.dumps(as_dict((FAILURE,))))) == (FAILURE,)


def test_a_failure_says_whose_it_was():
    assert str(FAILURE) == "ann (host alpha, pid 101): no space left"


def test_a_link_says_who_waits_for_what():
    assert str(Link("ann", "k1", "alpha", 101)) == "ann (host alpha, pid 101) waits for 'k1'"


@pytest.mark.parametrize(
    ("terms", "enters"),
    [
        (Terms(), True),
        (Terms(mode="shared"), True),
        (Terms(mode="permits", permits=3, take=2), True),
        (Terms(operation=True), False),
        (Terms(delay=1.0), False),
        (Terms(at_least=1.0), False),
    ],
)
def test_a_hand_over_is_entered_where_it_does_not_count_who_began(terms, enters):
    assert terms.enters is enters
