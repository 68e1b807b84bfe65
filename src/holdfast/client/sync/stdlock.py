"""What `Holdfast.lock` returns: a lock for code that expects a `threading.Lock`."""

from __future__ import annotations

from holdfast import errors, identity
from holdfast.client import questions
from holdfast.client.blocks import Error, Kind, Traceback
from holdfast.client.leases import holding_of, noted
from holdfast.client.stdlock import BaseLock
from holdfast.client.sync.engine import ThreadEngine
from holdfast.client.sync.leases import Lease, acquire


class Lock(BaseLock[Lease]):
    """A lock that speaks `threading.Lock`: any thread may release what another one acquired.

    A block (``with lock:``) may be entered again from inside, unlike one of `threading.Lock`; with
    ``limit=1`` that raises instead of waiting for ever. Outside of a block, acquiring twice waits, as it does
    there.
    """

    _engine: ThreadEngine

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Acquire as `threading.Lock.acquire` does."""
        if not blocking and timeout != -1:
            raise ValueError("can't specify a timeout for a non-blocking call")
        return self._acquire(0.0 if not blocking else None if timeout == -1 else timeout) is not None

    def _acquire(self, timeout: float | None, *, entering: bool = False) -> Lease | None:
        engine = self._engine
        wish = engine.wish(self.key, ttl=self._ttl, timeout=timeout, limit=self._limit)
        lease: Lease | None = None
        try:
            lease = acquire(engine, wish)
            self._leases.append((identity.name(), lease))
            if entering:
                holding_of(lease).enter_block()
            return lease
        except errors.LockTimeout:
            return None
        except errors.HoldfastError:
            raise
        except BaseException:  # an interrupt that hit here would leave a lease that nobody has
            if lease is None:
                engine.forget(self.key, wish.request.attempt, wish.request.lasts)
            else:
                holding_of(lease).forget()
                self._let_go(lease)
            raise

    def release(self) -> None:
        """Release what the current thread or task acquired last, otherwise what any other did."""
        lease: Lease | None = None
        try:
            lease = self._newest()
            lease.__exit__(None, None, None)
        except errors.HoldfastError:
            raise
        except BaseException:  # an interrupt
            lease = lease or self._newest()
            holding_of(lease).forget()
            raise
        finally:
            self._let_go(lease)

    def _newest(self) -> Lease:
        return self._last([each for each in self._leases if not holding_of(each[1]).released])

    def _let_go(self, lease: Lease | None) -> None:
        """Have it no more. Should an interrupt have hit, that is all it takes to have it given back."""
        for each in self._leases[::-1]:  # a copy: other threads come and go
            if each[1] is lease:
                self._leases.remove(each)

    def locked(self) -> bool:
        """Tell whether anybody holds the lock."""
        view = self._engine.ask(questions.inspect(self.key))
        return view is not None and view.state == "held"

    def __enter__(self) -> bool:
        self._acquire(None, entering=True)
        return True

    def __exit__(self, kind: Kind, error: Error, traceback: Traceback) -> None:
        try:
            self.release()
        except errors.HoldfastError as problem:
            if not noted(error, problem):
                raise
