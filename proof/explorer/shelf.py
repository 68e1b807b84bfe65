"""The reference store, with a content that can be put aside and taken out again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from holdfast.core.requests import Request
from holdfast.stores.memory.lock import Hold, Lock, Ticket
from holdfast.stores.memory.state import EndedAttempt, Shard, World
from proof.simulation.observed import NOTHING, ObservedMemory, Post, State
from proof.simulation.step import Books


class Entry(NamedTuple):
    """Everything in a store about one key, and in the books of who checks it.

    Nobody changes it: whoever goes on from it gets a copy.
    """

    lock: Lock | None
    ended: dict[str, EndedAttempt]  # by attempt
    state: State
    books: Books


UNUSED = Entry(None, {}, NOTHING, Books())


class _OneShard(World):
    """All keys in one shard. Which keys share a mutex makes no difference to one thread."""

    def __init__(self) -> None:
        super().__init__()
        self.shards = (Shard(),)

    def shard(self, key: str) -> Shard:
        return self.shards[0]


class Shelf(ObservedMemory):
    """The real code of `MemoryStore`, asked about whatever content is wanted."""

    def __init__(self) -> None:
        super().__init__("none")
        listeners, self._world = self._world.listeners, _OneShard()
        self._world.listeners = listeners

    def execute_on(self, entries: Mapping[str, Entry], request: Request[Any]) -> tuple[Any, Post]:
        """Return the answer to a request, and whoever is signalled. `entry` shows what it did."""
        shard = self._world.shards[0]
        locks = {key: entry.lock for key, entry in entries.items()}
        shard.held_by = {}
        shard.locks = {key: _copied(lock, shard) for key, lock in locks.items() if lock is not None}
        shard.ended = {
            (key, name): end for key, entry in entries.items() for name, end in entry.ended.items()
        }
        shard.waited_for = {key for key, lock in shard.locks.items() if lock.tickets}
        return self.execute(request), self.caught()

    def entry(self, key: str, books: Books) -> Entry:
        """Return what there is about a key now."""
        shard = self._world.shards[0]
        ended = {attempt: end for (of, attempt), end in shard.ended.items() if of == key}
        return Entry(shard.locks.get(key), ended, self.state(key), books)


def _copied(lock: Lock, shard: Shard) -> Lock:
    # By hand: copy.deepcopy takes many times as long. What a lock on plain terms never has is left out.
    new = Lock(lock.key, lock.token, lock.events, shard.held_by)
    new.last, new.freed_at = lock.last, lock.freed_at
    for attempt, hold in lock.holds.items():
        new.add(
            attempt,
            Hold(hold.owner, hold.client, hold.terms, hold.token, hold.since, hold.end, hold.claimed),
        )
    for attempt, ticket in lock.tickets.items():
        copied = new.tickets[attempt] = object.__new__(Ticket)
        copied.owner, copied.client, copied.terms = ticket.owner, ticket.client, ticket.terms
        copied.claim, copied.end, copied.queued_at = ticket.claim, ticket.end, ticket.queued_at
    assert lock.permits == lock.shut_until == lock.failed == 0, "only plain terms are explored"
    return new
