"""A lease for threads, and the ``with`` blocks that take and release one."""

from __future__ import annotations

import math
import sys
import threading
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast import errors
from holdfast.clock import boot_time
from holdfast.core.keeper import Kept
from holdfast.core.requests import NotHeld, Request
from holdfast.leases import BaseLease, with_note
from holdfast.options import HoldOptions, OnBusy
from holdfast.ownership import Block

if TYPE_CHECKING:
    from holdfast.client import Wish
    from holdfast.sync import Holdfast

A = TypeVar("A")


class Lease(BaseLease):
    """A lock that we hold. As a context manager it is released at the end of the block."""

    def __init__(self, client: Holdfast, kept: Kept, wish: Wish) -> None:
        super().__init__(kept, wish)
        self._client = client
        kept.tell = self._tell

    @property
    def lost(self) -> Lost:
        """An event to wait for: set when the lease is lost."""
        lost: Lost = self.__dict__.setdefault("_lost", Lost(self))  # atomic: one for all threads
        return lost

    def fence(self, connection: Any) -> None:
        """Make the transaction that is open on *connection* safe: nobody else gets the lock before it ends.

        Raise `LeaseLost` if somebody may have it already. Call it before the transaction's first read, and
        whatever pauses and clocks do, no update is lost. *connection* is one to the store's own database, of
        psycopg, PyMySQL, mysqlclient, sqlite3 or SQLAlchemy. In SQLite all other writers of the file wait.
        """
        if isinstance(answer := self._within(connection, self._fencing()), NotHeld):
            self._lose_in_transaction(self._client, answer)

    def release(self, *, within: Any = None) -> None:
        """Give the lock back. Raise `LeaseLost` if we had lost it, `NotHeld` if it was released already.

        Any thread that has the lease may do so.

        *within*: a connection with an open transaction. The lock is released when that commits; if it is
        rolled back, we still hold it.
        """
        if within is None:
            try:
                self._client._run(self._releasing(self._client))  # noqa: SLF001
            except errors.HoldfastError:
                raise
            except BaseException:
                self._forget()
                raise
        elif isinstance(answer := self._within(within, self._leaving()), NotHeld):
            self._lose_in_transaction(self._client, answer)
        else:
            self._left()

    def downgrade(self) -> None:
        """Go on with the lock shared: who waits to share it may come in, and nobody who wants it alone."""
        self._client._run(self._downgrading(self._client))  # noqa: SLF001

    def _within(self, connection: Any, request: Request[A]) -> A:
        self._client._check_open()  # noqa: SLF001
        return self._client._store.execute_within(connection, request)  # noqa: SLF001

    def __enter__(self) -> Lease:
        self.check()
        self._enter_block()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if self._leave_to_transaction(self._client):
                return
            self.release()
        except errors.HoldfastError as problem:
            if error is None:
                raise
            with_note(error, problem)
        except BaseException:
            self._forget()
            raise

    def _forget(self) -> None:
        """Give it back without a word, when an interrupt has hit while it was released."""
        grant = self._kept.grant
        waits = not self._kept.leaving
        self._client._forget(grant.key, grant.attempt, grant.ttl, waits=waits, held=True)  # noqa: SLF001
        self._leave_block()
        self._released = True

    def _tell(self) -> None:
        if lost := self.__dict__.get("_lost"):
            lost.set()
        self._report_loss()


class Lost(threading.Event):
    """Set once a lease is lost; it also says so when nobody had the time to set it yet."""

    def __init__(self, lease: Lease) -> None:
        super().__init__()
        self._lease = lease

    def is_set(self) -> bool:
        """Tell whether the lease is lost, by the clock and not only by what was noticed."""
        return super().is_set() or self._lease._loss() is not None  # noqa: SLF001

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the lease is lost, at most *timeout* seconds; tell whether it is."""
        until = math.inf if timeout is None else boot_time() + timeout
        while not self.is_set() and (now := boot_time()) < until:
            # Not longer than the lease can be trusted: whoever should set us may be waiting for the store.
            ends_at = self._lease._kept.ends_at  # noqa: SLF001
            super().wait(min(until, ends_at, now + threading.TIMEOUT_MAX) - now)
        return self.is_set()


class Hold:
    """What `Holdfast.hold` returns: acquires on entering the block, releases on leaving it."""

    def __repr__(self) -> str:
        return f"<Hold {self._key!r} {self._lease or 'not entered'}>"

    def __init__(self, client: Holdfast, key: str, options: HoldOptions) -> None:
        self._client = client
        self._key = key
        self._options = options
        self._lease: Lease | None = None
        self._block: Block | None = None  # not the lease: a block has frames, and those have the lease

    def __enter__(self) -> Lease:
        if self._lease is not None:
            raise errors.SettingsError(f"this hold of {self._key!r} was entered before; call hold() again")
        wish = self._client._wish(self._key, **self._options)  # noqa: SLF001
        try:
            self._lease = lease = self._client._acquire(wish)  # noqa: SLF001
            if not wish.named:
                self._block = Block(lease.owner, sys._getframe())  # noqa: SLF001
            return lease
        except errors.HoldfastError:
            raise
        except BaseException:  # an interrupt that hit here would leave a lease that nobody has
            self._client._forget(self._key, wish.request.attempt, wish.request.lasts)  # noqa: SLF001
            self._leave_block()
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            self._leave_block()
            if self._lease is not None:
                self._lease.__exit__(kind, error, traceback)
        except errors.HoldfastError:
            raise
        except BaseException:
            self._forget()
            raise

    def _forget(self) -> None:
        """Give it back without a word, after an interrupt."""
        if self._lease is not None:
            self._lease._forget()  # noqa: SLF001
        self._leave_block()

    def _leave_block(self) -> None:
        if self._block is not None:
            self._block.leave()


class Guarded(Hold):
    """A hold around a guarded function: None instead of a lease if it is to be skipped."""

    def __init__(self, client: Holdfast, key: str, options: HoldOptions, on_busy: OnBusy) -> None:
        super().__init__(client, key, options)
        self._skip = on_busy == "skip"

    def __enter__(self) -> Lease | None:  # type: ignore[override]
        try:
            return super().__enter__()
        except errors.LockTimeout:
            if self._skip:
                return None
            raise
