"""Requests about instances and work: each is one short transaction, two round trips on a server."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from holdfast import errors
from holdfast.core import cluster as c
from holdfast.core.requests import Busy
from holdfast.stores.sql.dialect import Dialect
from holdfast.stores.sql.rules import claims, instances, work
from holdfast.stores.sql.rules.deal import Deal, Decide, PendingAnswer
from holdfast.stores.sql.rules.work import AssignAnswer
from holdfast.stores.sql.transactions.session import RowLocked
from holdfast.stores.sql.transactions.transactor import Transactor

MOST_ROUNDS = 10  # of returning what an instance has, while it takes more


class ClusterRequests:
    """See the module."""

    def __init__(self, transactor: Transactor, dialect: Dialect[Any]) -> None:
        self._transactor = transactor
        self._sessions = transactor.sessions
        self._dialect = dialect
        self._signals = dialect.signals
        self.answers: dict[type, Callable[[Any], Any]] = {
            c.Join: partial(self._live, instances.join),
            # Whoever hangs must not cost an instance its life.
            c.Heartbeat: partial(self._live, instances.heartbeat, urgent=True),
            c.Leave: self._leave,
            c.Offer: self._offer,
            c.Claim: self._claim,
            c.Assign: self._assign,
            c.Finish: partial(self._deal, work.finish),
            c.Forget: partial(self._deal, work.forget),
        }

    def _deal(self, decide: Decide, request: Any, *, urgent: bool = False) -> Any:
        return self._transactor.run(lambda deal: decide(deal, request), request.now, urgent=urgent)

    def _live(self, decide: Decide, request: c.Join | c.Heartbeat, *, urgent: bool = False) -> Any:
        """Be an instance: it may want work as long as it lives, and is told of it."""
        answer = self._deal(decide, request, urgent=urgent)
        self._signals.expect(request.ttl, begins=False)
        return answer

    def _offer(self, request: c.Offer) -> c.Offered:
        answers: list[c.Offered] = [self._deal(work.offer, part) for part in self._dialect.portions(request)]
        return c.Offered(
            tuple(state for answer in answers for state in answer.states),
            tuple(new for answer in answers for new in answer.new),
        )

    def _claim(self, request: c.Claim) -> c.Claimed | c.Beat:
        self._signals.expect(request.ttl)  # if there is too little for it, it is called when there is more
        if self._transactor.level != "all" and (found := self._dialect.claim(request)):
            claimed, postponed = found
            self._transactor.put_off(postponed, request.now)
            return claimed
        answer: c.Claimed | c.Beat = self._deal(claims.claim, request)
        return answer

    def _assign(self, request: c.Assign) -> AssignAnswer | c.Beat:
        try:
            answer: AssignAnswer | c.Beat = self._deal(work.assign, request)
            return answer
        except RowLocked:
            # A caller's open transaction is about to take or free the lock.
            return self._transactor.peek(
                request, request.now, lambda lock: Busy(lock.holder(), lock.expires_in())
            )

    def _leave(self, request: c.Leave) -> c.Beat:
        """Return what the instance has, piece by piece: nobody waits long for any of it. Then end it."""
        id, run = request.id, self._transactor.run
        returned: list[str] = []  # by type

        def leave(deal: Deal) -> PendingAnswer | None:
            if beat := instances.leave(deal, id):
                deal.call_for(*returned)
            return beat

        for _ in range(MOST_ROUNDS):
            beat: c.Beat | None = run(leave, request.now)
            if beat is not None:
                return beat
            for key, attempt in self._sessions.read("works_of", id=id):
                type: str | None = run(partial(work.give_back, id=id, key=key, attempt=attempt), request.now)
                if type is not None:
                    returned.append(type)
        raise errors.StoreUnavailable(f"the instance {id} goes on taking work while it leaves")
