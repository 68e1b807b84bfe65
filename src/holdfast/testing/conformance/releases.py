"""How leases end before their time: a release, the last wish of an attempt, and an operator's break."""

from __future__ import annotations

from holdfast.core.requests import Broken, Granted, Holder, NotHeld, Released, Withdrawn
from holdfast.testing.conformance.asker import CLIENT, Asker


class Releases:
    """A late or foreign release changes nothing and says so."""

    def test_a_released_lock_is_free_at_once(self, ask: Asker) -> None:
        first = ask.take("a-1", now=100.0)
        assert ask.release("a-1", first.token, now=101.0) == Released(holds=0, next=None)
        assert ask.look(now=101.0).state == "free"
        assert ask.take("b-1", now=101.0).token > first.token

    def test_a_free_lock_keeps_its_token(self, ask: Asker) -> None:
        """P1: it is what the next one is counted from."""
        first = ask.take("a-1", now=100.0)
        ask.release("a-1", first.token, now=101.0)
        assert ask.look(now=101.0).token == first.token

    def test_a_repeated_release_answers_already(self, ask: Asker) -> None:
        """P6."""
        token = ask.take("a-1", now=100.0).token
        ask.release("a-1", token, now=101.0)
        assert ask.release("a-1", token, now=101.0) == NotHeld("already")
        assert ask.release("a-1", token, now=500.0) == NotHeld("already")

    def test_a_repeated_release_does_not_free_the_next_lease(self, ask: Asker) -> None:
        """P5, P6."""
        token = ask.take("a-1", now=100.0).token
        ask.release("a-1", token, now=101.0)
        ask.take("b-1", now=101.0)
        assert ask.release("a-1", token, now=102.0) == NotHeld("already")
        assert ask.look(now=102.0).state == "held"

    def test_another_attempt_releases_nothing(self, ask: Asker) -> None:
        """P5: not even one of the same owner (seed trap 8)."""
        token = ask.take("a-1", now=100.0, owner="ann").token
        assert isinstance(ask.release("a-2", token, now=101.0), NotHeld)
        assert ask.look(now=101.0).holds == 1

    def test_another_token_releases_nothing(self, ask: Asker) -> None:
        """P5."""
        token = ask.take("a-1", now=100.0).token
        assert ask.release("a-1", token - 1, now=101.0) == NotHeld("taken over")
        assert ask.release("a-1", token + 1, now=101.0) == NotHeld("unknown")
        assert ask.look(now=101.0).state == "held"

    def test_an_expired_lease_cannot_be_released(self, ask: Asker) -> None:
        token = ask.take("a-1", now=100.0).token
        assert ask.release("a-1", token, now=110.0) == NotHeld("expired")

    def test_a_lease_can_be_released_in_its_last_microsecond(self, ask: Asker) -> None:
        token = ask.take("a-1", now=100.0).token
        assert ask.release("a-1", token, now=109.999999) == Released()

    def test_a_lease_that_expired_long_ago_is_still_said_to_have_expired(self, ask: Asker) -> None:
        token = ask.take("a-1", now=100.0).token
        assert ask.release("a-1", token, now=10_000.0) == NotHeld("expired")

    def test_a_lease_that_was_taken_over_cannot_be_released(self, ask: Asker) -> None:
        """P5: the successor keeps it."""
        token = ask.take("a-1", now=100.0).token
        second = ask.take("b-1", now=110.0)
        assert ask.release("a-1", token, now=111.0) == NotHeld("taken over")
        assert ask.release("a-1", token, now=119.0) == NotHeld("taken over")
        view = ask.look(now=119.0)
        assert (view.state, view.token) == ("held", second.token)

    def test_a_broken_lease_cannot_be_released(self, ask: Asker) -> None:
        token = ask.take("a-1", now=100.0).token
        ask.break_(now=101.0, by="olga", reason="stuck")
        assert ask.release("a-1", token, now=102.0) == NotHeld("broken", "olga", "stuck")

    def test_what_was_never_there_is_unknown(self, ask: Asker) -> None:
        assert ask.release("a-1", 1, now=100.0) == NotHeld("unknown")
        assert ask.inspect(now=100.0) is None

    def test_a_late_copy_of_the_acquire_finds_the_key_remembering_who_released_last(self, ask: Asker) -> None:
        """Invariant 8, also without `retire`, until somebody else has released."""
        token = ask.take("a-1", now=100.0).token
        ask.release("a-1", token, now=101.0)
        assert ask.acquire("a-1", now=102.0) == NotHeld("already")
        assert ask.acquire("a-1", now=102.0, wait=True) == NotHeld("already")
        assert ask.acquire("a-1", now=100_000.0) == NotHeld("already")
        assert ask.look(now=102.0).state == "free"

    def test_a_retired_attempt_cannot_take_the_lock_whoever_had_it_since(self, ask: Asker) -> None:
        """Invariant 8: a copy of its Acquire may still be under way."""
        token = ask.take("a-1", now=100.0).token
        assert ask.release("a-1", token, now=101.0, retire=True) == Released()
        second = ask.take("b-1", now=102.0).token
        ask.release("b-1", second, now=103.0)
        assert ask.acquire("a-1", now=104.0) == NotHeld("already")
        assert ask.acquire("a-1", now=160.999999) == NotHeld("already")
        assert ask.release("a-1", token, now=160.999999) == NotHeld("already")

    def test_a_retired_attempt_is_forgotten_after_a_minute(self, ask: Asker) -> None:
        token = ask.take("a-1", now=100.0).token
        ask.release("a-1", token, now=101.0, retire=True)
        second = ask.take("b-1", now=102.0).token
        ask.release("b-1", second, now=103.0)
        assert isinstance(ask.acquire("a-1", now=161.0), Granted)

    def test_a_failed_release_does_not_retire_the_attempt(self, ask: Asker) -> None:
        """P6: nothing was done, so nothing is remembered."""
        token = ask.take("a-1", now=100.0).token
        assert isinstance(ask.release("a-1", token + 1, now=101.0, retire=True), NotHeld)
        assert ask.renew("a-1", token, now=102.0).outcome == "renewed"


