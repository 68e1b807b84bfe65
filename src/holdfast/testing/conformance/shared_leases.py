"""Shared leases: readers together, writers alone, one queue for both; and a writer that becomes a reader."""

from __future__ import annotations

from holdfast.core.family import PLAIN
from holdfast.core.requests import Busy, Granted, NotHeld, Queued, Refused, Released, Withdrawn
from holdfast.stores.base import micros
from holdfast.testing.conformance.asker import SHARED, Asker, MakeStore


class SharedLeases:
    """Each reader has a lease of its own; nobody passes a live ticket, whatever it asks for (P7)."""

    def test_readers_hold_it_together(self, ask: Asker) -> None:
        """P2: shared leases fit beside each other."""
        for attempt in ("r-1", "r-2", "r-3"):
            ask.take(attempt, now=100.0, terms=SHARED)
        view = ask.look(now=100.0)
        assert (view.state, view.mode, view.holds, view.waiting) == ("held", "shared", 3, 0)

    def test_every_reader_has_a_token_of_its_own(self, ask: Asker) -> None:
        """P1."""
        tokens = [
            ask.take(f"r-{n}", now=now, terms=SHARED).token for n, now in enumerate((100.0, 100.0, 99.0))
        ]
        assert tokens == [micros(100.0), micros(100.0) + 1, micros(100.0) + 2]
        assert [ask.renew(f"r-{n}", token, now=101.0).outcome for n, token in enumerate(tokens)] == [
            "renewed"
        ] * 3

    def test_a_reader_cannot_use_the_token_of_another(self, ask: Asker) -> None:
        """P5."""
        first = ask.take("r-1", now=100.0, terms=SHARED).token
        second = ask.take("r-2", now=100.0, terms=SHARED).token
        assert isinstance(ask.release("r-1", second, now=101.0), NotHeld)
        assert ask.renew("r-2", first, now=101.0).outcome == "lost"
        assert ask.look(now=101.0).holds == 2

    def test_a_writer_waits_for_all_readers(self, ask: Asker) -> None:
        tokens = [ask.take(f"r-{n}", now=100.0, terms=SHARED).token for n in range(3)]
        assert isinstance(ask.acquire("w-1", now=101.0), Busy)
        ask.queue("w-1", now=101.0)
        assert ask.release("r-1", tokens[1], now=102.0) == Released(0)
        assert ask.release("r-0", tokens[0], now=102.0) == Released(0)
        assert ask.signals() == []
        assert ask.release("r-2", tokens[2], now=102.0) == Released(0, next="w-1")
        assert ask.signals() == [("granted", "w-1")]
        assert ask.take("w-1", now=103.0).token > max(tokens)
        assert ask.look(now=103.0).mode == "exclusive"

    def test_readers_wait_for_a_writer(self, ask: Asker) -> None:
        ask.take("w-1", now=100.0)
        assert isinstance(ask.acquire("r-1", now=101.0, terms=SHARED), Busy)
        assert isinstance(ask.acquire("r-1", now=101.0, terms=SHARED, wait=True), Queued)

    def test_a_reader_waits_behind_a_waiting_writer(self, ask: Asker) -> None:
        """P7: else readers that keep coming would starve it."""
        token = ask.take("r-1", now=100.0, terms=SHARED).token
        ask.queue("w-1", now=101.0)
        assert isinstance(ask.acquire("r-2", now=101.0, terms=SHARED), Busy)
        assert ask.queue("r-2", now=101.0, terms=SHARED).position == 2
        assert ask.release("r-1", token, now=102.0) == Released(0, next="w-1")
        assert ask.signals() == [("granted", "w-1")]

    def test_whoever_waits_is_told_of_the_reader_that_came_first(self, ask: Asker) -> None:
        """It may be worth asking again when the last one's lease ends."""
        first = ask.take("r-1", now=100.0, owner="ann", terms=SHARED, ttl=5.0).token
        ask.take("r-2", now=101.0, owner="bob", terms=SHARED, ttl=20.0)
        ask.take("r-3", now=102.0, owner="cy", terms=SHARED, ttl=5.0)
        answer = ask.queue("w-1", now=103.0)
        assert (answer.holder.owner, answer.holder.token, answer.holder.held_for) == ("ann", first, 3.0)
        assert answer.expires_in == 18.0

    def test_all_readers_at_the_head_come_in_at_once(self, ask: Asker) -> None:
        """P8: each is told, has a token of its own and its own claim window."""
        token = ask.take("w-1", now=100.0).token
        ask.queue("r-1", now=101.0, terms=SHARED, claim=3.0)
        ask.queue("r-2", now=101.0, terms=SHARED, claim=6.0)
        ask.queue("w-2", now=101.0)
        ask.queue("r-3", now=101.0, terms=SHARED)
        assert ask.release("w-1", token, now=102.0) == Released(0, next="r-1")
        granted = [told for told in ask.signals() if told[0] == "granted"]
        assert granted == [("granted", "r-1"), ("granted", "r-2")]
        view = ask.look(now=102.0)
        assert [(holder.owner, holder.claimed) for holder in view.holders] == [("r-1", False), ("r-2", False)]
        assert (view.holds, view.waiting) == (2, 2)
        tokens = [holder.token for holder in view.holders]
        assert tokens == [micros(102.0), micros(102.0) + 1]
        assert [ask.take(f"r-{n}", now=103.0, terms=SHARED).token for n in (1, 2)] == tokens

    def test_a_reader_that_does_not_claim_costs_its_own_window_only(self, ask: Asker) -> None:
        """P8."""
        token = ask.take("w-1", now=100.0).token
        ask.queue("r-1", now=101.0, terms=SHARED, claim=3.0)
        ask.queue("r-2", now=101.0, terms=SHARED, claim=6.0)
        ask.release("w-1", token, now=102.0)
        ask.queue("w-2", now=105.0)  # settles: r-1 is over
        assert [holder.owner for holder in ask.look(now=105.0).holders] == ["r-2"]
        assert ask.refresh("w-2", now=107.999999).outcome == "waiting"
        assert ask.refresh("w-2", now=108.0).outcome == "handed"

    def test_a_writer_that_withdraws_lets_in_all_readers_behind_it(self, ask: Asker) -> None:
        """P8: after every change of a key its head is granted as long as it fits."""
        ask.take("r-1", now=100.0, terms=SHARED)
        ask.queue("w-1", now=101.0)
        ask.queue("r-2", now=101.0, terms=SHARED)
        ask.queue("r-3", now=101.0, terms=SHARED)
        ask.queue("w-2", now=101.0)
        ask.queue("r-4", now=101.0, terms=SHARED)
        assert isinstance(ask.withdraw("w-1", now=102.0), Withdrawn)
        granted = [told for told in ask.signals() if told[0] == "granted"]
        assert granted == [("granted", "r-2"), ("granted", "r-3")]
        assert ask.look(now=102.0).waiting == 2

    def test_a_writer_that_died_lets_in_all_readers_behind_it(self, ask: Asker) -> None:
        """P8: whoever asks next finds its ticket dead."""
        ask.take("r-1", now=100.0, terms=SHARED, ttl=60.0)
        ask.queue("w-1", now=101.0, patience=4.0)
        ask.queue("r-2", now=101.0, terms=SHARED)
        ask.queue("r-3", now=101.0, terms=SHARED)
        assert ask.refresh("r-3", now=104.999999).outcome == "waiting"
        assert ask.refresh("r-3", now=105.0).outcome == "handed"
        assert ask.signals() == [("granted", "r-2"), ("granted", "r-3")]

    def test_who_asks_when_a_dead_writer_is_all_that_waits_comes_in(self, ask: Asker) -> None:
        ask.take("r-1", now=100.0, terms=SHARED, ttl=60.0)
        ask.queue("w-1", now=101.0, patience=4.0)
        assert isinstance(ask.acquire("r-2", now=105.0, terms=SHARED), Granted)

    def test_a_reader_enters_again_past_a_waiting_writer(self, ask: Asker) -> None:
        """Else it would wait for the writer, and the writer for it."""
        token = ask.take("r-1", now=100.0, owner="ann", terms=SHARED).token
        ask.take("r-x", now=100.0, terms=SHARED)
        ask.queue("w-1", now=101.0)
        assert ask.acquire("r-2", now=102.0, owner="ann", terms=SHARED) == Granted(token, 10.0, holds=2)
        assert ask.release("r-1", token, now=103.0) == Released(1)
        assert ask.release("r-2", token, now=103.0) == Released(0)

    def test_a_readers_limit_counts_its_own_holds(self, ask: Asker) -> None:
        ask.take("r-x", now=100.0, terms=SHARED)
        ask.take("r-1", now=100.0, owner="ann", terms=SHARED)
        answer = ask.acquire("r-2", now=100.0, owner="ann", terms=SHARED, limit=2)
        assert isinstance(answer, Granted)
        assert answer.holds == 2
        assert not isinstance(ask.acquire("r-3", now=100.0, owner="ann", terms=SHARED, limit=2), Granted)

    def test_the_owner_of_an_exclusive_lease_enters_it_shared_and_it_stays_exclusive(
        self, ask: Asker
    ) -> None:
        token = ask.take("a-1", now=100.0, owner="ann").token
        assert ask.acquire("a-2", now=101.0, owner="ann", terms=SHARED) == Granted(token, 10.0, holds=2)
        assert ask.look(now=101.0).mode == "exclusive"
        assert isinstance(ask.acquire("r-1", now=101.0, terms=SHARED), Busy)
        ask.release("a-1", token, now=102.0)
        assert isinstance(ask.acquire("r-1", now=102.0, terms=SHARED), Busy)

    def test_a_reader_cannot_become_a_writer(self, ask: Asker) -> None:
        """Two readers that upgrade would wait for each other."""
        token = ask.take("r-1", now=100.0, owner="ann", terms=SHARED).token
        for wait in (False, True):
            assert ask.acquire("a-2", now=101.0, owner="ann", wait=wait) == Refused("upgrade")
        view = ask.look(now=101.0)
        assert (view.holds, view.waiting) == (1, 0)
        ask.release("r-1", token, now=102.0)
        assert isinstance(ask.acquire("a-2", now=102.0, owner="ann"), Granted)

    def test_asking_again_keeps_the_lease_of_a_reader(self, ask: Asker) -> None:
        """P6."""
        token = ask.take("r-1", now=100.0, terms=SHARED).token
        ask.take("r-2", now=100.0, terms=SHARED)
        ask.queue("w-1", now=101.0)
        assert ask.acquire("r-1", now=102.0, terms=SHARED) == Granted(token, 10.0)
        assert ask.look(now=102.0).holds == 2

    def test_a_reader_that_expired_is_gone_and_the_others_stay(self, ask: Asker) -> None:
        first = ask.take("r-1", now=100.0, terms=SHARED, ttl=5.0).token
        second = ask.take("r-2", now=100.0, terms=SHARED, ttl=10.0).token
        ask.queue("w-1", now=101.0)
        assert ask.renew("r-1", first, now=105.0).outcome == "lost"
        assert ask.renew("r-2", second, now=105.0, ttl=5.0).outcome == "renewed"
        assert isinstance(ask.acquire("r-1", now=106.0, terms=SHARED), NotHeld)
        assert [holder.owner for holder in ask.look(now=106.0).holders] == ["r-2"]
        assert ask.refresh("w-1", now=109.999999).outcome == "waiting"
        assert ask.refresh("w-1", now=110.0).outcome == "handed"

    def test_a_reader_gives_back_its_own_lease_only(self, ask: Asker) -> None:
        """P5."""
        token = ask.take("r-1", now=100.0, terms=SHARED).token
        ask.take("r-2", now=100.0, terms=SHARED)
        assert ask.withdraw("r-2", now=101.0) == Withdrawn()
        assert ask.renew("r-1", token, now=102.0).outcome == "renewed"
        assert ask.look(now=102.0).holds == 1

    def test_a_repeated_release_of_a_reader_changes_nothing(self, ask: Asker) -> None:
        """P6."""
        token = ask.take("r-1", now=100.0, terms=SHARED).token
        ask.take("r-2", now=100.0, terms=SHARED)
        assert ask.release("r-1", token, now=101.0) == Released(0)
        before = ask.look(now=101.0)
        assert ask.release("r-1", token, now=101.0) == NotHeld("already")
        assert ask.look(now=101.0) == before

    def test_a_writer_served_in_its_turn_is_alone(self, ask: Asker) -> None:
        """P2, P7: reader, writer, reader, each in its turn."""
        first = ask.take("r-1", now=100.0, terms=SHARED).token
        ask.queue("w-1", now=100.0)
        ask.queue("r-2", now=100.0, terms=SHARED)
        ask.release("r-1", first, now=101.0)
        second = ask.take("w-1", now=101.0).token
        assert isinstance(ask.acquire("r-2", now=102.0, terms=SHARED, wait=True), Queued)
        assert ask.release("w-1", second, now=103.0) == Released(0, next="r-2")
        assert ask.take("r-2", now=103.0, terms=SHARED).token > second > first

    def test_on_plain_terms_nothing_of_this_shows(self, ask: Asker) -> None:
        ask.take("a-1", now=100.0, terms=PLAIN)
        view = ask.look(now=100.0)
        assert (view.mode, view.permits) == ("exclusive", 0)


class Downgrades:
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
