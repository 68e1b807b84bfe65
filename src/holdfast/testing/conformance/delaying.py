"""Lock-delay: after a dirty expiry the lock stays shut for a while."""

from __future__ import annotations

from holdfast.core.family import Terms
from holdfast.core.requests import Busy, Granted, NotHeld, Queued, Released
from holdfast.testing.conformance.asking import SHARED, Asker

SLOW = Terms(delay=30.0)


class Delaying:
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
