"""Withdraw: the last wish of an attempt, whatever has become of it."""

from __future__ import annotations

from holdfast.core.requests import Granted, NotHeld, Released, Withdrawn
from holdfast.testing.conformance.asking import Asker


class Withdrawing:
    """After it nothing of the attempt is left, and nothing can come back."""

    def test_a_withdrawn_ticket_leaves_the_queue(self, ask: Asker) -> None:
        token = ask.take("a-1", now=100.0).token
        ask.queue("b-1", now=101.0)
        assert ask.withdraw("b-1", now=102.0) == Withdrawn()
        assert ask.look(now=102.0).waiting == 0
        assert ask.release("a-1", token, now=103.0) == Released(0, next=None)

    def test_withdrawing_leaves_the_holder_and_other_tickets_alone(self, ask: Asker) -> None:
        """P5."""
        token = ask.take("a-1", now=100.0).token
        for name in ("b-1", "c-1", "d-1"):
            ask.queue(name, now=101.0, owner="same")
        ask.withdraw("c-1", now=102.0)
        view = ask.look(now=102.0)
        assert (view.state, view.token, view.waiting) == ("held", token, 2)
        assert ask.queue("d-1", now=102.0, owner="same").position == 2

    def test_a_withdrawn_grant_frees_the_lock(self, ask: Asker) -> None:
        first = ask.take("a-1", now=100.0).token
        assert ask.withdraw("a-1", now=101.0) == Withdrawn()
        assert ask.look(now=101.0).state == "free"
        assert ask.take("b-1", now=101.0).token > first

    def test_a_withdrawn_hand_over_goes_to_the_next(self, ask: Asker) -> None:
        """P8."""
        token = ask.take("a-1", now=100.0).token
        ask.queue("b-1", now=101.0)
        ask.queue("c-1", now=101.0, owner="cy")
        ask.release("a-1", token, now=102.0)
        assert ask.withdraw("b-1", now=103.0) == Withdrawn(next="cy")

    def test_a_withdrawn_hold_leaves_the_others(self, ask: Asker) -> None:
        """P5."""
        token = ask.take("a-1", now=100.0, owner="ann").token
        ask.take("a-2", now=100.0, owner="ann", ttl=60.0)
        assert ask.withdraw("a-2", now=101.0) == Withdrawn()
        view = ask.look(now=101.0)
        assert (view.holds, view.expires_in, view.token) == (1, 9.0, token)

    def test_a_repeated_withdrawal_answers_already(self, ask: Asker) -> None:
        """P6."""
        ask.take("a-1", now=100.0)
        ask.queue("b-1", now=101.0)
        ask.withdraw("b-1", now=102.0)
        assert ask.withdraw("b-1", now=102.0) == NotHeld("already")
        ask.withdraw("a-1", now=102.0)
        ask.take("c-1", now=103.0)
        assert ask.withdraw("a-1", now=104.0) == NotHeld("already")
        assert ask.look(now=104.0).state == "held"

    def test_withdrawing_what_was_released_answers_already(self, ask: Asker) -> None:
        token = ask.take("a-1", now=100.0).token
        ask.release("a-1", token, now=101.0)
        assert ask.withdraw("a-1", now=102.0) == NotHeld("already")

    def test_withdrawing_what_has_ended_changes_nothing(self, ask: Asker) -> None:
        """P6."""
        ask.take("a-1", now=100.0)
        ask.take("b-1", now=110.0)
        assert isinstance(ask.withdraw("a-1", now=111.0), NotHeld)
        ask.break_(now=112.0, by="olga", reason="stuck")
        assert ask.withdraw("b-1", now=113.0) == NotHeld("broken", "olga", "stuck")

    def test_a_copy_of_the_acquire_that_arrives_later_finds_the_attempt_ended(self, ask: Asker) -> None:
        """Invariant 8: a phantom lease would outlive the client that gave up."""
        assert ask.withdraw("a-1", now=100.0) == Withdrawn()
        assert ask.acquire("a-1", now=101.0) == NotHeld("already")
        assert ask.acquire("a-1", now=159.999999, wait=True) == NotHeld("already")

    def test_an_attempt_that_was_never_seen_is_remembered_without_making_a_lock(self, ask: Asker) -> None:
        ask.withdraw("a-1", now=100.0)
        assert ask.inspect(now=100.0) is None
        assert ask.page(now=100.0).locks == ()

    def test_a_withdrawn_ticket_cannot_come_back(self, ask: Asker) -> None:
        """Invariant 8."""
        ask.take("a-1", now=100.0)
        ask.queue("b-1", now=101.0)
        ask.withdraw("b-1", now=102.0)
        assert ask.acquire("b-1", now=103.0, wait=True) == NotHeld("already")
        assert ask.refresh("b-1", now=103.0).outcome == "gone"
        assert ask.look(now=103.0).waiting == 0

    def test_a_withdrawn_grant_cannot_be_renewed_or_released(self, ask: Asker) -> None:
        token = ask.take("a-1", now=100.0).token
        ask.withdraw("a-1", now=101.0)
        assert ask.renew("a-1", token, now=102.0).why == "already"
        assert ask.release("a-1", token, now=102.0) == NotHeld("already")

    def test_a_withdrawn_attempt_is_forgotten_after_a_minute(self, ask: Asker) -> None:
        ask.withdraw("a-1", now=100.0)
        assert isinstance(ask.acquire("a-1", now=160.0), Granted)

    def test_withdrawing_settles_the_key(self, ask: Asker) -> None:
        """P8: the lease has ended, and the head is handed the lock by whoever comes."""
        ask.take("a-1", now=100.0)
        ask.queue("b-1", now=101.0)
        ask.queue("c-1", now=101.0, claim=6.0)
        assert ask.withdraw("c-1", now=110.0) == Withdrawn()
        assert ask.signals() == [("granted", "b-1"), ("head", "c-1")]
