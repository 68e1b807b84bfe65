"""Which work is taken: what is fresh goes to who has room, what is locked is put off; when to ask again."""

from __future__ import annotations

import pytest

from holdfast.core.cluster import MOST_LOOKED_AT, Claimed
from holdfast.testing.conformance.asker import Asker
from holdfast.testing.conformance.claims import keys_of


class WorkChoice:
    """Work comes to where there is room, and nobody is asked in vain."""

    # When to ask again

    def test_who_got_what_it_wanted_may_ask_again_at_once(self, ask: Asker) -> None:
        ask.join(now=100.0, capacity=2)
        ask.offer("job:1", "job:2", now=100.0)
        assert ask.claim(now=101.0, limit=1).again_in == 0.0
        assert ask.claim(number=2, now=101.0).again_in == 0.0
        assert ask.claim(number=3, now=101.0) == Claimed((), 0.0)

    def test_who_got_less_is_told_when_there_may_be_more(self, ask: Asker) -> None:
        ask.join(now=100.0)
        assert ask.claim(now=100.0) == Claimed((), None)
        ask.offer("other:1", now=100.0)
        assert ask.claim(number=2, now=100.0) == Claimed((), None)
        ask.offer("job:2", now=100.0, delay=30.0)
        assert ask.claim(number=3, now=101.0) == Claimed((), 29.0)
        ask.offer("job:1", now=100.0, delay=20.0)
        assert ask.claim(number=4, now=101.0) == Claimed((), 19.0)
        assert ask.claim(number=5, now=101.0, types=("other", "job"), ttl=5.0).again_in == 5.0

    def test_work_of_others_is_worth_a_look_when_its_lease_may_have_ended(self, ask: Asker) -> None:
        ask.join(now=100.0)
        ask.join("e-2", now=100.0)
        ask.offer("job:1", now=100.0)
        given = ask.claim_one(now=100.0, ttl=10.0)
        assert ask.claim("e-2", 1, now=103.0).again_in == 7.0
        ask.renew(given.attempt, given.token, now=108.0, key="job:1")
        assert ask.claim("e-2", 2, now=109.0).again_in == 1.0
        assert ask.claim("e-2", 3, now=110.0).again_in == 8.0
        assert ask.work("job:1", now=110.0).due_at == 118.0

    def test_what_has_ended_is_not_waited_for(self, ask: Asker) -> None:
        ask.join(now=100.0)
        ask.finish(ask.begin("job:1", "a-1", now=100.0), now=100.0)
        ask.finish(ask.begin("job:2", "a-1", now=100.0), "failed", now=100.0)
        assert ask.claim(now=101.0) == Claimed((), None)

    # WorkChoice

    def test_an_idle_instance_takes_one_at_once_and_the_rest_later(self, ask: Asker) -> None:
        ask.join(now=100.0, capacity=4)
        ask.offer(*(f"job:{number}" for number in range(4)), now=100.0)
        first = ask.claim(now=100.0, spread=1.0)
        assert (keys_of(first), first.again_in) == (["job:0"], 0.25)
        assert ask.claim(number=2, now=100.249999, spread=1.0) == Claimed((), 0.000001)
        assert keys_of(ask.claim(number=3, now=100.25, spread=1.0)) == ["job:1"]
        assert keys_of(ask.claim(number=4, now=100.75, spread=1.0)) == ["job:2", "job:3"]

    def test_a_place_is_held_back_for_its_share(self, ask: Asker) -> None:
        """The place-th for (assigned + place) / capacity of the spread, to the microsecond."""
        ask.join(now=100.0, capacity=3)
        ask.offer("job:1", "job:2", "job:3", now=100.0)
        assert keys_of(ask.claim(now=100.333332, spread=1.0)) == ["job:1"]
        assert keys_of(ask.claim(number=2, now=100.333332, spread=1.0)) == []
        assert keys_of(ask.claim(number=3, now=100.333333, spread=1.0)) == ["job:2"]
        assert keys_of(ask.claim(number=4, now=100.666665, spread=1.0)) == []
        assert keys_of(ask.claim(number=5, now=100.666666, spread=1.0)) == ["job:3"]

    def test_the_fuller_leave_it_to_others(self, ask: Asker) -> None:
        ask.join("full", now=100.0, capacity=4)
        ask.join("idle", now=100.0, capacity=4)
        for number in range(3):
            ask.begin(f"own:{number}", "a-1", now=100.0, id="full")
        ask.offer("job:1", now=100.0)
        assert ask.claim("full", now=100.0, spread=1.0) == Claimed((), 0.75)
        assert keys_of(ask.claim("idle", now=100.1, spread=1.0)) == ["job:1"]

    def test_old_work_is_held_back_from_nobody(self, ask: Asker) -> None:
        ask.join(now=100.0, capacity=4)
        ask.offer(*(f"job:{number}" for number in range(4)), now=100.0, at=90.0)
        assert len(ask.claim(now=100.0, spread=1.0).works) == 4

    def test_fresh_work_of_one_type_does_not_hide_old_work_of_another(self, ask: Asker) -> None:
        ask.join(now=100.0, capacity=2)
        ask.begin("own:1", "a-1", now=100.0, id="e-1")
        ask.offer("a:1", now=100.0)
        ask.offer("b:1", now=100.0, at=50.0)
        assert keys_of(ask.claim(now=100.0, types=("a", "b"), spread=1.0)) == ["b:1"]

    # What is in the way

    def test_work_whose_lock_is_held_is_put_off_until_that_ends(self, ask: Asker) -> None:
        ask.join(now=100.0)
        ask.take("a-1", now=100.0, key="job:1", ttl=10.0)
        ask.offer("job:1", "job:2", now=100.0)
        claimed = ask.claim(now=101.0)
        assert [(work.key, work.attempt) for work in claimed.works] == [("job:2", "e-1-1.1")]
        assert claimed.again_in == 9.0
        work = ask.work("job:1", now=101.0)
        assert (work.state, work.tries, work.due_at, work.instance) == ("offered", 0, 110.0, "")
        assert ask.claim(number=2, now=109.0).works == ()
        assert keys_of(ask.claim(number=3, now=110.0)) == ["job:1"]

    def test_it_is_put_off_for_a_second_at_least(self, ask: Asker) -> None:
        ask.join(now=100.0)
        ask.take("a-1", now=100.0, key="job:1", ttl=1.5)
        ask.offer("job:1", now=100.0)
        ask.claim(now=101.0)
        assert ask.work("job:1", now=101.0).due_at == 102.0

    def test_what_is_put_off_counts_for_the_limit(self, ask: Asker) -> None:
        ask.join(now=100.0)
        ask.take("a-1", now=100.0, key="job:1")
        ask.offer("job:1", "job:2", "job:3", now=100.0)
        claimed = ask.claim(now=101.0, limit=2)
        assert (keys_of(claimed), claimed.again_in) == (["job:2"], 0.0)
        assert keys_of(ask.claim(number=2, now=101.0, limit=2)) == ["job:3"]

    def test_work_whose_lock_somebody_was_handed_is_put_off(self, ask: Asker) -> None:
        """P7: who waits for a lock is not passed by who claims its work."""
        ask.join(now=100.0)
        ask.take("a-1", now=100.0, key="job:1", ttl=10.0)
        ask.queue("b-1", now=100.0, key="job:1", claim=5.0)
        ask.offer("job:1", now=100.0)
        assert ask.claim(now=110.0).works == ()
        assert ask.signals() == [("granted", "b-1")]
        assert ask.work("job:1", now=110.0).due_at == 115.0
        view = ask.look(now=110.0, key="job:1")
        assert view.holder is not None
        assert view.holder.owner == "b-1"

    def test_a_plain_lease_that_has_expired_is_in_nobodys_way(self, ask: Asker) -> None:
        ask.join(now=100.0)
        before = ask.take("a-1", now=100.0, key="job:1", ttl=10.0)
        ask.offer("job:1", now=100.0)
        given = ask.claim_one(now=110.0)
        assert given.token > before.token
        assert ask.renew("a-1", before.token, now=111.0, key="job:1").why == "taken over"
        assert [event.kind for event in ask.history(key="job:1")] == ["expired"]

    @pytest.mark.parametrize("count", [1, MOST_LOOKED_AT + 5])
    def test_a_claim_looks_at_what_is_due_of_its_types(self, ask: Asker, count: int) -> None:
        """A hundred of each type at a time; what is renewed meanwhile goes on."""
        ask.join(now=100.0, capacity=1000, ttl=1000.0)
        ask.join("e-2", now=100.0, capacity=1000, ttl=1000.0)
        ask.offer(*(f"{type}:{number:03}" for type in ("job", "other") for number in range(count)), now=100.0)
        ask.claim(now=100.0, types=("job", "other"), limit=1000)
        first = min(count, MOST_LOOKED_AT)
        claimed = ask.claim("e-2", 1, now=110.0, limit=1000)
        assert len(claimed.works) == first
        assert claimed.again_in == (0.0 if first < count else 10.0)
        assert [c.assigned for c in ask.counts(now=110.0)] == [count, count]
        assert ask.claim("e-2", 2, now=110.0, types=("job", "other"), limit=1000).again_in == (
            0.0 if first < count else 10.0
        )
        assert ask.instance("e-2", now=110.0).assigned == count + first
