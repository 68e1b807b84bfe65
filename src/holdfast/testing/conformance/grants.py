"""Acquire: a free lock, a live one, an expired one, and an attempt that asks again."""

from __future__ import annotations

from holdfast.core.requests import Busy, Granted, Holder, NotHeld
from holdfast.stores.base import micros
from holdfast.testing.conformance.asker import CLIENT, Asker


class Grants:
    """What is said to an attempt that does not wait."""

    def test_a_free_lock_is_granted(self, ask: Asker) -> None:
        """The token is the store's time in microseconds, unless that would not be more than the last."""
        assert ask.acquire("a-1", now=100.0) == Granted(micros(100.0), expires_in=10.0, holds=1)

    def test_a_free_lock_is_granted_to_one_who_would_wait(self, ask: Asker) -> None:
        assert ask.acquire("a-1", now=100.0, wait=True) == Granted(micros(100.0), expires_in=10.0)

    def test_a_live_lock_is_refused_and_its_holder_named(self, ask: Asker) -> None:
        """P2."""
        token = ask.take("a-1", now=100.0, owner="ann").token
        holder = Holder("ann", CLIENT.host, CLIENT.pid, token, held_for=4.0, claimed=True)
        assert ask.acquire("b-1", now=104.0) == Busy(holder, expires_in=6.0)

    def test_a_refusal_leaves_no_trace(self, ask: Asker) -> None:
        """Refused attempts are neither queued nor ended, and do not touch the lease."""
        ask.take("a-1", now=100.0)
        before = ask.look(now=101.0)
        for _ in range(3):
            assert isinstance(ask.acquire("b-1", now=101.0, ttl=500.0), Busy)
        assert ask.look(now=101.0) == before
        assert ask.signals() == []
        assert isinstance(ask.acquire("b-1", now=110.0), Granted)

    def test_a_lease_ends_at_its_end_and_not_before(self, ask: Asker) -> None:
        """P2: `end ≤ now` is over, a microsecond earlier is not."""
        ask.take("a-1", now=100.0)
        assert isinstance(ask.acquire("b-1", now=109.999999), Busy)
        assert isinstance(ask.acquire("b-1", now=110.0), Granted)

    def test_an_expired_lease_goes_to_the_next_with_a_higher_token(self, ask: Asker) -> None:
        """P1."""
        first = ask.take("a-1", now=100.0)
        second = ask.take("b-1", now=110.0)
        assert second.token > first.token

    def test_tokens_rise_from_lease_to_lease(self, ask: Asker) -> None:
        """P1, also when many leases begin in the same microsecond."""
        tokens = []
        for number in range(5):
            tokens.append(ask.take(f"a-{number}", now=100.0).token)
            ask.release(f"a-{number}", tokens[-1], now=100.0)
        assert tokens == [micros(100.0) + number for number in range(5)]

    def test_a_token_rises_even_if_time_went_back_after_a_release(self, ask: Asker) -> None:
        """P1: a stepped clock moves lease ends; it must not move tokens."""
        first = ask.take("a-1", now=100.0).token
        ask.release("a-1", first, now=101.0)
        assert ask.take("b-1", now=50.0).token == first + 1

    def test_a_token_rises_even_if_time_went_back_after_an_expiry(self, ask: Asker) -> None:
        """P1."""
        first = ask.take("a-1", now=100.0, ttl=1.0).token
        assert ask.sweep(now=200.0).expired == 1
        assert ask.take("b-1", now=50.0).token == first + 1

    def test_time_that_went_back_does_not_free_a_lease(self, ask: Asker) -> None:
        """P2: the end of a lease is an instant, and stays one."""
        ask.take("a-1", now=100.0)
        answer = ask.acquire("b-1", now=60.0)
        assert isinstance(answer, Busy)
        assert answer.expires_in == 50.0

    def test_asking_again_gives_the_same_grant(self, ask: Asker) -> None:
        """P6: the answer to the first may have been lost."""
        first = ask.take("a-1", now=100.0)
        assert ask.take("a-1", now=100.0) == first
        assert ask.look(now=100.0).holds == 1

    def test_asking_again_moves_the_end_forward(self, ask: Asker) -> None:
        """P6: what a client trusts from its last answer, the store keeps."""
        first = ask.take("a-1", now=100.0)
        again = ask.acquire("a-1", now=104.0)
        assert again == Granted(first.token, expires_in=10.0, holds=1)
        assert isinstance(ask.acquire("b-1", now=113.999999), Busy)
        assert isinstance(ask.acquire("b-1", now=114.0), Granted)

    def test_asking_again_never_moves_the_end_back(self, ask: Asker) -> None:
        """P3: a late copy with an earlier end must not take away what is trusted."""
        first = ask.take("a-1", now=100.0, ttl=10.0)
        assert ask.acquire("a-1", now=101.0, ttl=2.0) == Granted(first.token, expires_in=9.0, holds=1)
        assert isinstance(ask.acquire("b-1", now=109.0), Busy)

    def test_asking_again_does_not_make_the_lease_younger(self, ask: Asker) -> None:
        ask.take("a-1", now=100.0)
        ask.take("a-1", now=104.0)
        holder = ask.look(now=105.0).holder
        assert holder is not None
        assert holder.held_for == 5.0

    def test_an_attempt_whose_lease_expired_stays_ended(self, ask: Asker) -> None:
        """Invariant 8: its client may know already that it lost the lease."""
        ask.take("a-1", now=100.0)
        assert ask.acquire("a-1", now=110.0) == NotHeld("expired")
        assert ask.acquire("a-1", now=110.0, wait=True) == NotHeld("expired")
        assert ask.look(now=110.0).state == "free"

    def test_an_attempt_that_was_taken_over_stays_ended(self, ask: Asker) -> None:
        ask.take("a-1", now=100.0)
        ask.take("b-1", now=110.0)
        assert isinstance(ask.acquire("a-1", now=111.0), NotHeld)
        assert isinstance(ask.acquire("a-1", now=125.0), NotHeld)

    def test_an_expired_attempt_is_remembered_for_a_minute_from_the_end_of_its_lease(
        self, ask: Asker
    ) -> None:
        first = ask.take("a-1", now=100.0)
        assert isinstance(ask.acquire("a-1", now=169.999999), NotHeld)
        assert ask.take("a-1", now=170.0).token > first.token

    def test_an_attempt_that_was_broken_is_told_so(self, ask: Asker) -> None:
        ask.take("a-1", now=100.0)
        ask.break_(now=101.0, by="olga", reason="stuck")
        assert ask.acquire("a-1", now=102.0) == NotHeld("broken", "olga", "stuck")

    def test_keys_do_not_know_each_other(self, ask: Asker) -> None:
        first = ask.take("a-1", now=100.0, key="one")
        assert ask.take("a-1", now=100.0, key="two") == first
        ask.release("a-1", first.token, now=101.0, key="one")
        assert ask.look(now=101.0, key="two").state == "held"

    def test_leases_may_be_very_short_and_very_long(self, ask: Asker) -> None:
        ask.take("a-1", now=100.0, ttl=0.000001)
        assert isinstance(ask.acquire("b-1", now=100.0), Busy)
        year = 366 * 86400.0
        assert ask.take("b-1", now=100.000001, ttl=year).expires_in == year
        assert isinstance(ask.acquire("c-1", now=100.0 + year), Busy)

    def test_without_a_given_time_the_clock_of_the_store_decides(self, ask: Asker) -> None:
        """Tokens are microseconds since 1970 then, so that they rise through whatever may be lost."""
        granted = ask.take("a-1", now=None, ttl=3600.0)
        assert granted.token > micros(1_700_000_000)
        assert granted.expires_in == 3600.0
        assert ask.look(now=None).state == "held"
        assert isinstance(ask.acquire("b-1", now=None), Busy)
        assert ask.renew("a-1", granted.token, now=None, ttl=7200.0).outcome == "renewed"
