"""`Holdfast`, the client for threads. It runs the plans of the core, and is the part that waits."""

from __future__ import annotations

import functools
import math
import queue
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import TracebackType
from typing import Any, Literal, ParamSpec, TypeVar, Unpack, overload

from holdfast import errors, exits
from holdfast.client import BaseClient, BaseLease, Wish, with_note
from holdfast.clock import boot_time
from holdfast.core.data import replace
from holdfast.core.events import Event, HistoryLevel
from holdfast.core.keeper import Kept
from holdfast.core.plans import Abandoned, Plan, Wait, ask
from holdfast.core.requests import (
    Acquire,
    Broken,
    Granted,
    List,
    LockState,
    LockView,
    NotHeld,
    Queued,
    Request,
    Signal,
    Swept,
    Withdraw,
)
from holdfast.core.settings import Seconds, Settings
from holdfast.options import (
    Guard,
    HoldOptions,
    LeaseOptions,
    OnBusy,
    check_options,
    check_try_options,
    refuse_computed_key,
)
from holdfast.stdlock import Lock

A = TypeVar("A")
T = TypeVar("T")
P = ParamSpec("P")


class Holdfast(BaseClient):
    """Locks for threads and processes.

    *url* names the store; without it, ``$HOLDFAST_URL`` or a file of this user's is used. It may also be a
    ``psycopg_pool.ConnectionPool`` or an SQLAlchemy engine, which then makes the connections. Safe to share
    between threads. Use it as a context manager, or call `close`, to release what is left.
    """

    def __init__(
        self,
        url: str | Any | None = None,
        *,
        settings: Settings | None = None,
        ttl: Seconds | None = None,
        max_hold: Seconds | None = None,
        history: HistoryLevel | None = None,
    ) -> None:
        super().__init__(url, settings=settings, ttl=ttl, max_hold=max_hold, history=history)
        self._store.open()

    def hold(self, key: str, **options: Unpack[HoldOptions]) -> Hold:
        """Hold the lock for the time of a ``with`` block. Entering it raises, or means that we got the lock.

        - *timeout*: how long to wait; None (the default) for ever, 0 for one try. Then `LockTimeout` says
          who has it.
        - *ttl*: how long the lease holds without renewal. It is renewed in the background, unless *renew*
          is off.
        - *max_hold*: do not renew beyond this.
        - *owner*: let the lease travel between threads or processes; by default the current task or
          thread owns it.
        - *limit*: how often the owner may enter again; 1 for not at all.
        - *on_lost*: called with the `LeaseLost` when that happens, from the keeper's thread.
        """
        check_options(options)
        return Hold(self, key, options)

    def acquire(self, key: str, *, within: Any = None, **options: Unpack[HoldOptions]) -> Lease:
        """Take the lock until `Lease.release`. The options are those of `hold`.

        *within*: a connection to the store's database with an open transaction. The lock is taken when that
        commits, and not if it is rolled back. Nobody waits there: `LockTimeout` is raised at once.
        """
        check_options(options)
        if within is not None:
            return self._acquire(self._wish_within(key, **options), within)
        return self._acquire(self._wish(key, **options))

    def try_acquire(self, key: str, *, within: Any = None, **options: Unpack[LeaseOptions]) -> Lease | None:
        """Take the lock if it is free, else return None. The options are `acquire`'s without *timeout*."""
        check_try_options(options)
        try:
            return self._acquire(self._wish(key, timeout=0, **options), within)
        except errors.LockTimeout:
            return None

    @overload
    def guarded(self, key: Callable[P, T]) -> Callable[P, T]: ...

    @overload
    def guarded(
        self,
        key: str | None = ...,
        *,
        key_from: Callable[..., str] | None = ...,
        on_busy: Literal["wait", "raise"] = ...,
        **options: Unpack[HoldOptions],
    ) -> Callable[[Callable[P, T]], Callable[P, T]]: ...

    @overload
    def guarded(
        self,
        key: str | None = ...,
        *,
        key_from: Callable[..., str] | None = ...,
        on_busy: Literal["skip"],
        **options: Unpack[HoldOptions],
    ) -> Callable[[Callable[P, T]], Callable[P, T | None]]: ...

    def guarded(
        self,
        key: Any = None,
        *,
        key_from: Callable[..., str] | None = None,
        on_busy: OnBusy = "wait",
        **options: Unpack[HoldOptions],
    ) -> Any:
        """Run a function only while holding a lock.

        *key* is the function's name by default; *key_from* computes it from the call's arguments.
        *on_busy*: ``wait`` (at most *timeout*, then raise), ``skip`` (return None), or ``raise``.
        """
        if callable(key):
            refuse_computed_key(key)
            return self.guarded()(key)
        guard = Guard(key, key_from, on_busy, options)

        def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
            import inspect  # slow to import, and only needed here

            deferred = (
                inspect.iscoroutinefunction(function)
                or inspect.isgeneratorfunction(function)
                or inspect.isasyncgenfunction(function)
            )
            if deferred:
                raise errors.SettingsError(
                    f"{function.__qualname__} would run after its lock was released: guard plain functions"
                    " here, coroutine functions with AsyncHoldfast"
                )

            @functools.wraps(function)
            def guarded_function(*args: Any, **kwargs: Any) -> Any:
                with Guarded(self, guard.key_of(function, args, kwargs), guard.options, on_busy) as lease:
                    return None if lease is None else function(*args, **kwargs)

            return guarded_function

        return decorate

    def lock(self, key: str, *, ttl: Seconds | None = None, limit: int | None = None) -> Lock:
        """Return an object with the methods of `threading.Lock` for code that expects one."""
        return Lock(self, key, ttl=ttl, limit=limit)

    def inspect(self, key: str) -> LockView | None:
        """Look at one lock: who holds it, who waits. None if the key was never used, or long ago."""
        return self._ask(self._inspecting(key))

    def list(
        self,
        prefix: str = "",
        *,
        owner: str | None = None,
        type: str | None = None,
        state: LockState | None = None,
    ) -> Iterator[LockView]:
        """Look at many locks, in the order of their keys. They are fetched a page at a time."""
        return self._pages(self._listing(prefix, owner, type, state))

    def _pages(self, request: List) -> Iterator[LockView]:
        while True:
            page = self._ask(request)
            yield from page.locks
            if page.after is None:
                return
            request = replace(request, after=page.after)

    def history(self, key: str, *, limit: int = 100) -> tuple[Event, ...]:
        """Return what happened to a lock, oldest first: as much as the *history* setting keeps."""
        return self._ask(self._reading_history(key, limit))

    def break_lock(
        self, key: str, *, reason: str, by: str | None = None, token: int | None = None
    ) -> Broken | None:
        """Take a lock away from its holder, who is told, and write it into the history.

        With *token* only that lease is broken. None if there was nothing to break.
        """
        request = self._breaking(key, reason, by, token)
        if token is None:
            # Name the lease that is there now: asked twice, or too late, it must not break the next one.
            view = self._ask(self._inspecting(key))
            if view is None or view.state != "held":
                return None
            request = replace(request, token=view.token)
        answer = self._ask(request)
        return answer if isinstance(answer, Broken) else None

    def sweep(self, *, limit: int = 1000) -> Swept:
        """Settle and forget everything that is over, in batches of *limit*. Return the totals."""
        total = Swept()
        after = ""
        while True:
            swept = self._ask(self._sweeping(limit, after))
            total = total.plus(swept)
            if swept.after is None:
                return total
            after = swept.after

    def close(self) -> None:
        """Release everything that is still held, and let go of the store."""
        self._shut()

    def __enter__(self) -> Holdfast:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    # Running plans.

    def _acquire(self, wish: Wish, within: Any = None) -> Lease:
        plan = self._acquiring(wish)
        attempt = wish.request.attempt
        try:
            grant = self._run(plan, within)
            attempt = grant.attempt  # it may be a successor of the one we began with
            lease = Lease(self, self._keep(grant, wish), wish)
            if exits.told_to_end:
                exits.end_if_told()
            if not self._closed:
                return lease
        except errors.HoldfastError:
            raise
        except BaseException:
            self._forget(wish.request.key, attempt)
            raise
        self._forget(grant.key, grant.attempt)  # closed while we asked: nobody would renew it
        raise errors.Closed(repr(self))

    def _forget(self, key: str, attempt: str) -> None:
        """Undo an attempt. An interrupt can hit between the steps, where no plan hears of it; to withdraw
        what was released or withdrawn before is harmless.
        """
        if not self._attempts.made(attempt):
            return  # we are a forked child, and it is the parent's
        self._stop_waiting(attempt)
        self._keeping.drop(attempt)
        with suppress(errors.StoreError):
            self._store.execute(Withdraw(key, attempt))
        if self._closed:
            self._store.close()  # asking has opened it again

    def _ask(self, request: Request[A]) -> A:
        return self._run(ask(request, settings=self.settings, clock=boot_time, roll=random.random))

    def _run(self, plan: Plan[T], within: Any = None) -> T:
        """Do what a plan wants, step by step, in this thread. *within*: a transaction to acquire in."""
        waiting: str | None = None  # the attempt that can be signalled
        client = self._client
        try:
            step = next(plan)
            while True:
                try:
                    if isinstance(step, Wait):
                        result: Any = self._wait(step)
                    else:
                        if isinstance(step, Acquire) and step.wait and step.attempt != waiting:
                            self._stop_waiting(waiting)
                            waiting = step.attempt
                            self._mailboxes[waiting] = queue.SimpleQueue()
                        self._check_open()
                        if within is not None and isinstance(step, Acquire):
                            result = self._store.execute_within(within, step)
                        else:
                            result = self._store.execute(step)
                        if type(result) is Queued and isinstance(step, Acquire):
                            self._keeping.wait(step.key, step.attempt)
                        if exits.told_to_end and type(result) is not Granted:  # that has to be kept first
                            exits.end_if_told()
                except errors.StoreError as error:
                    step = plan.throw(error)
                else:
                    step = plan.send(result)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]
        except BaseException:
            if self._client is client:  # else we are a forked child, and it is the parent's
                self._abandon(plan)
            raise
        finally:
            self._stop_waiting(waiting)

    def _wait(self, step: Wait) -> Signal | None:
        mailbox = self._mailboxes.get(step.attempt) or queue.SimpleQueue[Signal]()
        assert isinstance(mailbox, queue.SimpleQueue)
        timeout = None if step.until is None else max(step.until - boot_time(), 0.0)
        if timeout is not None:
            timeout = min(timeout, threading.TIMEOUT_MAX)
        try:
            return mailbox.get(timeout=timeout)  # type: ignore[no-any-return]
        except queue.Empty:
            return None

    def _stop_waiting(self, attempt: str | None) -> None:
        if attempt is not None:
            self._mailboxes.pop(attempt, None)
            if self._keeping.waits(attempt):
                self._keeping.leave(attempt)

    def _abandon(self, plan: Plan[Any]) -> None:
        """Let a plan undo what it did. It is over already when it raised the error itself."""
        try:
            step = plan.throw(Abandoned())
            while not isinstance(step, Wait):
                try:
                    result = self._store.execute(step)
                except errors.StoreError as error:
                    step = plan.throw(error)
                else:
                    step = plan.send(result)
        except (Abandoned, StopIteration):
            pass
        if self._closed:
            self._store.close()  # asking has opened it again


