"""Locks that nobody gets for a while: lock-delay after a dirty expiry, at least from the grant on."""

from __future__ import annotations

from contextlib import closing

from holdfast.core.cluster import Finish
from holdfast.core.family import Outcome, Terms
from holdfast.core.requests import Broken, Busy, Granted, NotHeld, Queued, Release, Released, Withdrawn
from holdfast.testing.conformance.asker import KEY, SHARED, Asker, permits
from holdfast.testing.conformance.fences import Connect

SLOW = Terms(delay=30.0)


class LockDelays:
    """For resources that cannot check tokens: whoever expired may still be writing to them."""

    def test_a_lease_that_expires_shuts_the_lock(self, ask: Asker) -> None:
        ask.take("a-1", now=100.0, owner="ann", terms=SLOW)
        answer = ask.acquire("b-1", now=110.0)
        assert isinstance(answer, Busy)
        assert (answer.holder.owner, answer.expires_in) == ("ann", 30.0)
        assert isinstance(ask.acquire("b-1", now=139.999999), Busy)
        assert isinstance(ask.acquire("b-1", now=140.0), Granted)

    def test_it_is_shut_from_the_end_of_the_lease_whenever_that_is_found(self, ask: Asker) -> None:
        ask.take("a-1", now=100.0, terms=SLOW)
        answer = ask.acquire("b-1", now=135.0)
        assert isinstance(answer, Busy)
        assert answer.expires_in == 5.0
        ask.take("c-1", key="other", now=100.0, terms=SLOW)
        assert isinstance(ask.acquire("b-1", key="other", now=140.0), Granted)

    def test_a_release_does_not_shut_it(self, ask: Asker) -> None:
        token = ask.take("a-1", now=100.0, terms=SLOW).token
        ask.release("a-1", token, now=109.0)
        assert isinstance(ask.acquire("b-1", now=109.0), Granted)

    def test_a_withdrawal_does_not_shut_it(self, ask: Asker) -> None:
        ask.take("a-1", now=100.0, terms=SLOW)
        ask.withdraw("a-1", now=109.0)
        assert isinstance(ask.acquire("b-1", now=109.0), Granted)

    def test_a_break_does_not_shut_it(self, ask: Asker) -> None:
        """The operator knows what it does."""
        ask.take("a-1", now=100.0, terms=SLOW)
        ask.break_(now=109.0)
        assert isinstance(ask.acquire("b-1", now=109.0), Granted)

    def test_a_winner_that_did_not_come_does_not_shut_it(self, ask: Asker) -> None:
        """It never knew that it had it."""
        token = ask.take("a-1", now=100.0, terms=SLOW).token
        ask.queue("b-1", now=101.0, terms=SLOW, claim=5.0)
        ask.release("a-1", token, now=102.0)
        assert isinstance(ask.acquire("c-1", now=107.0), Granted)

    def test_one_of_two_holds_that_expires_does_not_shut_it(self, ask: Asker) -> None:
        ask.take("a-1", now=100.0, owner="ann", terms=SLOW, ttl=5.0)
        token = ask.take("a-2", now=100.0, owner="ann", terms=SLOW, ttl=10.0).token
        assert isinstance(ask.acquire("b-1", now=106.0), Busy)
        assert ask.release("a-2", token, now=107.0) == Released(0)
        assert isinstance(ask.acquire("b-1", now=107.0), Granted)

    def test_those_who_wait_are_served_when_it_opens(self, ask: Asker) -> None:
        """P7, P8: and nobody before."""
        ask.take("a-1", now=100.0, owner="ann", terms=SLOW)
        assert ask.queue("b-1", now=101.0).position == 1
        answer = ask.queue("c-1", now=110.0)
        assert (answer.position, answer.holder.owner, answer.expires_in) == (2, "ann", 30.0)
        assert [told for told in ask.signals() if told[0] == "granted"] == []
        told = ask.refresh("b-1", now=120.0, patience=100.0)
        assert (told.outcome, told.head, told.expires_in) == ("waiting", True, 20.0)
        assert isinstance(ask.acquire("b-1", now=139.999999, wait=True), Queued)
        assert isinstance(ask.acquire("b-1", now=140.0, wait=True), Granted)
        assert ask.look(now=140.0).waiting == 1

    def test_whoever_comes_when_it_opens_does_not_pass_who_waits(self, ask: Asker) -> None:
        """P7."""
        ask.take("a-1", now=100.0, terms=SLOW)
        ask.queue("b-1", now=101.0)
        answer = ask.acquire("c-1", now=140.0)
        assert isinstance(answer, Busy)
        assert answer.holder.owner == "b-1"
        assert ask.signals() == [("granted", "b-1")]

    def test_a_shut_lock_is_shown_as_held_by_who_expired(self, ask: Asker) -> None:
        ask.take("a-1", now=100.0, owner="ann", terms=SLOW)
        ask.acquire("b-1", now=110.0)
        view = ask.look(now=115.0)
        assert view.holder is not None
        assert (view.state, view.holder.owner, view.expires_in) == ("held", "ann", 25.0)

    def test_a_shut_lock_has_expired_for_its_holder(self, ask: Asker) -> None:
        token = ask.take("a-1", now=100.0, owner="ann", terms=SLOW).token
        assert ask.renew("a-1", token, now=110.0).why == "expired"
        assert ask.release("a-1", token, now=111.0) == NotHeld("expired")
        assert ask.acquire("a-1", now=112.0, owner="ann", terms=SLOW) == NotHeld("expired")
        assert isinstance(ask.acquire("a-2", now=113.0, owner="ann", terms=SLOW), Busy)

    def test_sweeping_does_not_open_it(self, ask: Asker) -> None:
        ask.take("a-1", now=100.0, terms=SLOW)
        assert ask.sweep(now=111.0, idle=0.0).locks == 0
        assert ask.sweep(now=112.0, idle=0.0).locks == 0
        assert isinstance(ask.acquire("b-1", now=113.0), Busy)

    def test_sweeping_serves_who_waits_for_it_to_open(self, ask: Asker) -> None:
        """P8: whatever settles a key does."""
        ask.take("a-1", now=100.0, terms=SLOW)
        ask.queue("b-1", now=101.0)
        ask.sweep(now=111.0)
        assert [told for told in ask.signals() if told[0] == "granted"] == []
        ask.sweep(now=140.0)
        assert ask.signals() == [("granted", "b-1")]

    def test_the_next_lease_has_a_higher_token(self, ask: Asker) -> None:
        """P1."""
        first = ask.take("a-1", now=100.0, terms=SLOW).token
        ask.acquire("b-1", now=111.0)
        assert ask.take("b-1", now=140.0).token > first

    def test_a_delay_is_of_the_lease_that_had_it(self, ask: Asker) -> None:
        """Whoever comes after asked for none."""
        ask.take("a-1", now=100.0, terms=SLOW)
        ask.take("b-1", now=140.0)
        assert isinstance(ask.acquire("c-1", now=150.0), Granted)

    def test_a_reader_that_expires_keeps_others_out_too(self, ask: Asker) -> None:
        token = ask.take("r-1", now=100.0, terms=SHARED, ttl=60.0).token
        ask.take("r-2", now=100.0, terms=Terms(mode="shared", delay=30.0), ttl=10.0)
        assert isinstance(ask.acquire("r-3", now=111.0, terms=SHARED), Busy)
        assert ask.renew("r-1", token, now=112.0, ttl=60.0).outcome == "renewed"
        assert isinstance(ask.acquire("r-3", now=140.0, terms=SHARED), Granted)

    def test_when_it_opens_beside_a_reader_the_next_one_learns_it_by_its_heartbeat(self, ask: Asker) -> None:
        """Nobody ends then, so nobody hands anything over."""
        ask.take("a-1", now=100.0, terms=Terms("shared", delay=30.0))
        ask.take("b-1", now=100.0, terms=SHARED, ttl=600.0)
        ask.queue("c-1", now=115.0, terms=SHARED, patience=600.0)
        assert ask.refresh("c-1", now=139.0).outcome == "waiting"
        assert ask.refresh("c-1", now=140.0).outcome == "handed"


