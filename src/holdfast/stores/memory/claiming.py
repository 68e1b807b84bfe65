"""Offering work, and claiming what is offered. See Cluster in the protocol."""

from __future__ import annotations

from holdfast.core import cluster as c
from holdfast.core.cluster import MOST_LOOKED_AT, PUT_OFF, held_back, may_take, work_type
from holdfast.stores.base import micros
from holdfast.stores.memory.recording import store_time
from holdfast.stores.memory.state import Hold, Instance, Post, Work
from holdfast.stores.memory.work import Working, assignment


class Claiming(Working):
    """See the module. Each request has the cluster to itself."""

    def _offer(self, request: c.Offer, post: Post) -> c.Offered:
        now = store_time(request.now)
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

    def _claim(self, request: c.Claim, post: Post) -> c.Claimed | c.Beat:
        now = store_time(request.now)
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
        return tuple(sorted(found, key=lambda each: _place(each.attempt)))

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
                given = self._give(
                    work, attempt, request.id, request.id, request.client, request.ttl, now, post
                )
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


def _place(attempt: str) -> int:
    return int(attempt.rpartition(".")[2])
