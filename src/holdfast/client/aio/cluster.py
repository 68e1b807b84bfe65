"""What `AsyncHoldfast` has for clusters. The rest is loaded when it is used: see `sync.cluster`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING

from holdfast.client import questions
from holdfast.client.aio.engine import TaskEngine
from holdfast.client.base import BaseClient
from holdfast.client.options import RETRY, Retry, Works
from holdfast.core.cluster import InstanceView, ListInstances, Offered, WorkState, WorkView
from holdfast.core.settings import Seconds

if TYPE_CHECKING:
    from holdfast.client.aio.elections import AsyncElection, AsyncTerm
    from holdfast.client.aio.instances import Joining


class ClusterMethods(BaseClient):
    """See the module."""

    _engine: TaskEngine

    def join(
        self,
        name: str | None = None,
        *,
        capacity: int = 8,
        heartbeat: Seconds = 30.0,
        ttl: Seconds = 90.0,
        version: str = "",
        spread: Seconds = 0.25,
        retry: Retry = RETRY,
    ) -> Joining:
        """Become an instance of the cluster: ``async with locks.join() as instance:``. See `Holdfast.join`.

        Or ``instance = await locks.join()``, until `AsyncInstance.leave`.
        """
        from holdfast.client.aio.instances import Joining

        return Joining(self._engine, name, capacity, heartbeat, ttl, version, spread, retry)

    async def offer(
        self, works: Works, *, max_tries: int | None = None, delay: Seconds = 0.0, again: bool = False
    ) -> Offered:
        """Offer work to whichever instance claims it: see `Holdfast.offer`."""
        plan = questions.offer(self._engine, works, max_tries=max_tries, delay=delay, again=again)
        return await self._engine.run(plan)

    async def work(self, key: str) -> WorkView | None:
        """Look at one piece of work; None if it is not known."""
        return await self._engine.ask(questions.inspect_work(key))

    def works(
        self, prefix: str = "", *, state: WorkState | None = None, instance: str | None = None
    ) -> AsyncIterator[WorkView]:
        """Look at work in the order of its keys: see `Holdfast.works`."""
        return self._engine.pages(questions.work_listing(prefix, state, instance), "works")

    async def forget(self, key: str) -> WorkView | None:
        """Forget a piece of work, and return it as it was: see `Holdfast.forget`."""
        return await self._engine.run(questions.forget_work(self._engine, key))

    async def instances(self) -> list[InstanceView]:
        """Look at all instances, also at those that left or died of late, in the order of their ids."""
        return [each async for each in self._engine.pages(ListInstances(), "instances")]

    def elect(
        self,
        key: str,
        *,
        on_elected: Callable[[AsyncTerm], Awaitable[object]] | None = None,
        on_deposed: Callable[[AsyncTerm], object] | None = None,
        ttl: Seconds | None = None,
        name: str | None = None,
    ) -> AsyncElection:
        """Take part in the election of a leader: see `Holdfast.elect`.

        ``async for term in locks.elect("scheduler"): async with term: …``: the body is cancelled when we are
        deposed, and the loop goes on. *on_elected* is a coroutine function that runs in a task of its own,
        which is cancelled then; *on_deposed* may be one.
        """
        from holdfast.client.aio.elections import AsyncElection
        from holdfast.client.elections import Candidacy

        return AsyncElection(self._engine, Candidacy(self._engine, key, on_elected, on_deposed, ttl, name))
