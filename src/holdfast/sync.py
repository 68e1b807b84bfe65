"""`Holdfast`, the client for threads. It runs the plans of the core, and is the part that waits."""

from __future__ import annotations

import functools
import queue
import random
import threading
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar, Unpack, overload

from holdfast import errors, exits
from holdfast.client import BaseClient, Wish
from holdfast.clock import boot_time
from holdfast.core import keys
from holdfast.core.data import replace
from holdfast.core.events import Event, HistoryLevel
from holdfast.core.plans import Plan, Wait, ask
from holdfast.core.requests import (
    Acquire,
    Broken,
    Done,
    Granted,
    List,
    LockState,
    LockView,
    Queued,
    Request,
    Resized,
    Signal,
    Swept,
    Watch,
    Withdraw,
)
from holdfast.core.settings import Seconds, Settings, seconds
from holdfast.operations import Operation, countdown, run_once
from holdfast.options import (
    Guard,
    HoldOptions,
    LeaseOptions,
    OnBusy,
    WaitOptions,
    check_options,
    check_try_options,
    refuse_computed_key,
)
from holdfast.several import HoldAll
from holdfast.stdlock import Lock
from holdfast.stores.opening import when_ready
from holdfast.sync_cluster import ClusterMethods
from holdfast.sync_leases import Guarded, Hold, Lease

if TYPE_CHECKING:
    from holdfast.scheduling.running import OnError
    from holdfast.scheduling.threads import Schedule
    from holdfast.scheduling.ticking import Missed

A = TypeVar("A")
T = TypeVar("T")
P = ParamSpec("P")


