"""History: what happened to a key, in order; how much of it is a setting."""

from __future__ import annotations

import pytest

from holdfast.core.events import Event, HistoryLevel
from holdfast.stores.base import micros
from holdfast.testing.conformance.asker import Asker, MakeStore


class KeptHistory:
    """Events are written in the transaction that caused them, numbered per key, without gaps."""

    def test_everything_is_kept_at_the_level_all(self, make_store: MakeStore) -> None:
        ask = self._busy_day(make_store, "all")
        assert [(event.kind, event.owner, event.at) for event in ask.history()] == [
            ("granted", "ann", 100.0),
            ("queued", "bob", 101.0),
            ("queued", "cy", 102.0),
            ("queued", "dee", 102.0),
            ("released", "ann", 103.0),
            ("handed_over", "bob", 103.0),
            ("expired", "bob", 108.0),
            ("handed_over", "cy", 108.0),
            ("broken", "cy", 109.0),
            ("handed_over", "dee", 109.0),
            ("queued", "eve", 110.0),
            ("withdrawn", "eve", 111.0),
            ("withdrawn", "dee", 112.0),
        ]

    def test_only_the_notable_is_kept_at_the_level_notable(self, make_store: MakeStore) -> None:
        ask = self._busy_day(make_store, "notable")
        assert [(event.kind, event.owner) for event in ask.history()] == [
            ("expired", "bob"),
            ("broken", "cy"),
        ]

    def test_a_break_is_always_kept(self, make_store: MakeStore) -> None:
        ask = self._busy_day(make_store, "none")
        (event,) = ask.history()
        assert event == Event(
            key="nightly",
            number=1,
            kind="broken",
            at=109.0,
            token=micros(108.0),
            owner="cy",
            by="olga",
            reason="stuck",
        )

    @pytest.mark.parametrize("level", ["all", "notable"])
    def test_events_are_numbered_from_one_without_gaps(
        self, make_store: MakeStore, level: HistoryLevel
    ) -> None:
        events = self._busy_day(make_store, level).history()
        assert [event.number for event in events] == list(range(1, len(events) + 1))

    def test_events_carry_the_token_of_the_lease_they_are_about(self, make_store: MakeStore) -> None:
        """P1: tokens of the grants in a history rise."""
        ask = self._busy_day(make_store, "all")
        grants = [event.token for event in ask.history() if event.kind in ("granted", "handed_over")]
        assert grants == [micros(at) for at in (100.0, 103.0, 108.0, 109.0)]
        assert [
            event.token for event in ask.history() if event.kind in ("released", "expired", "broken")
        ] == [micros(at) for at in (100.0, 103.0, 108.0)]

    def test_renewal_re_entry_claim_and_refusal_are_no_events(self, make_store: MakeStore) -> None:
        ask = Asker(make_store(history="all"))
        token = ask.take("a-1", now=100.0, owner="ann").token
        ask.queue("b-1", now=100.0)
        before = ask.history()
        ask.take("a-1", now=101.0, owner="ann")
        ask.take("a-2", now=101.0, owner="ann")
        ask.renew("a-1", token, now=102.0)
        ask.release("a-2", token, now=102.0)
        ask.acquire("c-1", now=102.0)
        ask.queue("b-1", now=102.0)
        ask.refresh("b-1", now=102.0)
        ask.release("a-1", token + 1, now=102.0)
        ask.break_(now=102.0, token=token + 1)
        assert ask.history() == before

    def test_the_newest_events_come_oldest_first(self, make_store: MakeStore) -> None:
        ask = self._busy_day(make_store, "all")
        everything = ask.history()
        assert ask.history(limit=3) == everything[-3:]
        assert ask.history(limit=1) == everything[-1:]
        assert ask.history(limit=0) == ()

    def test_a_history_is_of_one_key(self, make_store: MakeStore) -> None:
        ask = self._busy_day(make_store, "all")
        assert ask.history(key="nightl") == ()
        assert ask.history(key="nightly ") == ()

    def test_old_events_are_swept_away_and_the_numbers_go_on(self, make_store: MakeStore) -> None:
        ask = Asker(make_store(history="all"))
        token = ask.take("a-1", now=100.0, ttl=500.0).token
        ask.release("a-1", token, now=200.0)
        assert ask.sweep(now=300.0, keep_history=200.000001).history == 0
        assert ask.sweep(now=300.0, keep_history=200.0).history == 1
        ask.take("b-1", now=301.0)
        assert [(event.number, event.kind) for event in ask.history()] == [(2, "released"), (3, "granted")]

    def test_events_are_swept_by_their_time_even_if_time_went_back(self, make_store: MakeStore) -> None:
        ask = Asker(make_store(history="all"))
        token = ask.take("a-1", now=200.0).token
        ask.release("a-1", token, now=100.0)
        ask.take("b-1", now=201.0, ttl=500.0)
        assert ask.sweep(now=300.0, keep_history=150.0).history == 1
        assert [event.kind for event in ask.history()] == ["granted", "granted"]

    @staticmethod
    def _busy_day(make_store: MakeStore, level: HistoryLevel) -> Asker:
        ask = Asker(make_store(history=level))
        token = ask.take("a-1", now=100.0, owner="ann").token
        ask.queue("b-1", now=101.0, owner="bob", claim=5.0)
        ask.queue("c-1", now=102.0, owner="cy")
        ask.queue("d-1", now=102.0, owner="dee")
        ask.release("a-1", token, now=103.0)
        ask.take("c-1", now=108.0, owner="cy")
        ask.break_(now=109.0, by="olga", reason="stuck")
        ask.queue("e-1", now=110.0, owner="eve")
        ask.withdraw("e-1", now=111.0)
        ask.withdraw("d-1", now=112.0)
        return ask
