"""What `AsyncHoldfast` has for clusters. The rest is loaded when it is used: see `sync_cluster`."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Any, cast

from holdfast import errors
from holdfast.client import BaseClient
from holdfast.clock import boot_time
from holdfast.core import keys
from holdfast.core.data import replace
from holdfast.core.plans import ask
from holdfast.core.requests import Busy
from holdfast.core.settings import Seconds, seconds
from holdfast.options import RETRY

if TYPE_CHECKING:
    from holdfast.aio import AsyncHoldfast
    from holdfast.cluster.aio import Joining
    from holdfast.cluster.aio_electing import AsyncElection, AsyncTerm
    from holdfast.cluster.options import Retry, Works
    from holdfast.core.cluster import InstanceView, Offered, WorkState, WorkView


class ClusterMethods(BaseClient):
    """See the module."""

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
        from holdfast.cluster import aio as cluster
        from holdfast.cluster.options import check_retry, joining

        self._check_open()
        how = joining(self, name, capacity=capacity, heartbeat=heartbeat, ttl=ttl, version=version)
        leave_to_others = seconds(spread, "spread")
        client = cast("AsyncHoldfast", self)
        return cluster.Joining(
            cluster.AsyncInstance(client, how, spread=leave_to_others, retry=check_retry(retry))
        )

    async def offer(
        self, works: Works, *, max_tries: int | None = None, delay: Seconds = 0.0, again: bool = False
    ) -> Offered:
        """Offer work to whichever instance claims it: see `Holdfast.offer`."""
        from holdfast.cluster.options import offers, together

        requests = offers(works, max_tries=max_tries, delay=delay, again=again)
        return together([await self._ask_again(each, unknown_too=not again) for each in requests])

    async def work(self, key: str) -> WorkView | None:
        """Look at one piece of work; None if it is not known."""
        from holdfast.core.cluster import InspectWork

        return cast("WorkView | None", await self._ask_again(InspectWork(keys.validate(key))))

    def works(
        self, prefix: str = "", *, state: WorkState | None = None, instance: str | None = None
    ) -> AsyncIterator[WorkView]:
        """Look at work in the order of its keys: see `Holdfast.works`."""
        from holdfast.cluster.options import listing

        return self._work_pages(listing(prefix, state, instance))

    async def _work_pages(self, request: Any) -> AsyncIterator[WorkView]:
        while True:
            page = await self._ask_again(request)
            for view in page.works:
                yield view
            if page.after is None:
                return
            request = replace(request, after=page.after)

    async def forget(self, key: str) -> WorkView | None:
        """Forget a piece of work, and return it as it was: see `Holdfast.forget`."""
        from holdfast.core.cluster import Forget

        answer = await self._ask_again(Forget(keys.validate(key), self._client.host))
        if isinstance(answer, Busy):
            raise errors.LockTimeout(key, waited=0.0, holder=answer.holder, expires_in=answer.expires_in)
        return None if answer is None else cast("WorkView", answer.work)

    async def instances(self) -> list[InstanceView]:
        """Look at all instances, also at those that left or died of late, in the order of their ids."""
        from holdfast.core.cluster import ListInstances

        found: list[InstanceView] = []
        after: str | None = ""
        while after is not None:
            page = await self._ask_again(ListInstances(after=after))
            found += page.instances
            after = page.after
        return found

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
        from holdfast.cluster.aio_electing import AsyncElection

        return AsyncElection(
            cast("AsyncHoldfast", self),
            key,
            on_elected=on_elected,
            on_deposed=on_deposed,
            ttl=ttl,
            name=name,
        )

    async def _ask_again(self, request: Any, *, unknown_too: bool = False) -> Any:
        plan = ask(
            request,
            settings=self.settings,
            clock=boot_time,
            roll=random.random,
            unknown_too=unknown_too,
        )
        return await cast("AsyncHoldfast", self)._run(plan)  # noqa: SLF001
