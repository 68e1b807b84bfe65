"""How much one principal may have: everything is counted, everything ends, nothing grows for ever."""

import random
from contextlib import ExitStack

import pytest

from holdfast.core.data import replace
from holdfast.core.requests import Acquire, Client
from holdfast.errors import LimitExceeded, TooManyRequests
from holdfast.server.admission import expiring_set
from holdfast.server.admission.access import ANYONE, Principal
from holdfast.server.admission.expiring_set import ExpiringSet
from holdfast.server.admission.limits import KEYS_WITHIN, TIDY_EVERY, Budget
from holdfast.server.http.message import Stream
from holdfast.server.settings import Limits

CI = Principal("ci", (), "0" * 12)
CI_TOO = Principal("ci", (), "1" * 12)
OTHER = Principal("other", ())


class Clock:
    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


def make(clock, **limits):
    return Budget(Limits(**limits), clock=clock)


def acquire(key="k", attempt="a", ttl=30.0, *, wait=False):
    return Acquire(key, attempt, "owner", ttl, Client("", "host", 1), wait=wait)


def test_requests_are_limited_by_the_second(clock):
    budget = make(clock, rate=10)
    for _ in range(10):
        budget.asked(CI)
    with pytest.raises(
        TooManyRequests, match=r"ci asked more than 10 times a second.*limits\.rate"
    ) as raised:
        budget.asked(CI_TOO)  # the same principal, with another token
    assert raised.value.retry_after == pytest.approx(0.1)
    budget.asked(OTHER)
    clock.now += 0.1
    budget.asked(CI)
    with pytest.raises(TooManyRequests):
        budget.asked(CI)


def test_being_refused_costs_nothing(clock):
    budget = make(clock, rate=10)
    for _ in range(10):
        budget.asked(CI)
    for _ in range(100):
        with pytest.raises(TooManyRequests):
            budget.asked(CI)
    clock.now += 0.1
    budget.asked(CI)


def test_a_large_request_costs_more(clock):
    budget = make(clock, rate=10)
    budget.asked(CI, cost=20.0)
    with pytest.raises(TooManyRequests) as raised:
        budget.asked(CI)
    assert raised.value.retry_after == pytest.approx(1.1)


def test_a_rate_of_zero_is_no_limit_and_less_than_one_a_second_works(clock):
    budget = make(clock, rate=0)
    for _ in range(1000):
        budget.asked(CI)
    budget = make(clock, rate=0.5)
    budget.asked(CI)
    with pytest.raises(TooManyRequests) as raised:
        budget.asked(CI)
    assert raised.value.retry_after == pytest.approx(2)


def test_nobody_in_particular_is_a_principal_too(clock):
    budget = make(clock, rate=1)
    budget.asked(ANYONE)
    with pytest.raises(TooManyRequests, match="everybody together asked more"):
        budget.asked(ANYONE)


def test_a_stream_is_counted_until_it_is_gone(clock):
    budget = make(clock, streams=1)
    left = []
    stream = Stream()
    with budget.stream(CI, stream):
        stream.on_gone = lambda: left.append(stream)
    with pytest.raises(
        LimitExceeded, match=r"ci has 1 streams of at most 1; close some.*limits\.streams"
    ) as raised:
        budget.stream(CI, Stream()).__enter__()
    assert (raised.value.limit, raised.value.most) == ("streams", 1)
    with budget.stream(OTHER, Stream()):
        pass
    stream.drop()
    stream.drop()
    assert left == [stream]
    assert budget.has(CI)["streams"] == 0
    with budget.stream(CI, Stream()):
        pass


def test_a_stream_that_does_not_come_about_is_not_counted(clock):
    budget = make(clock, streams=1)
    with pytest.raises(ZeroDivisionError), budget.stream(CI, Stream()):
        raise ZeroDivisionError
    assert budget.has(CI)["streams"] == 0


def test_a_waiter_is_counted_for_as_long_as_it_waits(clock):
    budget = make(clock, waiters=2)
    with ExitStack() as waiting:
        waiting.enter_context(budget.waiter(CI))
        waiting.enter_context(budget.waiter(CI))
        with pytest.raises(LimitExceeded, match="ci has 2 waiters of at most 2; wait for fewer"):
            waiting.enter_context(budget.waiter(CI))
    assert budget.has(CI)["waiters"] == 0


