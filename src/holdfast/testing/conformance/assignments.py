"""Assigning work by its key: taken with its lock, whether it was offered or not."""

from __future__ import annotations

from holdfast.core.cluster import Assigned, Beat, Ended, Full, NotDue, WorkView
from holdfast.core.data import replace
from holdfast.core.requests import Busy, NotHeld
from holdfast.stores.base import micros
from holdfast.testing.conformance.asker import CLIENT, OTHER_CLIENT, Asker, MakeStore
from holdfast.testing.conformance.offers import ENDED


class Assignments:
    """The rows of the table, from above to below."""

    def test_work_that_was_not_known_is_now(self, ask: Asker) -> None:
        ask.join(now=100.0)
        given = ask.begin("job:1", "a-1", now=101.0, id="e-1", data='"new"')
        assert given == Assigned("job:1", "a-1", micros(101.0), '"new"', 1, 10.0, 101.0)
        assert ask.work("job:1", now=101.0) == WorkView(
            "job:1", "assigned", '"new"', "", 1, 0, "e-1", given.token, 101.0, 101.0, 111.0
        )
        view = ask.look(now=101.0, key="job:1")
        assert view.holder is not None
        assert (view.state, view.token, view.holder.owner) == ("held", given.token, "a-1")

    def test_work_that_was_offered_keeps_what_it_was_offered_with(self, ask: Asker) -> None:
        ask.offer("job:1", "job:2", now=100.0, data='"old"', max_tries=4)
        assert ask.begin("job:1", "a-1", now=101.0).data == '"old"'
        assert ask.begin("job:2", "a-1", now=101.0, data='"new"').data == '"new"'
        assert [(work.data, work.max_tries, work.offered_at) for work in ask.works(now=101.0).works] == [
            ('"old"', 4, 100.0),
            ('"new"', 4, 100.0),
        ]

    def test_without_an_instance_only_the_lease_says_who_has_it(self, ask: Asker) -> None:
        ask.begin("job:1", "a-1", now=100.0)
        assert ask.work("job:1", now=100.0).instance == ""
        assert ask.look(now=100.0, key="job:1").state == "held"

    def test_the_owner_is_who_is_said(self, ask: Asker) -> None:
        assert isinstance(ask.assign("job:1", "a-1", now=100.0, owner="o'Brien 锁"), Assigned)
        holder = ask.look(now=100.0, key="job:1").holder
        assert holder is not None
        assert (holder.owner, holder.host, holder.pid, holder.held_for) == ("o'Brien 锁", "alpha", 101, 0.0)

    def test_only_the_living_are_assigned_work(self, ask: Asker) -> None:
        ask.join("drains", now=100.0)
        ask.join("left", now=100.0)
        ask.join("dies", now=100.0, ttl=5.0)
        ask.beat("drains", now=100.0, drain=True, ttl=90.0)
        ask.leave("left", now=100.0)
        assert ask.assign("job:1", "a-1", now=105.0, id="never") == Beat("dead", 0.0, 0, 105.0)
        assert ask.assign("job:1", "a-1", now=105.0, id="drains") == Beat("draining", 85.0, 0, 105.0)
        assert ask.assign("job:1", "a-1", now=105.0, id="left") == Beat("left", 0.0, 0, 105.0)
        assert ask.assign("job:1", "a-1", now=105.0, id="dies") == Beat("dead", 0.0, 0, 105.0)
        assert ask.find_work("job:1", now=105.0) is None
        assert ask.inspect(now=105.0, key="job:1") is None

    def test_the_dead_are_not_told_that_they_have_it(self, ask: Asker) -> None:
        """A paused instance that asks again stops, though the lease is still its own."""
        ask.join(now=100.0, ttl=5.0)
        given = ask.begin("job:1", "a-1", now=100.0, id="e-1", ttl=60.0)
        assert ask.assign("job:1", "a-1", now=105.0, id="e-1") == Beat("dead", 0.0, 0, 105.0)
        assert ask.renew("a-1", given.token, now=106.0, key="job:1").outcome == "held"

    def test_asked_again_it_is_the_same_assignment(self, ask: Asker) -> None:
        """P6: same token, one try; and the end moves, never back."""
        ask.join(now=100.0)
        given = ask.begin("job:1", "a-1", now=100.0, id="e-1", data="1")
        again = ask.begin("job:1", "a-1", now=102.0, id="e-1", data="2")
        assert again == replace(given, expires_in=10.0, at=102.0)
        sooner = ask.begin("job:1", "a-1", now=103.0, id="e-1", ttl=2.0)
        assert sooner == replace(given, expires_in=9.0, at=103.0)
        work = ask.work("job:1", now=103.0)
        assert (work.tries, work.data, work.assigned_at) == (1, "1", 100.0)
        assert ask.look(now=103.0, key="job:1").expires_in == 9.0

    def test_asked_again_it_is_not_too_much(self, ask: Asker) -> None:
        """P6: an instance that is full has what it has."""
        ask.join(now=100.0, capacity=1)
        given = ask.begin("job:1", "a-1", now=100.0, id="e-1")
        assert ask.begin("job:1", "a-1", now=100.0, id="e-1") == given

    def test_assigning_again_says_where_we_are_now(self, make_store: MakeStore) -> None:
        mine, other = Asker(make_store(CLIENT)), Asker(make_store(OTHER_CLIENT), OTHER_CLIENT)
        mine.begin("job:1", "a-1", now=100.0)
        other.begin("job:1", "a-1", now=101.0)
        holder = mine.look(now=101.0, key="job:1").holder
        assert holder is not None
        assert (holder.host, holder.pid) == ("beta", 202)

    def test_an_attempt_that_has_ended_is_told_so(self, ask: Asker) -> None:
        """P6: a late copy begins nothing anew."""
        for number, ending in enumerate(("completed", "failed", "returned")):
            given = ask.begin(f"job:{number}", "a-1", now=100.0)
            ask.finish(given, ending, now=101.0)  # type: ignore[arg-type]
            before = ask.work(given.key, now=102.0)
            assert ask.assign(given.key, "a-1", now=102.0, again=True) == NotHeld("already")
            assert ask.work(given.key, now=102.0) == before

    def test_a_retired_attempt_is_remembered_whoever_has_it_next(self, ask: Asker) -> None:
        given = ask.begin("job:1", "a-1", now=100.0)
        ask.finish(given, "returned", now=101.0, retire=True)
        second = ask.begin("job:1", "b-1", now=102.0)
        assert ask.assign("job:1", "a-1", now=103.0) == NotHeld("already")
        ask.finish(second, "returned", now=104.0)
        assert ask.assign("job:1", "a-1", now=160.999999) == NotHeld("already")
        assert ask.begin("job:1", "a-1", now=161.0).token > second.token

    def test_an_attempt_that_was_broken_is_told_by_whom(self, ask: Asker) -> None:
        ask.begin("job:1", "a-1", now=100.0)
        ask.break_(now=101.0, key="job:1", by="olga", reason="stuck")
        assert ask.assign("job:1", "a-1", now=102.0) == NotHeld("broken", "olga", "stuck")

    def test_an_attempt_whose_lease_expired_is_told_so(self, ask: Asker) -> None:
        """Nothing is resurrected (R3); with another attempt it can be begun."""
        first = ask.begin("job:1", "a-1", now=100.0)
        assert ask.assign("job:1", "a-1", now=110.0) == NotHeld("expired")
        second = ask.begin("job:1", "a-2", now=110.0)
        assert (second.tries, second.token > first.token) == (2, True)

    def test_an_attempt_that_was_withdrawn_is_told_so(self, ask: Asker) -> None:
        ask.withdraw("a-1", now=100.0, key="job:1")
        assert ask.assign("job:1", "a-1", now=101.0) == NotHeld("already")
        assert ask.find_work("job:1", now=101.0) is None

    def test_never_more_than_capacity(self, ask: Asker) -> None:
        ask.join(now=100.0, capacity=2)
        first = ask.begin("job:1", "a-1", now=100.0, id="e-1")
        ask.begin("job:2", "a-2", now=100.0, id="e-1")
        assert ask.assign("job:3", "a-3", now=101.0, id="e-1") == Full(2)
        assert ask.find_work("job:3", now=101.0) is None
        assert isinstance(ask.assign("job:3", "a-3", now=101.0), Assigned)
        ask.finish(first, now=102.0)
        assert isinstance(ask.assign("job:4", "a-4", now=102.0, id="e-1"), Assigned)

    def test_what_has_ended_is_not_begun(self, ask: Asker) -> None:
        for key, ending in ENDED.items():
            ask.finish(ask.begin(key, "a-1", now=100.0), ending, now=101.0, text='"so"')
            assert ask.assign(key, "b-1", now=102.0) == Ended(ask.work(key, now=102.0))
            assert ask.look(now=102.0, key=key).state == "free"

    def test_unless_it_is_begun_again(self, ask: Asker) -> None:
        for key, ending in ENDED.items():
            ask.offer(key, now=99.0, data="1", max_tries=2)
            first = ask.begin(key, "a-1", now=100.0)
            ask.finish(first, ending, now=101.0, text='"so"')
            second = ask.begin(key, "b-1", now=102.0, again=True)
            assert (second.tries, second.data, second.token > first.token) == (1, "1", True)
            assert ask.work(key, now=102.0) == WorkView(
                key, "assigned", "1", "", 1, 2, "", second.token, 102.0, 102.0, 112.0
            )

    def test_again_begins_nothing_else_anew(self, ask: Asker) -> None:
        """What is offered is taken as it is."""
        ask.offer("job:1", now=100.0)
        ask.finish(ask.begin("job:1", "a-1", now=100.0), "failed", now=100.0, retry=0.0)
        assert ask.begin("job:1", "b-1", now=101.0, again=True).tries == 2
        assert isinstance(ask.assign("job:1", "c-1", now=102.0, again=True), Busy)

    def test_work_for_later_can_be_begun_now(self, ask: Asker) -> None:
        ask.offer("job:1", now=100.0, delay=50.0)
        assert ask.begin("job:1", "a-1", now=101.0).tries == 1

    def test_unless_its_time_is_to_be_waited_for(self, ask: Asker) -> None:
        ask.offer("job:1", now=100.0, delay=50.0)
        assert ask.assign("job:1", "a-1", now=101.0, due=True) == NotDue(49.0)
        assert ask.assign("job:1", "a-1", now=149.999999, due=True) == NotDue(0.000001)
        assert ask.inspect(now=150.0, key="job:1") is None
        assert isinstance(ask.assign("job:1", "a-1", now=150.0, due=True), Assigned)
        assert isinstance(ask.assign("job:2", "a-1", now=150.0, due=True), Assigned)

    def test_work_whose_lock_is_held_is_busy(self, ask: Asker) -> None:
        ask.take("a-1", now=100.0, key="job:1", owner="ann")
        ask.offer("job:1", now=100.0)
        before = ask.work("job:1", now=101.0)
        for key in ("job:1", "job:2"):
            if key == "job:2":
                ask.take("a-1", now=100.0, key=key, owner="ann")
            answer = ask.assign(key, "b-1", now=103.0)
            assert isinstance(answer, Busy)
            assert (answer.holder.owner, answer.holder.held_for, answer.expires_in) == ("ann", 3.0, 7.0)
        assert ask.work("job:1", now=103.0) == before
        assert ask.find_work("job:2", now=103.0) is None

    def test_work_that_somebody_has_is_busy(self, ask: Asker) -> None:
        """P2, and nobody's lease is touched (P5)."""
        ask.join(now=100.0)
        given = ask.begin("job:1", "a-1", now=100.0, id="e-1")
        answer = ask.assign("job:1", "b-1", now=101.0, data='"mine"', again=True)
        assert isinstance(answer, Busy)
        assert (answer.holder.owner, answer.holder.token, answer.expires_in) == ("a-1", given.token, 9.0)
        work = ask.work("job:1", now=101.0)
        assert (work.state, work.instance, work.tries, work.data) == ("assigned", "e-1", 1, "null")

    def test_who_has_the_lock_itself_is_busy_too(self, ask: Asker) -> None:
        """Also by the same attempt or owner: an assignment is a lease of its own."""
        ask.take("a-1", now=100.0, key="job:1", owner="ann")
        assert isinstance(ask.assign("job:1", "a-1", now=101.0, owner="ann"), Busy)
        assert isinstance(ask.assign("job:1", "a-2", now=101.0, owner="ann"), Busy)

    def test_who_waits_for_the_lock_is_not_passed(self, ask: Asker) -> None:
        """P7: the lease has ended, and whoever waits is handed the lock first."""
        ask.take("a-1", now=100.0, key="job:1")
        ask.queue("b-1", now=101.0, key="job:1")
        answer = ask.assign("job:1", "c-1", now=110.0)
        assert isinstance(answer, Busy)
        assert (answer.holder.owner, answer.expires_in) == ("b-1", 5.0)
        assert ask.signals() == [("granted", "b-1")]

    def test_a_busy_one_joins_no_queue(self, ask: Asker) -> None:
        ask.take("a-1", now=100.0, key="job:1")
        ask.assign("job:1", "b-1", now=101.0)
        assert ask.look(now=101.0, key="job:1").waiting == 0

    def test_the_store_has_the_time_of_an_assignment(self, ask: Asker) -> None:
        given = ask.begin("job:1", "a-1", now=None, ttl=60.0)
        assert (given.expires_in, given.tries) == (60.0, 1)
        assert given.at > 1_500_000_000
        again = ask.begin("job:1", "a-1", now=None, ttl=60.0)
        assert (again.token, again.at >= given.at) == (given.token, True)
