"""Settling and forgetting what is over."""

from __future__ import annotations

from holdfast.core.requests import Sweep, Swept
from holdfast.stores.base import micros
from holdfast.stores.memory.access import has_ended
from holdfast.stores.memory.recording import store_time
from holdfast.stores.memory.settling import Settling
from holdfast.stores.memory.state import Lock, Post, Shard


class Sweeping(Settling):
    """See the module."""

    def _sweep(self, request: Sweep, post: Post) -> Swept:
        now = store_time(request.now)
        limit = request.limit
        idle_since = now - micros(request.idle)
        expired = tickets = locks = ended = 0
        for shard in self._world.shards:
            with shard.mutex:
                for lock in shard.locks.values():
                    if expired < limit and lock.state(now) == "expired":
                        self._settle(shard, lock, now, post)
                        expired += 1
                    elif not lock.holds and 0 < lock.shut_until <= now:
                        self._settle(shard, lock, now, post)  # it opens, and whoever waits comes in
                for name in [name for name, each in shard.ended.items() if each.until <= now]:
                    if ended < limit:
                        del shard.ended[name]
                        ended += 1
        self._forget_access(now, limit)
        gone = self._forget_cluster(now, micros(request.keep_history), micros(request.idle), limit)
        history = self._forget_events(now - micros(request.keep_history), limit)
        walk = sorted(k for shard in self._world.shards for k in list(shard.locks) if k > request.after)
        after: str | None = request.after
        for key in walk[:limit]:
            shard = self._world.shard(key)
            with shard.mutex:
                visited = shard.locks.get(key)
                if visited is not None and visited.tickets:
                    tickets += self._drop_dead_tickets(shard, visited, limit - tickets, now, post)
                    if tickets == limit:
                        break  # there may be more of them: come back to this key
                elif visited is not None and _is_idle(visited, idle_since, now):
                    self._world.floor = max(self._world.floor, visited.token)
                    del shard.locks[key]
                    locks += 1
            after = key
        else:
            # Even if all keys were seen, there may be more of what is over.
            after = after if len(walk) > limit or limit in (expired, ended, history, *gone) else None
        return Swept(expired, tickets, locks, ended, history, after)

    def _drop_dead_tickets(self, shard: Shard, lock: Lock, limit: int, now: int, post: Post) -> int:
        dead = [attempt for attempt, ticket in lock.tickets.items() if ticket.end <= now][:limit]
        for attempt in dead:
            self._forget_ticket(shard, lock, attempt, now, post)
        return len(dead)

    def _forget_access(self, now: int, limit: int) -> None:
        """Forget access tokens that have ended."""
        access = self._world.access
        with self._world.access_mutex:
            for number in [number for number, token in access.items() if has_ended(token, now)][:limit]:
                del access[number]

    def _forget_cluster(self, now: int, keep: int, idle: int, limit: int) -> tuple[int, int]:
        """Forget work that has ended, and instances that are gone; return how many of each."""
        works, instances = self._world.works, self._world.instances
        with self._world.cluster_mutex:
            ended = [
                w.key for w in works.values() if w.state in ("completed", "failed") and w.due <= now - keep
            ][:limit]
            for key in ended:
                del works[key]
            gone = [
                id
                for id, each in instances.items()
                if each.seen_at(now) in ("left", "dead") and each.end <= now - idle
            ][:limit]
            for id in gone:
                del instances[id]
            return len(ended), len(gone)

    def _forget_events(self, before: int, limit: int) -> int:
        """Forget events from *before* or earlier, also in the feed; return how many."""
        forgotten = 0
        places = set()
        with self._world.feed_mutex:
            for shard in self._world.shards:
                with shard.mutex:
                    for events in shard.history.values():
                        # By time, not by number: time may have gone back between two events.
                        for event in [event for event in events if micros(event.at) <= before]:
                            if forgotten < limit:
                                events.remove(event)
                                places.add(event.id)
                                forgotten += 1
                    for key in [key for key, events in shard.history.items() if not events]:
                        del shard.history[key]
            if places:
                self._world.feed = [event for event in self._world.feed if event.id not in places]
        return forgotten


def _is_idle(lock: Lock, since: int, now: int) -> bool:
    return not lock.holds and lock.shut_until <= now and lock.used_at() <= since
