"""Looking at locks, at work and at what happened. Only the feed writes: it gives events their places."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from itertools import islice

from holdfast.core import cluster as c
from holdfast.core import keys
from holdfast.core.data import replace
from holdfast.core.events import Event
from holdfast.core.requests import Feed, History, Inspect, List, LockView, Page, Watch
from holdfast.stores.base import WAITERS_SHOWN
from holdfast.stores.memory.lock import Lock, Post
from holdfast.stores.memory.settlement import Settlement

AT_ONCE = 1000  # events that one request looks at


class Views(Settlement):
    """See the module."""

    def _inspect(self, request: Inspect, now: int, post: Post) -> LockView | None:
        shard = self._world.shard(request.key)
        with shard.mutex:
            lock = shard.locks.get(request.key)
            if lock is None:
                return None
            return replace(
                lock.view(now),
                waiters=tuple(lock.waiters(now)[:WAITERS_SHOWN]),
                holders=tuple(lock.holders(now)[:WAITERS_SHOWN]),
            )

    def _history(self, request: History, now: int, post: Post) -> tuple[Event, ...]:
        shard = self._world.shard(request.key)
        with shard.mutex:
            events = shard.history.get(request.key, [])
            return tuple(events[max(len(events) - request.limit, 0) :])

    def _list(self, request: List, now: int, post: Post) -> Page:
        type_prefix = keys.type_prefix(request.type) if request.type is not None else ""
        found: list[LockView] = []
        for shard in self._world.shards:
            with shard.mutex:
                found += [
                    lock.view(now)
                    for key, lock in shard.locks.items()
                    if key > request.after
                    and key.startswith(request.prefix)
                    and key.startswith(type_prefix)
                    and (request.owner is None or _is_of(request.owner, lock, now))
                    and (request.state is None or lock.state(now) == request.state)
                ]
        found.sort(key=lambda view: view.key)
        page = found[: request.limit]
        return Page(tuple(page), page[-1].key if len(found) > len(page) and page else None)

    def _inspect_work(self, request: c.InspectWork, now: int, post: Post) -> c.WorkView | None:
        with self._world.cluster_mutex:
            work = self._world.works.get(request.key)
            return None if work is None else work.view()

    def _list_work(self, request: c.ListWork, now: int, post: Post) -> c.WorkPage:
        with self._world.cluster_mutex:
            found = [
                work.view()
                for key, work in sorted(self._world.works.items())
                if key > request.after
                and key.startswith(request.prefix)
                and request.state in (None, work.state)
                and request.instance in (None, work.instance)
            ]
        page = tuple(found[: request.limit])
        return c.WorkPage(page, page[-1].key if len(found) > len(page) and page else None)

    def _count_work(self, request: c.CountWork, now: int, post: Post) -> tuple[c.WorkCount, ...]:
        with self._world.cluster_mutex:
            open_work = [work for work in self._world.works.values() if work.state != "completed"]
        counts = []
        for type in sorted({c.work_type(work.key) for work in open_work}):
            of_type = [work for work in open_work if c.work_type(work.key) == type]
            states = Counter(work.state for work in of_type)
            oldest = min((work.due for work in of_type if work.state == "offered"), default=now)
            waiting = max(now - oldest, 0) / 1e6
            counts.append(c.WorkCount(type, states["offered"], states["assigned"], states["failed"], waiting))
        return tuple(counts)

    def _watch(self, request: Watch, now: int, post: Post) -> Feed:
        world = self._world
        tells = request.address.partition("/")[0] in world.listeners
        if tells:
            world.watchers.add(request.address)  # first: what is written while we look is told
        with world.feed_mutex:
            self._place_events()
            if request.after is None:
                return Feed((), world.places, tells)
            after = request.after
            start = bisect_right(world.feed, after, key=lambda event: event.id)
            found: list[Event] = []
            for event in islice(world.feed, start, start + AT_ONCE):
                if len(found) == request.limit:
                    break
                after = event.id
                if event.key == request.key if request.exact else event.key.startswith(request.key):
                    found.append(event)
            return Feed(tuple(found), after, tells)

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


def _is_of(owner: str, lock: Lock, now: int) -> bool:
    """Tell whether *owner* has a lease here, or had the one that keeps it shut."""
    if lock.holds:
        return any(hold.owner == owner for hold in lock.holds.values())
    holder = lock.holder(now)
    return holder is not None and holder.owner == owner