class Holdfast(ClusterMethods, BaseClient):
    """Locks for threads and processes.

    *url* names the store; without it, ``$HOLDFAST_URL`` or a file of this user's is used. It may also be a
    ``psycopg_pool.ConnectionPool`` or an SQLAlchemy engine, which then makes the connections. Safe to share
    between threads. Use it as a context manager, or call `close`, to release what is left. With
    *wait_for_store* it waits so long for a database that comes up later than we do.
    """

    def __init__(
        self,
        url: str | Any | None = None,
        *,
        settings: Settings | None = None,
        ttl: Seconds | None = None,
        max_hold: Seconds | None = None,
        history: HistoryLevel | None = None,
        wait_for_store: Seconds | None = None,
    ) -> None:
        super().__init__(
            url,
            settings=settings,
            ttl=ttl,
            max_hold=max_hold,
            history=history,
            wait_for_store=wait_for_store,
        )
        when_ready(self._store.open, self.settings.wait_for_store)

    def hold(self, key: str, **options: Unpack[HoldOptions]) -> Hold:
        """Hold the lock for the time of a ``with`` block. Entering it raises, or means that we got the lock.

        - *timeout*: how long to wait; None (the default) for ever, 0 for one try. Then `LockTimeout` says
          who has it.
        - *ttl*: how long the lease holds without renewal. It is renewed in the background, unless *renew*
          is off.
        - *max_hold*: do not renew beyond this.
        - *owner*: whose lock it is. Everybody who gives the same name may enter again, in whichever thread or
          process. By default it is what the code around is, inside of a block or of `holdfast.owner`, and
          otherwise an owner that nobody else is.
        - *limit*: how often the owner may enter again; 1 for not at all.
        - *on_lost*: called with the `LeaseLost` when that happens, from the keeper's thread.
        - *mode*: ``shared`` to hold it together with others who have it shared.
        - *lock_delay*: if the lease runs out unreleased, nobody gets the lock for this long: for resources
          that cannot check tokens, and need time to finish what a dead holder has begun.
        - *at_least*: the lock stays taken for this long from its grant, although it is released before: so
          that a job which several machines start at about the same time runs once. Only if it is exclusive.
        - *permits*, *take*: see `semaphore`.
        """
        check_options(options)
        return Hold(self, key, options)

    def hold_all(self, keys: Iterable[str], **options: Unpack[HoldOptions]) -> HoldAll:
        """Hold several locks for the time of a ``with`` block: all of them, or none.

        They are taken in the order of their keys, so that two who want the same ones never wait for each
        other. *timeout* is for all together.
        """
        check_options(options)
        return HoldAll(self, keys, options)

    def semaphore(
        self, key: str, permits: int | None = None, take: int = 1, **options: Unpack[WaitOptions]
    ) -> Hold:
        """Hold *take* of the *permits* of a semaphore for the time of a ``with`` block.

        The store remembers how many there are: whoever says another number gets `CapacityMismatch`. Without
        *permits* it is as many as the store says.
        """
        check_options(options, WaitOptions)
        return Hold(self, key, {"mode": "exclusive", **options, "permits": permits or 0, "take": take})

    def resize(self, key: str, permits: int, *, by: str | None = None) -> Resized:
        """Change how many permits a semaphore has. Nobody who has some loses them."""
        return self._ask(self._resizing(key, permits, by))

    def operation(
        self,
        name: str,
        resource: str,
        *,
        exclusive: bool = False,
        max_attempts: int | None = None,
        keep: Seconds = 0,
        **options: Unpack[WaitOptions],
    ) -> Operation:
        """Do something once for all who want it: ``with locks.operation("pull", "model-7b") as pull:``.

        Inside the block `Operation.todo` tells whether it is ours to do. If it is, leaving the block tells
        all others that it is done (with what `Operation.succeed` was given), or with an exception that it
        failed, and then the next one is to do it. If it is not, somebody did it while we waited, and
        `Operation.result` is what they passed on. One does it at a time; it may be done more than once.

        - *exclusive*: not beside other operations on this resource that say so. Whoever gives up while it
          waits for those has failed.
        - *max_attempts*: after so many failures all who wait get `OperationFailed`.
        - *keep*: for how long whoever asks after it was done gets the result, instead of doing it again; by
          default only those who wait do.
        """
        check_options(options, WaitOptions)
        return Operation(
            self,
            keys.operation(name, resource),
            exclusive=exclusive,
            max_attempts=max_attempts,
            keep=keep,
            options=options,
        )

    def run_once(
        self,
        key: str,
        do: Callable[[], T],
        *,
        ready: Callable[[], Any] | None = None,
        exclusive: bool = False,
        max_attempts: int | None = None,
        keep: Seconds = 0,
        **options: Unpack[WaitOptions],
    ) -> T | Any:
        """Have *do* called by one of all who ask, and return what it returned, whoever called it.

        *ready* tells whether it is there already: it is asked before we wait, after every grant and when
        somebody else was done. If it is, *do* is not called, and None is returned unless somebody has just
        passed something on. With *keep* the result is also for those who ask later, for that long; without
        it they do it again. The other options are those of `operation`.
        """
        check_options(options, WaitOptions)
        left = countdown(options)

        def operation(seen: int) -> Operation:
            return Operation(
                self,
                key,
                exclusive=exclusive,
                max_attempts=max_attempts,
                keep=keep,
                options=left(),
                seen=seen,
            )

        return run_once(operation, do, ready)

    def watch(
        self, pattern: str, *, after: int | None = None, timeout: Seconds | None = None
    ) -> Iterator[Event]:
        """Yield what happens to a key, or with ``prefix*`` to all keys that begin so, as it happens.

        What there is to see depends on the *history* setting of the clients that use the locks; of
        operations it is everything. *after*: go on behind the event with this `Event.id`, nothing missed and
        nothing twice (0: from the oldest that is kept; None: from now). *timeout*: end after this long
        without an event.
        """
        request = self._watching(pattern, after)
        quiet = None if timeout is None else seconds(timeout, "timeout")
        if after is None:
            request = replace(request, after=self._run(self._awaiting_events(request, None)).after)
        return self._events(request, quiet)

    def _events(self, request: Watch, quiet: float | None) -> Iterator[Event]:
        while True:
            until = None if quiet is None else boot_time() + quiet
            feed = self._run(self._awaiting_events(request, until))
            yield from feed.events
            if not feed.events:
                return
            request = replace(request, after=feed.after)

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

    def every(
        self,
        schedule: str | Seconds,
        *,
        name: str | None = None,
        at_least: Seconds = 0,
        at_most: Seconds | None = None,
        missed: Missed = "once",
        timezone: str = "UTC",
        on_error: OnError | None = None,
    ) -> Callable[[Callable[P, T]], Schedule[P, T]]:
        """Have a function run once a tick by one of all nodes that schedule it: ``@locks.every(60)``.

        From then on, in the background. The store's clock says when a tick has come, and no other. The
        function is given nothing, or the `Run` if it takes an argument. If its node dies, another one runs
        the tick again.

        - *schedule*: a cron expression (``pip install 'holdfast[cron]'``), or the seconds from tick to tick.
        - *name*: what it is known by; the function's name by default. The nodes that use it share the ticks.
        - *at_least*: the next run begins no sooner than this after the last one began.
        - *at_most*: after this long a run has lost its lease, and others go on with the next tick.
        - *missed*: of ticks that nobody could run in time, the last is run as soon as possible (``once``),
          ``all`` are run, one after the other, or those of more than a minute ago are not (``skip``).
        - *timezone*: of the cron expression.
        - *on_error*: called with what a run raised, or its `LeaseLost`. It is logged in any case, and the
          next tick comes as ever.
        """
        from holdfast.scheduling.running import rules
        from holdfast.scheduling.threads import Schedule

        how = rules(
            schedule,
            name=name,
            at_least=at_least,
            at_most=at_most,
            missed=missed,
            timezone=timezone,
            on_error=on_error,
        )
        return lambda function: Schedule(self, function, how)

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

        With *token* only that lease is broken, else all that are there now. None if there was nothing to
        break.
        """
        request = self._breaking(key, reason, by, token)
        return next(iter(self._run(self._breaking_leases(request))), None)

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

    @property
    def leases(self) -> tuple[Lease, ...]:
        """What this client holds at this moment, oldest first; without elections and assigned work."""
        return tuple(self._held())

    def release_all(self) -> int:
        """Release all `leases`, and return how many there were. Code inside their blocks has lost them.

        If the store cannot be asked, that is raised when all were tried; what is left is released in the
        background, or ends by itself.
        """
        leases = self.leases
        trouble: BaseException | None = None
        for number, lease in enumerate(leases, 1):
            self._revoke(lease)
            try:
                lease.release()
            except (errors.LeaseLost, errors.NotHeld) as error:
                trouble = error.__cause__ or trouble
            except BaseException:  # an interrupt
                self._release_later(leases[number:])
                raise
        if trouble is not None:
            raise trouble
        return len(leases)

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
        # Nothing may be called after it, not even `cast`: where a function is entered an interrupt can hit,
        # and there would be a lease that nobody has.
        return self._obtain(wish, within)  # type: ignore[return-value]

    def _obtain(self, wish: Wish, within: Any = None) -> Lease | Done:
        """Take a lock; or learn that it is an operation that was done while we waited."""
        attempt = wish.request.attempt
        try:
            grant = self._run(self._acquiring(wish), within)
            if isinstance(grant, Done):
                return grant
            attempt = grant.attempt  # it may be a successor of the one we began with
            kept = self._keep(grant, wish)
            lease = Lease(self, kept, wish)
            self._keeping.keep_for(kept, lease, wish.place)
            if exits.told_to_end:
                exits.end_if_told()
            if not self._closed:
                return lease
        except errors.HoldfastError as error:
            if isinstance(error, errors.LockTimeout):
                self._note_own_lease(error, wish)
            raise
        except BaseException as error:
            self._forget(wish.request.key, attempt, wish.request.lasts, waits=within is None)
            self._note_own_lease(error, wish)
            raise
        # Closed while we asked: nobody would renew it.
        self._forget(grant.key, grant.attempt, grant.ttl, waits=within is None)
        raise errors.Closed(repr(self))

    def _forget(
        self, key: str, attempt: str, lasts: float, *, waits: bool = True, held: bool = False
    ) -> None:
        """Undo an attempt. An interrupt can hit between the steps, where no plan hears of it; to withdraw
        what was released or withdrawn before is harmless. *lasts*: after which it has ended by itself.
        *waits*: see `_last_wish`; *held*: see `Withdraw`.
        """
        if not self._attempts.made(attempt):
            return  # we are a forked child, and it is the parent's
        self._stop_waiting(attempt)
        self._keeping.drop(attempt)
        withdraw = Withdraw(key, attempt, held)
        try:
            if waits:
                self._store.execute(withdraw)
            else:
                self._keeping.pursue(withdraw, lasts)
        except errors.StoreError:
            self._keeping.pursue(withdraw, lasts)
        if self._closed:
            self._store.close()  # asking has opened it again

    def _ask(self, request: Request[A]) -> A:
        return self._run(ask(request, settings=self.settings, clock=boot_time, roll=random.random))

    def _run(self, plan: Plan[T], within: Any = None) -> T:
        """Do what a plan wants, step by step, in this thread. *within*: a transaction to acquire in."""
        waiting: str | None = None  # the attempt that can be signalled
        asked: Acquire | None = None
        client = self._client
        try:
            step = next(plan)
            while True:
                try:
                    if isinstance(step, Wait):
                        result: Any = self._wait(step)
                    else:
                        if isinstance(step, Acquire):
                            asked = step
                            if step.wait and step.attempt != waiting:
                                self._stop_waiting(waiting)
                                waiting = step.attempt
                                self._mailboxes[waiting] = step.key, self._new_mailbox()
                        self._check_open()
                        if within is not None and isinstance(step, Acquire):
                            result = self._store.execute_within(within, step)
                        elif within is not None and isinstance(step, Withdraw):
                            self._pursue(step, asked)  # see `_last_wish`
                            result = None
                        else:
                            result = self._store.execute(step)
                        if type(result) is Queued and isinstance(step, Acquire):
                            self._keeping.wait(step.key, step.attempt)
                        if exits.told_to_end and type(result) is not Granted:  # that has to be kept first
                            exits.end_if_told()
                except errors.StoreError as error:
                    self._check_same(client)
                    if isinstance(step, Withdraw):
                        self._pursue(step, asked)
                    step = plan.throw(error)
                else:
                    self._check_same(client)
                    step = plan.send(result)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]
        except BaseException:
            if self._client is client:  # else we are a forked child, and it is the parent's
                self._last_wish(plan, asked, waits=within is None)
            raise
        finally:
            self._stop_waiting(waiting)

    def _wait(self, step: Wait) -> Signal | None:
        _, mailbox = self._mailboxes.get(step.attempt) or ("", queue.SimpleQueue[Signal]())
        assert isinstance(mailbox, queue.SimpleQueue)
        timeout = None if step.until is None else max(step.until - boot_time(), 0.0)
        if timeout is not None:
            timeout = min(timeout, threading.TIMEOUT_MAX)
        try:
            return mailbox.get(timeout=timeout)  # type: ignore[no-any-return]
        except queue.Empty:
            return None

    def _new_mailbox(self) -> queue.SimpleQueue[Signal]:
        return queue.SimpleQueue()

    def _stop_waiting(self, attempt: str | None) -> None:
        if attempt is not None:
            self._mailboxes.pop(attempt, None)
            if self._keeping.waits(attempt):
                self._keeping.leave(attempt)