class Withdrawals:
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


class Breaks:
    """All holds end, the holder can learn who did it and why, and the queue moves on."""

    def test_a_broken_lock_is_free(self, ask: Asker) -> None:
        first = ask.take("a-1", now=100.0, owner="ann").token
        holder = Holder("ann", CLIENT.host, CLIENT.pid, first, held_for=1.0)
        assert ask.break_(now=101.0) == Broken(holder, next=None)
        assert ask.look(now=101.0).state == "free"
        assert ask.take("b-1", now=101.0).token > first

    def test_all_holds_are_broken(self, ask: Asker) -> None:
        token = ask.take("a-1", now=100.0, owner="ann").token
        ask.take("a-2", now=100.0, owner="ann")
        ask.break_(now=101.0, by="olga", reason="stuck")
        for attempt in ("a-1", "a-2"):
            assert ask.release(attempt, token, now=102.0) == NotHeld("broken", "olga", "stuck")
            assert ask.acquire(attempt, now=102.0, owner="ann") == NotHeld("broken", "olga", "stuck")
        assert ask.look(now=102.0).state == "free"

    def test_a_free_lock_cannot_be_broken(self, ask: Asker) -> None:
        assert ask.break_(now=100.0) == NotHeld("free")
        token = ask.take("a-1", now=100.0).token
        ask.release("a-1", token, now=101.0)
        assert ask.break_(now=102.0) == NotHeld("free")

    def test_an_expired_lock_cannot_be_broken(self, ask: Asker) -> None:
        token = ask.take("a-1", now=100.0).token
        assert ask.break_(now=110.0) == NotHeld("free")
        assert ask.renew("a-1", token, now=111.0).why == "expired"

    def test_a_repeated_break_finds_it_free(self, ask: Asker) -> None:
        """P6."""
        ask.take("a-1", now=100.0)
        ask.break_(now=101.0, by="olga", reason="stuck")
        assert ask.break_(now=101.0, by="pete", reason="why not") == NotHeld("free")
        assert ask.acquire("a-1", now=102.0) == NotHeld("broken", "olga", "stuck")

    def test_with_a_token_only_that_lease_is_broken(self, ask: Asker) -> None:
        """An operator breaks what it saw, and nobody who came after it."""
        first = ask.take("a-1", now=100.0).token
        second = ask.take("b-1", now=110.0).token
        assert ask.break_(now=111.0, token=first) == NotHeld("taken over")
        assert ask.renew("b-1", second, now=112.0).outcome == "renewed"
        assert isinstance(ask.break_(now=113.0, token=second), Broken)

    def test_with_a_token_a_repeated_break_spares_the_successor(self, ask: Asker) -> None:
        """P6."""
        first = ask.take("a-1", now=100.0).token
        ask.queue("b-1", now=101.0)
        assert isinstance(ask.break_(now=102.0, token=first), Broken)
        assert ask.break_(now=102.0, token=first) == NotHeld("taken over")
        assert isinstance(ask.acquire("b-1", now=103.0), Granted)

    def test_without_a_token_a_hand_over_can_be_broken_as_well(self, ask: Asker) -> None:
        token = ask.take("a-1", now=100.0).token
        ask.queue("b-1", now=101.0, owner="bob")
        ask.release("a-1", token, now=102.0)
        answer = ask.break_(now=103.0, by="olga", reason="stuck")
        assert isinstance(answer, Broken)
        assert (answer.holder.owner, answer.holder.claimed) == ("bob", False)
        assert ask.acquire("b-1", now=104.0) == NotHeld("broken", "olga", "stuck")

    def test_breaking_leaves_the_queue(self, ask: Asker) -> None:
        """P7."""
        ask.take("a-1", now=100.0)
        ask.queue("b-1", now=101.0)
        ask.queue("c-1", now=101.0)
        ask.break_(now=102.0)
        assert ask.look(now=102.0).waiting == 1
        assert ask.queue("c-1", now=103.0).position == 1

    def test_a_break_is_remembered_for_a_day(self, ask: Asker) -> None:
        """A holder that renews every hour shall still learn who it was."""
        token = ask.take("a-1", now=100.0, ttl=100_000.0).token
        ask.break_(now=101.0, by="olga", reason="stuck")
        other = ask.take("b-1", now=102.0).token
        ask.release("b-1", other, now=103.0)
        almost = 101.0 + 86400.0 - 0.000001
        ask.sweep(now=almost)
        assert ask.renew("a-1", token, now=almost).by == "olga"
        assert ask.renew("a-1", token, now=almost + 0.000001).by is None
