"""A lease for threads, and the ``with`` blocks that take and release one."""

from __future__ import annotations

import math
import threading
from typing import Any

from holdfast import errors
from holdfast.client.blocks import Error, Kind, Traceback
from holdfast.client.leases import BaseHold, BaseLease, BaseLeased, holding_of, noted
from holdfast.client.options import Wish
from holdfast.client.ownership import Block
from holdfast.client.sync.engine import ThreadEngine, ThreadHolding
from holdfast.clock import boot_time


class Lease(BaseLease):
    """A lock that we hold. As a context manager it is released at the end of the block."""

    _holding: ThreadHolding

    def __init__(self, holding: ThreadHolding) -> None:
        self._holding = holding
        holding.kept.tell = self._tell

    @property
    def lost(self) -> Lost:
        """An event to wait for: set when the lease is lost."""
        # Atomic: one for all threads.
        lost: Lost = self.__dict__.setdefault("_lost", Lost(self._holding, self))
        return lost

    def fence(self, connection: Any) -> None:
        """Make the transaction that is open on *connection* safe: nobody else gets the lock before it ends.

        Raise `LeaseLost` if somebody may have it already. Call it before the transaction's first read, and
        whatever pauses and clocks do, no update is lost. *connection* is one to the store's own database, of
        psycopg, PyMySQL, mysqlclient, sqlite3 or SQLAlchemy. In SQLite all other writers of the file wait.
        """
        self._holding.hear(self._holding.engine.ask_within(connection, self._holding.fencing()))

    def release(self, *, within: Any = None) -> None:
        """Give the lock back. Raise `LeaseLost` if we had lost it, `NotHeld` if it was released already.

        Any thread that has the lease may do so.

        *within*: a connection with an open transaction. The lock is released when that commits; if it is
        rolled back, we still hold it.
        """
        if within is None:
            try:
                self._holding.engine.run(self._holding.releasing())
            except errors.HoldfastError:
                raise
            except BaseException:
                self._holding.forget()
                raise
            return
        self._holding.hear(self._holding.engine.ask_within(within, self._holding.leaving()))
        self._holding.left_to_transaction = True

    def downgrade(self) -> None:
        """Go on with the lock shared: who waits to share it may come in, and nobody who wants it alone."""
        self._holding.engine.run(self._holding.downgrading())

    def __enter__(self) -> Lease:
        self._holding.check()
        self._holding.enter_block()
        return self

    def __exit__(self, kind: Kind, error: Error, traceback: Traceback) -> None:
        try:
            if self._holding.leave_to_transaction():
                return
            self.release()
        except errors.HoldfastError as problem:
            if not noted(error, problem):
                raise
        except BaseException:
            self._holding.forget()
            raise

    def _tell(self) -> None:
        if lost := self.__dict__.get("_lost"):
            lost.set()
        self._holding.report_loss()
        self._holding.lease_lost()


def acquire(engine: ThreadEngine, wish: Wish, within: Any = None) -> Lease:
    """Take a lock."""
    # Nothing may be called after it, not even `cast`: where a function is entered an interrupt can hit, and
    # there would be a lease that nobody has.
    return engine.obtain(wish, Lease, within)  # type: ignore[return-value]


class Lost(threading.Event):
    """Set once a lease is lost; it also says so when nobody had the time to set it yet."""

    def __init__(self, holding: ThreadHolding, lease: Lease) -> None:
        super().__init__()
        self._holding = holding
        self._lease = lease  # code that waits for it has the lease: what nobody has is given back

    def is_set(self) -> bool:
        """Tell whether the lease is lost, by the clock and not only by what was noticed."""
        return super().is_set() or self._holding.loss() is not None

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the lease is lost, at most *timeout* seconds; tell whether it is."""
        until = math.inf if timeout is None else boot_time() + timeout
        while not self.is_set() and (now := boot_time()) < until:
            # Not longer than the lease can be trusted: the keeper that should set us may wait for the store.
            super().wait(min(until, self._holding.kept.ends_at, now + threading.TIMEOUT_MAX) - now)
        return self.is_set()


class Leased(BaseLeased):
    """What is ours as long as its lease is, in a program with threads."""

    _lease: Lease

    @property
    def lost(self) -> Lost:
        """An event to wait for: set when it is lost, with its lease or its instance, or is to be stopped."""
        return self._lease.lost

    def fence(self, connection: Any) -> None:
        """Make the transaction that is open on *connection* safe from later holders: see `Lease.fence`."""
        self.check()
        self._lease.fence(connection)


class Hold(BaseHold):
    """What `Holdfast.hold` returns: acquires on entering the block, releases on leaving it."""

    _engine: ThreadEngine
    _lease: Lease | None = None

    def __enter__(self) -> Lease:
        if self._lease is not None:
            self._refuse_twice()
        wish = self._engine.wish(self._key, **self._options)
        try:
            self._lease = lease = acquire(self._engine, wish)
            if not wish.named:
                self._block = Block(wish.request.owner)
            return lease
        except errors.HoldfastError:
            raise
        except BaseException:  # an interrupt that hit here would leave a lease that nobody has
            self._engine.forget(self._key, wish.request.attempt, wish.request.lasts)
            self._leave_block()
            raise

    def __exit__(self, kind: Kind, error: Error, traceback: Traceback) -> None:
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
        if self._lease is not None:
            holding_of(self._lease).forget()
        self._leave_block()


def forget(hold: Hold) -> None:
    """Give back what a hold has, without a word, after an interrupt."""
    hold._forget()  # noqa: SLF001 - for code that enters holds for others


class Skipping(Hold):
    """A hold around a function that is skipped while somebody has the lock: then there is no lease."""

    def __enter__(self) -> Lease | None:  # type: ignore[override]
        try:
            return super().__enter__()
        except errors.LockTimeout:
            return None
