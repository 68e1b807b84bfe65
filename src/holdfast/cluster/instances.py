"""An instance as far as it is the same for threads and tasks: joining, draining, leaving, being lost.

What it does with work is in `taking`, whose rules hold here, too.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from holdfast.clock import boot_time
from holdfast.cluster.assignments import BaseAssignment
from holdfast.cluster.options import Retry
from holdfast.cluster.taking import Taking
from holdfast.core import cluster_plans as plans
from holdfast.core.cluster import InstanceState, Join, Leave
from holdfast.core.keeper import INSTANCE_LOST
from holdfast.core.membership import Membership
from holdfast.core.plans import TRANSIENT, Abandoned, Wait
from holdfast.core.requests import Request
from holdfast.keeping import DRAINED, LEFT

if TYPE_CHECKING:
    from holdfast.client import BaseClient

A = TypeVar("A", bound=BaseAssignment)


class BaseInstance(Taking[A]):
    """A member of the cluster that this process is."""

    def __init__(
        self, client: BaseClient, joining: tuple[Join, Membership], *, spread: float, retry: Retry
    ) -> None:
        super().__init__(client, joining, spread=spread, retry=retry)
        self._member.tell = self._gone

    @property
    def name(self) -> str:
        """What it is called. Others may be called the same."""
        return self._join.name

    @property
    def state(self) -> InstanceState:
        """``alive``, ``draining``, ``left`` or ``dead``, as far as we know."""
        if self.lost is None and self._member.draining and self._member.state == "alive":
            return "draining"
        return self._member.state

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id!r} {self.state}, {len(self._assignments)}/{self.capacity}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"{self!r} cannot be sent to another process: it is this process that has joined")

    def _joining(self) -> Generator[Any, Any, None]:
        answer = yield from plans.join(self._join, **self._how())
        self._member.answered(answer.said, asked=answer.asked)
        self._client._members[self.id] = self  # noqa: SLF001
        self._client._keeping.join(self._member)  # noqa: SLF001

    def _draining(self, timeout: float) -> Generator[Any, Any, None]:
        self.check()
        self._member.draining = True  # whatever the store says: every heartbeat tells it so from now on
        self._ring()
        deadline = boot_time() + timeout
        with suppress(*TRANSIENT):
            answer = yield from self._persistently(self._member.request())
            if self._member.answered(answer.said, asked=answer.asked):
                self._client._keeping.tell_gone(self._member)  # noqa: SLF001
        self.check()
        yield from self._returning(list(self._ready.values()), DRAINED)
        yield from self._until_idle(deadline)
        yield from self._returning(list(self.assignments), DRAINED)

    def _until_idle(self, deadline: float) -> Generator[Any, Any, None]:
        me = self._client._attempts.new()  # noqa: SLF001
        try:
            self._begin_waiting(me, (), 0)
            while self.assignments and boot_time() < deadline:
                yield Wait("", me, deadline)
        finally:
            self._stop_waiting(me)

    def _leaving(self) -> Generator[Any, Any, None]:
        if self._member.state in ("left", "dead"):
            return
        self._member.draining = True
        self._client._keeping.part(self.id)  # noqa: SLF001
        for each in self.assignments:  # before it is given back: nobody may trust what is not ours any more
            each._lose(LEFT)  # noqa: SLF001
        self._member.leave()  # now: a heartbeat or a claim may be under way, and be told so before we are
        try:
            yield from self._persistently(Leave(self.id))
        except Abandoned:
            yield from plans.quietly(Leave(self.id))
            raise
        finally:
            self._has_left()

    def _leave_at_once(self) -> None:
        """Leave without a word, after an interrupt. It blocks."""
        if self._member.lost is not None:
            return  # that has been seen to; or we are a forked child, and it is the parent's
        self._client._keeping.part(self.id)  # noqa: SLF001
        for each in self.assignments:
            each._lose(LEFT)  # noqa: SLF001
        self._has_left()
        self._ask_quietly(Leave(self.id))

    def _last_request(self) -> Request[Any]:
        return Leave(self.id)

    def _stop_taking(self) -> None:
        """Take no more work. Nobody is told."""
        self._member.draining = True

    def _has_left(self) -> None:
        """Be no instance any more."""
        self._member.leave()
        self._client._members.pop(self.id, None)  # noqa: SLF001
        self._drop_unknown()
        self._ready.clear()
        self._ring()

    def _gone(self) -> None:
        """Lose everything with the membership. Called once, from any thread."""
        lost = self._member.lost
        assert lost is not None
        for each in self.assignments:
            each._lose(INSTANCE_LOST, lost.reason)  # noqa: SLF001
        self._client._members.pop(self.id, None)  # noqa: SLF001
        self._client._keeping.ask_soon(Leave(self.id))  # noqa: SLF001 - the dead return their work like this, too
        self._ring()

    def _forked(self) -> None:
        """Be no instance in a forked child: it is the parent's."""
        self._member.tell = None
        pid = self._member.client.pid
        self._member.lose(f"forked: process {pid} has joined, not its child")
        self._assignments.clear()
        self._ready.clear()
        self._waiting.clear()
        self._asker.clear()