def test_nothing_is_taken_before_a_waiter_really_waits(clock):
    budget = make(clock, waiters=1)
    later = budget.waiter(CI)
    with budget.waiter(CI), pytest.raises(LimitExceeded):
        later.__enter__()


def test_leases_are_counted_until_they_end(clock):
    budget = make(clock, leases=2)
    for attempt in ("a", "b"):
        budget.check_acquire(CI, acquire(attempt=attempt))
        budget.granted(CI, "k", attempt, 30.0)
    with pytest.raises(LimitExceeded, match="ci has 2 leases of at most 2; release some, or let them end"):
        budget.check_acquire(CI, acquire(attempt="c"))
    budget.check_acquire(CI, acquire(attempt="a"))  # asking again is not one more
    budget.check_acquire(OTHER, acquire(attempt="c"))
    budget.ended(CI, "k", "a")
    budget.check_acquire(CI, acquire(attempt="c"))
    budget.granted(CI, "k", "c", 60.0)
    clock.now += 30
    budget.check_acquire(CI, acquire(attempt="d"))
    assert budget.has(CI)["leases"] == 1


def test_what_is_entered_by_a_hand_over_counts_as_a_lease(clock):
    budget = make(clock, leases=2)
    budget.queued(CI, "k", "b", 15.0)
    budget.granted(CI, "k", "a", 30.0)
    assert budget.entered(CI, "k", "b", 5.0)
    assert budget.entered(CI, "k", "b", 5.0)  # told again
    assert not budget.entered(CI, "k", "c", 5.0)
    assert budget.has(CI) | {"tickets": 0, "leases": 2} == budget.has(CI)
    clock.now += 5.0
    assert budget.entered(CI, "k", "c", 5.0)


def test_one_attempt_on_two_keys_is_two_leases(clock):
    budget = make(clock)
    budget.granted(CI, "k", "a", 30.0)
    budget.granted(CI, "l", "a", 30.0)
    assert budget.has(CI)["leases"] == 2


def test_a_renewed_lease_is_counted_for_longer(clock):
    budget = make(clock, leases=1)
    budget.granted(CI, "k", "a", 30.0)
    for _ in range(10):
        clock.now += 20
        budget.granted(CI, "k", "a", 30.0)
    with pytest.raises(LimitExceeded):
        budget.check_acquire(CI, acquire(attempt="b"))
    clock.now += 30
    budget.check_acquire(CI, acquire(attempt="b"))


def test_places_in_queues_are_counted_until_they_are_forgotten(clock):
    budget = make(clock, waiters=1)
    budget.check_acquire(CI, acquire(attempt="a", wait=True))
    budget.queued(CI, "k", "a", 15.0)
    with pytest.raises(LimitExceeded, match="ci has 1 waiters of at most 1 in queues; withdraw some"):
        budget.check_acquire(CI, acquire(attempt="b", wait=True))
    budget.check_acquire(CI, acquire(attempt="a", wait=True))
    budget.check_acquire(CI, acquire(attempt="b"))  # who does not wait needs no place
    budget.granted(CI, "k", "a", 30.0)
    assert budget.has(CI) == {
        "streams": 0,
        "waiters": 0,
        "tickets": 0,
        "leases": 1,
        "keys": 1,
        "instances": 0,
    }
    budget.queued(CI, "k", "b", 15.0)
    clock.now += 15
    budget.check_acquire(CI, acquire(attempt="c", wait=True))
    budget.queued(CI, "k", "c", 15.0)
    budget.ended(CI, "k", "c")
    assert budget.has(CI)["tickets"] == 0


def test_keys_are_counted_for_an_hour(clock):
    budget = make(clock, keys=2)
    for key in ("a", "b", "a", "b"):
        budget.check_acquire(CI, acquire(key))
    with pytest.raises(
        LimitExceeded, match="ci has 2 keys of at most 2 within the last hour; use fewer names"
    ):
        budget.check_acquire(CI, acquire("c"))
    clock.now += KEYS_WITHIN / 2
    budget.check_acquire(CI, acquire("a"))
    clock.now += KEYS_WITHIN / 2
    budget.check_acquire(CI, acquire("c"))
    with pytest.raises(LimitExceeded):
        budget.check_acquire(CI, acquire("d"))


def test_a_limit_of_none_means_none(clock):
    budget = make(clock, streams=0, waiters=0, leases=0, keys=0)
    with pytest.raises(LimitExceeded):
        budget.stream(CI, Stream()).__enter__()
    with pytest.raises(LimitExceeded):
        budget.waiter(CI).__enter__()
    with pytest.raises(LimitExceeded, match="keys"):
        budget.check_acquire(CI, acquire())
    with pytest.raises(LimitExceeded, match="leases"):
        make(clock, leases=0).check_acquire(CI, acquire())


