"""Downgrade: a writer becomes a reader, and no writer comes in between."""

from __future__ import annotations

from holdfast.core.requests import Busy, Granted, NotHeld, Refused, Released
from holdfast.testing.conformance.asking import SHARED, Asker, MakeStore


class Downgrading:
    """The same lease under the same token, shared from then on."""

    def test_readers_may_come_in_beside_who_downgraded(self, ask: Asker) -> None:
        token = ask.take("w-1", now=100.0).token
        assert ask.downgrade("w-1", token, now=104.0) == Granted(token, expires_in=6.0)
        assert ask.look(now=104.0).mode == "shared"
        assert ask.take("r-1", now=104.0, terms=SHARED).token > token
        assert isinstance(ask.acquire("w-2", now=104.0), Busy)

    def test_the_readers_at_the_head_are_let_in(self, ask: Asker) -> None:
        """P7: those before the next writer, and nobody behind it."""
        token = ask.take("w-1", now=100.0).token
        ask.queue("r-1", now=101.0, terms=SHARED)
        ask.queue("r-2", now=101.0, terms=SHARED)
        ask.queue("w-2", now=101.0)
        ask.queue("r-3", now=101.0, terms=SHARED)
        ask.downgrade("w-1", token, now=102.0)
        granted = [told for told in ask.signals() if told[0] == "granted"]
        assert granted == [("granted", "r-1"), ("granted", "r-2")]
        view = ask.look(now=102.0)
        assert [holder.owner for holder in view.holders] == ["w-1", "r-1", "r-2"]
        assert [waiter.owner for waiter in view.waiters] == ["w-2", "r-3"]

    def test_a_writer_that_waits_goes_on_waiting(self, ask: Asker) -> None:
        token = ask.take("w-1", now=100.0).token
        ask.queue("w-2", now=101.0)
        ask.queue("r-1", now=101.0, terms=SHARED)
        ask.downgrade("w-1", token, now=102.0)
        assert ask.signals() == []
        assert ask.look(now=102.0).holds == 1
        assert ask.release("w-1", token, now=103.0) == Released(0, next="w-2")

    def test_who_downgraded_renews_and_releases_as_before(self, ask: Asker) -> None:
        token = ask.take("w-1", now=100.0, owner="ann").token
        ask.downgrade("w-1", token, now=101.0)
        assert ask.renew("w-1", token, now=105.0).outcome == "renewed"
        assert ask.acquire("w-2", now=106.0, owner="ann") == Refused("upgrade")
        assert ask.acquire("r-2", now=106.0, owner="ann", terms=SHARED) == Granted(token, 10.0, holds=2)
        assert ask.release("w-1", token, now=107.0) == Released(1)

    def test_downgrading_twice_is_downgrading_once(self, ask: Asker) -> None:
        """P6."""
        token = ask.take("w-1", now=100.0).token
        ask.queue("r-1", now=101.0, terms=SHARED)
        ask.downgrade("w-1", token, now=102.0)
        ask.signals()
        before = ask.look(now=102.0)
        assert ask.downgrade("w-1", token, now=102.0) == Granted(token, expires_in=8.0)
        assert ask.look(now=102.0) == before
        assert ask.signals() == []

    def test_a_shared_lease_is_one_already(self, ask: Asker) -> None:
        token = ask.take("r-1", now=100.0, terms=SHARED).token
        assert ask.downgrade("r-1", token, now=101.0) == Granted(token, expires_in=9.0)

    def test_with_other_holds_it_is_refused(self, ask: Asker) -> None:
        """They were entered as those of a writer."""
        token = ask.take("w-1", now=100.0, owner="ann").token
        ask.take("w-2", now=100.0, owner="ann")
        assert ask.downgrade("w-1", token, now=101.0) == Refused("holds")
        assert ask.look(now=101.0).mode == "exclusive"
        ask.release("w-2", token, now=102.0)
        assert isinstance(ask.downgrade("w-1", token, now=102.0), Granted)

    def test_what_is_lost_cannot_be_downgraded(self, ask: Asker) -> None:
        token = ask.take("w-1", now=100.0).token
        assert ask.downgrade("w-1", token, now=110.0) == NotHeld("expired")
        second = ask.take("w-2", now=111.0).token
        assert ask.downgrade("w-1", token, now=112.0) == NotHeld("taken over")
        ask.break_(now=113.0, by="olga", reason="stuck")
        assert ask.downgrade("w-2", second, now=114.0) == NotHeld("broken", "olga", "stuck")
        assert ask.downgrade("nobody", second, now=114.0, key="never") == NotHeld("unknown")

    def test_another_token_downgrades_nothing(self, ask: Asker) -> None:
        """P5."""
        token = ask.take("w-1", now=100.0).token
        assert isinstance(ask.downgrade("w-1", token + 1, now=101.0), NotHeld)
        assert isinstance(ask.downgrade("w-2", token, now=101.0), NotHeld)
        assert ask.look(now=101.0).mode == "exclusive"

    def test_it_is_an_event(self, make_store: MakeStore) -> None:
        ask = Asker(make_store(history="all"))
        token = ask.take("w-1", now=100.0, owner="ann").token
        ask.queue("r-1", now=101.0, owner="bob", terms=SHARED)
        ask.downgrade("w-1", token, now=102.0)
        ask.downgrade("w-1", token, now=102.0)
        assert [(event.kind, event.owner) for event in ask.history()] == [
            ("granted", "ann"),
            ("queued", "bob"),
            ("downgraded", "ann"),
            ("handed_over", "bob"),
        ]
        assert ask.history()[2].token == token

    def test_a_downgraded_lease_that_expired_makes_room(self, ask: Asker) -> None:
        token = ask.take("w-1", now=100.0).token
        ask.queue("w-2", now=101.0)
        ask.downgrade("w-1", token, now=102.0)
        assert ask.refresh("w-2", now=110.0).outcome == "handed"
