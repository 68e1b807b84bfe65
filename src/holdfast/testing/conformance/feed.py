"""The feed: what happened to all keys, in one order, without gap or duplicate."""

from __future__ import annotations

from itertools import pairwise

from holdfast.core.events import Event
from holdfast.testing.conformance.asker import CLIENT, OPERATION, OTHER_CLIENT, Asker, MakeStore


class Feed:
    """Events get their place when they are first read; from then on all see them there."""

    def test_who_begins_now_is_told_where_the_order_ends(self, make_store: MakeStore) -> None:
        ask = Asker(make_store(history="all"))
        ask.take("a-1", now=100.0)
        start = ask.watch(after=None)
        assert start.events == ()
        token = ask.look(now=100.0).token
        ask.release("a-1", token, now=101.0)
        feed = ask.watch(after=start.after)
        assert [event.kind for event in feed.events] == ["released"]

    def test_nothing_happened_yet(self, ask: Asker) -> None:
        start = ask.watch(after=None)
        assert start.events == ()
        feed = ask.watch(after=start.after)
        assert feed.events == ()
        assert feed.after >= start.after

    def test_an_event_is_as_the_history_has_it_and_has_its_place(self, make_store: MakeStore) -> None:
        ask = Asker(make_store(history="all"))
        ask.take("a-1", now=100.0, owner="ann")
        ask.break_(now=101.0, by="olga", reason="stuck")
        feed = ask.watch()
        first, second = feed.events
        assert 0 < first.id < second.id == feed.after
        assert (first.kind, first.owner, first.number, first.at) == ("granted", "ann", 1, 100.0)
        assert (second.kind, second.by, second.reason) == ("broken", "olga", "stuck")
        assert [self._without_place(e) for e in ask.history()] == [
            self._without_place(e) for e in feed.events
        ]

    def test_there_is_one_order_that_only_grows(self, make_store: MakeStore) -> None:
        """What happens later comes behind everything that was read."""
        ask = self._busy(make_store)
        before = ask.watch().events
        ask.take("z-1", now=200.0, key="A")
        ask.take("z-2", now=50.0, key="pull:0")
        after = ask.watch().events
        assert after[: len(before)] == before
        assert len(after) == len(before) + 2
        assert all(one.id < other.id for one, other in pairwise(after))

    def test_events_of_a_key_are_in_the_order_of_their_numbers(self, make_store: MakeStore) -> None:
        ask = self._busy(make_store)
        events = ask.watch().events
        for key in {event.key for event in events}:
            numbers = [event.number for event in events if event.key == key]
            assert numbers == list(range(1, len(numbers) + 1)), key
            assert numbers == [event.number for event in ask.history(key=key)]

    def test_who_goes_on_at_any_place_misses_none_and_sees_none_twice(self, make_store: MakeStore) -> None:
        ask = self._busy(make_store)
        events = ask.watch().events
        for place, event in enumerate(events, start=1):
            assert ask.watch(after=event.id).events == events[place:]

    def test_pages_are_of_a_limited_length(self, make_store: MakeStore) -> None:
        ask = self._busy(make_store)
        everything = ask.watch().events
        for limit in (1, 2, 3, 7):
            seen: list[Event] = []
            after = 0
            while page := ask.watch(after=after, limit=limit):
                assert len(page.events) <= limit
                if not page.events:
                    break
                seen += page.events
                after = page.after
            assert tuple(seen) == everything

    def test_pages_that_are_read_first_are_in_order_too(self, make_store: MakeStore) -> None:
        """Here the reading of pages itself gives the events their places, while others are written."""
        ask = self._busy(make_store)
        seen: list[Event] = []
        after, written = 0, 0
        while True:
            page = ask.watch(after=after, limit=3)
            if not page.events:
                break
            seen += page.events
            after = page.after
            if written < 5:
                written += 1
                ask.take(f"y-{written}", now=300.0, key=f"pull:y{written}")
        assert tuple(seen) == ask.watch().events
        assert [event.id for event in seen] == sorted({event.id for event in seen})

    def test_a_prefix_is_all_keys_that_begin_so(self, make_store: MakeStore) -> None:
        ask = Asker(make_store(history="all"))
        for key in ("pull:a", "pull:ab", "pull%", "Pull:a", "delete:a", "pull_a"):
            ask.take("a-1", now=100.0, key=key)
        assert self._watched(ask, "pull:") == {"pull:a", "pull:ab"}
        assert self._watched(ask, "pull:a") == {"pull:a", "pull:ab"}
        assert self._watched(ask, "pull%") == {"pull%"}
        assert self._watched(ask, "pull_") == {"pull_a"}
        assert self._watched(ask, "") == {"pull:a", "pull:ab", "pull%", "Pull:a", "delete:a", "pull_a"}
        assert self._watched(ask, "nothing") == set()

    def test_a_key_is_that_key(self, make_store: MakeStore) -> None:
        ask = Asker(make_store(history="all"))
        for key in ("pull:a", "pull:ab", "pull:A", "pull:a "):
            ask.take("a-1", now=100.0, key=key)
        assert {event.key for event in ask.watch("pull:a", exact=True).events} == {"pull:a"}
        assert ask.watch("pull", exact=True).events == ()

    def test_what_others_do_is_no_gap_for_who_watches_one_key(self, make_store: MakeStore) -> None:
        ask = self._busy(make_store)
        expected = [event for event in ask.watch().events if event.key == "pull:1"]
        seen: list[Event] = []
        after = 0
        while (page := ask.watch("pull:1", exact=True, after=after, limit=1)).events:
            seen += page.events
            after = page.after
        assert seen == expected

    def test_all_who_watch_see_the_same(self, make_store: MakeStore) -> None:
        mine = Asker(make_store(CLIENT, "all"))
        other = Asker(make_store(OTHER_CLIENT, "all"), OTHER_CLIENT)
        mine.take("a-1", now=100.0, key="one")
        other.take("a-1", now=100.0, key="two")
        first = other.watch("t").events
        assert mine.watch().events == other.watch().events
        assert mine.watch("t").events == first
        other.take("a-1", now=101.0, key="three")
        assert mine.watch().events == other.watch().events
        assert len(mine.watch().events) == 3

    def test_there_is_in_it_what_the_history_keeps(self, make_store: MakeStore) -> None:
        ask = Asker(make_store(history="notable"))
        ask.take("a-1", now=100.0)
        ask.acquire("b-1", now=110.0)
        token = ask.take("c-1", now=110.0, key="pull:x", terms=OPERATION).token
        ask.succeed("c-1", token, now=111.0, key="pull:x")
        assert [event.kind for event in ask.watch("nightly").events] == ["expired"]
        assert ask.watch("pull:").events[-1].kind == "completed"

    def test_old_events_are_gone_and_the_order_goes_on(self, make_store: MakeStore) -> None:
        ask = Asker(make_store(history="all"))
        token = ask.take("a-1", now=100.0, ttl=500.0).token
        ask.release("a-1", token, now=200.0)
        old = ask.watch().events
        ask.sweep(now=300.0, keep_history=50.0)
        ask.take("b-1", now=301.0)
        new = ask.watch().events
        assert [event.kind for event in new] == ["granted"]
        assert new[0].id > old[-1].id
        assert ask.watch(after=old[0].id).events == new

    def test_the_order_goes_on_even_if_everything_was_swept_away(self, make_store: MakeStore) -> None:
        ask = Asker(make_store(history="all"))
        token = ask.take("a-1", now=100.0).token
        ask.release("a-1", token, now=101.0)
        after = ask.watch().after
        ask.sweep(now=9000.0, keep_history=50.0)
        assert ask.watch(after=None).after >= after
        ask.take("b-1", now=9001.0)
        assert [event.kind for event in ask.watch(after=after).events] == ["granted"]

    @staticmethod
    def _busy(make_store: MakeStore) -> Asker:
        """Do something with several keys in turn, so that their events lie between each other."""
        ask = Asker(make_store(history="all"))
        keys = ("b", "a", "pull:1", "pull:2")
        tokens = {key: ask.take("a-1", now=100.0, key=key).token for key in keys}
        for key in reversed(keys):
            ask.queue("b-1", now=101.0, key=key, owner=f"b of {key}")
        for key in keys:
            ask.release("a-1", tokens[key], now=102.0, key=key)
        return ask

    @staticmethod
    def _watched(ask: Asker, prefix: str) -> set[str]:
        return {event.key for event in ask.watch(prefix).events}

    @staticmethod
    def _without_place(event: Event) -> tuple[object, ...]:
        return (
            event.key,
            event.number,
            event.kind,
            event.at,
            event.token,
            event.owner,
            event.by,
            event.reason,
        )