@pytest.mark.parametrize(
    ("ttl", "limit", "text"),
    [
        (0.5, "shortest_ttl", "ttl is 0.5 s; here it must be 1 s at least"),
        (3601.0, "longest_ttl", "ttl is 3601 s; here it must be 3600 s at most"),
    ],
)
def test_a_lease_is_neither_too_short_nor_too_long(clock, ttl, limit, text):
    budget = make(clock, shortest_ttl=1, longest_ttl=3600)
    with pytest.raises(LimitExceeded, match=text) as raised:
        budget.check_acquire(CI, acquire(ttl=ttl))
    assert raised.value.limit == limit
    budget.check_ttl(1.0)
    budget.check_ttl(3600.0)


def test_a_wait_is_not_too_long(clock):
    budget = make(clock, longest_wait=60)
    assert budget.check_wait(60.0) == 60.0
    with pytest.raises(LimitExceeded, match="timeout is 61 s; one request waits for 60 s at most: ask again"):
        budget.check_wait(61.0)


def test_a_principal_that_asks_for_nothing_is_forgotten(clock):
    budget = make(clock)
    for n in range(50):
        who = Principal(f"p{n}", ())
        budget.asked(who)
        budget.granted(who, "k", "a", 30.0)
    assert len(budget) == 50
    clock.now += 31
    for _ in range(60 * TIDY_EVERY):
        budget.asked(CI)
    assert len(budget) == 1


def test_a_principal_that_has_something_is_not_forgotten(clock):
    budget = make(clock)
    stream = Stream()
    with budget.stream(OTHER, stream):
        pass
    clock.now += 1e6
    for _ in range(10 * TIDY_EVERY):
        budget.asked(CI)
    assert budget.has(OTHER)["streams"] == 1
    stream.drop()
    for _ in range(10 * TIDY_EVERY):
        budget.asked(CI)
    assert len(budget) == 1


def test_forgetting_a_principal_gives_it_no_more_than_it_had(clock):
    budget = make(clock, rate=10)
    for _ in range(10):
        budget.asked(OTHER)
    rest = make(clock, rate=0)
    for _ in range(3 * TIDY_EVERY):
        rest.asked(CI)
        budget._tidy_one()
    with pytest.raises(TooManyRequests):
        budget.asked(OTHER)


# Names that end.


def test_names_that_are_taken_and_dropped_for_ever_take_no_room():
    names = ExpiringSet()
    for n in range(10_000):
        names.put(f"n{n}", 1e9)
        names.drop(f"n{n}")
        names.drop("unknown")
    assert len(names) == 0
    assert len(names._heap) <= expiring_set.SLACK + 1


def test_a_name_that_is_put_off_for_ever_takes_no_room():
    names = ExpiringSet()
    for n in range(10_000):
        names.put("n", n + 100.0)
        assert names.count(float(n)) == 1
    assert len(names._heap) == 1


def test_a_name_never_ends_before_the_latest_it_was_given():
    names = ExpiringSet()
    names.put("n", 100.0)
    names.put("n", 50.0)
    assert names.count(99.0) == 1
    assert names.count(100.0) == 0


def test_no_step_drops_more_than_so_many():
    names = ExpiringSet()
    for n in range(expiring_set.MANY * 2):
        names.put(f"n{n}", 1.0)
    assert names.count(2.0) == expiring_set.MANY * 2 - expiring_set.SOME
    assert names.is_full(10**9, 2.0) is False
    assert len(names) == expiring_set.MANY * 2 - 2 * expiring_set.SOME
    assert names.is_full(10, 2.0) is True
    assert names.is_full(10, 2.0) is False


def test_random_names_are_counted_as_a_plain_dictionary_would():
    chance = random.Random(7)
    names, plain, now = ExpiringSet(), {}, 0.0
    for _ in range(20_000):
        name = f"n{chance.randrange(50)}"
        if chance.random() < 0.5:
            end = now + chance.choice([1.0, 10.0, 1000.0])
            names.put(name, end)
            plain[name] = max(end, plain.get(name, end))
        elif chance.random() < 0.5:
            names.drop(name)
            plain.pop(name, None)
        now += chance.random()
        plain = {name: end for name, end in plain.items() if end > now}
        assert names.count(now) == len(plain)
        assert len(names._heap) <= 2 * len(plain) + expiring_set.SLACK + expiring_set.SOME


