"""Work beside plain locks of the same keys: an assignment is a lease like any other."""

from __future__ import annotations

import pytest

from holdfast.core.cluster import Assigned, Ending, Finished
from holdfast.core.data import replace
from holdfast.core.requests import Broken, Busy, NotHeld, Released, RenewLease, Withdrawn
from holdfast.testing.conformance.asker import OPERATION, SHARED, Asker, permits


def claimed(ask: Asker) -> Assigned:
    """Offer a piece of work, and claim it."""
    ask.offer("job:1", now=99.0)
    return ask.claim_one(now=100.0)


class WorkAndLocks:
    """Others may wait for its key, break it, or have it themselves; and work never passes them."""

    def test_who_waits_for_an_assignment_is_next(self, ask: Asker) -> None:
        """P7, P8."""
        for number, ending in enumerate(("completed", "failed", "returned")):
            key = f"job:{number}"
            given = ask.begin(key, "a-1", now=100.0)
            queued = ask.queue("b-1", now=101.0, key=key)
            assert (queued.position, queued.holder.owner, queued.expires_in) == (1, "a-1", 9.0)
            ended = ask.finish(given, ending, now=102.0)  # type: ignore[arg-type]
            assert isinstance(ended, Finished)
            assert ended.next == "b-1"
            assert ask.signals() == [("granted", "b-1")]
            assert ask.take("b-1", now=103.0, key=key, wait=True).token > given.token

    def test_a_hand_over_tells_the_new_head_too(self, ask: Asker) -> None:
        given = ask.begin("job:1", "a-1", now=100.0)
        ask.queue("b-1", now=101.0, key="job:1", claim=4.0)
        ask.queue("c-1", now=101.0, key="job:1", claim=6.0)
        ask.finish(given, now=102.0)
        assert ask.signals() == [("granted", "b-1"), ("head", "c-1")]

    def test_work_that_is_offered_again_waits_for_those_who_wait(self, ask: Asker) -> None:
        ask.join(now=99.0)
        given = ask.begin("job:1", "a-1", now=100.0)
        ask.queue("b-1", now=101.0, key="job:1")
        ask.finish(given, "returned", now=102.0)
        assert ask.claim(now=102.0).works == ()
        assert ask.work("job:1", now=102.0).due_at == 107.0
        token = ask.take("b-1", now=103.0, key="job:1", wait=True).token
        ask.release("b-1", token, now=104.0, key="job:1")
        assert isinstance(ask.assign("job:1", "c-1", now=104.0), Assigned)

    def test_who_waits_is_served_when_the_lease_of_the_work_ends(self, ask: Asker) -> None:
        """The work is abandoned as well, and has to wait for its lock."""
        ask.join(now=99.0)
        ask.begin("job:1", "a-1", now=100.0, id="e-1")
        ask.queue("b-1", now=101.0, key="job:1", claim=5.0)
        assert ask.claim(now=110.0).works == ()
        assert ask.signals() == [("granted", "b-1")]
        work = ask.work("job:1", now=110.0)
        assert (work.state, work.due_at, work.tries) == ("offered", 115.0, 1)

    def test_an_assignment_can_be_broken(self, ask: Asker) -> None:
        """Its holder is told, and its work is offered when somebody looks."""
        ask.join(now=99.0, ttl=1000.0)
        given = ask.begin("job:1", "a-1", now=100.0, id="e-1")
        assert isinstance(ask.break_(now=101.0, key="job:1", by="olga", reason="stuck"), Broken)
        assert ask.signals() == [("lost", "a-1")]
        lost = ask.renew("a-1", given.token, now=102.0, key="job:1")
        assert (lost.why, lost.by, lost.reason) == ("broken", "olga", "stuck")
        assert ask.work("job:1", now=102.0).state == "assigned"
        assert ask.claim(now=109.999999).works == ()
        assert ask.claim_one(number=2, now=110.0).token > given.token

    def test_who_finishes_what_was_broken_offers_it_at_once(self, ask: Asker) -> None:
        given = ask.begin("job:1", "a-1", now=100.0)
        ask.break_(now=101.0, key="job:1", by="olga", reason="stuck")
        assert ask.finish(given, now=102.0, text="7") == NotHeld("broken", "olga", "stuck")
        work = ask.work("job:1", now=102.0)
        assert (work.state, work.text, work.due_at) == ("offered", "", 102.0)
        assert [event.kind for event in ask.history(key="job:1")] == ["broken", "abandoned"]

    def test_broken_work_can_be_assigned_and_forgotten_at_once(self, ask: Asker) -> None:
        """Its time has not come, but its lease has ended."""
        first = ask.begin("job:1", "a-1", now=100.0)
        ask.begin("job:2", "a-1", now=100.0)
        ask.break_(now=101.0, key="job:1")
        ask.break_(now=101.0, key="job:2")
        second = ask.begin("job:1", "b-1", now=102.0)
        assert (second.tries, second.token > first.token) == (2, True)
        ask.forget("job:2", now=102.0)
        assert ask.find_work("job:2", now=102.0) is None

    def test_a_plain_lease_behind_a_broken_one_is_not_finished(self, ask: Asker) -> None:
        """P5: somebody else has the lock now; the work is abandoned, its lock is not touched."""
        given = ask.begin("job:1", "a-1", now=100.0)
        ask.break_(now=101.0, key="job:1")
        plain = ask.take("b-1", now=102.0, key="job:1")
        assert ask.finish(given, now=103.0).why == "broken"  # type: ignore[union-attr]
        assert ask.work("job:1", now=103.0).state == "offered"
        assert ask.renew("b-1", plain.token, now=103.0, key="job:1").outcome == "renewed"
        assert isinstance(ask.assign("job:1", "c-1", now=103.0), Busy)

    def test_assignments_are_renewed_in_batches_like_all_leases(self, ask: Asker) -> None:
        ask.join(now=99.0)
        ask.offer("job:1", "job:2", now=99.0)
        works = ask.claim(now=100.0).works
        plain = ask.take("a-1", now=100.0)
        batch = [RenewLease(work.key, work.attempt, work.token, 30.0) for work in works]
        batch += [RenewLease("nightly", "a-1", plain.token, 30.0)]
        batch += [replace(batch[0], token=works[0].token + 1)]
        answers = ask.renew_all(batch, now=105.0)
        assert [answer.outcome for answer in answers] == ["renewed", "renewed", "renewed", "lost"]
        assert ask.look(now=105.0, key="job:1").expires_in == 30.0

    def test_a_released_assignment_leaves_its_work_to_be_looked_at(self, ask: Asker) -> None:
        """Who releases only the lock has not said what became of the work."""
        ask.join(now=99.0)
        given = claimed(ask)
        assert ask.release(given.attempt, given.token, now=101.0, key="job:1") == Released()
        assert ask.work("job:1", now=102.0).state == "assigned"
        assert ask.finish(given, now=102.0) == NotHeld("already")
        work = ask.work("job:1", now=102.0)
        assert (work.state, work.tries, work.due_at) == ("offered", 1, 102.0)

    def test_a_withdrawn_assignment_is_gone(self, ask: Asker) -> None:
        given = ask.begin("job:1", "a-1", now=100.0)
        assert ask.withdraw("a-1", now=101.0, key="job:1") == Withdrawn()
        assert ask.assign("job:1", "a-1", now=102.0) == NotHeld("already")
        assert ask.begin("job:1", "b-1", now=102.0).token > given.token

    def test_its_owner_may_enter_the_lock_again(self, ask: Asker) -> None:
        """Re-entry: the same token. To finish ends the hold of the work, and not the other."""
        ask.join(now=99.0)
        given = claimed(ask)
        inner = ask.take("i-1", now=101.0, key="job:1", owner="e-1")
        assert (inner.token, inner.holds) == (given.token, 2)
        ask.queue("b-1", now=101.0, key="job:1")
        assert ask.finish(given, now=102.0) == Finished("completed")
        assert ask.signals() == []
        view = ask.look(now=102.0, key="job:1")
        assert (view.state, view.holds, view.token) == ("held", 1, given.token)
        assert ask.finish(given, now=102.0) == NotHeld("already")
        assert ask.release("i-1", given.token, now=103.0, key="job:1") == Released(0, next="b-1")

    def test_who_entered_the_lock_again_does_not_end_the_work(self, ask: Asker) -> None:
        """P5: it has the token, but it is not the attempt that the work names."""
        ask.join(now=99.0)
        given = claimed(ask)
        ask.take("i-1", now=101.0, key="job:1", owner="e-1")
        before = ask.work("job:1", now=101.0)
        inner = replace(given, attempt="i-1")
        assert ask.finish(inner, now=102.0, text="7", data="7") == Finished("assigned")
        assert ask.work("job:1", now=102.0) == before
        assert ask.look(now=102.0, key="job:1").holds == 1
        assert ask.finish(given, now=103.0) == Finished("completed")

    def test_a_lock_that_is_entered_again_keeps_its_work_waiting(self, ask: Asker) -> None:
        ask.join(now=99.0)
        given = claimed(ask)
        ask.take("i-1", now=101.0, key="job:1", owner="e-1", ttl=20.0)
        ask.finish(given, "returned", now=102.0)
        assert ask.claim(number=2, now=103.0).works == ()
        assert ask.work("job:1", now=103.0).due_at == 121.0

    def test_work_is_abandoned_even_if_its_owner_entered_the_lock_again(self, ask: Asker) -> None:
        """The attempt that it names has no hold any more."""
        ask.join(now=99.0, ttl=1000.0)
        claimed(ask)
        ask.take("i-1", now=101.0, key="job:1", owner="e-1", ttl=20.0)
        assert ask.claim(number=2, now=110.0).works == ()
        work = ask.work("job:1", now=110.0)
        assert (work.state, work.due_at) == ("offered", 121.0)

    def test_an_attempt_with_a_plain_lease_finishes_no_work(self, ask: Asker) -> None:
        """The lock is released; the work is named by nobody, and stays as it is."""
        ask.offer("job:1", now=99.0)
        before = ask.work("job:1", now=99.0)
        plain = ask.take("a-1", now=100.0, key="job:1")
        given = Assigned("job:1", "a-1", plain.token, "null", 1, 10.0)
        assert ask.finish(given, now=101.0, text="7", data="7") == Finished("offered")
        assert ask.work("job:1", now=101.0) == before
        assert ask.look(now=101.0, key="job:1").state == "free"

    @pytest.mark.parametrize("ending", ["completed", "failed", "returned"])
    def test_a_lock_with_other_terms_is_in_the_way(self, ask: Asker, ending: Ending) -> None:
        """Readers, permits, an operation: an assignment is exclusive, and fits beside nothing."""
        ask.join(now=99.0)
        for number, terms in enumerate((SHARED, permits(3), OPERATION)):
            key = f"job:{number}"
            ask.take("a-1", now=100.0, key=key, terms=terms, ttl=7.0)
            ask.offer(key, now=100.0)
            assert isinstance(ask.assign(key, "b-1", now=101.0), Busy)
            assert ask.claim(number=number + 1, now=101.0).works == ()
            assert ask.work(key, now=101.0).due_at == 107.0
            ask.break_(now=102.0, key=key)
            given = ask.begin(key, "b-2", now=103.0)
            assert isinstance(ask.acquire("c-1", now=104.0, key=key, terms=terms), Busy)
            assert isinstance(ask.finish(given, ending, now=104.0), Finished)

    def test_readers_wait_for_work_and_come_in_together(self, ask: Asker) -> None:
        given = ask.begin("job:1", "a-1", now=100.0)
        for name in ("r-1", "r-2"):
            ask.queue(name, now=101.0, key="job:1", terms=SHARED)
        assert ask.finish(given, now=102.0) == Finished("completed", "r-1")
        assert ask.signals() == [("granted", "r-1"), ("granted", "r-2")]

    def test_a_lock_that_is_shut_keeps_work_waiting(self, ask: Asker) -> None:
        ask.join(now=99.0)
        ask.take("a-1", now=100.0, key="job:1", ttl=10.0, terms=replace(SHARED, delay=20.0))
        ask.offer("job:1", now=100.0)
        answer = ask.assign("job:1", "b-1", now=115.0)
        assert isinstance(answer, Busy)
        assert (answer.holder.owner, answer.expires_in) == ("a-1", 15.0)
        assert ask.claim(now=115.0).works == ()
        assert ask.work("job:1", now=115.0).due_at == 130.0
        assert ask.claim_one(number=2, now=130.0).tries == 1

    def test_work_does_not_shut_its_lock(self, ask: Asker) -> None:
        ask.begin("job:1", "a-1", now=100.0)
        assert ask.take("b-1", now=110.0, key="job:1").token > 0

    def test_locks_of_assignments_are_listed_like_all(self, ask: Asker) -> None:
        ask.join(now=99.0)
        ask.offer("job:1", "job:2", now=99.0)
        ask.claim(now=100.0)
        assert [view.key for view in ask.page(now=101.0, owner="e-1", state="held").locks] == [
            "job:1",
            "job:2",
        ]
        assert [view.key for view in ask.page(now=101.0, type="job").locks] == ["job:1", "job:2"]

    def test_the_lock_of_an_assignment_is_not_swept(self, ask: Asker) -> None:
        given = ask.begin("job:1", "a-1", now=100.0, ttl=9000.0)
        assert ask.sweep(now=8000.0, idle=0.0).locks == 0
        assert ask.finish(given, now=8001.0) == Finished("completed")
