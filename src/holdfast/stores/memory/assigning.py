"""Taking work by its key, finishing it, and forgetting it. See Cluster in the protocol."""

from __future__ import annotations

from holdfast.core import cluster as c
from holdfast.core.requests import Busy, NotHeld
from holdfast.stores.base import micros
from holdfast.stores.memory.recording import store_time
from holdfast.stores.memory.state import Post, Work
from holdfast.stores.memory.work import Working, assignment, busy


class Assigning(Working):
    """See the module. Each request has the cluster to itself."""

    def _assign(
        self, request: c.Assign, post: Post
    ) -> c.Assigned | Busy | NotHeld | c.Full | c.NotDue | c.Ended | c.Beat:
        now = store_time(request.now)
        key, attempt = request.key, request.attempt
        with self._world.cluster_mutex:
            instance = self._world.instances.get(request.id)
            if request.id and (instance is None or instance.seen_at(now) != "alive"):
                return self._seen(instance, now)
            work = self._world.works.get(key)
            if before := self._asked_before(work, request, now, post):
                return before
            if instance is not None and len(self._works_of(request.id)) >= instance.request.capacity:
                return c.Full(instance.request.capacity)
            if work is not None and work.state == "assigned":
                self._look_at(work, now, post)
            if work is not None and work.state in ("completed", "failed"):
                if not request.again:
                    return c.Ended(work.view())
                begun = Work(key, work.data, work.max_tries, now, now)
            elif work is not None and work.state == "offered" and request.due and work.due > now:
                return c.NotDue((work.due - now) / 1e6)
            else:
                begun = work or Work(key, "null", 0, now, now)
            given = self._give(
                begun, attempt, request.id, request.owner, request.client, request.ttl, now, post
            )
            if isinstance(given, Busy):
                return given
            if request.data is not None:
                begun.data = request.data
            begun.claim = 0
            self._world.works[key] = begun
            return assignment(begun, given, now)

    def _asked_before(
        self, work: Work | None, request: c.Assign, now: int, post: Post
    ) -> c.Assigned | NotHeld | None:
        """Answer an attempt that has the work already, or has ended."""
        shard = self._world.shard(request.key)
        with shard.mutex:
            lock = shard.locks.get(request.key)
            mine = work is not None and work.state == "assigned" and work.attempt == request.attempt
            if work is not None and mine and lock is not None and lock.has_hold(request.attempt, now):
                hold = lock.holds[request.attempt]
                hold.end = max(hold.end, now + micros(request.ttl))
                hold.client = request.client
                return assignment(work, hold, now)
            if lock is not None:
                self._settle(shard, lock, now, post)
            if ended := shard.find_ended(request.key, request.attempt, now):
                return ended.answer()
            return NotHeld("already") if lock is not None and lock.last == request.attempt else None

    def _finish(self, request: c.Finish, post: Post) -> c.Finished | NotHeld:
        now = store_time(request.now)
        with self._world.cluster_mutex:
            work = self._world.works.get(request.key)
            named = (
                work is not None
                and work.state == "assigned"
                and (work.attempt, work.token) == (request.attempt, request.token)
            )
            successor = self._let_go(
                request.key,
                request.attempt,
                request.token,
                request.ending,
                now,
                post,
                reason=request.text if request.ending == "failed" else None,
                retire=request.retire,
            )
            if isinstance(successor, NotHeld):
                if named and work is not None:
                    work.due = now
                    self._look_at(work, now, post)
                    self._call_for([work], now, post)
                return successor
            if work is None or not named:
                return c.Finished("offered" if work is None else work.state, successor or None)
            if request.ending == "returned" and request.at is None:
                self._offer_again(work, now)
            _end(work, request, now)
            self._call_for([work], now, post)
            return c.Finished(work.state, successor or None)

    def _forget(self, request: c.Forget, post: Post) -> c.Ended | Busy | None:
        now = store_time(request.now)
        with self._world.cluster_mutex:
            work = self._world.works.get(request.key)
            if work is None:
                return None
            if work.state == "assigned":
                self._look_at(work, now, post)
                if work.state == "assigned":
                    shard = self._world.shard(work.key)
                    with shard.mutex:
                        return busy(shard.locks[work.key], now)
            shard = self._world.shard(work.key)
            with shard.mutex:
                lock = shard.locks.get(work.key) or shard.unseen_lock(work.key, self._world.floor)
                self._record(shard, lock, "forgotten", now, owner=None, token=work.token, by=request.by)
            del self._world.works[request.key]
            return c.Ended(work.view())


def _end(work: Work, request: c.Finish, now: int) -> None:
    """Bring work to the state in which its assignment has ended."""
    at = None if request.at is None else micros(request.at)
    if request.data is not None:
        work.data = request.data
    if request.ending == "returned":
        work.tries -= 1
        if at is not None:
            work.state, work.due = "offered", at
        return
    work.text = request.text
    if request.ending == "completed":
        work.state, work.due = "completed", now
        if at is not None:
            work.state, work.due, work.tries = "offered", at, 0
    elif request.retry is not None and not (work.max_tries and work.tries >= work.max_tries):
        work.state, work.due = "offered", now + micros(request.retry) if at is None else at
    else:
        work.state, work.due = "failed", now
