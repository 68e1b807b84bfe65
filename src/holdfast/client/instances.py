"""What an instance says of itself, the same for threads and tasks. Its state is a `Workload`."""

from __future__ import annotations

from typing import Generic, NoReturn, TypeVar

from holdfast import errors
from holdfast.client.engine import Engine
from holdfast.client.workload import Workload
from holdfast.core.cluster import InstanceState

A = TypeVar("A")


class BaseInstance(Generic[A]):
    """A member of the cluster that this process is."""

    def __init__(self, engine: Engine, workload: Workload[A]) -> None:
        self._engine = engine
        self._workload = workload

    @property
    def id(self) -> str:
        """The id that it has joined with. It is the owner of what is assigned to it."""
        return self._workload.id

    @property
    def name(self) -> str:
        """What it is called. Others may be called the same."""
        return self._workload.request.name

    @property
    def capacity(self) -> int:
        """How much work it can have at a time."""
        return self._workload.capacity

    @property
    def state(self) -> InstanceState:
        """``alive``, ``draining``, ``left`` or ``dead``, as far as we know."""
        member = self._workload.member
        if self.lost is None and member.draining and member.state == "alive":
            return "draining"
        return member.state

    @property
    def lost(self) -> errors.InstanceLost | None:
        """Why it is not part of the cluster any more, if it is lost."""
        return self._workload.lost

    @property
    def assignments(self) -> tuple[A, ...]:
        """The work that it has at this moment."""
        return tuple(work.face for work in self._workload.all_works())

    def check(self) -> None:
        """Raise `InstanceLost` if it is lost or has left."""
        self._workload.check()

    def __repr__(self) -> str:
        room = f"{len(self._workload.works)}/{self.capacity}"
        return f"<{type(self).__name__} {self.id!r} {self.state}, {room}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"{self!r} cannot be sent to another process: it is this process that has joined")
