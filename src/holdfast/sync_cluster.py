"""What `Holdfast` has for clusters. It only checks and passes on: the rest is loaded when it is used."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
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
    from holdfast.cluster.electing import Election, Term
    from holdfast.cluster.options import Retry, Works
    from holdfast.cluster.sync import Instance
    from holdfast.core.cluster import InstanceView, Offered, WorkState, WorkView
    from holdfast.sync import Holdfast


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
    ) -> Instance:
        """Become an instance of the cluster: ``with locks.join(capacity=8) as instance:``.

        It heartbeats in the background, and leaves at the end of the block, or when the process ends.

        - *name*: for people; by default that of the program. The id is its own.
        - *capacity*: how much work it can have at a time.
        - *heartbeat*, *ttl*: how often it says that it is there, and how long it is believed without. Then it
          is dead, and its work is lost: leases of its work have the same *ttl*.
        - *version*: of the program, for people.
        - *spread*: for how long it leaves fresh work to others who have more room, when it is full; less
          when it is less full.
        - *retry*: after how long work is tried again that has failed in its block: seconds, a `Backoff`, or
          None for never.
        """
        from holdfast.cluster import sync as cluster
        from holdfast.cluster.options import check_retry, joining

        self._check_open()
        how = joining(self, name, capacity=capacity, heartbeat=heartbeat, ttl=ttl, version=version)
        leave_to_others = seconds(spread, "spread")
        client = cast("Holdfast", self)
        return cluster.join(cluster.Instance(client, how, spread=leave_to_others, retry=check_retry(retry)))

    def offer(
        self, works: Works, *, max_tries: int | None = None, delay: Seconds = 0.0, again: bool = False
    ) -> Offered:
        """Offer work to whichever instance claims it: keys, (key, data) pairs, or a mapping of key to data.

        What is known already stays as it is, whatever state it is in: offering twice is harmless. With
        *again*, what has completed or failed is offered anew.

        - *max_tries*: after so many it has failed for good.
        - *delay*: how long until it may be claimed.

        Return the states, and which are new, in the order of the works. Data are JSON, at most 64 KiB each.
        """
        from holdfast.cluster.options import offers, together

        requests = offers(works, max_tries=max_tries, delay=delay, again=again)
        return together([self._ask_again(each, unknown_too=not again) for each in requests])

    def work(self, key: str) -> WorkView | None:
        """Look at one piece of work; None if it is not known."""
        from holdfast.core.cluster import InspectWork

        return cast("WorkView | None", self._ask_again(InspectWork(keys.validate(key))))

    def works(
        self, prefix: str = "", *, state: WorkState | None = None, instance: str | None = None
    ) -> Iterator[WorkView]:
        """Look at work in the order of its keys: that with a *prefix*, in a *state*, of an *instance*.

        It is fetched a page at a time.
        """
        from holdfast.cluster.options import listing

        return self._work_pages(listing(prefix, state, instance))

    def _work_pages(self, request: Any) -> Iterator[WorkView]:
        while True:
            page = self._ask_again(request)
            yield from page.works
            if page.after is None:
                return
            request = replace(request, after=page.after)

    def forget(self, key: str) -> WorkView | None:
        """Forget a piece of work, and return it as it was; None if it was not known.

        Raise `LockTimeout` if somebody is at it.
        """
        from holdfast.core.cluster import Forget

        answer = self._ask_again(Forget(keys.validate(key), self._client.host))
        if isinstance(answer, Busy):
            raise errors.LockTimeout(key, waited=0.0, holder=answer.holder, expires_in=answer.expires_in)
        return None if answer is None else cast("WorkView", answer.work)

    def instances(self) -> list[InstanceView]:
        """Look at all instances, also at those that left or died of late, in the order of their ids."""
        from holdfast.core.cluster import ListInstances

        found: list[InstanceView] = []
        after: str | None = ""
        while after is not None:
            page = self._ask_again(ListInstances(after=after))
            found += page.instances
            after = page.after
        return found

    def elect(
        self,
        key: str,
        *,
        on_elected: Callable[[Term], object] | None = None,
        on_deposed: Callable[[Term], object] | None = None,
        ttl: Seconds | None = None,
        name: str | None = None,
    ) -> Election:
        """Take part in the election of a leader: whoever holds the lock *key* is it, for a term.

        ``for term in locks.elect("scheduler"):`` waits until we are elected, and gives the term back when the
        next one is asked for, or the loop is left. With callbacks it campaigns in a thread of its own
        instead, again and again, until `Election.stop` or the end of its ``with`` block.

        - *on_elected*: called with the term; we are the leader also after it has returned.
        - *on_deposed*: called with a term that is over: lost, resigned from, or about to be given back.
        - *ttl*: how long the lease of a term holds without renewal.
        - *name*: who we are, for those who ask who leads.
        """
        from holdfast.cluster.electing import Election

        return Election(
            cast("Holdfast", self), key, on_elected=on_elected, on_deposed=on_deposed, ttl=ttl, name=name
        )

    def _ask_again(self, request: Any, *, unknown_too: bool = False) -> Any:
        plan = ask(
            request,
            settings=self.settings,
            clock=boot_time,
            roll=random.random,
            unknown_too=unknown_too,
        )
        return cast("Holdfast", self)._run(plan)  # noqa: SLF001
