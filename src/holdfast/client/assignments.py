"""Work that is assigned to one of our instances: what it says, and ending it.

The same for threads and tasks. Methods that return generators are plans, which an engine runs. Everything
else may be called from any thread, and waits for nothing.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any, Generic, NoReturn, TypeVar

from holdfast import errors
from holdfast.client.engine import Engine
from holdfast.client.holdings import Holding
from holdfast.client.keeper_thread import WANTED
from holdfast.client.leases import BaseLeased, L
from holdfast.client.operations import as_failure, as_json
from holdfast.client.options import Retry, Wish
from holdfast.client.place import asked_at
from holdfast.core import cluster_plans as plans
from holdfast.core.backoff import Backoff
from holdfast.core.cluster import Ending, Finish
from holdfast.core.keeper import INSTANCE_LOST
from holdfast.core.membership import Membership
from holdfast.core.plans import Abandoned, Plan
from holdfast.core.requests import Acquire, NotHeld
from holdfast.core.settings import Seconds, seconds

A = TypeVar("A")

CheckedRetry = Backoff | float | None

# Code that loses work for one of these reasons has seen to it that the work is given back.
_GIVEN_BACK = WANTED | {INSTANCE_LOST, "forked"}


class WorkHolding(Holding, Generic[A]):
    """The state of an assignment, and of its lease, which ends with it. *ended*: called when it is over."""

    def __init__(
        self,
        engine: Engine,
        task: plans.Task,
        member: Membership,
        *,
        retry: CheckedRetry,
        ended: Callable[[WorkHolding[A]], None],
    ) -> None:
        grant = task.grant
        request = Acquire(grant.key, grant.attempt, grant.owner, grant.ttl, engine.client)
        most = engine.settings.max_hold
        wish = Wish(request, None, most, renew=True, on_lost=None, place=asked_at(), named=True)
        super().__init__(engine, engine.keep(grant, wish), wish)
        self.kept.member = member
        self.task = task
        self.attempt = grant.attempt
        self.data = json.loads(task.data)
        self.ended: str | None = None  # how, in the past tense
        self._asked = False  # the store was told of its end
        self._retry = retry
        self._on_end = ended
        self.face = self.make_face()  # last: it looks at us

    def make_face(self) -> A:
        """Make what the caller gets of it."""
        raise NotImplementedError

    def check_not_ended(self) -> None:
        """Raise `NotHeld` if we have ended it."""
        if self.ended is not None:
            raise errors.NotHeld(self.key, f"the work was {self.ended} already")

    def leaving(self) -> NoReturn:
        """Refuse to be part of a transaction."""
        raise errors.SettingsError(
            f"the work of {self.key!r} cannot be ended inside a transaction: fence() that, and end the"
            " work when it has committed"
        )

    def downgrading(self) -> NoReturn:
        """Refuse: work is for one at a time."""
        raise errors.SettingsError(f"{self.key!r} is work, which is for one at a time")

    # Ending it. Each is a plan.

    def completing(self, result: Any) -> Plan[None]:
        """Say that it is done."""
        return self._finish("completed", as_json(self.key, result, "result"))

    def failing(self, error: object, retry: Seconds | None) -> Plan[None]:
        """Say that it has failed."""
        delay = None if retry is None else seconds(retry, "retry")
        return self._finish("failed", as_failure(error), delay)

    def releasing(self) -> Plan[None]:
        """Return it."""
        return self._finish("returned")

    def ending(self, error: BaseException | None) -> Plan[None]:
        """End it as its block has ended."""
        if error is None:
            return self.completing(None)
        if isinstance(error, Exception):
            return self.failing(error, retry_delay(self._retry, self.task.tries))
        return self.releasing()  # an interrupt says nothing against the work

    def request(self, ending: Ending, text: str = "", retry: float | None = None) -> Finish:
        """Return what to ask the store to end it."""
        grant = self.task.grant
        return Finish(grant.key, grant.attempt, grant.token, ending, text, retry, retire=grant.retire)

    def _finish(self, ending: Ending, text: str = "", retry: float | None = None) -> Plan[None]:
        kept, keeper = self.kept, self.engine.keeper
        self.check_not_ended()
        keeper.drop(self.attempt)
        if loss := self.loss():
            keeper.tell(kept)
            raise loss.copy()
        try:
            answer = yield from plans.finish(self.request(ending, text, retry), **self.engine.how())
        except Abandoned:  # it was asked for all the same, and must not be trusted any more
            self._end(ending)
            raise
        except errors.StoreError as error:
            # It may be ended once more while it is ours. Otherwise it ends by itself: nobody renews it.
            keeper.watch(kept)
            if loss := self.loss():
                raise loss.copy() from error
            raise
        if isinstance(answer, NotHeld):
            self.check_not_ended()  # two at once
            self._asked = True
        self.hear(answer)
        self._end(ending)

    def _end(self, how: str) -> None:
        self.ended = how
        self.released = True
        self.kept.tell = None
        self._on_end(self)

    # Losing it.

    def lose(self, reason: str, detail: str | None = None) -> None:
        """Lose it, and tell. The caller sees to the store."""
        keeper = self.engine.keeper
        keeper.drop(self.attempt)
        self.kept.lose(reason, detail=detail)
        keeper.tell(self.kept)
        self._on_end(self)  # another thread may be about to tell

    def lease_lost(self) -> None:
        """See to the store and to the instance once the lease is lost."""
        assert self.kept.lost is not None
        self._on_end(self)
        if not self._asked and self.kept.lost.reason not in _GIVEN_BACK:
            # If it is ours after all, others get it at once. If not, the store sees to who has to look.
            self.return_soon()

    def return_soon(self) -> None:
        """Have the keeper return it."""
        self.engine.keeper.ask_soon(self.request("returned"))

    def return_quietly(self) -> None:
        """Return it without a word. It blocks."""
        self.engine.run_quietly(plans.quietly(self.request("returned")))

    def forget(self) -> None:
        """Give it back without a word, after an interrupt: it may have hit anywhere while it was ended."""
        if self.ended is None and self.loss() is None:
            self.return_quietly()
        self.engine.keeper.drop(self.attempt)
        self._end(self.ended or "returned")


def check_retry(retry: Retry) -> CheckedRetry:
    """Return how work is tried again that has failed in a block."""
    return retry if retry is None or isinstance(retry, Backoff) else seconds(retry, "retry")


def retry_delay(retry: CheckedRetry, tries: int) -> float | None:
    """Return how long to leave work alone that has failed; None: for ever."""
    return retry.delay(tries, random.random()) if isinstance(retry, Backoff) else retry


class BaseAssignment(BaseLeased, Generic[L]):
    """Work that is assigned to one of our instances."""

    _lease: L

    def __init__(self, work: WorkHolding[Any], lease: L) -> None:
        self._holding = work
        self._lease = lease

    @property
    def data(self) -> Any:
        """What the work was offered with: JSON values."""
        return self._holding.data

    @property
    def tries(self) -> int:
        """How often the work was begun, with this time."""
        return self._holding.task.tries

    @property
    def lease(self) -> L:
        """The lease of its key: token, trust, loss, fence are those of every lease."""
        return self._lease

    def check(self) -> None:
        """Raise `LeaseLost` if the work may be in other hands by now, `NotHeld` if we have ended it."""
        self._holding.check_not_ended()
        super().check()

    def __repr__(self) -> str:
        name, state = type(self).__name__, self._holding.ended or self._holding.state
        return f"<{name} {self.key!r} token={self.token}, try {self.tries}, {state}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"{self!r} cannot be sent to another process: it is this process that has it")
