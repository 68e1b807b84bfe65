"""Work that is ours, as far as it is the same for threads and tasks: what it says, and ending it."""

from __future__ import annotations

import json
import random
from collections.abc import Generator
from typing import TYPE_CHECKING, Any, NoReturn

from holdfast import errors
from holdfast.clock import boot_time
from holdfast.cluster.options import as_json, retry_delay
from holdfast.core import cluster_plans as plans
from holdfast.core.cluster import Ending, Finish
from holdfast.core.keeper import INSTANCE_LOST, Kept, loss_reason
from holdfast.core.plans import Abandoned
from holdfast.core.requests import NotHeld
from holdfast.core.settings import Seconds, seconds
from holdfast.keeping import WANTED
from holdfast.operations import as_failure

if TYPE_CHECKING:
    from holdfast.cluster.instances import BaseInstance
    from holdfast.leases import BaseLease

# Whoever loses it for one of these has seen to it that it is given back.
_GIVEN_BACK = WANTED | {INSTANCE_LOST, "forked"}


class BaseAssignment:
    """Work that is assigned to one of our instances."""

    _lease: BaseLease

    def __init__(self, instance: BaseInstance[Any], task: plans.Task, kept: Kept) -> None:
        self._instance = instance
        self._task = task
        self._data = json.loads(task.data)
        self._kept = kept
        self._ended: str | None = None  # how, in the past tense
        self._asked = False  # the store was told of its end

    @property
    def key(self) -> str:
        """What the work is about: the key that is locked for it."""
        return self._task.grant.key

    @property
    def data(self) -> Any:
        """What the work was offered with: JSON values."""
        return self._data

    @property
    def token(self) -> int:
        """The fencing token: larger than that of whoever had this work before."""
        return self._task.grant.token

    @property
    def tries(self) -> int:
        """How often the work was begun, with this time."""
        return self._task.tries

    @property
    def remaining(self) -> float:
        """For how many seconds it can be trusted to be ours if nothing is renewed; 0 when it is over."""
        return self._lease.remaining

    def check(self) -> None:
        """Raise `LeaseLost` if the work may be in other hands by now, `NotHeld` if we have ended it."""
        self._check_not_ended()
        self._lease.check()

    def __repr__(self) -> str:
        if self._ended is not None:
            state = self._ended
        elif loss := self._loss():
            state = f"lost: {loss.reason}"
        else:
            state = f"trusted {self.remaining:.1f} s"
        return f"<{type(self).__name__} {self.key!r} token={self.token}, try {self.tries}, {state}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"{self!r} cannot be sent to another process: it is this process that has it")

    def _loss(self) -> errors.LeaseLost | None:
        return self._lease._loss()  # noqa: SLF001

    def _check_not_ended(self) -> None:
        if self._ended is not None:
            raise errors.NotHeld(self.key, f"the work was {self._ended} already")

    # Ending it. Each is a plan.

    def _completing(self, result: Any) -> Generator[Any, Any, None]:
        return self._finishing("completed", text=as_json(self.key, result, "result"))

    def _failing(self, error: object, retry: Seconds | None) -> Generator[Any, Any, None]:
        delay = None if retry is None else seconds(retry, "retry")
        return self._finishing("failed", text=as_failure(error), retry=delay)

    def _releasing(self) -> Generator[Any, Any, None]:
        return self._finishing("returned")

    def _leaving_block(self, error: BaseException | None) -> Generator[Any, Any, None]:
        """End it as its block has ended."""
        if error is None:
            return self._completing(None)
        if isinstance(error, Exception):
            return self._failing(error, retry_delay(self._instance.retry, self.tries))
        return self._releasing()  # who interrupts the work has nothing against it

    def _request(self, ending: Ending, *, text: str = "", retry: float | None = None) -> Finish:
        grant = self._task.grant
        return Finish(grant.key, grant.attempt, grant.token, ending, text, retry, retire=grant.retire)

    def _finishing(
        self, ending: Ending, *, text: str = "", retry: float | None = None
    ) -> Generator[Any, Any, None]:
        client, kept = self._instance._client, self._kept  # noqa: SLF001
        keeping = client._keeping  # noqa: SLF001
        self._check_not_ended()
        if loss := self._loss():
            keeping.drop(kept.grant.attempt)
            keeping.tell(kept)
            raise loss.copy()
        keeping.drop(kept.grant.attempt)
        try:
            answer = yield from plans.finish(
                self._request(ending, text=text, retry=retry),
                settings=client.settings,
                clock=boot_time,
                roll=random.random,
            )
        except Abandoned:  # it was asked for all the same, and must not be trusted any more
            self._end(ending)
            raise
        except errors.StoreError as error:
            # It may be ended once more while it is ours, and ends by itself else: nobody renews it.
            keeping.watch(kept)
            if loss := self._loss():
                raise loss.copy() from error
            raise
        if isinstance(answer, NotHeld):
            self._check_not_ended()  # two at once
            self._asked = True
            kept.lose(loss_reason(answer.why), by=answer.by, detail=answer.reason)
            keeping.tell(kept)
            assert kept.lost is not None
            raise kept.lost.copy()
        self._end(ending)

    def _end(self, how: str) -> None:
        self._ended = how
        self._lease._released = True  # noqa: SLF001
        self._kept.tell = None
        self._instance._has_ended(self)  # noqa: SLF001

    def _lost_it(self) -> None:
        """See to the store and to the instance once the lease is lost. Called from any thread."""
        assert self._kept.lost is not None
        self._instance._has_ended(self)  # noqa: SLF001
        if not self._asked and self._kept.lost.reason not in _GIVEN_BACK:
            # If it is ours after all, others get it at once. If not, the store sees to who has to look.
            self._instance._client._keeping.ask_soon(self._request("returned"))  # noqa: SLF001

    def _lose(self, reason: str, detail: str | None = None) -> None:
        """Lose it, and tell. Called from any thread; whoever calls sees to the store."""
        keeping = self._instance._client._keeping  # noqa: SLF001
        keeping.drop(self._kept.grant.attempt)
        self._kept.lose(reason, detail=detail)
        keeping.tell(self._kept)
        self._instance._has_ended(self)  # noqa: SLF001 - somebody else may be about to tell

    def _forget(self) -> None:
        """Give it back without a word, after an interrupt: it may have hit anywhere while it was ended."""
        if self._ended is None and self._loss() is None:
            self._instance._ask_quietly(self._request("returned"))  # noqa: SLF001
        self._instance._client._keeping.drop(self._kept.grant.attempt)  # noqa: SLF001
        self._end(self._ended or "returned")
