"""The protocol on a database server: fast paths in one round trip, everything else in one short transaction.

The slow path locks the lock's row, reads it, decides as the protocol says, and writes it back with the
commit: two round trips. What differs between databases is in their sessions and statements.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, TypeVar, cast

from holdfast import errors
from holdfast.core.access import GrantAccess, ListAccess, RevokeAccess
from holdfast.core.deadlocks import Deadlock
from holdfast.core.events import Event
from holdfast.core.requests import (
    Acquire,
    Break,
    Broken,
    Busy,
    Client,
    Deadlocked,
    Downgrade,
    Feed,
    Fence,
    Granted,
    History,
    Inspect,
    List,
    LockView,
    NotHeld,
    Page,
    Probe,
    Queued,
    Refused,
    Release,
    Released,
    Renew,
    Request,
    Resize,
    Resized,
    Signal,
    Sweep,
    Watch,
    Withdraw,
    Withdrawn,
)
from holdfast.stores.base import Awaits, Listener, StoreOptions, Traits, instant, micros, one_by_one
from holdfast.stores.listening import Listening
from holdfast.stores.pool import Pool
from holdfast.stores.sql import access, deciding, feed, rehearsing, views, within
from holdfast.stores.sql.callers import Caller, caller
from holdfast.stores.sql.clustered import Clustered
from holdfast.stores.sql.deadlock import Tables, end_circles
from holdfast.stores.sql.deciding import Acquired
from holdfast.stores.sql.holds import is_plain
from holdfast.stores.sql.probing import probe
from holdfast.stores.sql.run import Row
from holdfast.stores.sql.serving import Peek
from holdfast.stores.sql.session import RowLocked, Session, Transaction

A = TypeVar("A")

MOST_CONTENDED = 1000


class ServerStore(Clustered, ABC):
    """See the module. Connections come from a pool; any number of threads may ask."""

    traits: Traits
    database: str  # as callers' connections name it
    in_database = ""  # which of the server's, as far as a url says so
    reads_may_be_old = False
    can_unlock = False
    savepoints_may_commit = False

    def __init__(self, options: StoreOptions, pool: Pool[Any], signals: Listening) -> None:
        super().__init__(options, pool, signals)
        self._store_id: str | None = None
        self._contended: dict[str, str] = {}  # key → the attempt of ours that was queued there last
        self._answer: dict[type, Callable[[Any], Any]] = {
            Acquire: self._acquire,
            Release: self._release,
            Withdraw: self._withdraw,
            Break: self._break,
            Downgrade: self._downgrade,
            Resize: self._resize,
            Renew: self._renew,
            Inspect: self._inspect,
            History: self._history,
            List: self._list,
            Watch: self._watch,
            Sweep: self._sweep,
            Probe: lambda request: probe(self._fetch, self._client, request),
            GrantAccess: lambda request: access.grant(self._fetch, request),
            RevokeAccess: lambda request: access.revoke(self._fetch, request),
            ListAccess: lambda request: access.list_all(self._read, request),
            **self._cluster_answers(),
        }

    def open(self) -> None:
        """Connect, and check the tables."""
        self._pool.reopen()
        try:
            self.use(self._check_schema)
        except BaseException:
            self._pool.close()  # nobody has the client, so nobody would close it
            raise

    @abstractmethod
    def _check_schema(self, session: Any) -> None:
        """Create the tables if that is asked for, and raise `SchemaMismatch` if they are not ours."""

    def execute(self, request: Request[A]) -> A:
        """Answer *request*, and wake whoever is concerned."""
        return cast("A", self._answer[type(request)](request))

    def execute_many(self, requests: Sequence[Request[Any]]) -> list[Any]:
        """Answer *requests* one after the other."""
        return one_by_one(self, requests)

    def execute_within(self, connection: Any, request: Request[A], awaits: Awaits | None = None) -> A:
        """Answer *request* inside the caller's transaction."""
        theirs = caller(connection, self.database, awaits)
        within.check_nesting(connection, request, self)
        if isinstance(request, Acquire):
            # A row that all can see, so that a renewal finds it locked and not missing before they commit. If
            # it is locked, it is there: maybe they have it already.
            with suppress(RowLocked):
                self._fetch("ensure_lock", key=request.key, now=instant(request.now))
        try:
            answer, post = within.answer(theirs, request, self, self._level)
            for instance, signal in post:
                self._signal_within(theirs, instance, signal)
        except errors.HoldfastError:
            raise
        except Exception as error:
            if (known := self._translate(error)) is None:
                raise
            if isinstance(known, errors.SchemaMismatch):  # ours are there, so those are others
                raise errors.SettingsError(within.ELSEWHERE) from error
            raise known from error
        return cast("A", answer)

    def _signal_within(self, theirs: Caller, instance: str, signal: Signal) -> None:
        """Wake a client when the caller commits, if the database can do that."""

    @abstractmethod
    def _translate(self, error: Exception) -> errors.HoldfastError | None:
        """Return our error for one of the driver's."""

    @abstractmethod
    def sql(self, name: str) -> str:
        """Return a statement with the names that the tables have here."""

    def look(self, name: str, /, **parameters: Any) -> list[Row]:
        """Run a statement that only reads, outside of a caller's transaction."""
        return self._read(name, **parameters)

    def explain(self, request: Fence, caller: Caller) -> NotHeld | None:
        """Say why a lease is not alive, by what is committed; None if it is."""
        return self.use(lambda session: rehearsing.explain(Peek(session), request, self._level))

    def enter(self, theirs: Caller, request: Request[Any]) -> None:
        """Raise `SettingsError` if their transaction is of a kind that the request cannot be part of."""

    def check_level(self, level: Row) -> None:
        """Raise `SettingsError` if nothing can be written at their isolation level."""

    @abstractmethod
    def foresee(self, theirs: Caller, request: Acquire | Release, rule: rehearsing.Rule) -> within.Foreseen:
        """Rehearse a request without a lock in their transaction."""

    def wait_for_row(self, key: str) -> None:
        """Wait until nobody has the row of a key locked, but not for long."""
        with suppress(RowLocked):
            self._fetch("lock_row", key=key)

    def put_off(self, request: Acquire) -> Queued | Busy:
        """Return the answer to who cannot have the row now."""
        return self.use(lambda session: deciding.put_off(self._look(session, request), request))

    def store_id(self) -> str:
        """Return what tells our tables from all others."""
        if self._store_id is None:
            self._store_id = cast("str", self._fetch("store_id")[0][0])
        return self._store_id

    def listen(self, listener: Listener) -> None:
        """Call *listener* with the signals for this client."""
        self._signals.listen(listener)

    def be_reachable(self) -> None:
        """Have a connection listen."""
        self._signals.hang_up_bell()

    def before_fork(self) -> None:
        """Let nobody be in the middle of taking a connection."""
        self._pool.before_fork()

    def after_fork_in_parent(self) -> None:
        """Go on."""
        self._pool.after_fork_in_parent()

    def after_fork(self, client: Client) -> None:
        """Become the store of *client* in a forked child, with connections of its own."""
        self._client = client
        self._pool.after_fork()
        self._signals.after_fork(client.instance)

    def close(self) -> None:
        """Stop listening, and close the connections."""
        self._signals.close()
        self._pool.close()

    # Requests on one key.

    def _acquire(self, request: Acquire) -> Acquired:
        key, attempt = request.key, request.attempt
        plain = is_plain(request.terms)
        is_fast = plain and self._level != "all"  # else it goes into the history
        may_close_a_circle = True
        try:
            if is_fast and (granted := self._acquire_fast(request)):
                return granted
            if plain and not request.wait and (busy := self._peek(request)):
                return busy
            if request.wait:
                self._signals.hang_up_bell()
            answer: Acquired
            if is_fast and request.wait and (queued := self._queue_fast(request)):
                answer, may_close_a_circle = queued
            else:
                answer = self._on_key(
                    key,
                    attempt,
                    request.now,
                    lambda lock: deciding.acquire(lock, request),
                    create=True,
                    lazily=lambda answer: isinstance(answer, Queued),
                )
        except RowLocked:
            # A caller's open transaction is about to take or free the lock. Whoever waits asks again soon.
            answer = self.put_off(request)
        if isinstance(answer, Queued | Busy):
            self._expect_contention(key, attempt)
        if isinstance(answer, Queued) and may_close_a_circle:
            return self._end_circles(request) or answer
        return answer

    def _end_circles(self, request: Acquire) -> Deadlocked | None:
        """End the circles that a ticket has closed, now that others can see it."""

        def end(found: Deadlock) -> None:
            key, attempt = found.victim
            self._on_key(key, attempt, request.now, lambda lock: deciding.break_deadlock(lock, found))

        return end_circles(request, Tables(self._read, instant(request.now)), end)

    def _acquire_fast(self, request: Acquire) -> Granted | None:
        """Take a free lock, or claim what was handed to us, in one round trip; None: the slow path."""
        last_queued = self._contended.get(request.key)
        now = instant(request.now)
        if last_queued == request.attempt:
            rows = self._fetch(
                "claim",
                key=request.key,
                attempt=request.attempt,
                ttl=micros(request.ttl),
                instance=request.client.instance,
                host=request.client.host,
                pid=request.client.pid,
                long=request.ttl >= request.claim,
                now=now,
            )
            return Granted(rows[0][0], rows[0][1] / 1e6) if rows else None
        if last_queued is not None:
            return None
        rows = self._fetch(
            "acquire",
            key=request.key,
            attempt=request.attempt,
            owner=request.owner,
            ttl=micros(request.ttl),
            instance=request.client.instance,
            host=request.client.host,
            pid=request.client.pid,
            now=now,
        )
        return Granted(rows[0][0], request.ttl) if rows else None

    def _queue_fast(self, request: Acquire) -> tuple[Queued, bool] | None:
        """Join a queue in one round trip, where the database can; None: the slow path.

        And tell whether that may have closed a circle: whether anybody waits for what the owner has.
        """
        return None

    def _peek(self, request: Acquire) -> Busy | None:
        """Refuse a try without locking the row, if that can be seen."""
        return self.use(lambda session: deciding.refuse(self._look(session, request), request))

    def _expect_contention(self, key: str, attempt: str) -> None:
        """Remember that the fast path would fail on this key, and cost a round trip for nothing.

        It is tried again when nobody waits any more; only *attempt* may claim on the fast path.
        """
        if len(self._contended) >= MOST_CONTENDED:
            self._contended.clear()
        self._contended[key] = attempt

    def _release(self, request: Release) -> Released | NotHeld | Refused:
        if self._level != "all" and not request.retire:
            ways = [self._release_fast, self._hand_over_fast]
            if request.key in self._contended:  # then somebody waits, most likely
                ways.reverse()
            for way in ways:
                if released := way(request):
                    if released.next is None:
                        self._contended.pop(request.key, None)
                    return released
        answer = self._on_key(
            request.key,
            request.attempt,
            request.now,
            lambda lock: deciding.release(lock, request),
            # But for outcomes: nobody may have been told of one that is not there after a crash.
            lazily=lambda answer: (
                request.outcome is None and not (isinstance(answer, Released) and answer.told)
            ),
        )
        if isinstance(answer, Released) and answer.next is None:
            self._contended.pop(request.key, None)
        return answer

    def _release_fast(self, request: Release) -> Released | None:
        """Release a lock that nobody waits for in one round trip; None: another way."""
        rows = self._fetch(
            "release",
            key=request.key,
            attempt=request.attempt,
            token=request.token,
            now=instant(request.now),
        )
        return Released() if rows else None

    def _hand_over_fast(self, request: Release) -> Released | None:
        """Release to the next in one round trip, where the database can; None: the slow path."""
        return None

    def _withdraw(self, request: Withdraw) -> Withdrawn | NotHeld:
        return self._on_key(
            request.key,
            request.attempt,
            request.now,
            lambda lock: deciding.withdraw(lock, request),
            create=True,
        )

    def _break(self, request: Break) -> Broken | NotHeld:
        return self._on_key(request.key, "", request.now, lambda lock: deciding.break_(lock, request))

    def _downgrade(self, request: Downgrade) -> Granted | NotHeld | Refused:
        return self._on_key(
            request.key, request.attempt, request.now, lambda lock: deciding.downgrade(lock, request)
        )

    def _resize(self, request: Resize) -> Resized:
        return self._on_key(
            request.key, "", request.now, lambda lock: deciding.resize(lock, request), create=True
        )

    # Looking.

    def _inspect(self, request: Inspect) -> LockView | None:
        return views.inspect(self._read, request)

    def _list(self, request: List) -> Page:
        return views.list_locks(self._read, request)

    def _history(self, request: History) -> tuple[Event, ...]:
        return views.history(self._read, request)

    def _watch(self, request: Watch) -> Feed:
        # While somebody else is at it for long, there is enough to read: the rest comes with the next look.
        with suppress(RowLocked):
            while feed.has_new(self._read) and self.use(self._place_events):
                pass
        return feed.read(self._read, request)

    @staticmethod
    def _place_events(session: Session) -> bool:
        run = Transaction(session, create=False)
        more = feed.place(run)
        run.commit([])
        return more
