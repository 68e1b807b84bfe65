"""A bounded pool of connections to a server: made when needed, looked at before use, replaced when broken."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

from holdfast import errors


class Pooled(Protocol):
    """What a pool needs to know of a connection."""

    def is_alive(self) -> bool:
        """Tell, without a round trip, whether the connection is still there and has nothing unread."""

    def close(self) -> None: ...


C = TypeVar("C", bound=Pooled)

# Connections that a forked child inherited. To close one would say goodbye in the parent's name.
_of_the_parent: list[Any] = []

LONGEST_REST = 5.0  # how long a fork waits for whoever is taking a connection
A_LOOK = 1.0  # how often one who waits looks whether a place was lost to an interrupt


class Slot:
    """The right to one connection, while it is being made."""


class Pool(Generic[C]):
    """At most *size* connections, the one used last first. Safe with threads.

    Without *keep* each is closed after use: they are borrowed from another pool.

    What is lent is known by weak references only. Ctrl-C can hit between any two steps of the borrower, so
    that nobody gives it back; a place is then free again when the garbage collector has been there.
    """

    def __init__(self, connect: Callable[[], C], size: int, timeout: float, *, keep: bool = True) -> None:
        self._connect = connect
        self._keep = keep
        self._size = size
        self._timeout = timeout
        self._closed = False
        self._rests = False
        self._start()

    def _start(self) -> None:
        self._idle: list[C] = []
        self._lent: weakref.WeakSet[Any] = weakref.WeakSet()
        # Entered by its own: an interrupt in the Python code of a Condition's __enter__ leaves it locked.
        self._mutex = threading.Lock()
        self._changed = threading.Condition(self._mutex)

    @property
    def open(self) -> int:
        """How many connections there are, or are being made."""
        return len(self._idle) + len(self._lent)

    def take(self, *, urgent: bool = False) -> C:
        """Return a connection that nobody else uses, until it is given back or discarded.

        *urgent*: rather one too many than to wait. Renewals must not queue behind requests that hang.
        """
        deadline = time.monotonic() + self._timeout
        while True:
            with self._mutex:
                while not self._idle and len(self._lent) >= self._size and not urgent:
                    left = deadline - time.monotonic()
                    if left <= 0:
                        raise errors.StoreUnavailable(
                            f"all {self._size} connections were busy for {self._timeout:g} s;"
                            " set a larger pool_size in the url"
                        )
                    self._changed.wait(min(left, A_LOOK))
                taken: C | Slot = self._idle.pop() if self._idle else Slot()
                self._lent.add(taken)
            if isinstance(taken, Slot):
                return self._make(taken)
            if taken.is_alive():
                return taken
            self.discard(taken)

    def _make(self, slot: Slot) -> C:
        try:
            connection = self._connect()
        except BaseException:
            self._leave(slot)
            raise
        with self._mutex:
            self._lent.discard(slot)
            self._lent.add(connection)
        return connection

    def give_back(self, connection: C) -> None:
        """Let others use a connection again."""
        with self._mutex:
            if self._keep and self.open <= self._size and not self._closed:
                self._lent.discard(connection)
                self._idle.append(connection)
                self._changed.notify_all()
                return
        self.discard(connection)

    def discard(self, connection: C) -> None:
        """Close a connection that cannot be used again."""
        self._leave(connection)
        connection.close()

    def _leave(self, lent: C | Slot) -> None:
        with self._mutex:
            self._lent.discard(lent)
            self._changed.notify_all()

    def reopen(self) -> None:
        """Keep connections again, after a close."""
        self._closed = False

    def close(self) -> None:
        """Close all connections that are not in use; the others follow when they are given back."""
        with self._mutex:
            self._closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def before_fork(self) -> None:
        """Let nobody change the pool while the process forks."""
        self._rests = False  # an interrupt while we wait must not leave what was true of the fork before
        self._rests = self._mutex.acquire(timeout=LONGEST_REST)

    def after_fork_in_parent(self) -> None:
        """Go on."""
        rests, self._rests = self._rests, False
        if rests:
            self._mutex.release()

    def after_fork(self) -> None:
        """Begin again in a forked child."""
        _of_the_parent.extend(self._idle)
        _of_the_parent.extend(self._lent)
        self._start()
