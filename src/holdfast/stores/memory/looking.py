"""Looking at locks and at what happened to them, without changing anything."""

from __future__ import annotations

from holdfast.core import keys
from holdfast.core.data import replace
from holdfast.core.events import Event
from holdfast.core.requests import History, Inspect, List, LockView, Page
from holdfast.stores.base import WAITERS_SHOWN
from holdfast.stores.memory.recording import Recording, store_time
from holdfast.stores.memory.state import Lock, Post


class Looking(Recording):
    """See the module."""

    def _inspect(self, request: Inspect, post: Post) -> LockView | None:
        now = store_time(request.now)
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

    def _history(self, request: History, post: Post) -> tuple[Event, ...]:
        shard = self._world.shard(request.key)
        with shard.mutex:
            events = shard.history.get(request.key, [])
            return tuple(events[max(len(events) - request.limit, 0) :])

    def _list(self, request: List, post: Post) -> Page:
        now = store_time(request.now)
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


def _is_of(owner: str, lock: Lock, now: int) -> bool:
    """Tell whether *owner* has a lease here, or had the one that keeps it shut."""
    if lock.holds:
        return any(hold.owner == owner for hold in lock.holds.values())
    holder = lock.holder(now)
    return holder is not None and holder.owner == owner
