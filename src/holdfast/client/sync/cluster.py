"""What `Holdfast` has for clusters. It only checks and passes on: the rest is loaded when it is used."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from holdfast.client import questions
from holdfast.client.base import BaseClient
from holdfast.client.options import RETRY, Retry, Works
from holdfast.client.sync.engine import ThreadEngine
from holdfast.core.cluster import InstanceView, ListInstances, Offered, WorkState, WorkView
from holdfast.core.settings import Seconds

if TYPE_CHECKING:
    from holdfast.client.sync.elections import Election, Term
    from holdfast.client.sync.instances import Instance


class ClusterMethods(BaseClient):
    """See the module."""

    _engine: ThreadEngine

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
        - *heartbeat*, *ttl*: how often it says that it is there, and how long it is believed without that.
          Then it is dead, and its work is lost: leases of its work have the same *ttl*.
        - *version*: of the program, for people.
        - *spread*: for how long it leaves fresh work to others that have more room, when it is full; less
          when it is less full.
        - *retry*: after how long to try again work that has failed in its block: seconds, a `Backoff`, or
          None for never.
        """
        from holdfast.client.sync.instances import join

        return join(self._engine, name, capacity, heartbeat, ttl, version, spread, retry)

    def offer(
        self, works: Works, *, max_tries: int | None = None, delay: Seconds = 0.0, again: bool = False
    ) -> Offered:
        """Offer work to whichever instance claims it: keys, (key, data) pairs, or a mapping of key to data.

        What is known already stays as it is, whatever state it is in: offering twice is harmless. With
        *again*, what has completed or failed is offered again.

        - *max_tries*: after so many it has failed for good.
        - *delay*: how long until it may be claimed.

        Return the states, and which are new, in the order of the works. Data are JSON, at most 64 KiB each.
        """
        plan = questions.offer(self._engine, works, max_tries=max_tries, delay=delay, again=again)
        return self._engine.run(plan)

    def work(self, key: str) -> WorkView | None:
        """Look at one piece of work; None if it is not known."""
        return self._engine.ask(questions.inspect_work(key))

    def works(
        self, prefix: str = "", *, state: WorkState | None = None, instance: str | None = None
    ) -> Iterator[WorkView]:
        """Look at work in the order of its keys: that with a *prefix*, in a *state*, of an *instance*.

        It is fetched a page at a time.
        """
        return self._engine.pages(questions.work_listing(prefix, state, instance), "works")

    def forget(self, key: str) -> WorkView | None:
        """Forget a piece of work, and return it as it was; None if it was not known.

        Raise `LockTimeout` if somebody is at it.
        """
        return self._engine.run(questions.forget_work(self._engine, key))

    def instances(self) -> list[InstanceView]:
        """Look at all instances, also at those that left or died of late, in the order of their ids."""
        return list(self._engine.pages(ListInstances(), "instances"))

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
        from holdfast.client.elections import Candidacy
        from holdfast.client.sync.elections import Election

        return Election(self._engine, Candidacy(self._engine, key, on_elected, on_deposed, ttl, name))
