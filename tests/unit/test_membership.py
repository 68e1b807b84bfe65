"""How long an instance may count on being one, and what its keeper does about it."""

import math

import pytest

from holdfast.core.backoff import Backoff
from holdfast.core.cluster import Beat, Heartbeat
from holdfast.core.keeper import Keeper
from holdfast.core.membership import Membership, check_timing
from holdfast.core.plans import Grant
from holdfast.core.refusals import DEAD, LEFT
from holdfast.core.requests import Client
from holdfast.core.settings import Settings
from holdfast.errors import InstanceLost, SettingsError

SETTINGS = Settings(margin=1.0, backoff=Backoff(first=0.1, most=2.0))
ME = Client("address", "host", 7)


@pytest.fixture
def member() -> Membership:
    """An instance that was answered when it asked at 100."""
    member = Membership("engine-1", ME, ttl=90.0, heartbeat=30.0, settings=SETTINGS, roll=lambda: 0.0)
    member.answered(Beat("alive", 90.0, living=2), asked=100.0)
    return member


def test_an_answer_is_trusted_from_when_it_was_asked_for(member):
    assert member.trusted_until == 189.0
    assert member.next_at() == member.beat_at == 130.0
    assert member.living == 2
    assert member.takes_work
    assert member.loss(188.9) is None


def test_a_heartbeat_moves_the_trust_and_never_back(member):
    assert member.request() == Heartbeat("engine-1", ME, 90.0, drain=False)
    member.answered(Beat("alive", 90.0), asked=130.0)
    assert member.trusted_until == 219.0
    member.answered(Beat("alive", 90.0), asked=120.0)
    assert member.trusted_until == 219.0


def test_a_heartbeat_that_fails_is_tried_again_and_is_no_loss(member):
    member.failed("no route", now=130.0)
    assert member.next_at() == 130.05
    member.failed("no route", now=140.0)
    assert member.beat_at == 140.1
    assert member.loss(188.9) is None
    lost = member.loss(189.0)
    assert isinstance(lost, InstanceLost)
    assert lost.reason == "no heartbeat was answered for 90 s (no route)"
    assert member.state == "dead"
    assert member.next_at() == math.inf


def test_what_is_answered_again_forgets_its_trouble(member):
    member.failed("no route", now=130.0)
    member.answered(Beat("alive"), asked=131.0)
    assert (member.failures, member.trouble) == (0, None)
    assert member.loss(220.0).reason == "no heartbeat was answered for 90 s"


@pytest.mark.parametrize(("state", "reason"), [("dead", DEAD), ("left", LEFT)])
def test_who_is_told_that_it_is_gone_is_lost_at_once(member, state, reason):
    assert member.answered(Beat(state, living=1), asked=130.0)
    assert member.loss(130.0).reason == reason
    assert not member.takes_work
    assert not member.answered(Beat(state), asked=131.0), "it is told once"
    assert not member.answered(Beat("alive"), asked=131.0), "and nothing brings it back"
    assert member.state == "dead"


def test_a_state_in_place_of_an_answer_moves_no_end(member):
    assert not member.told(Beat("draining", living=3))
    assert (member.draining, member.living, member.trusted_until) == (True, 3, 189.0)
    assert member.request().drain
    assert member.told(Beat("left"))
    assert member.lost.reason == LEFT
    assert not member.told(Beat("dead"))


def test_who_drains_takes_no_work(member):
    member.answered(Beat("draining"), asked=130.0)
    assert member.state == "draining"
    assert not member.takes_work


def test_who_has_left_cannot_be_lost(member):
    member.leave()
    assert member.state == "left"
    assert member.next_at() == math.inf
    assert member.loss(1000.0) is None
    assert not member.lose("whatever")
    assert not member.answered(Beat("dead"), asked=130.0)


def test_who_is_lost_cannot_leave(member):
    member.lose("whatever")
    member.leave()
    assert member.state == "dead"


@pytest.mark.parametrize(
    ("heartbeat", "ttl", "says"),
    [
        (54.0, 90.0, "heartbeat 54 s < renewal 54 s < ttl 90 s"),
        (0, 90.0, "heartbeat 0 s"),
        (-1, 90.0, "heartbeat is -1"),
        (30.0, "long", "ttl is 'long'"),
        (0.5, 1.0, "ttl is 1 s, and not longer than the margin"),
    ],
)
def test_times_that_cannot_work_are_refused(heartbeat, ttl, says):
    """R13."""
    with pytest.raises(SettingsError, match=says.replace("(", r"\(")):
        check_timing(heartbeat, ttl, SETTINGS)


def test_times_that_can_work_are_taken():
    assert check_timing(30, 90, SETTINGS) == (30.0, 90.0)


# In a keeper's care.


def test_a_keeper_knows_whose_heartbeat_is_due(member):
    keeper = Keeper(SETTINGS, roll=lambda: 0.0)
    keeper.members[member.id] = member
    assert keeper.next_at() == 130.0
    assert keeper.beats(129.9) == []
    assert keeper.beats(130.0) == [member]
    assert keeper.gone(188.9) == []
    assert keeper.gone(189.0) == [member]
    assert keeper.gone(189.0) == []


def test_an_assignment_is_lost_with_its_instance(member):
    keeper = Keeper(SETTINGS, roll=lambda: 0.0)
    grant = Grant("workflow:1", "a-1.0", "engine-1", 8, 600.0, trusted_until=699.0)
    kept = keeper.keep(grant, asked=100.0, max_hold=None)
    assert kept.ends_at == 699.0
    kept.member = member
    assert kept.ends_at == 189.0
    assert kept.loss(188.9) is None
    loss = kept.loss(189.0)
    assert loss.reason == "instance lost"
    assert loss.detail == "no heartbeat was answered for 90 s"
    assert keeper.overdue(189.0) == [kept]
