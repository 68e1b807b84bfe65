"""The explorations that CI runs: small, but everything within their bounds. `make proof` goes further."""

from __future__ import annotations

import pytest

from proof.explorer import Bounds, Report, explore
from proof.explorer.__main__ import main


@pytest.fixture(scope="module")
def two_clients() -> Report:
    return explore(Bounds(clients=2, keys=1, turns=1, faults=1, waits=(6.0, 0.0)))


def test_two_clients_keep_every_invariant_whatever_happens_to_one_request_or_one_of_them(two_clients: Report):
    assert two_clients.complete
    assert two_clients.states > 1000
    assert two_clients.transitions > two_clients.states


def test_what_the_protocol_is_about_was_met_on_the_way(two_clients: Report):
    met = {"grants", "handed over", "claimed", "asked again", "expired", "unclaimed", "tickets died"}
    met |= {"broken", "entered"}
    assert met <= set(two_clients.counts)


def test_three_clients_keep_their_order_when_one_of_them_dies_or_is_not_told():
    report = explore(Bounds(clients=3, keys=1, turns=1, faults=1, kinds=("crash", "lost signal")))
    assert report.complete


def test_owners_enter_again_and_leave_again():
    report = explore(Bounds(clients=2, keys=1, turns=2, faults=0))
    assert report.complete
    assert report.counts["re-entered"] > 0


def test_a_lease_that_is_passed_on_is_released_elsewhere_and_its_client_is_another_owner_meanwhile():
    report = explore(Bounds(clients=2, keys=1, turns=2, faults=0, hands=True))
    assert report.complete
    assert report.counts["re-entered"] > 0
    assert report.states > explore(Bounds(clients=2, keys=1, turns=2, faults=0)).states


def test_two_who_want_two_keys_do_not_wait_for_each_other_for_ever():
    report = explore(Bounds(clients=2, keys=2, turns=2, faults=0, nested=True))
    assert report.complete
    assert report.counts["deadlocked"] > 0


def test_an_exploration_that_was_cut_short_says_so(capsys: pytest.CaptureFixture[str]):
    assert main(["--clients", "3", "--keys", "2", "--turns", "2", "--limit", "300", "--quiet"]) == 0
    told = capsys.readouterr().out
    assert "not everything within these bounds, but every run of up to 3 moves" in told
    deep = explore(Bounds(clients=2, keys=1, turns=1, faults=0, depth=3))
    assert (deep.complete, deep.depth) == (False, 3)


def test_an_exploration_tells_how_far_it_is():
    told: list[int] = []
    explore(
        Bounds(clients=2, keys=1, turns=1, faults=1, limit=3000), lambda report, _: told.append(report.states)
    )
    assert told == sorted(told)
    assert told
