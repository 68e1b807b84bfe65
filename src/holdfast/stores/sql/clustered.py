"""Instances and work on a database server: each request is one short transaction, two round trips.

Who wants to know of work is looked for, and signalled, behind the commit.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from holdfast import errors
from holdfast.core import cluster as c
from holdfast.core.requests import Busy, Request
from holdfast.stores.base import instant
from holdfast.stores.sql import claiming, instances, work, workviews
from holdfast.stores.sql.dealing import Behind, Call, Deal, Decide, call_parameters, signals
from holdfast.stores.sql.many import ManyKeys
from holdfast.stores.sql.row import PINNED_FOR, LockRow, Post
from holdfast.stores.sql.run import Row
from holdfast.stores.sql.serving import Peek
from holdfast.stores.sql.session import RowLocked, Session, Transaction
from holdfast.stores.sql.work import AssignAnswer

MOST_ROUNDS = 10  # of returning what an instance has, while it takes more


class Clustered(ManyKeys):
    """See the module."""

    def _cluster_answers(self) -> dict[type, Callable[[Any], Any]]:
        return {
            c.Join: lambda request: self._deal(request, instances.join),
            # Whoever hangs must not cost an instance its life.
            c.Heartbeat: lambda request: self._deal(request, instances.heartbeat, urgent=True),
            c.Leave: self._leave,
            c.ListInstances: lambda request: instances.list_instances(self._read, request),
            c.Offer: lambda request: self._deal(request, work.offer),
            c.Claim: self._claim,
            c.Assign: self._assign,
            c.Finish: lambda request: self._deal(request, work.finish),
            c.Forget: lambda request: self._deal(request, work.forget),
            c.InspectWork: lambda request: workviews.inspect_work(self._read, request),
            c.ListWork: lambda request: workviews.list_work(self._read, request),
            c.CountWork: lambda request: workviews.count_work(self._read, request),
        }

    def _claim(self, request: c.Claim) -> c.Claimed | c.Beat:
        self._signals.hang_up_bell()  # if there is too little for it, it is called when there is more
        if self._level != "all" and (claimed := self._claim_fast(request)):
            return claimed
        answer: c.Claimed | c.Beat = self._deal(request, claiming.claim)
        return answer

    def _claim_fast(self, request: c.Claim) -> c.Claimed | None:
        """Claim in one round trip, where the database can; None: the general way, and nothing was done."""
        return None

    def _assign(self, request: c.Assign) -> AssignAnswer | c.Beat:
        try:
            answer: AssignAnswer | c.Beat = self._deal(request, work.assign)
        except RowLocked:
            # A caller's open transaction is about to take or free the lock.
            answer = self.use(lambda session: self._put_off(session, request))
        return answer

    def _put_off(self, session: Session, request: c.Assign) -> Busy:
        lock = LockRow(Peek(session), request.key, instant(request.now), self._level, [], request.attempt)
        return Busy(lock.holder(), PINNED_FOR / 1e6 if lock.owner is None else lock.expires_in())

    def _leave(self, request: c.Leave) -> c.Beat:
        """Return what the instance has, piece by piece: nobody waits long for any of it. Then end it."""
        id = request.id
        returned: list[str] = []  # by type
        for _ in range(MOST_ROUNDS):
            beat: c.Beat | None = self._deal(request, partial(_leave, id, returned))
            if beat is not None:
                return beat
            for key, attempt in self._read("works_of", id=id):
                type: str | None = self._deal(request, partial(_give_back, id, key, attempt))
                if type is not None:
                    returned.append(type)
        raise errors.StoreUnavailable(f"the instance {id} goes on taking work while it leaves")

    def _deal(self, request: Request[Any], decide: Decide, *, urgent: bool = False) -> Any:
        """Run a request in one transaction; then read, and signal, what comes behind its commit."""
        given = instant(getattr(request, "now", None))

        def transact(session: Session) -> tuple[Any, list[Row], Deal]:
            run = Transaction(session, create=True)
            deal = Deal(run, given, self._level, [])
            answer = decide(deal, request)
            behind, lazily = None, False
            if isinstance(answer, Behind):
                behind = None if answer.name is None else (answer.name, answer.parameters)
                lazily = answer.lazily
            return answer, run.commit(self._abroad(deal.post), lazily=lazily, behind=behind), deal

        answer, rows, deal = self.use(transact, urgent=urgent)
        self._deliver(deal.post)
        self._call(deal.calls, given)
        if not isinstance(answer, Behind):
            return answer
        if answer.name is not None and not rows:
            try:
                rows = self._read(answer.name, **answer.parameters)
            except errors.StoreUnavailable as error:  # of the read; the rest is committed
                raise errors.OutcomeUnknown(str(error)) from error
        concluded = answer.conclude(rows)
        self._put_off_work(deal.left, request)
        return concluded

    def _put_off_work(self, keys: list[str], request: Request[Any]) -> None:
        """Put off work that could not be taken. If that fails, the next claim finds it as it is."""
        with suppress(errors.StoreError):
            for key in keys:
                self._deal(request, partial(_put_off, key))

    def _call(self, calls: list[Call], now: int | None) -> None:
        """Tell instances that there is work of a type. It is a hint: that it fails changes nothing."""
        if not calls:
            return

        def call(session: Session) -> Post:
            run = Transaction(session, create=False)
            found = [run.soon("wanting", **call_parameters(each, now)) for each in calls[:-1]]
            last = run("wanting", **call_parameters(calls[-1], now))
            post: Post = []
            for each, rows in zip(calls, [*(soon.rows for soon in found), last], strict=True):
                post += signals(each, rows)
            run.commit(self._abroad(post))
            return post

        with suppress(errors.StoreError):
            self._deliver(self.use(call))


def _leave(id: str, returned: list[str], deal: Deal, _: c.Leave) -> Behind | None:
    beat = instances.leave(deal, id)
    if beat is not None:
        deal.call_for(*returned)
    return beat


def _put_off(key: str, deal: Deal, _: c.Claim) -> None:
    claiming.put_off(deal, key)


def _give_back(id: str, key: str, attempt: str, deal: Deal, _: c.Leave) -> str | None:
    return work.give_back(deal, id, key, attempt)
