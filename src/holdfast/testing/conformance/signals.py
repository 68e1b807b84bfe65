"""Signals: exactly those are told for whom something changed, and nobody else."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.core.requests import Signal
from holdfast.testing.conformance.asker import CLIENT, OTHER_CLIENT, Asker, MakeStore, arrivals

WAIT = 10.0  # for a signal that crosses processes; it is there at once, or the test fails


class Signals:
    """The winner and the new head; the holder of a broken lease; no herd.

    Within one client signals come with the answer of the request that caused them. A store without
    signals says so in its traits, and then nobody may be told anything.
    """

    def test_a_hand_over_tells_the_winner_and_the_new_head_and_nobody_else(self, ask: Asker) -> None:
        """P8, R19: ten thousand waiters are not woken for one lock."""
        token = ask.take("a-1", now=100.0).token
        for name, claim in (("b-1", 4.0), ("c-1", 5.0), ("d-1", 6.0), ("e-1", 7.0)):
            ask.queue(name, now=101.0, claim=claim)
        assert ask.signals() == []
        ask.release("a-1", token, now=102.0)
        assert set(ask.full_signals()) == {
            Signal("granted", "nightly", "b-1"),
            Signal("head", "nightly", "c-1", expires_in=4.0),
        }

    def test_a_head_whose_heartbeat_comes_in_time_is_not_woken(self, ask: Asker) -> None:
        """R19: heartbeats come within nine tenths of a claim window, and tell the head all it needs."""
        token = ask.take("a-1", now=100.0).token
        for name in ("b-1", "c-1", "d-1"):
            ask.queue(name, now=101.0, claim=5.0)
        ask.release("a-1", token, now=102.0)
        assert ask.signals() == [("granted", "b-1")]
        ask.withdraw("b-1", now=102.5)
        assert ask.signals() == [("granted", "c-1")]
        told = ask.refresh("d-1", now=103.0)
        assert (told.head, told.expires_in) == (True, 4.5)

    def test_without_anybody_waiting_nobody_is_told(self, ask: Asker) -> None:
        token = ask.take("a-1", now=100.0).token
        ask.release("a-1", token, now=101.0)
        ask.take("b-1", now=102.0)
        ask.take("c-1", now=112.0)
        ask.withdraw("c-1", now=113.0)
        assert ask.signals() == []

    def test_a_lone_waiter_is_the_only_one_told(self, ask: Asker) -> None:
        token = ask.take("a-1", now=100.0).token
        ask.queue("b-1", now=101.0)
        ask.release("a-1", token, now=102.0)
        assert ask.signals() == [("granted", "b-1")]

    def test_everything_that_can_settle_a_key_tells_the_same_two(self, ask: Asker) -> None:
        """P8: whoever finds the lease expired hands it over."""
        finders: dict[str, Callable[[str], object]] = {
            "acquire": lambda key: ask.acquire("x-1", now=110.0, key=key),
            "queue": lambda key: ask.queue("x-1", now=110.0, key=key),
            "release": lambda key: ask.release("a-1", 1, now=110.0, key=key),
            "renew": lambda key: ask.renew("a-1", 1, now=110.0, key=key),
            "refresh": lambda key: ask.refresh("d-1", now=110.0, key=key),
            "withdraw": lambda key: ask.withdraw("x-1", now=110.0, key=key),
            "break": lambda key: ask.break_(now=110.0, key=key, token=1),
        }
        for key, find in finders.items():
            ask.take("a-1", now=100.0, key=key)
            for name, claim in (("b-1", 5.0), ("c-1", 6.0), ("d-1", 7.0)):
                ask.queue(name, now=101.0, key=key, claim=claim)
            find(key)
            assert ask.signals() == [("granted", "b-1"), ("head", "c-1")], key

    def test_a_claim_tells_nobody(self, ask: Asker) -> None:
        token = ask.take("a-1", now=100.0).token
        ask.queue("b-1", now=101.0)
        ask.queue("c-1", now=101.0)
        ask.release("a-1", token, now=102.0)
        ask.signals()
        ask.take("b-1", now=103.0)
        ask.take("b-1", now=103.0)
        assert ask.signals() == []

    def test_a_repeated_request_tells_nobody_again(self, ask: Asker) -> None:
        """P6."""
        token = ask.take("a-1", now=100.0).token
        ask.queue("b-1", now=101.0)
        ask.queue("c-1", now=101.0)
        ask.release("a-1", token, now=102.0)
        ask.signals()
        ask.release("a-1", token, now=102.0)
        ask.queue("c-1", now=102.0)
        ask.refresh("c-1", now=102.0)
        assert ask.signals() == []

    def test_withdrawing_the_head_tells_the_next_that_it_is_head(self, ask: Asker) -> None:
        """P8: else nobody would watch the end of the lease."""
        ask.take("a-1", now=100.0)
        for name in ("b-1", "c-1", "d-1"):
            ask.queue(name, now=101.0, claim=8.0)
        ask.withdraw("b-1", now=103.0)
        assert ask.full_signals() == (Signal("head", "nightly", "c-1", expires_in=7.0),)

    def test_withdrawing_the_head_passes_over_dead_tickets(self, ask: Asker) -> None:
        """P8."""
        ask.take("a-1", now=100.0)
        ask.queue("b-1", now=101.0)
        ask.queue("dead-1", now=101.0, patience=1.0)
        ask.queue("c-1", now=101.0, claim=8.0)
        ask.withdraw("b-1", now=103.0)
        assert ask.signals() == [("head", "c-1")]

    def test_withdrawing_another_ticket_tells_nobody(self, ask: Asker) -> None:
        ask.take("a-1", now=100.0)
        for name in ("b-1", "c-1", "d-1"):
            ask.queue(name, now=101.0)
        ask.withdraw("c-1", now=103.0)
        ask.withdraw("d-1", now=103.0)
        assert ask.signals() == []

    def test_the_new_head_after_a_hand_over_is_the_first_live_ticket(self, ask: Asker) -> None:
        token = ask.take("a-1", now=100.0).token
        ask.queue("dead-1", now=100.0, patience=1.0)
        ask.queue("b-1", now=100.0)
        ask.queue("dead-2", now=100.0, patience=1.0)
        ask.queue("dead-3", now=100.0, patience=1.0)
        ask.queue("c-1", now=100.0, claim=6.0)
        ask.release("a-1", token, now=102.0)
        told = ask.signals()
        assert {("granted", "b-1"), ("head", "c-1")} <= set(told)
        assert {attempt for _, attempt in told} == {"b-1", "c-1"}

    def test_a_broken_lease_is_told_to_all_its_holds(self, ask: Asker) -> None:
        ask.take("a-1", now=100.0, owner="ann")
        ask.take("a-2", now=100.0, owner="ann")
        ask.queue("b-1", now=101.0)
        ask.queue("c-1", now=101.0, claim=6.0)
        ask.break_(now=102.0)
        assert ask.signals() == [("granted", "b-1"), ("head", "c-1"), ("lost", "a-1"), ("lost", "a-2")]

    def test_a_break_that_breaks_nothing_tells_nobody(self, ask: Asker) -> None:
        token = ask.take("a-1", now=100.0).token
        ask.queue("b-1", now=101.0)
        ask.break_(now=102.0, token=token + 1)
        assert ask.signals() == []

    def test_a_released_nested_hold_tells_nobody(self, ask: Asker) -> None:
        token = ask.take("a-1", now=100.0, owner="ann").token
        ask.take("a-2", now=100.0, owner="ann")
        ask.queue("b-1", now=101.0)
        ask.release("a-2", token, now=102.0)
        assert ask.signals() == []

    def test_a_signal_finds_its_way_to_another_client(self, make_store: MakeStore) -> None:
        """P8, and only to the one whose ticket it is; if the store has signals at all."""
        store = make_store(CLIENT)
        mine, other = Asker(store, CLIENT), Asker(make_store(OTHER_CLIENT), OTHER_CLIENT)
        arrived = arrivals(other.store)
        token = mine.take("a-1", now=100.0).token
        other.queue("b-1", now=101.0)
        mine.release("a-1", token, now=102.0)
        if store.traits.signals:
            assert arrived.get(timeout=WAIT) == Signal("granted", "nightly", "b-1")
        assert arrived.empty()
        assert mine.signals() == []

    def test_a_client_that_is_gone_keeps_nobody_from_handing_over(self, make_store: MakeStore) -> None:
        """Signals are hints: a dead listener costs nothing."""
        mine, other = Asker(make_store(CLIENT)), Asker(make_store(OTHER_CLIENT), OTHER_CLIENT)
        token = mine.take("a-1", now=100.0).token
        other.queue("b-1", now=101.0)
        other.store.close()
        mine.release("a-1", token, now=102.0)
        holder = mine.look(now=102.0).holder
        assert holder is not None
        assert holder.owner == "b-1"
