"""Requests and answers: plain values."""

import copy
import inspect
import pickle

import pytest

from holdfast.core import requests
from holdfast.core.data import replace
from holdfast.core.family import KeptResult
from holdfast.core.requests import (
    DEFAULT_LIMIT,
    Acquire,
    Client,
    Granted,
    Holder,
    List,
    Release,
    Renew,
    RenewLease,
    Request,
    Signal,
    Sweep,
    Swept,
    addressed,
    doer,
)

CLIENT = Client("i-1", "alpha", 101)
MINE = Acquire("nightly", "a-1", "ann", 30.0, CLIENT)
HOLDER = Holder("ann", "alpha", 101, token=8, held_for=3.25)
REQUESTS = [kind for kind in vars(requests).values() if isinstance(kind, type) and issubclass(kind, Request)]


def test_equal_requests_are_equal_and_hash_alike():
    again = Acquire("nightly", "a-1", "ann", 30.0, CLIENT)
    assert again == MINE
    assert hash(MINE) == hash(again)
    assert replace(MINE, attempt="a-2") != MINE
    assert Granted(1, 2.0) != Granted(1, 2.0, holds=2)


def test_a_batch_is_a_value_too():
    lease = RenewLease("nightly", "a-1", 8, 30.0)
    assert Renew((lease,)) == Renew((replace(lease),))
    assert len({Renew((lease,)), Renew((lease,)), Renew()}) == 2


@pytest.mark.parametrize("value", [MINE, HOLDER, Release("k", "a", 1, retire=True), Renew(), Granted(1, 2.0)])
def test_values_can_be_copied_and_sent_elsewhere(value):
    assert pickle.loads(pickle.dumps(value)) == value
    assert copy.deepcopy(value) == value


def test_by_default_nobody_waits_and_the_clock_of_the_store_decides():
    assert (MINE.wait, MINE.now, MINE.limit) == (False, None, DEFAULT_LIMIT)


@pytest.mark.parametrize(
    "kind", [kind for kind in REQUESTS if kind not in (Request, requests.History, requests.Watch)]
)
def test_every_request_that_depends_on_time_can_be_given_it(kind):
    """So nothing in the conformance suite sleeps."""
    assert inspect.signature(kind).parameters["now"].default is None


def test_a_list_is_of_everything_unless_said_otherwise():
    assert List() == List(prefix="", owner=None, type=None, state=None, after="", limit=100)


def test_a_sweep_keeps_what_was_used_within_the_hour():
    assert Sweep().idle == 3600.0


def test_a_holder_that_is_no_process_of_ours_has_no_pid():
    """Who asks a server by hand, for example."""
    assert str(Holder("ann", "10.0.0.7", 0, 8, 3.0)) == "ann (host 10.0.0.7) for 3.0 s"


def test_a_holder_says_who_where_and_how_long():
    assert str(HOLDER) == "ann (host alpha, pid 101) for 3.2 s"


def test_a_holder_that_has_not_claimed_is_shown_so():
    assert str(replace(HOLDER, claimed=False)) == (
        "ann (host alpha, pid 101) for 3.2 s, handed over and not claimed yet"
    )


@pytest.mark.parametrize(
    ("address", "home", "to"),
    [("i-1", "i-1", ""), ("i-1/s-7", "i-1", "s-7"), ("", "", ""), ("i-1/", "i-1", "")],
)
def test_an_address_is_a_client_or_somebody_behind_it(address, home, to):
    signal = Signal("granted", "nightly", "a-1", 3.0)
    assert addressed(address, signal) == (home, replace(signal, to=to))


def test_sweeps_add_up():
    total = Swept(1, 2, 3, 4, 5, after="k").plus(Swept(10, 20, 30, 40, 50, after=None))
    assert total == Swept(11, 22, 33, 44, 55, after=None)


def test_what_an_attempt_leaves_behind_lasts_as_long_as_its_lease_or_its_ticket_and_claim():
    assert MINE.lasts == 30.0
    assert replace(MINE, ttl=1.0, patience=15.0, claim=5.0).lasts == 20.0


def test_who_has_done_what_is_kept_is_told_as_gone():
    kept = KeptResult(token=7, until=9_000_000, owner="ann", host="alpha", pid=101, granted_at=1_000_000)
    told = doer(kept, now=3_500_000)
    assert told == Holder("ann", "alpha", 101, 7, held_for=2.5, gone=True)
    assert str(told) == "ann (host alpha, pid 101), who was granted it 2.5 s ago"
