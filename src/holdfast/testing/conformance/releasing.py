"""Release: only what is held, by the attempt and the token that hold it, once."""

from __future__ import annotations

from holdfast.core.requests import Granted, NotHeld, Released
from holdfast.testing.conformance.asking import Asker


class Releasing:
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