LONG = Terms(at_least=30.0)


class AtLeast:
    """For jobs that several machines start at about the same time: it is granted once."""

    def test_a_release_keeps_it_taken_until_it_was_long_enough(self, ask: Asker) -> None:
        """Counted from the grant, by the store's clock, whatever the process does."""
        token = ask.take("a-1", now=100.0, owner="ann", terms=LONG).token
        assert ask.release("a-1", token, now=102.0) == Released(0)
        answer = ask.acquire("b-1", now=103.0)
        assert isinstance(answer, Busy)
        assert (answer.holder.owner, answer.holder.gone, answer.expires_in) == ("ann", True, 27.0)
        assert isinstance(ask.acquire("b-1", now=129.999999), Busy)
        assert ask.take("b-1", now=130.0).token > token

    def test_a_lease_that_was_held_for_longer_keeps_nobody_out(self, ask: Asker) -> None:
        token = ask.take("a-1", now=100.0, ttl=60.0, terms=LONG).token
        ask.release("a-1", token, now=130.0)
        assert isinstance(ask.acquire("b-1", now=130.0), Granted)

    def test_it_stays_taken_for_its_own_owner_too(self, ask: Asker) -> None:
        token = ask.take("a-1", now=100.0, owner="ann", terms=LONG).token
        ask.release("a-1", token, now=101.0)
        assert isinstance(ask.acquire("a-2", now=102.0, owner="ann", terms=LONG), Busy)
        assert ask.acquire("a-1", now=102.0, owner="ann", terms=LONG) == NotHeld("already")

    def test_a_lease_that_expires_keeps_it_taken_as_well(self, ask: Asker) -> None:
        ask.take("a-1", now=100.0, terms=LONG, ttl=10.0)
        assert isinstance(ask.acquire("b-1", now=111.0), Busy)
        assert isinstance(ask.acquire("b-1", now=129.999999), Busy)
        assert isinstance(ask.acquire("b-1", now=130.0), Granted)

    def test_what_is_longer_counts_when_it_expires(self, ask: Asker) -> None:
        for key, terms in (
            ("one", Terms(at_least=30.0, delay=5.0)),
            ("two", Terms(at_least=5.0, delay=20.0)),
        ):
            ask.take("a-1", now=100.0, key=key, terms=terms, ttl=10.0)
            assert isinstance(ask.acquire("b-1", key=key, now=129.999999), Busy)
            assert isinstance(ask.acquire("b-1", key=key, now=130.0), Granted)

    def test_a_delay_does_not_count_when_it_is_released(self, ask: Asker) -> None:
        token = ask.take("a-1", now=100.0, terms=Terms(at_least=5.0, delay=20.0)).token
        ask.release("a-1", token, now=101.0)
        assert isinstance(ask.acquire("b-1", now=105.0), Granted)

    def test_a_break_opens_it(self, ask: Asker) -> None:
        """The operator knows what it does."""
        ask.take("a-1", now=100.0, terms=LONG)
        ask.break_(now=101.0)
        assert isinstance(ask.acquire("b-1", now=101.0), Granted)

    def test_what_is_only_shut_can_be_broken_open(self, ask: Asker) -> None:
        token = ask.take("a-1", now=100.0, owner="ann", terms=LONG).token
        ask.release("a-1", token, now=101.0)
        assert ask.break_(now=102.0, token=token - 1) == NotHeld("free")
        broken = ask.break_(now=102.0, token=token)
        assert isinstance(broken, Broken)
        assert (broken.holder.owner, broken.holder.token, broken.holder.gone) == ("ann", token, True)
        assert ask.break_(now=102.0, token=token) == NotHeld("free")
        assert ask.break_(now=102.0) == NotHeld("free")
        event = ask.history()[-1]
        assert (event.kind, event.owner, event.token, event.by) == ("broken", "ann", token, "olga")
        assert isinstance(ask.acquire("b-1", now=102.0), Granted)

    def test_whoever_waits_gets_what_is_broken_open(self, ask: Asker) -> None:
        token = ask.take("a-1", now=100.0, terms=LONG).token
        ask.queue("b-1", now=100.0)
        ask.release("a-1", token, now=101.0)
        broken = ask.break_(now=102.0)
        assert isinstance(broken, Broken)
        assert broken.next == "b-1"
        assert ask.signals() == [("granted", "b-1")]

    def test_a_lock_delay_can_be_broken_open_too(self, ask: Asker) -> None:
        token = ask.take("a-1", now=100.0, terms=Terms(delay=30.0)).token
        assert isinstance(ask.acquire("b-1", now=111.0), Busy)
        assert isinstance(ask.break_(now=112.0, token=token), Broken)
        assert isinstance(ask.acquire("b-1", now=112.0), Granted)

    def test_to_withdraw_what_nobody_knew_of_does_not_keep_it_taken(self, ask: Asker) -> None:
        """Nothing was done: whoever comes next is to do it."""
        ask.take("a-1", now=100.0, terms=LONG)
        assert ask.withdraw("a-1", now=101.0) == Withdrawn()
        assert isinstance(ask.acquire("b-1", now=101.0), Granted)

    def test_to_withdraw_what_was_held_keeps_it_taken(self, ask: Asker) -> None:
        """That is how a release is made up for that could not be delivered."""
        ask.take("a-1", now=100.0, terms=LONG)
        assert ask.withdraw("a-1", now=101.0, held=True) == Withdrawn()
        assert isinstance(ask.acquire("b-1", now=129.999999), Busy)
        assert isinstance(ask.acquire("b-1", now=130.0), Granted)

    def test_a_winner_that_did_not_come_does_not_keep_it_taken(self, ask: Asker) -> None:
        token = ask.take("a-1", now=100.0).token
        ask.queue("b-1", now=100.0, terms=LONG, claim=5.0)
        ask.release("a-1", token, now=101.0)
        assert isinstance(ask.acquire("c-1", now=106.0), Granted)

    def test_it_counts_from_the_hand_over(self, ask: Asker) -> None:
        token = ask.take("a-1", now=100.0).token
        ask.queue("b-1", now=100.0, terms=LONG)
        ask.release("a-1", token, now=101.0)
        token = ask.take("b-1", now=104.0, terms=LONG, wait=True).token
        ask.release("b-1", token, now=105.0)
        assert isinstance(ask.acquire("c-1", now=130.999999), Busy)
        assert isinstance(ask.acquire("c-1", now=131.0), Granted)

    def test_those_who_wait_for_a_released_lock_are_served_when_it_opens(self, ask: Asker) -> None:
        """P7, P8: and nobody before."""
        token = ask.take("a-1", now=100.0, owner="ann", terms=LONG, ttl=60.0).token
        ask.queue("b-1", now=101.0)
        assert ask.release("a-1", token, now=102.0) == Released(0, next=None)
        assert [told for told in ask.signals() if told[0] == "granted"] == []
        told = ask.refresh("b-1", now=110.0, patience=100.0)
        assert (told.outcome, told.head, told.expires_in) == ("waiting", True, 20.0)
        assert isinstance(ask.acquire("c-1", now=111.0), Busy)
        assert isinstance(ask.acquire("b-1", now=129.999999, wait=True), Queued)
        assert isinstance(ask.acquire("b-1", now=130.0, wait=True), Granted)

    def test_the_head_is_told_if_it_opens_sooner_than_it_could_know(self, ask: Asker) -> None:
        token = ask.take("a-1", now=100.0, terms=Terms(at_least=4.0), ttl=60.0).token
        ask.queue("b-1", now=101.0, claim=5.0)
        ask.release("a-1", token, now=102.0)
        assert ask.signals() == [("head", "b-1")]

    def test_re_entry_counts_from_the_grant_of_the_lease(self, ask: Asker) -> None:
        token = ask.take("a-1", now=100.0, owner="ann", terms=LONG).token
        ask.take("a-2", now=105.0, owner="ann", terms=LONG)
        ask.release("a-1", token, now=106.0)
        assert ask.release("a-2", token, now=107.0) == Released(0)
        assert isinstance(ask.acquire("b-1", now=129.999999), Busy)
        assert isinstance(ask.acquire("b-1", now=130.0), Granted)

    def test_the_longest_of_a_lease_counts_whichever_hold_is_left_last(self, ask: Asker) -> None:
        for key, first in (("one", "a-1"), ("two", "a-2")):
            last = "a-2" if first == "a-1" else "a-1"
            token = ask.take("a-1", now=100.0, key=key, owner="ann").token
            ask.take("a-2", now=101.0, key=key, owner="ann", terms=LONG)
            assert ask.release(first, token, now=102.0, key=key) == Released(1)
            assert ask.release(last, token, now=103.0, key=key) == Released(0)
            assert isinstance(ask.acquire("b-1", now=129.999999, key=key), Busy)
            assert isinstance(ask.acquire("b-1", now=130.0, key=key), Granted)

    def test_an_operation_stays_taken_whatever_came_of_it(self, ask: Asker) -> None:
        terms = Terms(operation=True, at_least=30.0)
        for key, outcome in (("one", Outcome(True, "1")), ("two", Outcome(False, "no")), ("three", None)):
            token = ask.take("a-1", now=100.0, key=key, terms=terms).token
            ask.queue("b-1", now=100.0, key=key, terms=terms)
            ask.release("a-1", token, now=101.0, key=key, outcome=outcome)
            assert isinstance(ask.acquire("c-1", now=129.999999, key=key, terms=terms), Busy)
            served = ask.acquire("b-1" if key != "one" else "c-1", now=130.0, key=key, wait=True, terms=terms)
            assert isinstance(served, Granted)

    def test_finished_work_keeps_a_lock_taken_that_is_none_of_its_own(self, ask: Asker) -> None:
        token = ask.take("a-1", now=100.0, terms=LONG).token
        ask.store.execute(Finish(KEY, "a-1", token, "completed", now=101.0))
        assert isinstance(ask.acquire("b-1", now=102.0), Busy)

    def test_readers_come_in_when_it_is_downgraded_and_none_after_it_is_released(self, ask: Asker) -> None:
        token = ask.take("a-1", now=100.0, terms=LONG, ttl=60.0).token
        ask.downgrade("a-1", token, now=101.0)
        ask.take("r-1", now=101.0, terms=SHARED, ttl=60.0)
        ask.release("a-1", token, now=102.0)
        assert isinstance(ask.acquire("r-2", now=103.0, terms=SHARED), Busy)
        assert isinstance(ask.acquire("r-2", now=130.0, terms=SHARED), Granted)

    def test_neither_readers_nor_permits_pass(self, ask: Asker) -> None:
        token = ask.take("a-1", now=100.0, terms=LONG).token
        ask.release("a-1", token, now=101.0)
        assert isinstance(ask.acquire("r-1", now=102.0, terms=SHARED), Busy)
        assert isinstance(ask.acquire("p-1", now=102.0, terms=permits(3)), Busy)

    def test_it_is_shown_as_held_by_who_had_it(self, ask: Asker) -> None:
        token = ask.take("a-1", now=100.0, owner="ann", terms=LONG).token
        ask.release("a-1", token, now=101.0)
        view = ask.look(now=110.0)
        assert view.holder is not None
        assert (view.state, view.holder.owner, view.holder.gone) == ("held", "ann", True)
        assert (view.holds, view.holders, view.expires_in) == (0, (), 20.0)
        assert ask.look(now=130.0).state == "free"

    def test_sweeping_neither_opens_nor_forgets_it(self, ask: Asker) -> None:
        token = ask.take("a-1", now=100.0, terms=LONG).token
        ask.release("a-1", token, now=101.0)
        assert ask.sweep(now=111.0, idle=0.0).locks == 0
        assert isinstance(ask.acquire("b-1", now=112.0), Busy)
        ask.sweep(now=130.0)
        assert isinstance(ask.acquire("b-1", now=130.0), Granted)

    def test_a_release_within_a_transaction_keeps_it_taken_too(self, ask: Asker, connect: Connect) -> None:
        if connect is None:
            return
        token = ask.take("a-1", now=100.0, terms=LONG).token
        with closing(connect()) as connection:
            assert isinstance(
                ask.store.execute_within(connection, Release(KEY, "a-1", token, now=101.0)), Released
            )
            connection.commit()
        assert isinstance(ask.acquire("b-1", now=129.999999), Busy)
        assert isinstance(ask.acquire("b-1", now=130.0), Granted)
