"""Instances and assignments for threads. `aio` has those for tasks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any

from holdfast import errors
from holdfast.cluster.assignments import BaseAssignment
from holdfast.cluster.instances import BaseInstance
from holdfast.cluster.options import check_types
from holdfast.core import cluster_plans as plans
from holdfast.core.keeper import Kept
from holdfast.core.settings import Seconds, seconds
from holdfast.keeping import RETURNED
from holdfast.leases import with_note
from holdfast.options import whole
from holdfast.sync_leases import Lease, Lost

if TYPE_CHECKING:
    from holdfast.sync import Holdfast


class Instance(BaseInstance["Assignment"]):
    """What `Holdfast.join` returns: a member of the cluster. As a context manager it leaves at the end."""

    _client: Holdfast

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
        request = self._assignment(key, data, ttl, again)
        try:
            return self._client._run(self._assigning(request))  # noqa: SLF001
        except errors.HoldfastError:
            raise
        except BaseException:  # an interrupt may hit where no plan hears of it: nobody has what it got
            found = [each for each in self.assignments if each._task.grant.attempt == request.attempt]  # noqa: SLF001
            for each in found:
                each._forget()  # noqa: SLF001
            if not found:
                self._give_back_unknown(plans.undo_assign(request), request.attempt)
            raise

    def claim(self, *types: str, limit: int | None = None) -> list[Assignment]:
        """Take work of these types that is offered: up to *limit*, and as much as we can have.

        The type of work is its key up to the first colon. It does not wait; there may be nothing.
        """
        taken: list[Assignment] = []
        most = None if limit is None else whole(limit, "limit")
        me = self._client._attempts.new()  # noqa: SLF001
        plan = self._claiming_now(me, check_types(types), most, taken)
        try:
            self._client._run(plan)  # noqa: SLF001
            return taken
        except errors.HoldfastError:
            raise
        except BaseException:
            self._undo_claim(me, taken)
            raise

    def claims(self, *types: str, batch: int | None = None, timeout: Seconds | None = None) -> Claims:
        """Yield work of these types as it comes: ``for work in instance.claims("workflow"):``.

        It waits while there is none, or while we have as much as we can. It ends when we drain or leave, or
        after *timeout* without any, and raises `InstanceLost` when we are lost. Any number of threads may do
        this at once. *batch*: how much to take at a time, by default as much as there is room for: what was
        taken and not yielded yet is ours already, and goes to whoever asks next.
        """
        return Claims(self, check_types(types), batch, timeout)

    def drain(self, timeout: Seconds = 0.0) -> None:
        """Take no more work. Wait at most *timeout* for what is being done, then return the rest.

        Others are offered it at once. Whoever was at it is told: its lease is lost, ``drained``.
        """
        self._client._run(self._draining(seconds(timeout, "timeout")))  # noqa: SLF001

    def leave(self) -> None:
        """Stop being an instance. What is still assigned to it is returned, and lost to whoever was at it."""
        try:
            self._client._run(self._leaving())  # noqa: SLF001
        except errors.HoldfastError:
            raise
        except BaseException:
            self._leave_at_once()
            raise

    def __enter__(self) -> Instance:
        try:
            self.check()
            return self
        except errors.HoldfastError:
            raise
        except BaseException:
            self._leave_at_once()
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            self.leave()
        except errors.HoldfastError as problem:
            if error is None:
                raise
            with_note(error, problem)
        except BaseException:
            self._leave_at_once()
            raise

    def _make(self, task: plans.Task, kept: Kept) -> Assignment:
        return Assignment(self, task, kept)

    def _undo_claim(self, me: str, taken: list[Assignment]) -> None:
        """Give back what nobody has, after an interrupt that hit where no plan hears of it."""
        self._stop_waiting(me)
        for each in taken:
            each._forget()  # noqa: SLF001
        self._undo_asking(me)
        self._return_unwanted()


def join(instance: Instance) -> Instance:
    """Have an instance join. Interrupted, it leaves again."""
    client = instance._client  # noqa: SLF001
    try:
        client._run(instance._joining())  # noqa: SLF001
        if not client._closed:  # noqa: SLF001
            return instance
    except errors.HoldfastError:
        raise
    except BaseException:
        instance._leave_at_once()  # noqa: SLF001
        raise
    instance._leave_at_once()  # noqa: SLF001 - closed while we asked: nobody would heartbeat
    raise errors.Closed(repr(client))


class Claims(Iterator["Assignment"]):
    """Work as it comes: see `Instance.claims`. May be shared by threads."""

    def __init__(
        self, instance: Instance, types: tuple[str, ...], batch: int | None, timeout: Seconds | None
    ) -> None:
        self._instance = instance
        self._types = types
        self._batch = None if batch is None else whole(batch, "batch")
        self._timeout = None if timeout is None else seconds(timeout, "timeout")
        self._open = True
        instance._iterating.append(types)  # noqa: SLF001

    def __repr__(self) -> str:
        return f"<Claims of {', '.join(map(repr, self._types))} by {self._instance!r}>"

    def __next__(self) -> Assignment:
        if not self._open:
            raise StopIteration
        instance, client = self._instance, self._instance._client  # noqa: SLF001
        taken: list[Assignment] = []
        me = client._attempts.new()  # noqa: SLF001
        plan = instance._next(me, self._types, self._batch, self._timeout, taken)  # noqa: SLF001
        try:
            instance._take_ready(self._types, 1, taken)  # noqa: SLF001
            if taken:
                return taken[0]
            client._store.be_reachable()  # noqa: SLF001 - before anybody could want to signal us
            with suppress(errors.Closed):  # it leaves when its client is closed
                client._run(plan)  # noqa: SLF001
            if not taken:
                raise StopIteration
            return taken[0]
        except (errors.HoldfastError, StopIteration):
            raise
        except BaseException:
            instance._undo_claim(me, taken)  # noqa: SLF001
            raise

    def close(self) -> None:
        """Claim no more, and return what was taken and not yielded yet."""
        if self._stop():
            instance = self._instance
            instance._client._run(instance._returning(instance._unwanted(), RETURNED))  # noqa: SLF001

    def _stop(self) -> bool:
        was_open, self._open = self._open, False
        if was_open:
            with suppress(ValueError):
                self._instance._iterating.remove(self._types)  # noqa: SLF001
        return was_open

    def __enter__(self) -> Claims:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        with suppress(Exception):  # it was not made, or the interpreter is ending
            if self._stop() and self._instance._ready:  # noqa: SLF001
                keeping = self._instance._client._keeping  # noqa: SLF001
                keeping.do_soon(self._instance._return_unwanted, finalizing=True)  # noqa: SLF001


class Assignment(BaseAssignment):
    """Work that is ours. As a context manager it is completed at the end of the block.

    An exception fails it, to be tried again after a while (see `Holdfast.join`); an interrupt returns it. If
    it was lost meanwhile, leaving the block raises `LeaseLost`, but never instead of the body's own error.
    """

    _instance: Instance

    def __init__(self, instance: Instance, task: plans.Task, kept: Kept) -> None:
        super().__init__(instance, task, kept)
        self._lease: AssignedLease = AssignedLease(self, kept)

    @property
    def lease(self) -> Lease:
        """The lease of its key: token, trust, loss, fence are those of every lease."""
        return self._lease

    @property
    def lost(self) -> Lost:
        """An event to wait for: set when the work is lost, with its lease or with the instance."""
        return self._lease.lost

    def fence(self, connection: Any) -> None:
        """Make the transaction that is open on *connection* safe: see `Lease.fence`."""
        self.check()
        self._lease.fence(connection)

    def complete(self, result: Any = None) -> None:
        """Say that it is done, and what came of it: JSON, at most 64 KiB."""
        self._instance._client._run(self._completing(result))  # noqa: SLF001

    def fail(self, error: object, retry: Seconds | None = None) -> None:
        """Say that it has failed. With *retry* it is offered again after so many seconds, else never.

        Work that was tried as often as it may be (see `Holdfast.offer`) has failed for good in any case.
        """
        self._instance._client._run(self._failing(error, retry))  # noqa: SLF001

    def release(self) -> None:
        """Return it: others are offered it at once, and it was not tried."""
        self._instance._client._run(self._releasing())  # noqa: SLF001

    def __enter__(self) -> Assignment:
        try:
            self.check()
            return self
        except errors.HoldfastError:
            raise
        except BaseException:
            self._forget()
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._ended is not None:
            return
        try:
            self._instance._client._run(self._leaving_block(error))  # noqa: SLF001
        except errors.HoldfastError as problem:
            if error is None:
                raise
            with_note(error, problem)
        except BaseException:
            self._forget()
            raise


class AssignedLease(Lease):
    """The lease of an assignment, which ends with it."""

    def __init__(self, assignment: Assignment, kept: Kept) -> None:
        instance = assignment._instance  # noqa: SLF001
        self._assignment = assignment
        super().__init__(instance._client, kept, instance._wish(assignment._task))  # noqa: SLF001

    def release(self, *, within: Any = None) -> None:
        """Return the work: see `Assignment.release`."""
        if within is not None:
            raise errors.SettingsError(
                f"the work of {self.key!r} cannot be ended inside a transaction: fence() that, and end the"
                " work when it has committed"
            )
        self._assignment.release()

    def downgrade(self) -> None:
        """Refuse: work is for one at a time."""
        raise errors.SettingsError(f"{self.key!r} is work, which is for one at a time")

    def _tell(self) -> None:
        try:
            super()._tell()
        finally:
            self._assignment._lost_it()  # noqa: SLF001

    def _forget(self) -> None:
        self._assignment._forget()  # noqa: SLF001
