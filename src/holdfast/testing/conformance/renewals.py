"""Renew, the part about leases: four answers, and a batch for everything a client has due."""

from __future__ import annotations

from holdfast.core.requests import Busy, Granted, LeaseAnswer, RenewLease
from holdfast.testing.conformance.asker import SHARED, Asker, permits


class Renewals:
    """A lease is renewed by its own attempt, under its own token, while it lives; else it is lost."""

    def test_a_live_lease_is_renewed(self, ask: Asker) -> None:
        token = ask.take("a-1", now=100.0).token
        assert ask.renew("a-1", token, now=106.0) == LeaseAnswer("renewed", expires_in=10.0)
        assert isinstance(ask.acquire("b-1", now=115.999999), Busy)
        assert isinstance(ask.acquire("b-1", now=116.0), Granted)

    def test_renewal_keeps_the_token(self, ask: Asker) -> None:
        """P1."""
        token = ask.take("a-1", now=100.0).token
        ask.renew("a-1", token, now=106.0)
        assert ask.look(now=106.0).token == token

    def test_a_repeated_renewal_is_harmless(self, ask: Asker) -> None:
        """P6."""
        token = ask.take("a-1", now=100.0).token
        assert ask.renew("a-1", token, now=106.0) == LeaseAnswer("renewed", expires_in=10.0)
        assert ask.renew("a-1", token, now=106.0) == LeaseAnswer("renewed", expires_in=10.0)
        assert ask.look(now=106.0).holds == 1

    def test_a_lease_that_ends_later_anyway_is_held(self, ask: Asker) -> None:
        """P3: a renewal never moves an end back."""
        token = ask.take("a-1", now=100.0, ttl=60.0).token
        assert ask.renew("a-1", token, now=101.0, ttl=10.0) == LeaseAnswer("held", expires_in=59.0)
        assert isinstance(ask.acquire("b-1", now=159.0), Busy)

    def test_a_ttl_of_0_only_asks(self, ask: Asker) -> None:
        """Of a lease that is not to be renewed, when a signal says that something happened to it."""
        token = ask.take("a-1", now=100.0).token
        assert ask.renew("a-1", token, now=104.0, ttl=0.0) == LeaseAnswer("held", expires_in=6.0)
        assert ask.look(now=104.0).expires_in == 6.0
        assert ask.renew("a-1", token, now=110.0, ttl=0.0) == LeaseAnswer("lost", why="expired")

    def test_an_expired_lease_cannot_be_renewed(self, ask: Asker) -> None:
        """R3: even if nobody took over. Its holder may have stopped trusting it."""
        token = ask.take("a-1", now=100.0).token
        assert ask.renew("a-1", token, now=110.0) == LeaseAnswer("lost", why="expired")
        assert ask.look(now=110.0).state == "free"

    def test_a_lease_can_be_renewed_in_its_last_microsecond(self, ask: Asker) -> None:
        token = ask.take("a-1", now=100.0).token
        assert ask.renew("a-1", token, now=109.999999).outcome == "renewed"

    def test_a_lost_lease_stays_lost(self, ask: Asker) -> None:
        token = ask.take("a-1", now=100.0).token
        for now in (110.0, 111.0, 500.0, 105.0):
            assert ask.renew("a-1", token, now=now) == LeaseAnswer("lost", why="expired")

    def test_a_lease_that_was_taken_over_is_lost_and_its_successor_untouched(self, ask: Asker) -> None:
        """P5: matching by key alone would renew the successor's lease (trap 9)."""
        token = ask.take("a-1", now=100.0).token
        ask.take("b-1", now=110.0)
        assert ask.renew("a-1", token, now=111.0, ttl=99.0) == LeaseAnswer("lost", why="taken over")
        assert ask.look(now=111.0).expires_in == 9.0

    def test_a_lease_that_was_taken_over_and_freed_is_lost(self, ask: Asker) -> None:
        token = ask.take("a-1", now=100.0).token
        second = ask.take("b-1", now=110.0).token
        ask.release("b-1", second, now=111.0)
        assert ask.renew("a-1", token, now=112.0) == LeaseAnswer("lost", why="taken over")
        assert ask.look(now=112.0).state == "free"

    def test_a_broken_lease_is_lost_with_who_and_why(self, ask: Asker) -> None:
        token = ask.take("a-1", now=100.0).token
        ask.break_(now=101.0, by="olga", reason="stuck")
        lost = LeaseAnswer("lost", why="broken", by="olga", reason="stuck")
        assert ask.renew("a-1", token, now=102.0) == lost
        ask.take("b-1", now=103.0)
        assert ask.renew("a-1", token, now=104.0) == lost

    def test_a_released_lease_is_lost(self, ask: Asker) -> None:
        token = ask.take("a-1", now=100.0).token
        ask.release("a-1", token, now=101.0)
        assert ask.renew("a-1", token, now=102.0) == LeaseAnswer("lost", why="already")

    def test_a_lease_nobody_ever_had_is_lost(self, ask: Asker) -> None:
        assert ask.renew("a-1", 7, now=100.0) == LeaseAnswer("lost", why="unknown")
        assert ask.inspect(now=100.0) is None

    def test_the_wrong_token_renews_nothing(self, ask: Asker) -> None:
        """P5."""
        token = ask.take("a-1", now=100.0).token
        assert ask.renew("a-1", token - 1, now=105.0) == LeaseAnswer("lost", why="taken over")
        assert ask.renew("a-1", token + 1, now=105.0) == LeaseAnswer("lost", why="unknown")
        assert ask.look(now=105.0).expires_in == 5.0

    def test_finding_a_lease_expired_hands_the_lock_over(self, ask: Asker) -> None:
        """P8: whoever notices, settles."""
        token = ask.take("a-1", now=100.0).token
        ask.queue("b-1", now=101.0)
        assert ask.renew("a-1", token, now=110.0) == LeaseAnswer("lost", why="taken over")
        assert ask.signals() == [("granted", "b-1")]

    def test_an_empty_batch_is_answered(self, ask: Asker) -> None:
        assert ask.renew_all([], now=100.0) == ()

    def test_every_lease_of_a_batch_has_its_own_answer_in_its_order(self, ask: Asker) -> None:
        """P5: one lost lease says nothing about the others."""
        tokens = {key: ask.take("a-1", now=100.0, key=key).token for key in "abcdef"}
        ask.release("a-1", tokens["b"], now=101.0, key="b")
        ask.break_(now=101.0, key="c", by="olga", reason="stuck")
        ask.take("a-1", now=101.0, key="d", ttl=90.0)
        ask.take("z-1", now=100.0, key="f2", ttl=1.0)
        batch = [RenewLease(key, "a-1", tokens[key], 10.0) for key in "fedcba"]
        batch.insert(3, RenewLease("never", "a-1", 1, 10.0))
        batch.append(RenewLease("f2", "z-1", tokens["a"], 10.0))
        assert ask.renew_all(batch, now=105.0) == (
            LeaseAnswer("renewed", expires_in=10.0),
            LeaseAnswer("renewed", expires_in=10.0),
            LeaseAnswer("held", expires_in=86.0),
            LeaseAnswer("lost", why="unknown"),
            LeaseAnswer("lost", why="broken", by="olga", reason="stuck"),
            LeaseAnswer("lost", why="already"),
            LeaseAnswer("renewed", expires_in=10.0),
            LeaseAnswer("lost", why="expired"),
        )

    def test_the_leases_of_a_batch_may_have_different_ttls(self, ask: Asker) -> None:
        tokens = {key: ask.take("a-1", now=100.0, key=key).token for key in "abc"}
        batch = [
            RenewLease(key, "a-1", tokens[key], ttl) for key, ttl in zip("abc", (20.0, 5.0, 8.0), strict=True)
        ]
        assert [answer.expires_in for answer in ask.renew_all(batch, now=102.0)] == [20.0, 8.0, 8.0]

    def test_several_holds_of_one_lease_are_renewed_each_for_itself(self, ask: Asker) -> None:
        token = ask.take("a-1", now=100.0, owner="ann", ttl=5.0).token
        ask.take("a-2", now=100.0, owner="ann", ttl=90.0)
        ask.take("a-3", now=100.0, owner="ann", ttl=1.0)
        batch = [RenewLease("nightly", attempt, token, 10.0) for attempt in ("a-1", "a-2", "a-3")]
        assert ask.renew_all(batch, now=103.0) == (
            LeaseAnswer("renewed", expires_in=10.0),
            LeaseAnswer("held", expires_in=87.0),
            LeaseAnswer("lost", why="expired"),
        )

    def test_thousands_of_leases_are_one_batch(self, ask: Asker) -> None:
        """R12: a client's renewals do not depend on how many locks it has."""
        count = 2000
        tokens = [ask.take("a-1", now=100.0, key=f"node:1:{n}").token for n in range(count)]
        for n in range(0, count, 100):
            ask.release("a-1", tokens[n], now=101.0, key=f"node:1:{n}")
        batch = [RenewLease(f"node:1:{n}", "a-1", tokens[n], 10.0) for n in range(count)]
        answers = ask.renew_all(batch, now=105.0)
        assert len(answers) == count
        for n, answer in enumerate(answers):
            expected = "lost" if n % 100 == 0 else "renewed"
            assert answer.outcome == expected, n
        assert ask.look(now=114.0, key="node:1:1").state == "held"

    def test_leases_of_all_kinds_are_one_batch(self, ask: Asker) -> None:
        plain = ask.take("a-1", now=100.0, key="plain").token
        shared = [ask.take(f"s-{n}", now=100.0, key="shared", owner=f"s-{n}", terms=SHARED) for n in range(3)]
        taken = [ask.take(f"p-{n}", now=100.0, key="gpu", terms=permits(2)).token for n in range(2)]
        ask.queue("p-2", now=101.0, key="gpu", terms=permits(2))
        ask.release("p-0", taken[0], now=102.0, key="gpu")
        handed = ask.look(now=102.0, key="gpu").token
        ask.release("s-0", shared[0].token, now=102.0, key="shared")
        batch = [
            RenewLease("plain", "a-1", plain, 10.0),
            RenewLease("shared", "s-0", shared[0].token, 10.0),
            RenewLease("shared", "s-1", shared[1].token, 20.0),
            RenewLease("shared", "s-2", shared[2].token, 1.0),
            RenewLease("shared", "s-2", shared[1].token, 10.0),
            RenewLease("shared", "s-1", shared[1].token, 15.0),
            RenewLease("gpu", "p-0", taken[0], 10.0),
            RenewLease("gpu", "p-1", taken[1], 10.0),
            RenewLease("gpu", "p-2", handed, 30.0),
            RenewLease("never", "x-1", 7, 10.0),
        ]
        assert ask.renew_all(batch, now=103.0) == (
            LeaseAnswer("renewed", expires_in=10.0),
            LeaseAnswer("lost", why="already"),
            LeaseAnswer("renewed", expires_in=20.0),
            LeaseAnswer("held", expires_in=7.0),
            LeaseAnswer("lost", why="taken over"),
            LeaseAnswer("held", expires_in=20.0),
            LeaseAnswer("lost", why="already"),
            LeaseAnswer("renewed", expires_in=10.0),
            LeaseAnswer("renewed", expires_in=30.0),
            LeaseAnswer("lost", why="unknown"),
        )
        assert ask.look(now=103.0, key="shared").expires_in == 20.0
        gpu = ask.look(now=103.0, key="gpu")
        assert (gpu.expires_in, [each.claimed for each in gpu.holders]) == (30.0, [True, True])
        assert ask.look(now=113.0, key="gpu").state == "held"

    def test_a_batch_claims_what_was_handed_over(self, ask: Asker) -> None:
        """Whoever is told of the lock learns whether the lease that was granted first is claimed."""
        first = ask.take("big", now=100.0, terms=permits(2, take=2)).token
        for n in range(2):
            ask.queue(f"p-{n}", now=101.0, terms=permits(2))
        ask.release("big", first, now=102.0)
        one, two = ask.look(now=102.0).holders
        assert (one.claimed, two.claimed) == (False, False)
        other = ask.take("s-1", now=100.0, key="other", terms=SHARED).token
        ask.renew_all(
            [RenewLease("nightly", "p-1", two.token, 9.0), RenewLease("other", "s-1", other, 9.0)], now=103.0
        )
        view = ask.look(now=103.0)
        assert view.holder is not None
        assert (view.holder.claimed, [each.claimed for each in view.holders]) == (False, [False, True])
        ask.renew_all(
            [RenewLease("nightly", "p-0", one.token, 9.0), RenewLease("other", "s-1", other, 9.0)], now=104.0
        )
        view = ask.look(now=104.0)
        assert view.holder is not None
        assert view.holder.claimed
