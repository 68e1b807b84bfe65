"""Locks with the methods of the standard library's, for code that expects one of those."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Literal

from holdfast import errors, identity
from holdfast.core.settings import Seconds
from holdfast.leases import with_note

if TYPE_CHECKING:
    from holdfast.aio import AsyncHoldfast
    from holdfast.aio_leases import AsyncLease
    from holdfast.sync import Holdfast
    from holdfast.sync_leases import Lease


class Lock:
    """A lock that speaks `threading.Lock`, per owner: what one thread acquired, another cannot release.

    Unlike `threading.Lock` it may be entered again by its owner; with ``limit=1`` that raises instead of
    waiting for ever.
    """

    def __init__(self, client: Holdfast, key: str, *, ttl: Seconds | None, limit: int | None) -> None:
        self._client = client
        self._ttl = ttl
        self._limit = limit
        self._leases: list[Lease] = []  # of all owners
        self.key = key

    def __repr__(self) -> str:
        return f"<Lock {self.key!r}>"

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Acquire as `threading.Lock.acquire` does."""
        if not blocking and timeout != -1:
            raise ValueError("can't specify a timeout for a non-blocking call")
        wait = 0.0 if not blocking else None if timeout == -1 else timeout
        hold = self._client.hold(self.key, ttl=self._ttl, timeout=wait, limit=self._limit)
        try:
            self._leases.append(hold.__enter__())
            return True
        except errors.LockTimeout:
            return False
        except errors.HoldfastError:
            raise
        except BaseException:  # an interrupt that hit here would leave a lease that nobody has
            hold._forget()  # noqa: SLF001
            self._let_go(hold._lease)  # noqa: SLF001
            raise

    def release(self) -> None:
        """Release what the current owner acquired last."""
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
        owner = identity.current_owner()
        for lease in self._leases[::-1]:  # a copy: other threads come and go
            if lease.owner == owner and not lease._released:  # noqa: SLF001 - as an interrupt may leave it
                return lease
        raise errors.NotHeld(self.key, "the current task or thread has not acquired it")

    def _let_go(self, lease: Lease | None) -> None:
        """Have it no more. Should an interrupt have hit, that is all it takes to have it given back."""
        if lease in self._leases:
            self._leases.remove(lease)

    def locked(self) -> bool:
        """Tell whether anybody holds the lock."""
        view = self._client.inspect(self.key)
        return view is not None and view.state == "held"

    def __enter__(self) -> bool:
        return self.acquire()

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
    """A lock that speaks `asyncio.Lock`, per owner: what one task acquired, another cannot release."""

    def __init__(self, client: AsyncHoldfast, key: str, *, ttl: Seconds | None, limit: int | None) -> None:
        self._client = client
        self._ttl = ttl
        self._limit = limit
        self._leases: dict[str, list[AsyncLease]] = {}
        self.key = key

    def __repr__(self) -> str:
        return f"<AsyncLock {self.key!r}>"

    async def acquire(self) -> Literal[True]:
        """Acquire as `asyncio.Lock.acquire` does."""
        lease = await self._client.acquire(self.key, ttl=self._ttl, limit=self._limit)
        self._leases.setdefault(lease.owner, []).append(lease)
        return True

    async def release(self) -> None:
        """Release what the current owner acquired last. Unlike asyncio's it asks a store: await it."""
        owner = identity.current_owner()
        leases = self._leases.get(owner)
        if not leases:
            raise errors.NotHeld(self.key, "the current task has not acquired it")
        lease = leases.pop()
        if not leases:
            del self._leases[owner]
        await lease.release()

    async def locked(self) -> bool:
        """Tell whether anybody holds the lock."""
        view = await self._client.inspect(self.key)
        return view is not None and view.state == "held"

    async def __aenter__(self) -> None:
        await self.acquire()

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
