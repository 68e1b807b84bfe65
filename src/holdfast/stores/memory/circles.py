"""Ending circles of owners who wait for each other. The shards are looked at one after the other."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.core.deadlocks import Deadlock, Held, KeyState, Waiting, find
from holdfast.core.family import LARGEST_ERROR
from holdfast.core.requests import Acquire, Deadlocked, Signal
from holdfast.stores.memory.settling import Settling
from holdfast.stores.memory.state import Ended, Lock, Post, World


class Circles(Settling):
    """See the module."""

    def _end_circles(self, request: Acquire, now: int, post: Post) -> Deadlocked | None:
        """End the circles that a ticket has closed; answer it if it is the one that has to go."""
        while found := find(request.owner, View(self._world, now)):
            self._end_circle(found, now, post)
            if found.victim == (request.key, request.attempt):
                return Deadlocked(found.cycle)
        return None

    def _end_circle(self, found: Deadlock, now: int, post: Post) -> None:
        key, attempt = found.victim
        shard = self._world.shard(key)
        with shard.mutex:
            lock = shard.locks.get(key)
            ticket = lock.tickets.get(attempt) if lock is not None else None
            if lock is None or ticket is None:
                return  # somebody else has seen the circle too
            ended = Ended("deadlocked", now, told=Deadlocked(found.cycle))
            shard.ended[key, attempt] = ended
            self._record(
                shard,
                lock,
                "deadlocked",
                now,
                owner=ticket.owner,
                reason="; ".join(map(str, found.cycle))[:LARGEST_ERROR],
                operation=ticket.terms.operation,
            )
            post.append((ticket.client.instance, Signal("granted", key, attempt)))
            self._forget_ticket(shard, lock, attempt, now, post)


class View:
    """Who holds and who waits at an instant, as `holdfast.core.deadlocks` looks at it."""

    def __init__(self, world: World, now: int) -> None:
        self._world = world
        self._now = now

    def is_waited_for(self, owner: str) -> bool:
        """Tell whether *owner* holds anything that somebody waits for."""
        for shard in self._world.shards:
            if shard.waited_for:
                with shard.mutex:
                    for lock in shard.queues():
                        if any(hold.owner == owner for hold in lock.holds.values()):
                            return True
        return False

    def keys_wanted_by(self, owners: Iterable[str]) -> Iterable[str]:
        """Return the keys that these owners have tickets for."""
        wanted_by = set(owners)
        keys = []
        for shard in self._world.shards:
            if shard.waited_for:
                with shard.mutex:
                    keys += [
                        lock.key
                        for lock in shard.queues()
                        if any(ticket.owner in wanted_by for ticket in lock.tickets.values())
                    ]
        return keys

    def states(self, keys: Iterable[str]) -> dict[str, KeyState]:
        """Return what there is at these keys."""
        found = {}
        for key in keys:
            shard = self._world.shard(key)
            with shard.mutex:
                lock = shard.locks.get(key)
                if lock is not None:
                    found[key] = self._state(lock)
        return found

    def _state(self, lock: Lock) -> KeyState:
        return KeyState(
            tuple(
                Held(hold.owner, attempt, hold.terms)
                for attempt, hold in sorted(lock.holds.items(), key=lambda item: (item[1].token, item[0]))
                if hold.end > self._now
            ),
            tuple(
                Waiting(t.owner, attempt, t.terms, t.queued_at, t.client.host, t.client.pid)
                for attempt, t in lock.tickets.items()
                if t.end > self._now
            ),
            lock.permits,
        )