class Lease(BaseLease):
    """A lock that we hold. As a context manager it is released at the end of the block."""

    def __init__(self, client: Holdfast, kept: Kept, wish: Wish) -> None:
        super().__init__(kept, wish)
        self._client = client
        kept.tell = self._tell

    @property
    def lost(self) -> Lost:
        """An event to wait for: set when the lease is lost."""
        lost: Lost = self.__dict__.setdefault("_lost", Lost(self._kept))  # atomic: one for all threads
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
        """Give the lock back. Raise `LeaseLost` if we had lost it, `NotHeld` if it is not ours to release.

        *within*: a connection with an open transaction. The lock is released when that commits; if it is
        rolled back, we still hold it.
        """
        if within is None:
            self._client._run(self._releasing(self._client))  # noqa: SLF001
        elif isinstance(answer := self._within(within, self._leaving()), NotHeld):
            self._lose_in_transaction(self._client, answer)
        else:
            self._left()

    def _within(self, connection: Any, request: Request[A]) -> A:
        self._client._check_open()  # noqa: SLF001
        return self._client._store.execute_within(connection, request)  # noqa: SLF001

    def __enter__(self) -> Lease:
        self.check()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._leave_to_transaction(self._client):
            return
        try:
            self.release()
        except errors.HoldfastError as problem:
            if error is None:
                raise
            with_note(error, problem)
        except BaseException:
            self._forget()
            raise

    def _forget(self) -> None:
        """Give it back without a word, when an interrupt has hit while leaving the block."""
        self._client._forget(self.key, self._kept.grant.attempt)  # noqa: SLF001
        self._released = True

    def _tell(self) -> None:
        if lost := self.__dict__.get("_lost"):
            lost.set()
        self._report_loss()


