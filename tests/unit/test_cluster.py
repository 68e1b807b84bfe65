"""Requests about instances and their work: plain values, and the few rules that all stores share."""

import copy
import inspect
import pickle

import pytest

from holdfast.core import cluster
from holdfast.core.cluster import (
    INSTANCE_STATES,
    WORK_STATES,
    Assign,
    Claim,
    Claimed,
    Finish,
    Heartbeat,
    Join,
    Offer,
    OfferedWork,
    WorkView,
    abandoned_for_good,
    held_back,
    instance_key,
    may_take,
    work_type,
)
from holdfast.core.data import replace
from holdfast.core.requests import Client, Request

CLIENT = Client("i-1", "alpha", 101)
CLAIM = Claim("e-1", 1, "c-1", ("job",), 8, 30.0, CLIENT)
VIEW = WorkView("job:1", "completed", '{"n": 1}', '{"rows": 7}', 1, 3, "e-1", 8, 1.0, 2.0, 3.0)
REQUESTS = [kind for kind in vars(cluster).values() if isinstance(kind, type) and issubclass(kind, Request)]
SECOND = 1_000_000


@pytest.mark.parametrize(
    "value", [CLAIM, VIEW, Join("e-1", "engine", CLIENT, 8, 90.0), Offer((OfferedWork("job:1"),)), Claimed()]
)
def test_values_can_be_compared_copied_and_sent_elsewhere(value):
    assert pickle.loads(pickle.dumps(value)) == value
    assert copy.deepcopy(value) == value
    assert hash(replace(value)) == hash(value)


@pytest.mark.parametrize("kind", [kind for kind in REQUESTS if kind is not Request])
def test_the_clock_of_the_store_decides_unless_a_time_is_given(kind):
    """All of them are about an instant, and all can be asked for another in tests."""
    assert inspect.signature(kind).parameters["now"].default is None


def test_by_default_nothing_is_offered_for_later_tried_in_vain_or_begun_again():
    assert OfferedWork("job:1") == OfferedWork("job:1", "null", max_tries=0, delay=0.0, at=None)
    assert not Offer(()).again
    assert not Heartbeat("e-1", CLIENT, 90.0).drain
    assign = Assign("job:1", "a-1", "ann", 30.0, CLIENT)
    assert (assign.id, assign.data, assign.due, assign.again) == ("", None, False, False)
    finish = Finish("job:1", "a-1", 8, "failed")
    assert (finish.text, finish.retry, finish.at, finish.data, finish.retire) == ("", None, None, None, False)


def test_the_states_are_listed():
    assert INSTANCE_STATES == ("alive", "draining", "left", "dead")
    assert WORK_STATES == ("offered", "assigned", "completed", "failed")


def test_a_view_shows_values_and_not_their_text():
    assert VIEW.value == {"n": 1}
    assert VIEW.result == {"rows": 7}


@pytest.mark.parametrize("state", ["offered", "assigned", "failed"])
def test_only_what_has_completed_has_a_result(state):
    """Else the text says what went wrong, and is no JSON."""
    assert replace(VIEW, state=state, text="no space left").result is None


def test_what_completed_without_a_word_has_no_result():
    assert replace(VIEW, text="").result is None


@pytest.mark.parametrize(
    ("key", "type"),
    [
        ("job:1", "job"),
        ("node:1:fetch", "node"),
        ("plain", ""),
        ("", ""),
        (":x", ""),
        ("::", ""),
        ("job:", "job"),
        (" job:1", " job"),
        ("锁:🔒", "锁"),
    ],
)
def test_the_type_of_work_is_what_comes_before_the_first_colon(key, type):
    assert work_type(key) == type


def test_an_instance_has_a_key():
    assert instance_key("e-1") == "instance:e-1"
    assert work_type(instance_key("e-1")) == "instance"


def test_abandoned_work_says_how_often_it_was_tried():
    assert "it was tried once," in abandoned_for_good(1)
    assert "it was tried 3 times," in abandoned_for_good(3)


@pytest.mark.parametrize(
    ("place", "assigned", "expected"),
    [(0, 0, 0), (1, 0, 250_000), (0, 1, 250_000), (2, 1, 750_000), (0, 4, 1_000_000), (0, 8, 2_000_000)],
)
def test_the_fuller_an_instance_is_the_longer_it_leaves_work_to_others(place, assigned, expected):
    assert held_back(place, assigned=assigned, capacity=4, spread=SECOND) == expected


def test_it_is_held_back_for_whole_microseconds():
    """So that all stores agree about the instant."""
    assert held_back(1, assigned=0, capacity=3, spread=SECOND) == 333_333
    assert held_back(2, assigned=0, capacity=3, spread=SECOND) == 666_666


def test_it_may_be_taken_from_that_instant_on():
    assert not may_take(1, 249_999, assigned=0, capacity=4, spread=SECOND)
    assert may_take(1, 250_000, assigned=0, capacity=4, spread=SECOND)
    assert may_take(0, 0, assigned=0, capacity=4, spread=SECOND)


@pytest.mark.parametrize("assigned", [0, 3, 100])
def test_without_spread_nothing_is_held_back(assigned):
    assert may_take(5, 0, assigned=assigned, capacity=4, spread=0)
