"""`Holdfast`, the client for threads. It runs the plans of the core, and is the part that waits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import wraps
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar, Unpack, overload

from holdfast import errors
from holdfast.client import questions
from holdfast.client.guards import Guard, GuardOptions, OnBusy
from holdfast.client.leases import permits_of, release_all
from holdfast.client.operations import Undertaking
from holdfast.client.options import HoldOptions, LeaseOptions, WaitOptions, check_options
from holdfast.client.sync.cluster import ClusterMethods
from holdfast.client.sync.engine import ThreadEngine
from holdfast.client.sync.leases import Hold, Lease, Skipping, acquire
from holdfast.client.sync.operations import Operation, run_once
from holdfast.client.sync.several import HoldAll
from holdfast.client.sync.stdlock import Lock
from holdfast.core import keys
from holdfast.core.data import replace
from holdfast.core.events import Event
from holdfast.core.requests import Broken, LockState, LockView, Resized, Swept, Watch
from holdfast.core.settings import Seconds, seconds

if TYPE_CHECKING:
    from holdfast.client.schedules import OnError
    from holdfast.client.sync.schedules import Schedule
    from holdfast.client.ticks import Missed

T = TypeVar("T")
P = ParamSpec("P")


class Holdfast(ClusterMethods):
    """Locks for threads and processes.

    *url* names the store; without it, ``$HOLDFAST_URL`` or a file of this user's is used. It may also be a
    ``psycopg_pool.ConnectionPool`` or an SQLAlchemy engine, which then makes the connections. Safe to share
    between threads. Use it as a context manager, or call `close`, to release what is left. With
    *wait_for_store* it waits so long for a database that comes up later than we do.
    """

    _engine_class = ThreadEngine
    _engine: ThreadEngine

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
        return Hold(self._engine, key, options)

    def hold_all(self, keys: Iterable[str], **options: Unpack[HoldOptions]) -> HoldAll:
        """Hold several locks for the time of a ``with`` block: all of them, or none.

        They are taken in the order of their keys, so that two who want the same ones never wait for each
        other. *timeout* is for all together.
        """
        return HoldAll(self._engine, keys, options)

    def semaphore(
        self, key: str, permits: int | None = None, take: int = 1, **options: Unpack[WaitOptions]
    ) -> Hold:
        """Hold *take* of the *permits* of a semaphore for the time of a ``with`` block.

        The store remembers how many there are: whoever says another number gets `CapacityMismatch`. Without
        *permits* it is as many as the store says.
        """
        return Hold(self._engine, key, permits_of(permits, take, options))

    def resize(self, key: str, permits: int, *, by: str | None = None) -> Resized:
        """Change how many permits a semaphore has. Nobody who has some loses them."""
        return self._engine.ask(questions.resize(self._engine, key, permits, by))

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
        operation = keys.operation(name, resource)
        it = Undertaking(self._engine, operation, exclusive, max_attempts, keep, options)
        return Operation(self._engine, it)

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
        it = Undertaking(self._engine, key, exclusive, max_attempts, keep, options)
        return run_once(it, do, ready)

    def watch(
        self, pattern: str, *, after: int | None = None, timeout: Seconds | None = None
    ) -> Iterator[Event]:
        """Yield what happens to a key, or with ``prefix*`` to all keys that begin so, as it happens.

        What there is to see depends on the *history* setting of the clients that use the locks; of
        operations it is everything. *after*: go on after the event with this `Event.id`, nothing missed and
        nothing twice (0: from the oldest that is kept; None: from now). *timeout*: end after this long
        without an event.
        """
        quiet = None if timeout is None else seconds(timeout, "timeout")
        request = self._engine.run(questions.from_now(self._engine, questions.watch(pattern, after)))
        return self._events(request, quiet)

    def _events(self, request: Watch, quiet: float | None) -> Iterator[Event]:
        while True:
            feed = self._engine.run(questions.events(self._engine, request, quiet))
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
        wish = self._engine.wish if within is None else self._engine.wish_within
        return acquire(self._engine, wish(key, **options), within)

    def try_acquire(self, key: str, *, within: Any = None, **options: Unpack[LeaseOptions]) -> Lease | None:
        """Take the lock if it is free, else return None. The options are `acquire`'s without *timeout*."""
        check_options(options, LeaseOptions)
        try:
            return acquire(self._engine, self._engine.wish(key, timeout=0, **options), within)
        except errors.LockTimeout:
            return None

    @overload
    def guarded(self, key: Callable[P, T]) -> Callable[P, T]: ...

    @overload
    def guarded(
        self, key: str | None = ..., *, on_busy: Literal["wait", "raise"] = ..., **how: Unpack[GuardOptions]
    ) -> Callable[[Callable[P, T]], Callable[P, T]]: ...

    @overload
    def guarded(
        self, key: str | None = ..., *, on_busy: Literal["skip"], **how: Unpack[GuardOptions]
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
            Guard.check_bare(key)
            return self.guarded()(key)
        guard = Guard(key, key_from, on_busy, options)
        hold = Skipping if on_busy == "skip" else Hold

        def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
            import inspect  # slow to import, and only needed here

            deferred = (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction)
            if any(is_kind(function) for is_kind in deferred):
                raise errors.SettingsError(
                    f"{function.__qualname__} would run after its lock was released: guard plain functions"
                    " here, coroutine functions with AsyncHoldfast"
                )

            @wraps(function)
            def guarded_function(*args: Any, **kwargs: Any) -> Any:
                key = guard.key_of(function, args, kwargs)
                with hold(self._engine, key, guard.options) as lease:
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
        from holdfast.client.schedules import Rules
        from holdfast.client.sync.schedules import Schedule

        rules = Rules(schedule, name, at_least, at_most, missed, timezone, on_error)
        return lambda function: Schedule(self._engine, function, rules)

    def lock(self, key: str, *, ttl: Seconds | None = None, limit: int | None = None) -> Lock:
        """Return an object with the methods of `threading.Lock` for code that expects one."""
        return Lock(self._engine, key, ttl=ttl, limit=limit)

    def inspect(self, key: str) -> LockView | None:
        """Look at one lock: who holds it, who waits. None if the key was never used, or long ago."""
        return self._engine.ask(questions.inspect(key))

    def list(
        self,
        prefix: str = "",
        *,
        owner: str | None = None,
        type: str | None = None,
        state: LockState | None = None,
    ) -> Iterator[LockView]:
        """Look at many locks, in the order of their keys. They are fetched a page at a time."""
        return self._engine.pages(questions.listing(prefix, owner, type, state), "locks")

    def history(self, key: str, *, limit: int = 100) -> tuple[Event, ...]:
        """Return what happened to a lock, oldest first: as much as the *history* setting keeps."""
        return self._engine.ask(questions.history(key, limit))

    def break_lock(
        self, key: str, *, reason: str, by: str | None = None, token: int | None = None
    ) -> Broken | None:
        """Take a lock away from its holder, who is told, and write it into the history.

        With *token* only that lease is broken, else all that are there now. None if there was nothing to
        break.
        """
        return self._engine.run(questions.break_lock(self._engine, key, reason, by, token))

    def sweep(self, *, limit: int = 1000) -> Swept:
        """Settle and forget everything that is over, in batches of *limit*. Return the totals."""
        return self._engine.run(questions.sweep(self._engine, limit))

    @property
    def leases(self) -> tuple[Lease, ...]:
        """What this client holds at this moment, oldest first; without elections and assigned work."""
        return tuple(self._engine.leases())

    def release_all(self) -> int:
        """Release all `leases`, and return how many there were. Code inside their blocks has lost them.

        If the store cannot be asked, that is raised when all were tried; what is left is released in the
        background, or ends by itself.
        """
        return self._engine.run(release_all(self.leases))

    def close(self) -> None:
        """Release everything that is still held, and let go of the store."""
        self._engine.shut()

    def __enter__(self) -> Holdfast:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