class Lost(threading.Event):
    """Set once a lease is lost; it also says so when nobody had the time to set it yet."""

    def __init__(self, kept: Kept) -> None:
        super().__init__()
        self._kept = kept

    def is_set(self) -> bool:
        """Tell whether the lease is lost, by the clock and not only by what was noticed."""
        return super().is_set() or self._kept.loss(boot_time()) is not None

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the lease is lost, at most *timeout* seconds; tell whether it is."""
        until = math.inf if timeout is None else boot_time() + timeout
        while not self.is_set() and (now := boot_time()) < until:
            # Not longer than the lease can be trusted: whoever should set us may be waiting for the store.
            super().wait(min(until, self._kept.trusted_until, now + threading.TIMEOUT_MAX) - now)
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

    def __enter__(self) -> Lease:
        if self._lease is not None:
            raise errors.SettingsError(f"this hold of {self._key!r} was entered before; call hold() again")
        wish = self._client._wish(self._key, **self._options)  # noqa: SLF001
        try:
            self._lease = lease = self._client._acquire(wish)  # noqa: SLF001
            return lease
        except errors.HoldfastError:
            raise
        except BaseException:  # an interrupt that hit here would leave a lease that nobody has
            self._client._forget(self._key, wish.request.attempt)  # noqa: SLF001
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
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
