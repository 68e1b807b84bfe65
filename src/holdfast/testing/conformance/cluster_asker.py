"""Putting requests about instances and their work to a store in few words."""

from __future__ import annotations

from holdfast.core import cluster as c
from holdfast.core.requests import Busy, Client, NotHeld
from holdfast.stores.base import Store

Given = c.Assigned | Busy | NotHeld | c.Full | c.NotDue | c.Ended | c.Beat


class ClusterAsker:
    """The part of an `Asker` that is about clusters. Instances are e-1, e-2 …, unless a test cares."""

    store: Store
    client: Client

    def join(
        self,
        id: str = "e-1",
        *,
        now: float | None,
        name: str = "engine",
        capacity: int = 8,
        ttl: float = 90.0,
        version: str = "",
    ) -> c.Beat:
        """Become an instance."""
        return self.store.execute(c.Join(id, name, self.client, capacity, ttl, version, now=now))

    def beat(self, id: str = "e-1", *, now: float | None, ttl: float = 90.0, drain: bool = False) -> c.Beat:
        """Go on being one."""
        return self.store.execute(c.Heartbeat(id, self.client, ttl, drain, now=now))

    def leave(self, id: str = "e-1", *, now: float | None) -> c.Beat:
        """Stop being one."""
        return self.store.execute(c.Leave(id, now=now))

    def instances(self, *, now: float | None, after: str = "", limit: int = 100) -> c.InstancePage:
        """Ask for one page of instances."""
        return self.store.execute(c.ListInstances(after, limit, now=now))

    def instance(self, id: str = "e-1", *, now: float | None) -> c.InstanceView:
        """Look at an instance that there is."""
        (found,) = [each for each in self.instances(now=now).instances if each.id == id]
        return found

    def offer(
        self,
        *keys: str,
        now: float | None,
        data: str = "null",
        max_tries: int = 0,
        delay: float = 0.0,
        at: float | None = None,
        again: bool = False,
    ) -> c.Offered:
        """Offer work, all on the same terms."""
        works = tuple(c.OfferedWork(key, data, max_tries, delay, at) for key in keys)
        return self.store.execute(c.Offer(works, again, now=now))

    def try_claim(
        self,
        id: str = "e-1",
        number: int = 1,
        *,
        now: float | None,
        types: tuple[str, ...] = ("job",),
        limit: int = 100,
        ttl: float = 10.0,
        spread: float = 0.0,
        attempt: str | None = None,
    ) -> c.Claimed | c.Beat:
        """Ask for work."""
        attempt = f"{id}-{number}" if attempt is None else attempt
        return self.store.execute(
            c.Claim(id, number, attempt, types, limit, ttl, self.client, spread, now=now)
        )

    def claim(
        self,
        id: str = "e-1",
        number: int = 1,
        *,
        now: float | None,
        types: tuple[str, ...] = ("job",),
        limit: int = 100,
        ttl: float = 10.0,
        spread: float = 0.0,
    ) -> c.Claimed:
        """Ask for work, as an instance that may."""
        answer = self.try_claim(id, number, now=now, types=types, limit=limit, ttl=ttl, spread=spread)
        assert isinstance(answer, c.Claimed), answer
        return answer

    def claim_one(
        self, id: str = "e-1", number: int = 1, *, now: float | None, ttl: float = 10.0, type: str = "job"
    ) -> c.Assigned:
        """Ask for one piece of work, and get it."""
        (work,) = self.claim(id, number, now=now, types=(type,), limit=1, ttl=ttl).works
        return work

    def assign(
        self,
        key: str,
        attempt: str,
        *,
        now: float | None,
        id: str = "",
        owner: str | None = None,
        ttl: float = 10.0,
        data: str | None = None,
        due: bool = False,
        again: bool = False,
    ) -> Given:
        """Ask for one piece of work by its key."""
        owner = attempt if owner is None else owner
        return self.store.execute(
            c.Assign(key, attempt, owner, ttl, self.client, id, data, due, again, now=now)
        )

    def begin(
        self,
        key: str,
        attempt: str,
        *,
        now: float | None,
        id: str = "",
        ttl: float = 10.0,
        data: str | None = None,
        again: bool = False,
    ) -> c.Assigned:
        """Ask for one piece of work by its key, and get it."""
        answer = self.assign(key, attempt, now=now, id=id, ttl=ttl, data=data, again=again)
        assert isinstance(answer, c.Assigned), answer
        return answer

    def finish(
        self,
        work: c.Assigned,
        ending: c.Ending = "completed",
        *,
        now: float | None,
        text: str = "",
        retry: float | None = None,
        at: float | None = None,
        data: str | None = None,
        retire: bool = False,
    ) -> c.Finished | NotHeld:
        """End an assignment."""
        return self.store.execute(
            c.Finish(work.key, work.attempt, work.token, ending, text, retry, at, data, retire, now=now)
        )

    def forget(self, key: str, *, now: float | None, by: str = "olga") -> c.Ended | Busy | None:
        """Forget work."""
        return self.store.execute(c.Forget(key, by, now=now))

    def find_work(self, key: str, *, now: float | None) -> c.WorkView | None:
        """Look at work, if there is any."""
        return self.store.execute(c.InspectWork(key, now=now))

    def work(self, key: str, *, now: float | None) -> c.WorkView:
        """Look at work that there is."""
        view = self.find_work(key, now=now)
        assert view is not None
        return view

    def works(
        self,
        *,
        now: float | None,
        prefix: str = "",
        state: c.WorkState | None = None,
        instance: str | None = None,
        after: str = "",
        limit: int = 100,
    ) -> c.WorkPage:
        """Ask for one page of work."""
        return self.store.execute(c.ListWork(prefix, state, instance, after, limit, now=now))

    def counts(self, *, now: float | None) -> tuple[c.WorkCount, ...]:
        """Count the work that is not completed."""
        return self.store.execute(c.CountWork(now=now))
