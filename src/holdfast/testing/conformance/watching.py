"""Watching: who looks at the feed and says where it is, is told of the next event."""

from __future__ import annotations

import queue

from holdfast.core.requests import EVENTS, Feed, Signal, Watch
from holdfast.testing.conformance.asker import CLIENT, OTHER_CLIENT, Asker, MakeStore, arrivals

WAIT = 10.0  # for a signal that crosses processes; it is there at once, or the test fails


class Watching:
    """A look with an address is answered with whether the next event is told there. One look, one signal.

    A store without the trait *tells_watchers* answers that it does not, and tells nobody.
    """

    def test_who_watches_is_told_that_there_is_something(self, make_store: MakeStore) -> None:
        mine = Asker(make_store(CLIENT, "all"))
        other = Asker(make_store(OTHER_CLIENT, "all"), OTHER_CLIENT)
        arrived = arrivals(other.store)
        feed = _expect(other)
        assert feed.tells == other.store.traits.tells_watchers
        mine.take("a-1", now=100.0)
        if feed.tells:
            assert arrived.get(timeout=WAIT) == EVENTS
        assert len(_expect(other).events) == 1

    def test_who_makes_the_event_is_told_as_well(self, make_store: MakeStore) -> None:
        ask = Asker(make_store(CLIENT, "all"))
        arrived = arrivals(ask.store)
        tells = _expect(ask).tells
        ask.take("a-1", now=100.0)
        if tells:
            assert arrived.get(timeout=WAIT) == EVENTS

    def test_many_events_are_one_signal_until_the_next_look(self, make_store: MakeStore) -> None:
        mine = Asker(make_store(CLIENT, "all"))
        other = Asker(make_store(OTHER_CLIENT, "all"), OTHER_CLIENT)
        arrived = arrivals(other.store)
        if not _expect(other).tells:
            return
        for number in range(5):
            mine.take("a-1", now=100.0, key=f"first-{number}")
        assert _all(mine, other, arrived, "end-1") == [EVENTS]
        _expect(other)
        for number in range(5):
            mine.take("a-1", now=101.0, key=f"second-{number}")
        assert _all(mine, other, arrived, "end-2") == [EVENTS]

    def test_what_is_not_kept_is_not_told(self, make_store: MakeStore) -> None:
        """Taking and giving back what is free writes no event, and tells nobody."""
        mine = Asker(make_store(CLIENT))
        other = Asker(make_store(OTHER_CLIENT), OTHER_CLIENT)
        arrived = arrivals(other.store)
        _expect(other)
        token = mine.take("a-1", now=100.0).token
        mine.release("a-1", token, now=101.0)
        if other.store.traits.tells_watchers:
            mine.take("b-1", now=102.0)
            mine.take("c-1", now=112.0)  # that one has expired is an event
            assert arrived.get(timeout=WAIT) == EVENTS
        assert arrived.empty()

    def test_a_look_without_an_address_tells_nobody(self, make_store: MakeStore) -> None:
        ask = Asker(make_store(CLIENT, "all"))
        assert not ask.watch().tells
        ask.take("a-1", now=100.0)
        assert ask.signals() == []

    def test_a_watcher_that_is_gone_keeps_nobody_from_anything(self, make_store: MakeStore) -> None:
        mine = Asker(make_store(CLIENT, "all"))
        other = Asker(make_store(OTHER_CLIENT, "all"), OTHER_CLIENT)
        _expect(other)
        other.store.close()
        mine.take("a-1", now=100.0)
        assert [event.kind for event in mine.watch().events] == ["granted"]


def _expect(ask: Asker) -> Feed:
    """Look at the feed, and say where more is to be told."""
    return ask.store.execute(Watch("", after=0, limit=1000, address=ask.client.instance))


def _all(mine: Asker, other: Asker, arrived: queue.Queue[Signal], end: str) -> list[Signal]:
    """Return what has arrived before a signal of another kind, which is sent after those of events."""
    other.take("z-1", now=103.0, key=end)
    mine.break_(now=103.0, key=end)
    found: list[Signal] = []
    while (signal := arrived.get(timeout=WAIT)).kind != "lost":
        found.append(signal)
    return found
