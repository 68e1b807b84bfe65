"""Claiming work: with its locks, within capacity, spread over instances, and never twice."""

from __future__ import annotations

from holdfast.core.cluster import Assigned, Beat, Claimed, WorkView
from holdfast.core.data import replace
from holdfast.core.requests import Busy
from holdfast.stores.base import micros
from holdfast.testing.conformance.asker import CLIENT, OTHER_CLIENT, Asker, MakeStore
from holdfast.testing.conformance.names import KEYS


def keys_of(claimed: Claimed) -> list[str]:
    """Return the keys of what was claimed."""
    return [work.key for work in claimed.works]


class Claims:
    """Whoever has work assigned has the lease of its key: one step, one token."""

    def test_what_is_claimed_is_assigned_with_its_lock(self, ask: Asker) -> None:
        ask.join(now=100.0)
        ask.offer("job:1", now=100.0, data='{"n": 1}', max_tries=3)
        claimed = ask.claim(now=101.0, limit=1, ttl=10.0)
        token = claimed.works[0].token
        assert claimed.works == (Assigned("job:1", "e-1-1.0", token, '{"n": 1}', 1, 10.0, 101.0),)
        assert token == micros(101.0)
        assert ask.work("job:1", now=101.0) == WorkView(
            "job:1", "assigned", '{"n": 1}', "", 1, 3, "e-1", token, 100.0, 101.0, 111.0
        )
        view = ask.look(now=101.0, key="job:1")
        assert (view.state, view.token, view.holds, view.mode) == ("held", token, 1, "exclusive")
        assert view.holder is not None
        assert (view.holder.owner, view.holder.host, view.holder.pid) == ("e-1", "alpha", 101)
        assert view.holder.claimed
        assert ask.instance(now=101.0).assigned == 1

    def test_an_assignment_is_a_lease_like_any_other(self, ask: Asker) -> None:
        ask.join(now=100.0)
        ask.offer("job:1", now=100.0)
        given = ask.claim_one(now=100.0)
        assert ask.renew(given.attempt, given.token, now=105.0, key="job:1").expires_in == 10.0
        assert isinstance(ask.acquire("b-1", now=114.0, key="job:1"), Busy)
        assert ask.work("job:1", now=114.0).state == "assigned"

    def test_nobody_else_is_given_what_is_assigned(self, ask: Asker) -> None:
        """P2."""
        ask.join(now=100.0)
        ask.join("e-2", now=100.0)
        ask.offer("job:1", "job:2", now=100.0)
        mine = ask.claim("e-1", now=101.0, limit=1)
        theirs = ask.claim("e-2", now=101.0)
        assert (keys_of(mine), keys_of(theirs)) == (["job:1"], ["job:2"])
        assert ask.claim("e-2", 2, now=102.0).works == ()

    def test_only_the_living_are_given_work(self, ask: Asker) -> None:
        ask.offer("job:1", now=100.0)
        ask.join("drains", now=100.0)
        ask.join("left", now=100.0)
        ask.join("dies", now=100.0, ttl=5.0)
        ask.beat("drains", now=100.0, drain=True, ttl=90.0)
        ask.leave("left", now=100.0)
        assert ask.try_claim("never", now=105.0) == Beat("dead", 0.0, 0, 105.0)
        assert ask.try_claim("drains", now=105.0) == Beat("draining", 85.0, 0, 105.0)
        assert ask.try_claim("left", now=105.0) == Beat("left", 0.0, 0, 105.0)
        assert ask.try_claim("dies", now=105.0) == Beat("dead", 0.0, 0, 105.0)
        assert ask.work("job:1", now=105.0).state == "offered"
        assert ask.inspect(now=105.0, key="job:1") is None
        assert [event.kind for event in ask.history(key="instance:dies")] == ["joined"]

    def test_a_claim_in_the_last_microsecond_of_an_instance_is_in_time(self, ask: Asker) -> None:
        ask.offer("job:1", now=100.0)
        ask.join(now=100.0, ttl=5.0)
        assert keys_of(ask.claim(now=104.999999)) == ["job:1"]

    def test_a_claim_is_no_heartbeat(self, ask: Asker) -> None:
        ask.join(now=100.0, ttl=5.0)
        ask.claim(now=104.0)
        assert ask.instance(now=104.0).expires_in == 1.0
        assert isinstance(ask.try_claim(number=2, now=105.0), Beat)

    def test_who_may_not_claim_disturbs_nothing(self, ask: Asker) -> None:
        """What has been abandoned is left to those who may; and the number is not used up."""
        ask.join(now=100.0, ttl=50.0)
        ask.join("e-2", now=100.0, ttl=1000.0)
        ask.offer("job:1", now=100.0)
        ask.claim_one(now=100.0, ttl=10.0)
        before = ask.work("job:1", now=150.0)
        assert isinstance(ask.try_claim(number=2, now=150.0), Beat)
        assert ask.work("job:1", now=150.0) == before

    def test_types_are_taken_in_turn(self, ask: Asker) -> None:
        """Of each what is due first, and then by key; places are counted over all of them."""
        ask.join(now=100.0)
        ask.offer("a:2", "a:1", "b:1", now=100.0, at=99.0)
        ask.offer("a:0", "c:1", "b:0", now=100.0)
        claimed = ask.claim(now=101.0, types=("b", "a"), limit=4)
        assert [(work.key, work.attempt) for work in claimed.works] == [
            ("b:1", "e-1-1.0"),
            ("b:0", "e-1-1.1"),
            ("a:1", "e-1-1.2"),
            ("a:2", "e-1-1.3"),
        ]

    def test_the_type_is_what_comes_before_the_first_colon(self, ask: Asker) -> None:
        ask.join(now=100.0, capacity=100)
        ask.offer("node:1:a", "node", "nod:1", "node2:1", "Node:1", ":x", "::", "plain", now=100.0)
        assert keys_of(ask.claim(now=101.0, types=("node",))) == ["node:1:a"]
        assert keys_of(ask.claim(number=2, now=101.0, types=("nod", "nodes"))) == ["nod:1"]
        assert keys_of(ask.claim(number=3, now=101.0, types=("",))) == ["::", ":x", "node", "plain"]
        assert keys_of(ask.claim(number=4, now=101.0, types=("NODE", "%", "_"))) == []

    def test_without_types_there_is_nothing(self, ask: Asker) -> None:
        ask.join(now=100.0)
        ask.offer("job:1", now=100.0)
        assert ask.claim(now=101.0, types=()) == Claimed((), None)

    def test_every_type_can_be_claimed(self, ask: Asker) -> None:
        ask.join(now=100.0, capacity=1000)
        types = sorted({key.partition(":")[0][:240] for key in KEYS})
        ask.offer(*(f"{type}:1" for type in types), now=100.0)
        for number, type in enumerate(types, start=1):
            assert keys_of(ask.claim(number=number, now=101.0, types=(type,))) == [f"{type}:1"]

    def test_what_is_not_due_is_left_until_it_is(self, ask: Asker) -> None:
        ask.join(now=100.0)
        ask.offer("job:1", now=100.0, delay=5.0)
        assert ask.claim(now=104.999999) == Claimed((), 0.000001)
        assert keys_of(ask.claim(number=2, now=105.0)) == ["job:1"]

    def test_at_most_so_many_at_a_time(self, ask: Asker) -> None:
        ask.join(now=100.0)
        ask.offer(*(f"job:{number}" for number in range(5)), now=100.0)
        assert keys_of(ask.claim(now=101.0, limit=2)) == ["job:0", "job:1"]
        assert keys_of(ask.claim(number=2, now=101.0, limit=2)) == ["job:2", "job:3"]

    def test_never_more_than_capacity_leaves(self, ask: Asker) -> None:
        ask.join(now=100.0, capacity=3)
        ask.offer(*(f"job:{number}" for number in range(9)), now=100.0)
        ask.begin("one", "a-1", now=100.0, id="e-1")
        first = ask.claim(now=101.0)
        assert keys_of(first) == ["job:0", "job:1"]
        assert ask.claim(number=2, now=101.0).works == ()
        ask.finish(first.works[1], now=102.0)
        assert keys_of(ask.claim(number=3, now=102.0)) == ["job:2"]

    def test_work_whose_lease_has_ended_takes_room_until_somebody_looks(self, ask: Asker) -> None:
        """Of another type, so that the claim itself does not look at it."""
        ask.join(now=100.0, capacity=1)
        ask.offer("job:1", "other:1", now=100.0)
        ask.claim_one(now=100.0, ttl=10.0, type="other")
        assert ask.claim(number=2, now=120.0).works == ()
        assert keys_of(ask.claim(number=3, now=120.0, types=("job", "other"))) == ["job:1"]

    def test_a_thousand_at_once(self, ask: Asker) -> None:
        keys = [f"job:{number:04}" for number in range(1000)]
        ask.join(now=100.0, capacity=1000)
        ask.offer(*keys, now=100.0)
        claimed = ask.claim(now=101.0, limit=1000)
        assert keys_of(claimed) == keys
        assert [work.attempt for work in claimed.works] == [f"e-1-1.{place}" for place in range(1000)]
        assert ask.instance(now=101.0).assigned == 1000

    def test_tries_are_counted(self, ask: Asker) -> None:
        ask.join(now=100.0)
        ask.offer("job:1", now=100.0)
        for number in (1, 2, 3):
            given = ask.claim_one(number=number, now=100.0 + number)
            assert given.tries == number
            ask.finish(given, "failed", now=100.0 + number, retry=0.0)

    def test_tokens_grow_from_assignment_to_assignment(self, ask: Asker) -> None:
        """P1: even if time stands still or goes back, and beside plain leases of the key."""
        ask.join(now=50.0, ttl=1000.0)
        ask.offer("job:1", now=50.0)
        tokens = []
        for number, now in enumerate((100.0, 100.0, 60.0, 60.0, 120.0), start=1):
            given = ask.claim_one(number=number, now=now)
            ask.finish(given, "returned", now=now, at=50.0)
            plain = ask.take(f"a-{number}", now=now, key="job:1")
            ask.release(f"a-{number}", plain.token, now=now, key="job:1")
            tokens += [given.token, plain.token]
        assert tokens == sorted(set(tokens))

    def test_tokens_grow_through_a_sweep(self, ask: Asker) -> None:
        """P1."""
        ask.join(now=50.0, ttl=10_000.0)
        ask.offer("job:1", now=50.0)
        first = ask.claim_one(now=1000.0)
        ask.finish(first, "returned", now=1000.0)
        ask.sweep(now=1000.0, idle=0.0)
        assert ask.inspect(now=1000.0, key="job:1") is None
        ask.offer("job:1", now=60.0)
        ask.claim(number=2, now=1000.0, types=("other",))
        assert ask.claim_one(number=3, now=1000.0).token == first.token + 1

    # Lost answers and late copies

    def test_a_claim_asked_again_has_the_same_answer(self, ask: Asker) -> None:
        """P6: nothing is taken twice, and nothing is forgotten."""
        ask.join(now=100.0)
        ask.offer("a:1", "b:1", "b:2", "b:3", now=100.0)
        first = ask.claim(now=101.0, types=("b", "a"), limit=3)
        again = ask.claim(now=103.0, types=("b", "a"), limit=3)
        assert again.works == tuple(replace(work, expires_in=8.0, at=103.0) for work in first.works)
        assert again.again_in == 0.0
        assert ask.work("a:1", now=103.0).state == "offered"
        assert ask.instance(now=103.0).assigned == 3

    def test_what_is_told_again_is_what_is_still_assigned(self, ask: Asker) -> None:
        ask.join(now=100.0)
        ask.offer(*(f"job:{number}" for number in range(6)), now=100.0)
        works = ask.claim(now=101.0, limit=5).works
        ask.finish(works[0], now=102.0)
        ask.finish(works[1], "returned", now=102.0)
        ask.break_(now=102.0, key=works[2].key)
        ask.renew(works[4].attempt, works[4].token, now=102.0, key=works[4].key, ttl=20.0)
        assert keys_of(ask.claim(now=103.0)) == ["job:3", "job:4"]
        assert [(work.key, work.expires_in) for work in ask.claim(now=111.0).works] == [("job:4", 11.0)]
        assert ask.claim(now=122.0).works == ()

    def test_a_claim_asked_again_finds_ten_and_more_in_their_order(self, ask: Asker) -> None:
        """Places are numbers, not text."""
        ask.join(now=100.0, capacity=20)
        keys = [f"job:{number:02}" for number in range(12)]
        ask.offer(*keys, now=100.0)
        ask.claim(now=101.0)
        assert keys_of(ask.claim(now=102.0)) == keys

    def test_a_late_copy_takes_nothing(self, ask: Asker) -> None:
        """P6: it comes behind the next claim, when there is new work, and its own was finished long ago."""
        ask.join(now=100.0)
        ask.offer("job:1", now=100.0)
        first = ask.claim_one(now=101.0)
        ask.finish(first, now=102.0)
        second = ask.claim(number=2, now=102.0)
        ask.offer("job:2", "job:3", now=103.0)
        assert (second.works, second.again_in) == ((), None)
        assert ask.claim(number=1, now=103.0) == Claimed((), 0.0)
        assert ask.claim(number=2, now=104.0) == Claimed((), 0.0)
        assert [work.state for work in ask.works(now=104.0, prefix="job:").works] == [
            "completed",
            "offered",
            "offered",
        ]

    def test_a_late_copy_is_answered_with_its_own(self, ask: Asker) -> None:
        ask.join(now=100.0)
        ask.offer("job:1", "job:2", "job:3", now=100.0)
        first, second = ask.claim_one(now=101.0), ask.claim_one(number=2, now=101.0)
        ask.begin("job:3", "a-1", now=101.0, id="e-1")
        assert ask.claim(number=1, now=101.0).works == (first,)
        assert ask.claim(number=2, now=101.0).works == (second,)

    def test_a_copy_is_told_nothing_of_what_was_assigned_since(self, ask: Asker) -> None:
        """It was given back, and taken again by another claim: under a new attempt and token."""
        ask.join(now=100.0)
        ask.join("e-2", now=100.0)
        ask.offer("job:1", now=100.0)
        ask.finish(ask.claim_one(now=101.0), "returned", now=102.0)
        second = ask.claim_one(number=2, now=103.0)
        assert ask.claim(number=1, now=104.0).works == ()
        ask.finish(second, "returned", now=104.0)
        ask.claim_one("e-2", 1, now=105.0)
        assert ask.claim(number=1, now=106.0).works == ()

    def test_the_numbers_of_instances_are_their_own(self, ask: Asker) -> None:
        ask.join(now=100.0)
        ask.join("e-2", now=100.0)
        ask.offer("job:1", "job:2", now=100.0)
        ask.claim_one(number=7, now=101.0)
        assert keys_of(ask.claim("e-2", 1, now=101.0)) == ["job:2"]

    def test_numbers_may_skip(self, ask: Asker) -> None:
        """Claims that were never answered have used theirs."""
        ask.join(now=100.0)
        ask.offer("job:1", "job:2", now=100.0)
        ask.claim_one(number=7, now=101.0)
        assert ask.claim(number=6, now=101.0, limit=1).works == ()
        assert keys_of(ask.claim(number=100, now=101.0, limit=1)) == ["job:2"]

    # Many at once

    def test_two_clients_never_claim_the_same(self, make_store: MakeStore) -> None:
        """P2: in turn, through connections of their own."""
        mine, other = Asker(make_store(CLIENT)), Asker(make_store(OTHER_CLIENT), OTHER_CLIENT)
        mine.join("e-1", now=100.0, capacity=100)
        other.join("e-2", now=100.0, capacity=100)
        mine.offer(*(f"job:{number}" for number in range(20)), now=100.0)
        seen: list[str] = []
        for number in range(1, 5):
            seen += keys_of(mine.claim("e-1", number, now=101.0, limit=3))
            seen += keys_of(other.claim("e-2", number, now=101.0, limit=2))
        assert sorted(seen) == sorted(f"job:{number}" for number in range(20))

    def test_the_store_has_the_time_of_a_claim(self, ask: Asker) -> None:
        ask.join(now=None)
        ask.offer("job:1", now=None)
        given = ask.claim_one(now=None, ttl=60.0)
        assert given.expires_in == 60.0
        assert given.at > 1_500_000_000
        assert given.token >= micros(given.at) - 1
        again = ask.claim(now=None)
        assert keys_of(again) == ["job:1"]
        assert 0 < again.works[0].expires_in <= 60.0
        work = ask.work("job:1", now=None)
        assert (work.assigned_at, round(work.due_at - given.at, 6)) == (given.at, 60.0)
