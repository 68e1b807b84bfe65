"""A bounded pool of connections to a server: made when needed, looked at before use, replaced when broken."""

from __future__ import annotations

import threading
import time
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


class Pool(Generic[C]):
    """At most *size* connections, the one used last first. Safe with threads.

    Without *keep* each is closed after use: they are borrowed from another pool.
    """

    def __init__(self, connect: Callable[[], C], size: int, timeout: float, *, keep: bool = True) -> None:
        self._connect = connect
        self._keep = keep
        self._size = size
        self._timeout = timeout
        self._closed = False
        self._start()

    def _start(self) -> None:
        self._idle: list[C] = []
        self._open = 0
        self._changed = threading.Condition(threading.Lock())

    def take(self, *, urgent: bool = False) -> C:
        """Return a connection that nobody else uses, until it is given back or discarded.

        *urgent*: rather one too many than to wait. Renewals must not queue behind requests that hang.
        """
        deadline = time.monotonic() + self._timeout
        while True:
            with self._changed:
                while not self._idle and self._open >= self._size and not urgent:
                    if not self._changed.wait(deadline - time.monotonic()) and time.monotonic() >= deadline:
                        raise errors.StoreUnavailable(
                            f"all {self._size} connections were busy for {self._timeout:g} s;"
                            " set a larger pool_size in the url"
                        )
                connection = self._idle.pop() if self._idle else None
                if connection is None:
                    self._open += 1  # a place for the one we are about to make
            if connection is None:
                break
            if connection.is_alive():
                return connection
            self.discard(connection)
        try:
            return self._connect()
        except BaseException:
            self._leave()
            raise

    def give_back(self, connection: C) -> None:
        """Let others use a connection again."""
        with self._changed:
            if self._keep and self._open <= self._size and not self._closed:
                self._idle.append(connection)
                self._changed.notify()
                return
        self.discard(connection)

    def discard(self, connection: C) -> None:
        """Close a connection that cannot be used again."""
        self._leave()
        connection.close()

    def _leave(self) -> None:
        with self._changed:
            self._open -= 1
            self._changed.notify()

    def reopen(self) -> None:
        """Keep connections again, after a close."""
        self._closed = False

    def close(self) -> None:
        """Close all connections that are not in use; the others follow when they are given back."""
        with self._changed:
            self._closed = True
            idle, self._idle = self._idle, []
            self._open -= len(idle)
        for connection in idle:
            connection.close()

    def before_fork(self) -> None:
        """Let nobody change the pool while the process forks."""
        self._changed.acquire()

    def after_fork_in_parent(self) -> None:
        self._changed.release()

    def after_fork(self) -> None:
        """Begin anew in a forked child."""
        _of_the_parent.extend(self._idle)
        self._start()
