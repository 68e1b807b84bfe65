"""Locks with the methods of the standard library's, for code that expects one of those."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Literal, TypeVar

from holdfast import errors, identity
from holdfast.core.settings import Seconds
from holdfast.leases import BaseLease, with_note

if TYPE_CHECKING:
    from holdfast.aio import AsyncHoldfast
    from holdfast.aio_leases import AsyncLease
    from holdfast.sync import Holdfast
    from holdfast.sync_leases import Lease


L = TypeVar("L", bound=BaseLease)


class Lock:
    """A lock that speaks `threading.Lock`: any thread may release what another one acquired.

    A block (``with lock:``) may be entered again from inside, unlike one of `threading.Lock`; with
    ``limit=1`` that raises instead of waiting for ever. Outside of a block, acquiring twice waits, as it does
    there.
    """

    def __init__(self, client: Holdfast, key: str, *, ttl: Seconds | None, limit: int | None) -> None:
        self._client = client
        self._ttl = ttl
        self._limit = limit
        self._leases: list[tuple[str, Lease]] = []  # each with the thread or task that took it
        self.key = key

    def __repr__(self) -> str:
        return f"<Lock {self.key!r}>"

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Acquire as `threading.Lock.acquire` does."""
        if not blocking and timeout != -1:
            raise ValueError("can't specify a timeout for a non-blocking call")
        return self._acquire(0.0 if not blocking else None if timeout == -1 else timeout) is not None

    def _acquire(self, timeout: float | None, *, entering: bool = False) -> Lease | None:
        client = self._client
        wish = client._wish(self.key, ttl=self._ttl, timeout=timeout, limit=self._limit)  # noqa: SLF001
        lease: Lease | None = None
        try:
            lease = client._acquire(wish)  # noqa: SLF001
            self._leases.append((identity.name(), lease))
            if entering:
                lease._enter_block()  # noqa: SLF001
            return lease
        except errors.LockTimeout:
            return None
        except errors.HoldfastError:
            raise
        except BaseException:  # an interrupt that hit here would leave a lease that nobody has
            if lease is None:
                client._forget(self.key, wish.request.attempt, wish.request.lasts)  # noqa: SLF001
            else:
                lease._forget()  # noqa: SLF001
                self._let_go(lease)
            raise

    def release(self) -> None:
        """Release what the current thread or task acquired last, otherwise what any other did."""
        lease: Lease | None = None
        try:
            lease = self._last()
            lease.__exit__(None, None, None)
        except errors.HoldfastError:
            raise
        except BaseException:  # an interrupt
            lease = lease or self._last()
            lease._forget()  # noqa: SLF001
            raise
        finally:
            self._let_go(lease)

    def _last(self) -> Lease:
        return last(self.key, [each for each in self._leases if not each[1]._released])  # noqa: SLF001

    def _let_go(self, lease: Lease | None) -> None:
        """Have it no more. Should an interrupt have hit, that is all it takes to have it given back."""
        for each in self._leases[::-1]:  # a copy: other threads come and go
            if each[1] is lease:
                self._leases.remove(each)

    def locked(self) -> bool:
        """Tell whether anybody holds the lock."""
        view = self._client.inspect(self.key)
        return view is not None and view.state == "held"

    def __enter__(self) -> bool:
        self._acquire(None, entering=True)
        return True

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            self.release()
        except errors.HoldfastError as problem:
            if error is None:
                raise
            with_note(error, problem)


class AsyncLock:
    """A lock that speaks `asyncio.Lock`: any task may release what another one acquired."""

    def __init__(self, client: AsyncHoldfast, key: str, *, ttl: Seconds | None, limit: int | None) -> None:
        self._client = client
        self._ttl = ttl
        self._limit = limit
        self._leases: list[tuple[str, AsyncLease]] = []  # each with the task that took it
        self.key = key

    def __repr__(self) -> str:
        return f"<AsyncLock {self.key!r}>"

    async def acquire(self) -> Literal[True]:
        """Acquire as `asyncio.Lock.acquire` does."""
        await self._acquire()
        return True

    async def _acquire(self) -> AsyncLease:
        lease = await self._client.acquire(self.key, ttl=self._ttl, limit=self._limit)
        self._leases.append((identity.name(), lease))
        return lease

    async def release(self) -> None:
        """Release what the current task acquired last, otherwise what any other did.

        Unlike asyncio's it asks a store: await it.
        """
        lease = last(self.key, self._leases)
        self._leases = [each for each in self._leases if each[1] is not lease]
        await lease.release()

    async def locked(self) -> bool:
        """Tell whether anybody holds the lock."""
        view = await self._client.inspect(self.key)
        return view is not None and view.state == "held"

    async def __aenter__(self) -> None:
        (await self._acquire())._enter_block()  # noqa: SLF001

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            await self.release()
        except errors.HoldfastError as problem:
            if error is None:
                raise
            with_note(error, problem)


def last(key: str, leases: list[tuple[str, L]]) -> L:
    """Return what the current thread or task took last, otherwise what any other did.

    First its own: a thread that has lost its lease must not release that of the next.
    """
    me = identity.name()
    for taker, lease in reversed(leases):
        if taker == me:
            return lease
    for _, lease in reversed(leases):
        if lease.held:
            return lease
    raise errors.NotHeld(key, "nobody has acquired it with this object, or it was released already")