def test_what_a_request_says_beyond_key_and_attempt_does_not_matter(clock):
    budget = make(clock, keys=1)
    budget.check_acquire(CI, acquire())
    budget.check_acquire(CI, replace(acquire(), owner="another", limit=1))


def test_acquires_that_are_under_way_count_as_leases(clock):
    budget = make(clock, leases=2)
    with ExitStack() as under_way:
        for name in "ab":
            budget.check_acquire(CI, acquire(name, name))
            under_way.enter_context(budget.asking(CI))
        with pytest.raises(LimitExceeded, match="leases"):
            budget.check_acquire(CI, acquire("c", "c"))
    budget.check_acquire(CI, acquire("c", "c"))


def test_what_is_no_ticket_any_more_may_be_a_lease(clock):
    budget = make(clock, leases=1)
    budget.granted(CI, "k", "a", 30.0)
    budget.left(CI, "k", "a")
    with pytest.raises(LimitExceeded, match="leases"):
        budget.check_acquire(CI, acquire("c", "c"))


def test_keys_are_counted_for_whatever_the_store_remembers(clock):
    budget = make(clock, keys=2)
    for name in "aab":
        budget.check_key(CI, name)
    with pytest.raises(LimitExceeded, match="keys"):
        budget.check_key(CI, "c")


def test_instances_are_counted_until_they_end_or_leave(clock):
    budget = make(clock, instances=2)
    for id in ("e-1", "e-2"):
        budget.check_join(CI, id, 90.0)
        budget.beat(CI, id, 90.0)
    budget.check_join(CI, "e-1", 90.0)  # the same one again
    with pytest.raises(LimitExceeded, match=r"ci has 2 instances of at most 2; have some leave") as caught:
        budget.check_join(CI_TOO, "e-3", 90.0)
    assert (caught.value.limit, caught.value.most) == ("instances", 2)
    budget.check_join(OTHER, "e-3", 90.0)
    budget.gone(CI, "e-1")
    budget.check_join(CI, "e-3", 90.0)
    budget.beat(CI, "e-3", 90.0)
    clock.now += 60.0
    budget.beat(CI, "e-2", 90.0)  # a heartbeat
    clock.now += 60.0
    assert budget.has(CI)["instances"] == 1
    budget.check_join(CI, "e-4", 90.0)


def test_an_instance_uses_a_key_also_when_it_has_left(clock):
    """The store remembers it for a while."""
    budget = make(clock, keys=3)
    for number in range(3):
        budget.check_join(CI, f"e-{number}", 90.0)
        budget.gone(CI, f"e-{number}")
    with pytest.raises(LimitExceeded, match="3 keys of at most 3"):
        budget.check_join(CI, "e-3", 90.0)


@pytest.mark.parametrize(("ttl", "limit"), [(0.05, "shortest_ttl"), (101.0, "longest_ttl")])
def test_an_instance_lives_neither_too_short_nor_too_long(clock, ttl, limit):
    with pytest.raises(LimitExceeded) as caught:
        make(clock, longest_ttl=100.0).check_join(CI, "e-1", ttl)
    assert caught.value.limit == limit


def test_a_claim_gets_as_many_leases_as_there_is_room_for(clock):
    budget = make(clock, leases=5)
    assert budget.room_for_leases(CI, 3) == 3
    assert budget.room_for_leases(CI, 100) == 5
    for number in range(4):
        budget.granted(CI, f"job:{number}", "a", 30.0)
    with budget.asking(OTHER):
        assert budget.room_for_leases(CI, 100) == 1
    budget.check_lease(CI, "job:4", "a", 30.0)
    with budget.asking(CI), pytest.raises(LimitExceeded, match="leases"):
        budget.room_for_leases(CI, 1)  # what is asked for may be granted
    budget.granted(CI, "job:4", "a", 30.0)
    with pytest.raises(LimitExceeded, match="5 leases of at most 5"):
        budget.room_for_leases(CI, 1)
    with pytest.raises(LimitExceeded, match="5 leases of at most 5"):
        budget.check_lease(CI, "job:5", "a", 30.0)
    budget.check_lease(CI, "job:4", "a", 30.0)  # its own again
    clock.now += 31.0
    assert budget.room_for_leases(CI, 100) == 5
