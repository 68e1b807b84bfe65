"""What requests about work share: to look at it, to give it, to let go of it. See Cluster in the protocol."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from holdfast.core import cluster as c
from holdfast.core.cluster import work_type
from holdfast.core.events import EventKind
from holdfast.core.family import PLAIN
from holdfast.core.requests import Busy, Client, NotHeld, Signal
from holdfast.stores.base import micros
from holdfast.stores.memory.leaving import Leaving
from holdfast.stores.memory.state import Ended, Hold, Instance, Lock, Post, Shard, Work


class Working(Leaving):
    """See the module. The mutex of the cluster is held, and that of a shard while it is about a lock."""

    def _works_of(self, id: str) -> list[Work]:
        return [w for w in self._world.works.values() if w.state == "assigned" and w.instance == id]

    def _due(self, state: str, type: str, now: int) -> list[Work]:
        found = [
            work
            for work in self._world.works.values()
            if work.state == state and work.due <= now and work_type(work.key) == type
        ]
        return sorted(found, key=lambda work: (work.due, work.key))

    def _seen(self, instance: Instance | None, now: int) -> c.Beat:
        living = sum(each.seen_at(now) == "alive" for each in self._world.instances.values())
        if instance is None:
            return c.Beat("dead", 0.0, living, now / 1e6)
        state = instance.seen_at(now)
        expires_in = (instance.end - now) / 1e6 if state in ("alive", "draining") else 0.0
        return c.Beat(state, expires_in, living, now / 1e6)

    def _look_at(self, work: Work, now: int, post: Post) -> None:
        """See whether work that is assigned still has its lease; if not, it is abandoned."""
        shard = self._world.shard(work.key)
        with shard.mutex:
            lock = shard.locks.get(work.key)
            if lock is not None:
                self._settle(shard, lock, now, post)
                if hold := lock.holds.get(work.attempt):
                    work.due = hold.end
                    return
            if lock is None:
                lock = shard.new_lock(work.key, self._world.floor)
                lock.freed_at = now
            self._record(shard, lock, "abandoned", now, owner=work.instance, token=work.token)
        if work.max_tries and work.tries >= work.max_tries:
            work.state, work.due = "failed", now
            work.text = c.abandoned_for_good(work.tries)
        else:
            self._offer_again(work, work.due)

    def _offer_again(self, work: Work, due: int) -> None:
        """Offer work that somebody was at before: it goes to the head of the line."""
        line = [
            each.due
            for each in self._world.works.values()
            if each.state == "offered" and work_type(each.key) == work_type(work.key)
        ]
        first = min(line, default=due)
        work.state, work.due = "offered", due if first >= due else first - 1

    def _give(
        self,
        work: Work,
        attempt: str,
        id: str,
        owner: str,
        client: Client,
        ttl: float,
        now: int,
        post: Post,
    ) -> Hold | Busy:
        """Grant the lock of some work and assign it, if nobody has the lock or waits for it."""
        shard = self._world.shard(work.key)
        with shard.mutex:
            lock = shard.locks.get(work.key)
            if lock is not None:
                self._settle(shard, lock, now, post)
                if lock.holds or lock.tickets or lock.shut_until > now:
                    return busy(lock, now)
            else:
                lock = shard.new_lock(work.key, self._world.floor)
            lock.forget_failures()
            lock.give(attempt, owner, client, PLAIN, now, now + micros(ttl), claimed=True)
            hold = lock.holds[attempt]
            self._record(shard, lock, "assigned", now, owner=owner)
        work.state = "assigned"
        work.instance, work.attempt, work.token = id, attempt, hold.token
        work.tries += 1
        work.assigned_at, work.due = now, hold.end
        return hold

    def _let_go(
        self,
        key: str,
        attempt: str,
        token: int,
        kind: EventKind,
        now: int,
        post: Post,
        *,
        reason: str | None = None,
        retire: bool = False,
    ) -> str | NotHeld:
        """Release the lock of some work; return who is next, empty for nobody."""
        shard = self._world.shard(key)
        with shard.mutex:
            lock = shard.locks.get(key)
            if lock is not None:
                self._settle(shard, lock, now, post)
            hold = lock.holds.get(attempt) if lock is not None else None
            if lock is None or hold is None or hold.token != token:
                return self._why(shard, lock, key, attempt, token, now)
            return self._drop_hold(shard, lock, hold, attempt, kind, now, post, reason, retire)

    def _drop_hold(
        self,
        shard: Shard,
        lock: Lock,
        hold: Hold,
        attempt: str,
        kind: EventKind,
        now: int,
        post: Post,
        reason: str | None,
        retire: bool,
    ) -> str:
        if retire or len(lock.holds) > 1:
            shard.ended[lock.key, attempt] = Ended("released", now)
        if len(lock.holds) == 1:
            lock.last = attempt
        watched = lock.head_watches()
        if len(lock.lease(hold.token)) == 1:
            lock.shut(hold, now)
        self._drop(lock, attempt, now)
        self._record(shard, lock, kind, now, owner=hold.owner, token=hold.token, reason=reason)
        return (self._serve_sooner(shard, lock, watched, now, post) if lock.tickets else None) or ""

    def _return(self, work: Work, now: int, post: Post) -> None:
        """Take work back from an instance that leaves, without calling for it yet."""
        returned = self._let_go(work.key, work.attempt, work.token, "returned", now, post)
        if isinstance(returned, NotHeld):
            work.due = now
            self._look_at(work, now, post)
        else:
            work.tries -= 1
            self._offer_again(work, now)

    def _call_for(self, works: Iterable[Work], now: int, post: Post) -> None:
        """Signal instances for what of this can be claimed, of each type one more than there is of it."""
        due = Counter(work_type(work.key) for work in works if work.state == "offered" and work.due <= now)
        for type, count in due.items():
            self._call(type, count + 1, now, post)

    def _call(self, type: str, count: int, now: int, post: Post) -> None:
        """Signal instances that wait for work of a type: those whose last claim is longest ago."""
        waiting = [
            each
            for each in self._world.instances.values()
            if type in each.wants and each.seen_at(now) == "alive"
        ]
        waiting.sort(key=lambda each: (each.asked_at, each.request.id))
        for each in waiting[:count]:
            post.append((each.client.instance, Signal("work", type, each.request.id)))


def assignment(work: Work, hold: Hold, now: int) -> c.Assigned:
    """Return what whoever has the work is told."""
    return c.Assigned(
        work.key,
        work.attempt,
        work.token,
        work.data,
        work.tries,
        (hold.end - now) / 1e6,
        now / 1e6,
    )


def busy(lock: Lock, now: int) -> Busy:
    """Return what whoever does not get the work is told."""
    holder = lock.holder(now)
    assert holder is not None, "what is not held and not shut goes to whoever waits"
    return Busy(holder, (lock.end - now) / 1e6)
