"""Break: an operator takes the lock away."""

from __future__ import annotations

from holdfast.core.requests import Broken, Granted, Holder, NotHeld
from holdfast.testing.conformance.asking import CLIENT, Asker


class Breaking:
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
