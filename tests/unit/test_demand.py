"""When an instance asks for work, and for how much."""

import math

import pytest

from holdfast.core.backoff import Backoff
from holdfast.core.cluster import MOST_CLAIMED, Assigned, Beat, Claim, Claimed
from holdfast.core.demand import LOOK_AGAIN, Demand
from holdfast.core.membership import Membership
from holdfast.core.requests import Client
from holdfast.core.settings import Settings

SETTINGS = Settings(margin=1.0, backoff=Backoff(first=0.1, most=2.0))
ME = Client("address", "host", 7)
TYPES = ("workflow",)


@pytest.fixture
def demand() -> Demand:
    member = Membership("engine-1", ME, ttl=90.0, heartbeat=30.0, settings=SETTINGS, roll=lambda: 0.0)
    member.answered(Beat("alive", 90.0, living=2), asked=100.0)
    return Demand(member, capacity=8, spread=0.25, settings=SETTINGS, roll=lambda: 0.0)


def ask(demand: Demand, room: int = 8, types: tuple[str, ...] = TYPES) -> Claim:
    return demand.next(types, room, attempt="a-1", ttl=30.0)


def works(count: int) -> tuple[Assigned, ...]:
    return tuple(Assigned(f"workflow:{i}", f"a-1.{i}", 7, "null", 1, 30.0) for i in range(count))


def test_claims_are_numbered(demand):
    assert ask(demand, room=3) == Claim("engine-1", 1, "a-1", TYPES, 3, 30.0, ME, 0.25)
    assert ask(demand).number == 2


def test_it_asks_at_once_but_not_without_room(demand):
    assert demand.due_at(TYPES, 8) == -math.inf
    assert demand.due_at(TYPES, 0) == math.inf


def test_a_claim_is_for_no_more_than_it_can_have_or_a_store_gives(demand):
    assert ask(demand, room=9).limit == 8
    demand.capacity = 5000
    assert ask(demand, room=5000).limit == MOST_CLAIMED


def test_who_is_alone_leaves_nothing_to_others(demand):
    demand.member.living = 1
    assert ask(demand).spread == 0.0


def test_who_got_all_it_wanted_asks_for_more_at_once(demand):
    demand.answered(ask(demand, room=2), Claimed(works(2), 0.0), now=100.0)
    assert demand.due_at(TYPES, 6) == -math.inf


def test_who_got_less_asks_when_there_is_more(demand):
    demand.answered(ask(demand), Claimed(works(2), 0.1), now=100.0)
    assert demand.due_at(TYPES, 6) == 100.1
    assert demand.due_at(("other",), 6) == -math.inf, "that was not asked for yet"


def test_who_got_something_asks_once_more_to_be_called_from_then_on(demand):
    """It was not noted as waiting for more, because it may be busy now. If it is not, it says so soon."""
    demand.answered(ask(demand), Claimed(works(2), None), now=100.0)
    assert demand.due_at(TYPES, 6) == 100.0
    demand.answered(ask(demand), Claimed(works(2), 80.0), now=100.0)
    assert demand.due_at(TYPES, 6) == 100.0 + demand.spread


def test_who_hears_nothing_asks_after_a_while(demand):
    demand.answered(ask(demand), Claimed((), None), now=100.0)
    assert demand.due_at(TYPES, 8) == 100.0 + LOOK_AGAIN
    demand.answered(ask(demand), Claimed((), 3600.0), now=100.0)
    assert demand.due_at(TYPES, 8) == 100.0 + LOOK_AGAIN


def test_a_fleet_does_not_ask_at_one_instant(demand):
    demand.roll = lambda: 1.0
    demand.answered(ask(demand), Claimed((), 3.0), now=100.0)
    assert demand.due_at(TYPES, 8) == pytest.approx(103.3)


def test_who_is_told_that_there_is_work_and_gets_none_does_not_ask_all_the_time(demand):
    """Somebody else has its row in a long transaction, say."""
    pauses = []
    for _ in range(7):
        demand.answered(ask(demand), Claimed((), 0.0), now=100.0)
        pauses.append(demand.due_at(TYPES, 8) - 100.0)
    assert pauses == pytest.approx([0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0])
    demand.answered(ask(demand), Claimed(works(1), 0.0), now=100.0)
    assert demand.due_at(TYPES, 8) == 100.0


def test_a_signal_makes_it_ask_at_once(demand):
    demand.answered(ask(demand), Claimed((), None), now=100.0)
    demand.signalled("other")
    assert demand.due_at(TYPES, 8) > 100.0
    demand.signalled("workflow")
    assert demand.due_at(TYPES, 8) == -math.inf
    assert demand.due_at(TYPES, 0) == math.inf, "and no sooner than there is room"


def test_a_signal_that_overtakes_an_answer_is_not_forgotten(demand):
    """The offer was made after the claim had found nothing, and before we heard of that."""
    request = ask(demand)
    demand.signalled("workflow")
    demand.answered(request, Claimed((), None), now=100.0)
    assert demand.due_at(TYPES, 8) == -math.inf
    demand.answered(ask(demand), Claimed((), None), now=100.0)
    assert demand.due_at(TYPES, 8) > 100.0


def test_with_less_to_do_it_need_not_leave_fresh_work_to_others(demand):
    demand.answered(ask(demand), Claimed(works(4), 0.2), now=100.0)
    demand.made_room(100.1)
    assert demand.due_at(TYPES, 8) == -math.inf


def test_with_less_to_do_there_is_no_more_work(demand):
    demand.answered(ask(demand), Claimed((), None), now=100.0)
    demand.made_room(100.1)
    assert demand.due_at(TYPES, 8) == 100.0 + LOOK_AGAIN


def test_a_claim_without_an_answer_is_asked_again_first(demand):
    request = demand.unsure = ask(demand)
    assert demand.due_at(("other",), 8) == -math.inf
    assert ask(demand, types=("other",)) is request
    demand.answered(request, Claimed(works(1), None), now=100.0)
    assert demand.unsure is None
    assert ask(demand).number == 2
