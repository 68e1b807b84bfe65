"""Operations for threads: what `Holdfast.operation` returns, and `Holdfast.run_once`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from holdfast import errors
from holdfast.client.blocks import Error, Kind, Traceback
from holdfast.client.leases import holding_of
from holdfast.client.operations import BaseOperation, Undertaking
from holdfast.client.options import HoldOptions
from holdfast.client.ownership import owner
from holdfast.client.sync.engine import ThreadEngine
from holdfast.client.sync.leases import Hold, Lease, forget

T = TypeVar("T")


class Operation(BaseOperation[Lease]):
    """What `Holdfast.operation` returns: `todo` tells whether it is ours to do.

    Leaving the block normally means that it is done; leaving it with an exception, that it failed.
    """

    _engine: ThreadEngine
    _companion: Hold | None = None

    def __enter__(self) -> Operation:
        it = self._it
        wish = it.wish()
        try:
            try:
                it.take(self._engine.obtain(wish, Lease))
                if it.lease is not None:
                    holding_of(it.lease).enter_block()
                if it.lease is not None and it.companion_key is not None:
                    # Before it is entered: an interrupt may hit right after that.
                    options = cast("HoldOptions", it.for_companion())
                    self._companion = Hold(self._engine, it.companion_key, options)
                    with owner(it.lease.owner):
                        self._companion.__enter__()
                    it.lease.check()  # it may have been lost while we waited
                return self
            except errors.HoldfastError as problem:
                if it.lease is not None:
                    self._leave(problem)
                raise
        except errors.HoldfastError:
            raise
        except BaseException:  # an interrupt that hit here would leave a lease that nobody has
            if it.lease is None:
                self._engine.forget(self.key, wish.request.attempt, wish.request.lasts)
            self._forget()
            raise

    def __exit__(self, kind: Kind, error: Error, traceback: Traceback) -> None:
        try:
            if self._it.lease is not None:
                self._leave(error)
        except errors.HoldfastError:
            raise
        except BaseException:
            self._forget()
            raise

    def _leave(self, error: BaseException | None) -> None:
        """Tell the outcome; then let in the others on this resource, who shall find it told."""
        self._it.conclude(error)
        try:
            self._it.lease.__exit__(type(error) if error else None, error, None)
        except errors.HoldfastError as problem:
            self._leave_companion(problem)
            raise
        self._leave_companion(error)

    def _leave_companion(self, error: BaseException | None) -> None:
        if self._companion is not None:
            self._companion.__exit__(type(error) if error else None, error, None)

    def _forget(self) -> None:
        """Give everything back without a word, after an interrupt."""
        try:
            if self._it.lease is not None:
                holding_of(self._it.lease).forget()
        finally:
            if self._companion is not None:
                forget(self._companion)


def run_once(it: Undertaking, do: Callable[[], T], ready: Callable[[], Any] | None) -> T | Any:
    """Do something unless it is there already or somebody else does it; see `Holdfast.run_once`."""
    while ready is None or not ready():
        it = it.again()
        with Operation(it.engine, it) as mine:
            if mine.todo:
                # Somebody may have finished it between our look and our grant.
                if ready is not None and ready():
                    it.keep = 0.0  # there is no result
                    return None
                result = do()
                problem = it.pass_on(result)
        if mine.todo:
            if problem is not None:  # it is done all the same, and nobody is to do it again
                raise problem
            return result
        if ready is None or ready():
            return mine.result
        # It was done, and is not there any more: `again` asks for another result than the one that was seen.
    return None
