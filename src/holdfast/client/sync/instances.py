"""Instances and assignments for threads. `aio` has those for tasks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from holdfast import errors
from holdfast.client.assignments import BaseAssignment, WorkHolding
from holdfast.client.blocks import Error, Kind, Traceback
from holdfast.client.claims import BaseClaims, Claimant, check_types
from holdfast.client.instances import BaseInstance
from holdfast.client.leases import noted
from holdfast.client.sync.engine import ThreadEngine, ThreadHolding
from holdfast.client.sync.leases import Lease, Leased
from holdfast.client.workload import Workload
from holdfast.core.settings import Seconds


class Instance(BaseInstance["Assignment"]):
    """What `Holdfast.join` returns: a member of the cluster. As a context manager it leaves at the end."""

    _engine: ThreadEngine

    def assign(
        self, key: str, data: Any = None, *, ttl: Seconds | None = None, again: bool = False
    ) -> Assignment:
        """Take one piece of work, whether it was offered or not: its lock and the assignment in one step.

        - *data*: what the work is about, as JSON; None leaves it as it was offered.
        - *ttl*: how long the lease holds without renewal, which is done in the background.
        - *again*: also if it has completed or failed.

        Raise `LockTimeout` if somebody has it, which says who; `WorkEnded` if it has completed or failed;
        `AtCapacity` if we have as much as we can; `InstanceLost`.
        """
        load = self._workload
        request = load.assignment(key, data, ttl, again)
        return self._engine.run_or(lambda: load.undo_assign(request), load.assign(request))

    def claim(self, *types: str, limit: int | None = None) -> list[Assignment]:
        """Take work of these types that is offered: up to *limit*, and as much as we can have.

        The type of work is its key up to the first colon. It does not wait; there may be nothing.
        """
        claimant = Claimant(self._workload, check_types(types))
        return self._engine.run_or(claimant.undo, claimant.claim(limit))

    def claims(self, *types: str, batch: int | None = None, timeout: Seconds | None = None) -> Claims:
        """Yield work of these types as it comes: ``for work in instance.claims("workflow"):``.

        It waits while there is none, or while we have as much as we can. It ends when we drain or leave, or
        after *timeout* without any, and raises `InstanceLost` when we are lost. Any number of threads may do
        this at once. *batch*: how much to take at a time, by default as much as there is room for: what was
        taken and not yielded yet is ours already, and goes to the next that asks.
        """
        return Claims(self._engine, self._workload, self, types, batch, timeout)

    def drain(self, timeout: Seconds = 0.0) -> None:
        """Take no more work. Wait at most *timeout* for what is being done, then return the rest.

        Others are offered it at once. Code that was at it is told: its lease is lost, ``drained``.
        """
        self._engine.run(self._workload.drain(timeout))

    def leave(self) -> None:
        """Stop being an instance. What is still assigned to it is returned, and lost to the code at it."""
        self._engine.run_or(self._workload.leave_at_once, self._workload.leave())

    def __enter__(self) -> Instance:
        try:
            self.check()
            return self
        except errors.HoldfastError:
            raise
        except BaseException:
            self._workload.leave_at_once()
            raise

    def __exit__(self, kind: Kind, error: Error, traceback: Traceback) -> None:
        try:
            self.leave()
        except errors.HoldfastError as problem:
            if not noted(error, problem):
                raise
        except BaseException:
            self._workload.leave_at_once()
            raise


def join(engine: ThreadEngine, name: str | None, *options: Any) -> Instance:
    """Become an instance: see `Workload`. Interrupted, it leaves again."""
    workload = Workload(engine, ThreadWorkHolding, name, *options)
    try:
        engine.run(workload.join())
        if not engine.closed:
            return Instance(engine, workload)
    except errors.HoldfastError:
        raise
    except BaseException:
        workload.leave_at_once()
        raise
    workload.leave_at_once()  # closed while we asked: nobody would heartbeat
    raise errors.Closed(repr(engine))


class Claims(BaseClaims["Assignment"], Iterator["Assignment"]):
    """Work as it comes: see `Instance.claims`. May be shared by threads."""

    _engine: ThreadEngine

    def __next__(self) -> Assignment:
        if not self._open:
            raise StopIteration
        claimant = self._claimant()
        try:
            claimant.take_ready(1)
            if not claimant.taken:
                with suppress(errors.Closed):  # it leaves when its client is closed
                    self._engine.run(claimant.wait(self._timeout))
            if not claimant.taken:
                raise StopIteration
            return claimant.taken[0].face
        except (errors.HoldfastError, StopIteration):
            raise
        except BaseException:
            claimant.undo()
            raise

    def close(self) -> None:
        """Claim no more, and return what was taken and not yielded yet."""
        if self._stop():
            self._engine.run(self._workload.give_back_unwanted())

    def __enter__(self) -> Claims:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Assignment(BaseAssignment[Lease], Leased):
    """Work that is ours. As a context manager it is completed at the end of the block.

    An exception fails it, to be tried again after a while (see `Holdfast.join`); an interrupt returns it. If
    it was lost meanwhile, leaving the block raises `LeaseLost`, but never instead of the body's own error.
    """

    _holding: ThreadWorkHolding

    def __init__(self, work: ThreadWorkHolding) -> None:
        super().__init__(work, Lease(work))

    def complete(self, result: Any = None) -> None:
        """Say that it is done, and what came of it: JSON, at most 64 KiB."""
        self._holding.engine.run(self._holding.completing(result))

    def fail(self, error: object, retry: Seconds | None = None) -> None:
        """Say that it has failed. With *retry* it is offered again after so many seconds, otherwise never.

        Work that was tried as often as it may be (see `Holdfast.offer`) has failed for good in any case.
        """
        self._holding.engine.run(self._holding.failing(error, retry))

    def release(self) -> None:
        """Return it: others are offered it at once, and it was not tried."""
        self._holding.engine.run(self._holding.releasing())

    def __enter__(self) -> Assignment:
        try:
            self.check()
            return self
        except errors.HoldfastError:
            raise
        except BaseException:
            self._holding.forget()
            raise

    def __exit__(self, kind: Kind, error: Error, traceback: Traceback) -> None:
        if self._holding.ended is not None:
            return
        try:
            self._holding.engine.run(self._holding.ending(error))
        except errors.HoldfastError as problem:
            if not noted(error, problem):
                raise
        except BaseException:
            self._holding.forget()
            raise


class ThreadWorkHolding(WorkHolding[Assignment], ThreadHolding):
    """The state of an assignment, in a program with threads."""

    engine: ThreadEngine

    def make_face(self) -> Assignment:
        return Assignment(self)
