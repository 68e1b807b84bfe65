"""What a turn does things with: the library for threads or for tasks, and connections to the resources."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol, TypeVar

from holdfast import Holdfast
from holdfast.client.leases import BaseLease
from holdfast.clock import boot_time
from holdfast.core import keys
from proof.histories.records import BARE, FENCED, OPERATION, RAISED
from proof.traffic import resources
from proof.traffic.excuses import Planned

T = TypeVar("T")


def run(turn: Coroutine[Any, Any, T]) -> T:
    """Drive a coroutine whose hands block instead of suspending."""
    try:
        turn.send(None)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]
    raise AssertionError("the hands of a thread must not suspend")


@dataclass(slots=True)
class Doing:
    """What is to be done by one for all, and, if it was us, for how long we trusted to be the only one."""

    value: str
    seconds: float
    fails: bool = False
    once: bool = False  # with run_once, which shows no lease
    token: int = 0
    since: float = 0.0
    until: float = 0.0

    def began(self, lease: BaseLease) -> None:
        self.token, self.since, self.until = lease.token, boot_time(), boot_time()

    def ended(self, lease: BaseLease) -> None:
        asked = boot_time()
        # What a program is told counts, whatever the library has in its books.
        self.until = asked if lease.held else min(asked, lease._holding.kept.trusted_until)

    def outcome(self) -> str:
        if self.fails:
            raise Planned(self.value)
        return self.value


class Hands(Protocol):
    """What a turn can do."""

    leases: dict[str, BaseLease]  # what is held now, by attempt: for whoever forks

    async def acquire(self, key: str, **options: Any) -> BaseLease: ...

    async def try_acquire(self, key: str, **options: Any) -> BaseLease | None: ...

    def block(self, key: str, **options: Any) -> AbstractAsyncContextManager[BaseLease]:
        """Return a block of the library. What its ``__aenter__`` enters, its caller is inside of."""

    async def release(self, lease: Any) -> None: ...

    async def downgrade(self, lease: Any) -> None: ...

    async def elsewhere(self, doing: Coroutine[Any, Any, T]) -> T:
        """Do something in another thread or task, in a copy of this context, and wait until it is done."""

    async def operate(self, key: str, doing: Doing, **options: Any) -> Any:
        """Do it, or wait until it was done; return its result."""

    async def break_lock(self, key: str) -> None: ...

    async def update(
        self, kind: str, lease: Any, key: str, value: str, seconds: float, check: bool
    ) -> None: ...

    async def pause(self, seconds: float) -> None: ...

    def forget(self, attempt: str) -> None:
        """Let a lease end by itself: neither renew it nor give it back."""


class ThreadHands:
    """The hands of a thread. They block, and never suspend."""

    def __init__(self, locks: Holdfast, updater: Updater) -> None:
        self.locks = locks
        self.leases: dict[str, BaseLease] = {}
        self._updater = updater
        self._others = ThreadPoolExecutor(8, "other-hands")  # more than there are turns at once

    async def acquire(self, key: str, **options: Any) -> BaseLease:
        return self.locks.acquire(key, **options)

    async def try_acquire(self, key: str, **options: Any) -> BaseLease | None:
        return self.locks.try_acquire(key, **options)

    def block(self, key: str, **options: Any) -> AbstractAsyncContextManager[BaseLease]:
        return ThreadBlock(self.locks.hold(key, **options))

    async def release(self, lease: Any) -> None:
        lease.release()

    async def elsewhere(self, doing: Coroutine[Any, Any, T]) -> T:
        done = self._others.submit(contextvars.copy_context().run, run, doing)
        try:
            return done.result()
        except BaseException:  # an interrupt: what was begun ends before the turn does
            wait([done])
            raise

    async def downgrade(self, lease: Any) -> None:
        lease.downgrade()

    async def operate(self, key: str, doing: Doing, **options: Any) -> Any:
        def do() -> str:
            pause(doing.seconds)
            return doing.outcome()

        if doing.once:
            return self.locks.run_once(key, do, **options)
        with self.locks.operation(OPERATION, operation_of(key), **options) as mine:
            if not mine.todo:
                return mine.result
            doing.began(mine.lease)
            try:
                mine.succeed(do())
            finally:
                doing.ended(mine.lease)
        return doing.value

    async def break_lock(self, key: str) -> None:
        self.locks.break_lock(key, reason="a turn of the traffic wants it")

    async def update(self, kind: str, lease: Any, key: str, value: str, seconds: float, check: bool) -> None:
        self._updater.update(kind, lease, key, value, lambda: pause(seconds), check=check)

    async def pause(self, seconds: float) -> None:
        pause(seconds)

    def forget(self, attempt: str) -> None:
        self.locks._engine.keeper.drop(attempt)

    def forget_owner(self, owner: str) -> None:
        """Let everything of an owner end by itself: an interrupt may have hit where nobody heard of it."""
        for kept in self.locks._engine.keeper.kept():
            if kept.grant.owner == owner:
                self.forget(kept.grant.attempt)
                self.leases.pop(kept.grant.attempt, None)


class ThreadBlock:
    """A block for threads, with the methods of one for tasks."""

    def __init__(self, hold: Any) -> None:
        self._hold = hold

    async def __aenter__(self) -> BaseLease:
        return self._hold.__enter__()  # type: ignore[no-any-return]

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._hold.__exit__(kind, error, traceback)


class Updater:
    """Updates resources, on connections that are used again until they fail. *urls*: by kind of resource."""

    def __init__(self, urls: Mapping[str, str]) -> None:
        self._urls = urls
        self._idle: dict[str, deque[resources.Resources]] = {kind: deque() for kind in urls}

    def update(
        self,
        kind: str,
        lease: Any,
        key: str,
        value: str,
        pause: Callable[[], None],
        *,
        check: bool,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        """Update *key* in the way that *kind* says."""
        idle = self._idle[kind]
        try:
            connection = idle.pop()
        except IndexError:
            connection = resources.connect(self._urls[kind])
        try:
            if kind == FENCED:
                resources.fenced_update(lease, connection, key, value, pause, loop)
            elif kind == RAISED:
                resources.raised_update(lease, connection, key, value, pause, check=check)
            else:
                assert kind == BARE
                resources.bare_update(lease, connection, key, value, pause, check=check)
        finally:
            if connection.alive:
                idle.append(connection)

    def close(self) -> None:
        for idle in self._idle.values():
            while idle:
                idle.pop().close()


def pause(seconds: float) -> None:
    """Wait. Under libfaketime `time.sleep` fails."""
    threading.Event().wait(seconds)


def operation_of(key: str) -> str:
    """Return the resource of an operation's key."""
    resource = key.partition(":")[2]
    assert keys.operation(OPERATION, resource) == key
    return resource
