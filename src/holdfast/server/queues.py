"""Queues of requests in front of a store: what has come in waits until a thread has time for it."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol

from holdfast.core.requests import Request
from holdfast.signal_mask import block_signals


class Waiting(Protocol):
    """Who waits for an answer, and is told: an `asyncio.Future`, or what needs less than that."""

    def cancelled(self) -> bool: ...
    def done(self) -> bool: ...
    def set_result(self, answer: Any, /) -> None: ...
    def set_exception(self, error: Exception, /) -> None: ...


Asked = tuple[Request[Any], Waiting]
Group = list[Asked]


class RequestQueue:
    """Requests that wait, and the threads that take them from there, at most so many at a time."""

    def __init__(
        self,
        answer: Callable[[Group], None],
        threads: int,
        most: int,
        name: str,
        *,
        asks_all: bool = False,
    ) -> None:
        self._answer = answer
        self._most = most
        self._asks_all = asks_all  # whoever puts them here counts on an answer, though somebody may have gone
        self._waiting: deque[Asked] = deque()
        self._changed = threading.Condition()
        self._idle = 0  # threads that have nothing to do
        self._taken = time.monotonic()  # when something was taken last
        self.closed = False
        self.threads = [
            threading.Thread(target=self._run, name=f"{name}-{number}", daemon=True)
            for number in range(threads)
        ]
        for thread in self.threads:
            thread.start()

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def is_busy(self) -> bool:
        """Whether there is something to do, as well as can be told from outside."""
        return bool(self._waiting) or self._idle < len(self.threads)

    def is_stuck(self, seconds: float) -> bool:
        """Tell whether no thread has come back for that long."""
        return not self._idle and time.monotonic() - self._taken > seconds

    def take_back(self) -> Group:
        """Return all that wait, for somebody else to answer."""
        group: Group = []
        with suppress(IndexError):
            while True:
                group.append(self._waiting.popleft())
        return group

    def put(self, *asked: Asked, first: bool = False) -> None:
        """Have it taken as soon as a thread has time: after all that wait, or as the *first* of them."""
        if first:
            self._waiting.extendleft(asked)
        else:
            self._waiting.extend(asked)
        if self._idle:  # otherwise a thread that is busy looks again by itself
            with self._changed:
                self._changed.notify(len(asked))

    def close(self) -> None:
        """Let the threads end, once nothing waits."""
        with self._changed:
            self.closed = True
            self._changed.notify_all()

    def _run(self) -> None:
        block_signals()
        while group := self._take():
            self._answer(group)

    def _take(self) -> Group:
        """Return what is to be asked next; nothing when it is over."""
        group: Group = []
        while True:
            with suppress(IndexError):
                while len(group) < self._most:
                    asked = self._waiting.popleft()
                    if self._asks_all or not asked[1].cancelled():  # has gone: nothing was done yet
                        group.append(asked)
            if group:
                self._taken = time.monotonic()
                return group
            with self._changed:
                self._idle += 1  # before we look again: everybody who asks from now on notifies us
                if not self._waiting:
                    if self.closed:
                        return []
                    self._changed.wait()
                self._idle -= 1
