"""One order of all events, for those who watch."""

from __future__ import annotations

from bisect import bisect_right
from itertools import islice

from holdfast.core.data import replace
from holdfast.core.events import Event
from holdfast.core.requests import Feed, Watch
from holdfast.stores.memory.recording import Recording
from holdfast.stores.memory.state import Post

AT_ONCE = 1000  # events that one request looks at


class Watching(Recording):
    """See the module."""

    def _watch(self, request: Watch, post: Post) -> Feed:
        world = self._world
        with world.feed_mutex:
            self._place_events()
            if request.after is None:
                return Feed((), world.places)
            after = request.after
            start = bisect_right(world.feed, after, key=lambda event: event.id)
            found: list[Event] = []
            for event in islice(world.feed, start, start + AT_ONCE):
                if len(found) == request.limit:
                    break
                after = event.id
                if event.key == request.key if request.exact else event.key.startswith(request.key):
                    found.append(event)
            return Feed(tuple(found), after)

    def _place_events(self) -> None:
        """Give places to all events that have none. Called with the feed's mutex held.

        Nothing is removed from a history without that mutex, so what stands where stays there.
        """
        world = self._world
        new: list[tuple[float, str, int, int]] = []  # when, key, number, and where in the key's history
        for shard in world.shards:
            if shard.unplaced:
                with shard.mutex:
                    for key in shard.unplaced:
                        events = shard.history.get(key, [])
                        start = next((n for n in range(len(events), 0, -1) if events[n - 1].id), 0)
                        at = 0.0  # time may have gone back between two events, but numbers never do
                        for where, event in enumerate(events[start:], start):
                            at = max(at, event.at)
                            new.append((at, key, event.number, where))
                    shard.unplaced.clear()
        for _, key, _, where in sorted(new):
            world.places += 1
            shard = world.shard(key)
            with shard.mutex:
                events = shard.history[key]
                events[where] = replace(events[where], id=world.places)
                world.feed.append(events[where])
