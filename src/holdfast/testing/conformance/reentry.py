"""Re-entry: several holds of one owner in one lease, each with its own end."""

from __future__ import annotations

from holdfast.core.requests import Busy, Granted, NotHeld, Released, TooManyHolds
from holdfast.testing.conformance.asker import Asker


class Reentry:
    """Holds of one owner share the token, and nothing else."""

    def test_the_owner_may_enter_again_under_the_same_token(self, ask: Asker) -> None:
        """P1: re-entry keeps the token."""
        outer = ask.take("a-1", now=100.0, owner="ann")
        assert ask.acquire("a-2", now=105.0, owner="ann") == Granted(outer.token, 10.0, holds=2)
        assert ask.acquire("a-3", now=105.0, owner="ann", ttl=3.0) == Granted(outer.token, 3.0, holds=3)
        assert ask.look(now=105.0).holds == 3

    def test_another_owner_may_not(self, ask: Asker) -> None:
        """P2."""
        ask.take("a-1", now=100.0, owner="ann")
        assert isinstance(ask.acquire("b-1", now=100.0, owner="Ann"), Busy)

    def test_the_owner_may_enter_again_past_those_who_wait(self, ask: Asker) -> None:
        """P7 is about leases: whoever waited for itself would wait for ever."""
        outer = ask.take("a-1", now=100.0, owner="ann")
        ask.queue("b-1", now=101.0)
        assert ask.acquire("a-2", now=102.0, owner="ann", wait=True) == Granted(outer.token, 10.0, holds=2)
        assert ask.look(now=102.0).waiting == 1

    def test_no_more_holds_than_the_limit(self, ask: Asker) -> None:
        ask.take("a-1", now=100.0, owner="ann")
        assert isinstance(ask.acquire("a-2", now=100.0, owner="ann", limit=2), Granted)
        assert ask.acquire("a-3", now=100.0, owner="ann", limit=2) == TooManyHolds(2)
        assert ask.acquire("a-3", now=100.0, owner="ann", limit=2, wait=True) == TooManyHolds(2)
        assert ask.look(now=100.0).holds == 2

    def test_a_limit_of_one_means_not_reentrant(self, ask: Asker) -> None:
        first = ask.acquire("a-1", now=100.0, owner="ann", limit=1)
        assert ask.acquire("a-2", now=101.0, owner="ann", limit=1) == TooManyHolds(1)
        assert isinstance(first, Granted)
        assert ask.acquire("a-1", now=102.0, owner="ann", limit=1) == Granted(first.token, 10.0, holds=1)

    def test_refused_re_entry_leaves_no_trace(self, ask: Asker) -> None:
        first = ask.take("a-1", now=100.0, owner="ann")
        before = ask.look(now=101.0)
        ask.acquire("a-2", now=101.0, owner="ann", limit=1, wait=True)
        assert ask.look(now=101.0) == before
        ask.release("a-1", first.token, now=102.0)
        assert isinstance(ask.acquire("a-2", now=102.0, owner="ann", limit=1), Granted)

    def test_holds_that_are_over_do_not_count(self, ask: Asker) -> None:
        ask.take("a-1", now=100.0, owner="ann", ttl=10.0)
        ask.take("a-2", now=100.0, owner="ann", ttl=2.0)
        answer = ask.acquire("a-3", now=102.0, owner="ann", limit=2)
        assert isinstance(answer, Granted)
        assert answer.holds == 2

    def test_a_short_nested_hold_does_not_shorten_the_outer_one(self, ask: Asker) -> None:
        """P3: the outer hold is trusted for its own ttl."""
        ask.take("a-1", now=100.0, owner="ann", ttl=10.0)
        ask.take("a-2", now=101.0, owner="ann", ttl=0.5)
        assert ask.look(now=101.0).expires_in == 9.0
        assert isinstance(ask.acquire("b-1", now=109.999999), Busy)
        assert isinstance(ask.acquire("b-1", now=110.0), Granted)

    def test_releasing_a_nested_hold_does_not_shorten_the_outer_one(self, ask: Asker) -> None:
        token = ask.take("a-1", now=100.0, owner="ann", ttl=10.0).token
        ask.take("a-2", now=101.0, owner="ann", ttl=0.5)
        assert ask.release("a-2", token, now=101.2) == Released(holds=1)
        assert ask.look(now=101.2).expires_in == 8.8
        assert ask.renew("a-1", token, now=109.0).outcome == "renewed"

    def test_the_lease_ends_with_its_last_hold(self, ask: Asker) -> None:
        ask.take("a-1", now=100.0, owner="ann", ttl=2.0)
        ask.take("a-2", now=100.0, owner="ann", ttl=10.0)
        assert isinstance(ask.acquire("b-1", now=109.999999), Busy)
        assert isinstance(ask.acquire("b-1", now=110.0), Granted)

    def test_a_long_hold_given_back_ends_the_lease_with_the_short_one(self, ask: Asker) -> None:
        """One common end would hold the lock long past its use."""
        token = ask.take("a-1", now=100.0, owner="ann", ttl=2.0).token
        ask.take("a-2", now=100.0, owner="ann", ttl=60.0)
        ask.release("a-2", token, now=101.0)
        assert ask.look(now=101.0).expires_in == 1.0
        assert isinstance(ask.acquire("b-1", now=102.0), Granted)

    def test_a_late_duplicate_does_not_lengthen_other_holds(self, ask: Asker) -> None:
        """P5: asking again moves only that attempt's own end."""
        token = ask.take("a-1", now=100.0, owner="ann", ttl=60.0).token
        ask.take("a-2", now=100.0, owner="ann", ttl=10.0)
        ask.take("a-1", now=105.0, owner="ann", ttl=60.0)
        ask.release("a-1", token, now=106.0)
        assert ask.look(now=106.0).expires_in == 4.0
        assert isinstance(ask.acquire("b-1", now=110.0), Granted)

    def test_renewing_one_hold_does_not_renew_another(self, ask: Asker) -> None:
        """P5."""
        token = ask.take("a-1", now=100.0, owner="ann").token
        ask.take("a-2", now=100.0, owner="ann")
        ask.renew("a-1", token, now=105.0, ttl=60.0)
        assert ask.renew("a-2", token, now=110.0).why == "expired"
        assert ask.renew("a-1", token, now=110.0).outcome == "held"

    def test_a_hold_that_is_over_stays_over_while_the_lease_lives_on(self, ask: Asker) -> None:
        """Invariant 8: an expired hold is not brought back by its attempt asking again."""
        token = ask.take("a-1", now=100.0, owner="ann", ttl=2.0).token
        ask.take("a-2", now=100.0, owner="ann", ttl=10.0)
        assert ask.acquire("a-1", now=102.0, owner="ann") == NotHeld("expired")
        assert ask.release("a-1", token, now=102.0) == NotHeld("expired")
        assert ask.look(now=102.0).holds == 1

    def test_each_release_takes_one_hold_and_the_last_frees(self, ask: Asker) -> None:
        token = ask.take("a-1", now=100.0, owner="ann").token
        ask.take("a-2", now=100.0, owner="ann")
        ask.take("a-3", now=100.0, owner="ann")
        assert ask.release("a-1", token, now=101.0) == Released(holds=2)
        assert ask.release("a-3", token, now=101.0) == Released(holds=1)
        assert ask.look(now=101.0).state == "held"
        assert ask.release("a-2", token, now=101.0) == Released(holds=0)
        assert ask.look(now=101.0).state == "free"

    def test_a_repeated_release_of_one_hold_leaves_the_others(self, ask: Asker) -> None:
        """P6, R18: a count of entries would be wrong by one."""
        token = ask.take("a-1", now=100.0, owner="ann").token
        ask.take("a-2", now=100.0, owner="ann")
        ask.release("a-2", token, now=101.0)
        assert ask.release("a-2", token, now=101.0) == NotHeld("already")
        assert ask.look(now=101.0).holds == 1

    def test_a_released_hold_cannot_be_entered_by_a_late_copy(self, ask: Asker) -> None:
        """Invariant 8: nested holds are remembered, because nothing else would tell them apart."""
        token = ask.take("a-1", now=100.0, owner="ann").token
        ask.take("a-2", now=100.0, owner="ann")
        ask.release("a-2", token, now=101.0)
        assert ask.acquire("a-2", now=102.0, owner="ann") == NotHeld("already")

    def test_asking_again_for_one_of_several_holds_adds_none(self, ask: Asker) -> None:
        """P6."""
        token = ask.take("a-1", now=100.0, owner="ann").token
        ask.take("a-2", now=100.0, owner="ann", ttl=2.0)
        assert ask.acquire("a-2", now=101.0, owner="ann", ttl=3.0) == Granted(token, 3.0, holds=2)
        assert ask.acquire("a-2", now=101.0, owner="ann", ttl=1.0) == Granted(token, 3.0, holds=2)

    def test_whoever_entered_again_needs_its_ticket_no_more(self, ask: Asker) -> None:
        """P8: it would be handed the lock later, and nobody would come for it."""
        first = ask.take("b-1", now=100.0).token
        ask.queue("a-1", now=101.0, owner="ann")
        ask.queue("a-2", now=101.0, owner="ann")
        ask.queue("c-1", now=101.0, claim=12.0)
        ask.release("b-1", first, now=102.0)
        token = ask.take("a-1", now=102.0, owner="ann").token
        ask.signals()
        assert ask.acquire("a-2", now=102.0, owner="ann") == Granted(token, 10.0, holds=2)
        assert ask.look(now=102.0).waiting == 1
        assert ask.signals() == [("head", "c-1")]
