"""Who has joined, who is still there, and who has died. See Cluster in the protocol."""

from __future__ import annotations

from holdfast.core import cluster as c
from holdfast.core.events import EventKind
from holdfast.stores.base import micros
from holdfast.stores.memory.lock import Post
from holdfast.stores.memory.state import Instance
from holdfast.stores.memory.work import Works

MOST_DECLARED = 100


class Instances(Works):
    """See the module. Each request has the cluster to itself."""

    def _join(self, request: c.Join, now: int, post: Post) -> c.Beat:
        with self._world.cluster_mutex:
            if request.id in self._world.instances:  # its answer was lost
                return self._beat(c.Heartbeat(request.id, request.client, request.ttl), now)
            instance = self._world.instances[request.id] = Instance(request, now)
            self._note(instance, "joined", now)
            return self._seen(instance, now)

    def _heartbeat(self, request: c.Heartbeat, now: int, post: Post) -> c.Beat:
        with self._world.cluster_mutex:
            return self._beat(request, now)

    def _leave(self, request: c.Leave, now: int, post: Post) -> c.Beat:
        with self._world.cluster_mutex:
            instance = self._world.instances.get(request.id)
            if instance is not None:
                returned = sorted(self._works_of(request.id), key=lambda work: work.key)
                for work in returned:
                    self._return(work, now, post)
                if instance.seen_at(now) in ("alive", "draining"):
                    instance.state = "left"
                    instance.end = now
                    self._note(instance, "left", now)
                self._call_for(returned, now, post)  # and not itself
            return self._seen(instance, now)

    def _list_instances(self, request: c.ListInstances, now: int, post: Post) -> c.InstancePage:
        with self._world.cluster_mutex:
            found = [
                self._view(instance, now)
                for id, instance in sorted(self._world.instances.items())
                if id > request.after
            ]
        page = tuple(found[: request.limit])
        return c.InstancePage(page, page[-1].id if len(found) > len(page) and page else None)

    def _beat(self, request: c.Heartbeat, now: int) -> c.Beat:
        self._declare_dead(request.id, now)
        instance = self._world.instances.get(request.id)
        if instance is not None and instance.seen_at(now) in ("alive", "draining"):
            instance.client = request.client
            instance.end = max(instance.end, now + micros(request.ttl))
            instance.beat_at = now
            if request.drain and instance.state == "alive":
                instance.state = "draining"
                self._note(instance, "draining", now)
        return self._seen(instance, now)

    def _declare_dead(self, asking: str, now: int) -> None:
        """Note the deaths that nobody has noted yet: of who asks, and of some others."""
        dead = [each for each in self._world.instances.values() if each.state != each.seen_at(now)]
        others = [each for each in dead if each.request.id != asking]
        others.sort(key=lambda each: (each.end, each.request.id))
        for each in [each for each in dead if each.request.id == asking] + others[:MOST_DECLARED]:
            each.state = "dead"
            self._note(each, "died", now)

    def _note(self, instance: Instance, kind: EventKind, now: int) -> None:
        key = c.instance_key(instance.request.id)
        shard = self._world.shard(key)
        with shard.mutex:
            lock = shard.locks.get(key) or shard.unseen_lock(key, 0)  # it is a key like any other
            self._record(shard, lock, kind, now, owner=instance.request.name, token=0)

    def _view(self, instance: Instance, now: int) -> c.InstanceView:
        request = instance.request
        state = instance.seen_at(now)
        return c.InstanceView(
            id=request.id,
            name=request.name,
            host=instance.client.host,
            pid=instance.client.pid,
            version=request.version,
            state=state,
            capacity=request.capacity,
            assigned=len(self._works_of(request.id)),
            joined_at=instance.joined_at / 1e6,
            beat_at=instance.beat_at / 1e6,
            expires_in=(instance.end - now) / 1e6 if state in ("alive", "draining") else 0.0,
        )
