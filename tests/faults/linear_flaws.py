"""Stores that are wrong in one way each, as stores have been: to be found out by their answers alone."""

from __future__ import annotations

from typing import Any

from holdfast.core.data import replace
from holdfast.core.requests import Acquire, LeaseAnswer, Release, RenewLease
from holdfast.stores.memory.lock import Lock, Post
from holdfast.stores.memory.state import Shard
from holdfast.stores.memory.store import MemoryStore

EARLY = 300_000  # microseconds


class TakesOverEarly(MemoryStore):
    """Its clock goes wrong when somebody else asks: a client's, say."""

    def _acquire(self, request: Acquire, now: int, post: Post) -> Any:
        lock = self._world.shard(request.key).locks.get(request.key)
        if lock is not None and lock.owner != request.owner:
            now += EARLY
        return super()._acquire(request, now, post)


class RenewsWhatIsOver(MemoryStore):
    """Nobody has taken over yet, so why not."""

    def _renew_alive(self, lease: RenewLease, now: int) -> LeaseAnswer | None:
        return super()._renew_alive(lease, now - EARLY)


class RenewsByKey(MemoryStore):
    """Whoever renews, the lease that there is is renewed."""

    def _renew_alive(self, lease: RenewLease, now: int) -> LeaseAnswer | None:
        lock = self._world.shard(lease.key).locks.get(lease.key)
        for attempt, hold in lock.holds.items() if lock is not None else ():
            lease = replace(lease, attempt=attempt, token=hold.token)
        return super()._renew_alive(lease, now)


class ReleasesByKey(MemoryStore):
    """Whoever releases, the lease that there is is released."""

    def _release(self, request: Release, now: int, post: Post) -> Any:
        lock = self._world.shard(request.key).locks.get(request.key)
        for attempt, hold in lock.holds.items() if lock is not None else ():
            request = replace(request, attempt=attempt, token=hold.token)
        return super()._release(request, now, post)


class ForgetsWhoHasEnded(MemoryStore):
    """A late copy of a request takes the lock for nobody."""

    def _settle(self, shard: Shard, lock: Lock, now: int, post: Post) -> None:
        super()._settle(shard, lock, now, post)
        shard.ended.clear()
        lock.last = None


class KeepsItsToken(MemoryStore):
    """A takeover after an expiry is no new lease."""

    def _settle(self, shard: Shard, lock: Lock, now: int, post: Post) -> None:
        token = lock.token
        expired = any(hold.end <= now for hold in lock.holds.values())
        super()._settle(shard, lock, now, post)
        if expired and lock.token != token:
            lock.token = token
            for hold in lock.holds.values():
                hold.token = token


class LosesGrants(MemoryStore):
    """It answers, and then does not remember: as after a crash without a sync."""

    def _acquire(self, request: Acquire, now: int, post: Post) -> Any:
        answer = super()._acquire(request, now, post)
        lock = self._world.shard(request.key).locks[request.key]
        if lock.token % 7 == 0:
            lock.holds.pop(request.attempt, None)
        return answer


class EntersAsAnybody(MemoryStore):
    """It does not look who the owner is when a lock is entered again."""

    def _acquire(self, request: Acquire, now: int, post: Post) -> Any:
        lock = self._world.shard(request.key).locks.get(request.key)
        if lock is not None and lock.holds and not request.wait:
            request = replace(request, owner=lock.owner or request.owner)
        return super()._acquire(request, now, post)


FLAWED = (
    TakesOverEarly,
    RenewsWhatIsOver,
    RenewsByKey,
    ReleasesByKey,
    ForgetsWhoHasEnded,
    KeepsItsToken,
    LosesGrants,
    EntersAsAnybody,
)
