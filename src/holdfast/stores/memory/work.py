"""Work: offered, claimed, assigned, finished and forgotten. See Cluster in the protocol."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from holdfast.core import cluster as c
from holdfast.core.cluster import MOST_LOOKED_AT, PUT_OFF, held_back, may_take, work_type
from holdfast.core.family import PLAIN
from holdfast.core.requests import Busy, NotHeld, Signal
from holdfast.stores.base import micros
from holdfast.stores.memory.lock import Hold, Lock, Post
from holdfast.stores.memory.locks import Locks
from holdfast.stores.memory.state import EndedAttempt, Instance, Work


class Works(Locks):
    """See the module. A request has the cluster's mutex, and a shard's while it is about a lock."""

    def _offer(self, request: c.Offer, now: int, post: Post) -> c.Offered:
        works = self._world.works
        states, new = [], []
        offered = []
        with self._world.cluster_mutex:
            for each in request.works:
                known = works.get(each.key)
                is_new = known is None or (request.again and known.state in ("completed", "failed"))
                if is_new:
                    at = now + micros(each.delay) if each.at is None else micros(each.at)
                    works[each.key] = Work(each.key, each.data, each.max_tries, now, at)
                    offered.append(works[each.key])
                states.append(works[each.key].state)
                new.append(is_new)
            self._call_for(offered, now, post)
        return c.Offered(tuple(states), tuple(new))

    def _claim(self, request: c.Claim, now: int, post: Post) -> c.Claimed | c.Beat:
        with self._world.cluster_mutex:
            instance = self._world.instances.get(request.id)
            if instance is None or instance.seen_at(now) != "alive":
                return self._seen(instance, now)
            if request.number <= instance.claims:
                return c.Claimed(self._claimed_before(request, now), 0.0)
            instance.claims, instance.asked_at = request.number, now
            instance.client = request.client
            for type in request.types:
                for work in self._due("assigned", type, now)[:MOST_LOOKED_AT]:
                    self._look_at(work, now, post)
            return self._take(instance, request, now, post)

    def _claimed_before(self, request: c.Claim, now: int) -> tuple[c.Assigned, ...]:
        """Return what the instance has of an earlier claim, for an answer that was lost."""
        found = []
        for work in self._works_of(request.id):
            shard = self._world.shard(work.key)
            with shard.mutex:
                lock = shard.locks.get(work.key)
                if work.claim == request.number and lock is not None and lock.has_hold(work.attempt, now):
                    found.append(assignment(work, lock.holds[work.attempt], now))
        return tuple(sorted(found, key=lambda each: int(each.attempt.rpartition(".")[2])))

    def _take(self, instance: Instance, request: c.Claim, now: int, post: Post) -> c.Claimed:
        capacity = instance.request.capacity
        assigned = len(self._works_of(request.id))
        wanted = min(request.limit, capacity - assigned)
        spread = micros(request.spread)
        taken: list[c.Assigned] = []
        place = 0
        for type in request.types:
            for work in self._due("offered", type, now):
                fits = may_take(place, now - work.due, assigned=assigned, capacity=capacity, spread=spread)
                if place >= wanted or not fits:
                    break
                attempt = f"{request.attempt}.{place}"
                given = self._give(work, request, attempt, request.id, now, post)
                if isinstance(given, Hold):
                    work.claim = request.number
                    taken.append(assignment(work, given, now))
                else:
                    work.due = max(now + micros(given.expires_in), now + micros(PUT_OFF))
                place += 1
        if len(taken) >= request.limit or len(taken) >= capacity - assigned:
            instance.wants = ()
            return c.Claimed(tuple(taken), 0.0)
        instance.wants = () if taken else request.types
        later = held_back(len(taken), assigned=assigned, capacity=capacity, spread=spread)
        instants = [
            work.due + (later if work.state == "offered" else 0)
            for work in self._world.works.values()
            if work.state in ("offered", "assigned") and work_type(work.key) in request.types
        ]
        again_in = max(min(instants) - now, 0) / 1e6 if instants else None
        return c.Claimed(tuple(taken), again_in)

    def _assign(
        self, request: c.Assign, now: int, post: Post
    ) -> c.Assigned | Busy | NotHeld | c.Full | c.NotDue | c.Ended | c.Beat:
        key = request.key
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
            given = self._give(begun, request, request.attempt, request.owner, now, post)
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

    def _finish(self, request: c.Finish, now: int, post: Post) -> c.Finished | NotHeld:
        with self._world.cluster_mutex:
            work = self._world.works.get(request.key)
            named = (
                work is not None
                and work.state == "assigned"
                and (work.attempt, work.token) == (request.attempt, request.token)
            )
            successor = self._let_go(request, now, post)
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
            work.end(request, now)
            self._call_for([work], now, post)
            return c.Finished(work.state, successor or None)

    def _forget(self, request: c.Forget, now: int, post: Post) -> c.Ended | Busy | None:
        with self._world.cluster_mutex:
            work = self._world.works.get(request.key)
            if work is None:
                return None
            if work.state == "assigned":
                self._look_at(work, now, post)
            shard = self._world.shard(work.key)
            with shard.mutex:
                if work.state == "assigned":
                    return busy(shard.locks[work.key], now)
                lock = shard.locks.get(work.key) or shard.unseen_lock(work.key, self._world.floor)
                self._record(shard, lock, "forgotten", now, owner=None, token=work.token, by=request.by)
            del self._world.works[request.key]
            return c.Ended(work.view())

    def _works_of(self, id: str) -> list[Work]:
        return [w for w in self._world.works.values() if w.state == "assigned" and w.instance == id]

    def _due(self, state: str, type: str, now: int) -> list[Work]:
        found = [work for work in self._of_type(type, state) if work.due <= now]
        return sorted(found, key=lambda work: (work.due, work.key))

    def _of_type(self, type: str, state: str) -> list[Work]:
        return [w for w in self._world.works.values() if w.state == state and work_type(w.key) == type]

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
            lock = self._settled(shard, work.key, now, post)
            if lock is not None and (hold := lock.holds.get(work.attempt)):
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
        line = self._of_type(work_type(work.key), "offered")
        first = min((each.due for each in line), default=due)
        work.state, work.due = "offered", due if first >= due else first - 1

    def _give(
        self, work: Work, request: c.Claim | c.Assign, attempt: str, owner: str, now: int, post: Post
    ) -> Hold | Busy:
        """Grant the lock of some work and assign it, if nobody has the lock or waits for it."""
        shard = self._world.shard(work.key)
        with shard.mutex:
            lock = self._settled(shard, work.key, now, post) or shard.new_lock(work.key, self._world.floor)
            if lock.holds or lock.tickets or lock.shut_until > now:
                return busy(lock, now)
            lock.forget_failures()
            lock.give(attempt, owner, request.client, PLAIN, now, now + micros(request.ttl), claimed=True)
            hold = lock.holds[attempt]
            self._record(shard, lock, "assigned", now, owner=owner)
        work.state = "assigned"
        work.instance, work.attempt, work.token = request.id, attempt, hold.token
        work.tries += 1
        work.assigned_at, work.due = now, hold.end
        return hold

    def _let_go(self, request: c.Finish, now: int, post: Post) -> str | NotHeld:
        """Release the lock of some work; return who is next, empty for nobody."""
        attempt = request.attempt
        shard = self._world.shard(request.key)
        with shard.mutex:
            lock = self._settled(shard, request.key, now, post)
            hold = lock.holds.get(attempt) if lock is not None else None
            if lock is None or hold is None or hold.token != request.token:
                return self._why(shard, lock, request.key, attempt, request.token, now)
            if request.retire or len(lock.holds) > 1:
                shard.ended[lock.key, attempt] = EndedAttempt("released", now)
            if len(lock.holds) == 1:
                lock.last = attempt
            watched = lock.head_watches()
            if len(lock.lease(hold.token)) == 1:
                lock.shut(hold, now)
            self._drop(lock, attempt, now)
            reason = request.text if request.ending == "failed" else None
            self._record(shard, lock, request.ending, now, owner=hold.owner, token=hold.token, reason=reason)
            return (self._serve_sooner(shard, lock, watched, now, post) if lock.tickets else None) or ""

    def _return(self, work: Work, now: int, post: Post) -> None:
        """Take work back from an instance that leaves, without calling for it yet."""
        returned = self._let_go(c.Finish(work.key, work.attempt, work.token, "returned"), now, post)
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
    left = (hold.end - now) / 1e6
    return c.Assigned(work.key, work.attempt, work.token, work.data, work.tries, left, now / 1e6)


def busy(lock: Lock, now: int) -> Busy:
    """Return what whoever does not get the work is told."""
    holder = lock.holder(now)
    assert holder is not None, "what is not held and not shut goes to whoever waits"
    return Busy(holder, (lock.end - now) / 1e6)
