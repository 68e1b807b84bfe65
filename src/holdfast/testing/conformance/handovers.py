"""Hand-over: whoever ends a lease gives it to the first live ticket, for a claim window."""

from __future__ import annotations

from holdfast.core.requests import Broken, Busy, Granted, NotHeld, Queued, Released, Withdrawn
from holdfast.stores.base import micros
from holdfast.testing.conformance.asker import OPERATION, Asker


class Handovers:
    """A free lock and a live ticket never meet (P8), and the lowest number comes first (P7)."""

    def test_a_release_hands_over_to_the_head(self, ask: Asker) -> None:
        """P7, P8."""
        token = ask.take("a-1", now=100.0).token
        ask.queue("b-1", now=101.0, owner="bob")
        ask.queue("c-1", now=101.0)
        assert ask.release("a-1", token, now=102.0) == Released(holds=0, next="bob")
        view = ask.look(now=102.0)
        assert view.holder is not None
        assert (view.state, view.holder.owner, view.holder.claimed) == ("held", "bob", False)
        assert (view.holds, view.waiting) == (1, 1)

    def test_a_retiring_release_hands_over_too(self, ask: Asker) -> None:
        token = ask.take("a-1", now=100.0).token
        ask.queue("b-1", now=101.0)
        assert ask.release("a-1", token, now=102.0, retire=True) == Released(0, next="b-1")

    def test_a_break_hands_over(self, ask: Asker) -> None:
        ask.take("a-1", now=100.0)
        ask.queue("b-1", now=101.0)
        answer = ask.break_(now=102.0)
        assert isinstance(answer, Broken)
        assert answer.next == "b-1"

    def test_a_withdrawn_grant_hands_over(self, ask: Asker) -> None:
        ask.take("a-1", now=100.0)
        ask.queue("b-1", now=101.0)
        assert ask.withdraw("a-1", now=102.0) == Withdrawn(next="b-1")

    def test_the_hand_over_has_a_higher_token_and_the_claim_keeps_it(self, ask: Asker) -> None:
        """P1."""
        first = ask.take("a-1", now=100.0).token
        ask.queue("b-1", now=101.0)
        ask.release("a-1", first, now=102.0)
        handed = ask.look(now=102.0).token
        assert handed == micros(102.0) > first
        assert ask.acquire("b-1", now=103.0) == Granted(handed, expires_in=10.0, holds=1)

    def test_a_hand_over_raises_the_token_even_if_time_went_back(self, ask: Asker) -> None:
        """P1."""
        first = ask.take("a-1", now=100.0).token
        ask.queue("b-1", now=101.0)
        ask.release("a-1", first, now=60.0)
        assert ask.look(now=60.0).token == first + 1

    def test_a_hand_over_waits_for_its_winner_for_the_claim_window(self, ask: Asker) -> None:
        token = ask.take("a-1", now=100.0).token
        ask.queue("b-1", now=101.0, claim=3.0)
        ask.release("a-1", token, now=102.0)
        assert ask.look(now=102.0).expires_in == 3.0
        assert isinstance(ask.acquire("c-1", now=104.999999), Busy)
        assert isinstance(ask.acquire("c-1", now=105.0), Granted)

    def test_a_claim_runs_for_the_full_ttl(self, ask: Asker) -> None:
        token = ask.take("a-1", now=100.0).token
        ask.queue("b-1", now=101.0, claim=3.0)
        ask.release("a-1", token, now=102.0)
        assert ask.take("b-1", now=104.0).expires_in == 10.0
        holder = ask.look(now=104.0).holder
        assert holder is not None
        assert (holder.claimed, holder.held_for) == (True, 2.0)
        assert isinstance(ask.acquire("c-1", now=113.999999), Busy)

    def test_a_claim_ends_with_its_ttl_however_long_the_window(self, ask: Asker) -> None:
        """A dead holder costs its ttl (P8), also when it was handed the lock."""
        token = ask.take("a-1", now=100.0).token
        ask.queue("b-1", now=101.0, claim=30.0)
        ask.release("a-1", token, now=102.0)
        assert ask.take("b-1", now=103.0, ttl=5.0).expires_in == 5.0

    def test_the_head_takes_over_by_asking_when_the_lease_has_ended(self, ask: Asker) -> None:
        """P8: it settles, is handed the lock and claims it, in one request."""
        first = ask.take("a-1", now=100.0).token
        ask.queue("b-1", now=101.0)
        granted = ask.take("b-1", now=110.0, wait=True)
        assert granted.token > first
        assert granted.expires_in == 10.0
        holder = ask.look(now=110.0).holder
        assert holder is not None
        assert holder.claimed

    def test_a_winner_that_died_costs_the_claim_window_and_no_more(self, ask: Asker) -> None:
        """P8."""
        token = ask.take("a-1", now=100.0).token
        ask.queue("b-1", now=101.0, claim=5.0)
        ask.queue("c-1", now=101.0)
        ask.release("a-1", token, now=102.0)
        assert isinstance(ask.acquire("c-1", now=106.999999, wait=True), Queued)
        assert isinstance(ask.acquire("c-1", now=107.0, wait=True), Granted)

    def test_an_unclaimed_winner_of_an_operation_joins_again_at_the_tail(self, ask: Asker) -> None:
        """Its ticket was used up; it is not ended, and may ask again: it cannot have begun."""
        token = ask.take("a-1", now=100.0, terms=OPERATION).token
        ask.queue("b-1", now=101.0, claim=5.0, terms=OPERATION)
        ask.queue("c-1", now=101.0, terms=OPERATION)
        ask.queue("d-1", now=101.0, terms=OPERATION)
        ask.release("a-1", token, now=102.0)
        again = ask.queue("b-1", now=107.0, terms=OPERATION)
        assert (again.position, again.holder.owner) == (2, "c-1")

    def test_an_unclaimed_winner_of_an_operation_may_simply_take_what_nobody_wants(self, ask: Asker) -> None:
        first = ask.take("a-1", now=100.0, terms=OPERATION).token
        ask.queue("b-1", now=101.0, claim=5.0, terms=OPERATION)
        ask.release("a-1", first, now=102.0)
        handed = ask.look(now=102.0).token
        assert ask.take("b-1", now=107.0, terms=OPERATION).token > handed

    def test_a_claimed_hand_over_that_expires_ends_its_attempt(self, ask: Asker) -> None:
        """Invariant 8."""
        token = ask.take("a-1", now=100.0).token
        ask.queue("b-1", now=101.0)
        ask.release("a-1", token, now=102.0)
        ask.take("b-1", now=103.0)
        assert ask.acquire("b-1", now=113.0) == NotHeld("expired")

    def test_a_repeated_release_does_not_hand_over_again(self, ask: Asker) -> None:
        """P6."""
        token = ask.take("a-1", now=100.0).token
        ask.queue("b-1", now=101.0)
        ask.queue("c-1", now=101.0)
        ask.release("a-1", token, now=102.0)
        before = ask.look(now=102.0)
        assert ask.release("a-1", token, now=102.0) == NotHeld("already")
        assert ask.look(now=102.0) == before

    def test_dead_tickets_at_the_head_are_passed_over(self, ask: Asker) -> None:
        """P8."""
        token = ask.take("a-1", now=100.0, ttl=60.0).token
        for number in range(5):
            ask.queue(f"dead-{number}", now=100.0, patience=10.0)
        ask.queue("b-1", now=100.0)
        assert ask.release("a-1", token, now=110.0) == Released(0, next="b-1")
        assert ask.look(now=110.0).waiting == 0

    def test_a_dead_ticket_in_the_middle_is_passed_over_when_its_turn_comes(self, ask: Asker) -> None:
        """P8."""
        token = ask.take("a-1", now=100.0, ttl=60.0).token
        ask.queue("b-1", now=100.0)
        ask.queue("dead-1", now=100.0, patience=10.0)
        ask.queue("c-1", now=100.0)
        ask.release("a-1", token, now=120.0)
        second = ask.take("b-1", now=121.0).token
        assert ask.release("b-1", second, now=122.0) == Released(0, next="c-1")

    def test_when_all_tickets_are_dead_the_lock_is_free(self, ask: Asker) -> None:
        """Invariant 7."""
        ask.take("a-1", now=100.0)
        for number in range(3):
            ask.queue(f"dead-{number}", now=100.0, patience=5.0)
        assert isinstance(ask.acquire("b-1", now=110.0), Granted)
        assert ask.look(now=110.0).waiting == 0

    def test_the_queue_is_served_in_order_to_its_end(self, ask: Asker) -> None:
        """P1, P7."""
        token = ask.take("a-1", now=100.0).token
        names = [f"w-{number}" for number in (3, 1, 4, 1.5, 9, 2, 6)]
        for name in names:
            ask.queue(name, now=100.0)
        previous, served, tokens = "a-1", [], [token]
        while ask.look(now=101.0).waiting:
            answer = ask.release(previous, tokens[-1], now=101.0)
            assert isinstance(answer, Released)
            assert answer.next is not None
            previous = answer.next
            served.append(previous)
            tokens.append(ask.take(previous, now=101.0, wait=True).token)
        assert served == names
        assert tokens == sorted(set(tokens))

    def test_the_owner_of_a_hand_over_may_enter_with_another_attempt(self, ask: Asker) -> None:
        token = ask.take("a-1", now=100.0).token
        ask.queue("b-1", now=101.0, owner="bob", claim=5.0)
        ask.release("a-1", token, now=102.0)
        handed = ask.look(now=102.0).token
        assert ask.acquire("b-2", now=103.0, owner="bob") == Granted(handed, 10.0, holds=2)
        assert ask.look(now=107.0).holds == 2  # only looking: nothing is settled
        assert ask.acquire("b-2", now=107.0, owner="bob") == Granted(handed, 10.0, holds=2)
        assert isinstance(ask.acquire("c-1", now=107.0), Busy)
        assert ask.look(now=107.0).holds == 1

    def test_renewing_claims(self, ask: Asker) -> None:
        """Only a client that knows of the grant can name its token."""
        token = ask.take("a-1", now=100.0).token
        ask.queue("b-1", now=101.0, owner="bob", claim=5.0)
        ask.release("a-1", token, now=102.0)
        handed = ask.look(now=102.0).token
        ask.acquire("b-2", now=103.0, owner="bob", ttl=1.0)
        assert ask.renew("b-1", handed, now=103.5, ttl=5.0).outcome == "renewed"
        ask.acquire("c-1", now=105.0)  # settles: b-2 is over
        holder = ask.look(now=105.0).holder
        assert holder is not None
        assert holder.claimed
