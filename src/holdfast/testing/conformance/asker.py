"""Putting requests to a store in few words, and through an event loop."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Coroutine, Iterable, Sequence
from typing import Any, Protocol, TypeVar

from holdfast.core.data import replace
from holdfast.core.events import Event, HistoryLevel
from holdfast.core.family import PLAIN, Outcome, Terms
from holdfast.core.requests import (
    DEFAULT_LIMIT,
    Acquire,
    Break,
    Broken,
    Busy,
    Client,
    Deadlocked,
    Done,
    Downgrade,
    Failed,
    Feed,
    Granted,
    History,
    Inspect,
    LeaseAnswer,
    List,
    LockState,
    LockView,
    NotHeld,
    Page,
    Queued,
    RefreshTicket,
    Refused,
    Release,
    Released,
    Renew,
    RenewLease,
    Request,
    Resize,
    Resized,
    Signal,
    Sweep,
    Swept,
    TicketAnswer,
    TooManyHolds,
    Watch,
    Withdraw,
    Withdrawn,
)
from holdfast.stores.base import Awaits, Listener, Store, Traits
from holdfast.testing.conformance.cluster_asker import ClusterAsker

A = TypeVar("A")
T = TypeVar("T")

KEY = "nightly"
SHARED = Terms(mode="shared")
OPERATION = Terms(operation=True)
TOLD_AGAIN = ("granted", "head", "lost")  # kinds of signals
CLIENT = Client(instance="i-1", host="alpha", pid=101)
OTHER_CLIENT = Client(instance="i-2", host="beta", pid=202)


Answer = Granted | Queued | Busy | TooManyHolds | NotHeld | Refused | Done | Failed | Deadlocked


def permits(there_are: int, take: int = 1) -> Terms:
    """Return the terms of who takes some permits of a semaphore."""
    return Terms(mode="permits", permits=there_are, take=take)


class MakeStore(Protocol):
    """Opens another client's store of the same locks. All stores of one test share their locks."""

    def __call__(self, client: Client = CLIENT, history: HistoryLevel = "notable") -> Store: ...


def once(listener: Listener) -> Listener:
    """Return one that tells *listener* once what a store tells again from a thread of its own.

    It may do so until the receiver has come for it. Requests may not: what two of them tell from the thread
    that asks is told twice. What can be entered by is left out: see `Entering` for that.
    """
    asking = threading.current_thread()
    mutex = threading.RLock()
    told: set[Signal] = set()
    answered: set[Signal] = set()  # those of them that were told with an answer

    def hear(told_now: Signal) -> None:
        signal = replace(told_now, expires_in=0.0, token=0, at=0.0) if told_now.token else told_now
        with mutex:
            again = signal.kind in TOLD_AGAIN and signal in told
            if threading.current_thread() is asking:
                again = again and signal not in answered
                answered.add(signal)
            told.add(signal)
            if not again:
                listener(signal)

    return hear


def arrivals(store: Store) -> queue.Queue[Signal]:
    """Return where the signals for the store's client arrive."""
    arrived: queue.Queue[Signal] = queue.Queue()
    store.listen(once(arrived.put))
    return arrived


class Asker(ClusterAsker):
    """Asks one store, with defaults for whatever a test does not care about.

    An attempt is its own owner unless *owner* is given: only tests of re-entry share one.
    """

    def __init__(self, store: Store, client: Client = CLIENT) -> None:
        self.store = store
        self.client = client
        self._signals: list[Signal] = []
        store.listen(once(self._signals.append))

    def acquire(
        self,
        attempt: str,
        *,
        now: float | None,
        key: str = KEY,
        owner: str | None = None,
        ttl: float = 10.0,
        wait: bool = False,
        limit: int = DEFAULT_LIMIT,
        patience: float = 15.0,
        claim: float = 5.0,
        terms: Terms = PLAIN,
        seen: int = 0,
    ) -> Answer:
        """Ask for the lock."""
        return self.store.execute(
            Acquire(
                key=key,
                attempt=attempt,
                owner=attempt if owner is None else owner,
                ttl=ttl,
                client=self.client,
                wait=wait,
                limit=limit,
                patience=patience,
                claim=claim,
                terms=terms,
                seen=seen,
                now=now,
            )
        )

    def take(
        self,
        attempt: str,
        *,
        now: float | None,
        key: str = KEY,
        owner: str | None = None,
        ttl: float = 10.0,
        wait: bool = False,
        terms: Terms = PLAIN,
    ) -> Granted:
        """Ask for the lock, and get it."""
        answer = self.acquire(attempt, now=now, key=key, owner=owner, ttl=ttl, wait=wait, terms=terms)
        assert isinstance(answer, Granted), answer
        return answer

    def queue(
        self,
        attempt: str,
        *,
        now: float,
        key: str = KEY,
        owner: str | None = None,
        patience: float = 1000.0,
        claim: float = 5.0,
        terms: Terms = PLAIN,
    ) -> Queued:
        """Ask for the lock, and get a ticket (of a patient waiter)."""
        answer = self.acquire(
            attempt, now=now, key=key, owner=owner, wait=True, patience=patience, claim=claim, terms=terms
        )
        assert isinstance(answer, Queued), answer
        return answer

    def release(
        self,
        attempt: str,
        token: int,
        *,
        now: float,
        key: str = KEY,
        retire: bool = False,
        outcome: Outcome | None = None,
    ) -> Released | NotHeld | Refused:
        """Give up one hold."""
        return self.store.execute(Release(key, attempt, token, retire=retire, outcome=outcome, now=now))

    def succeed(
        self,
        attempt: str,
        token: int,
        *,
        now: float,
        key: str = KEY,
        result: str = "null",
        keep: float = 0.0,
    ) -> Released | NotHeld | Refused:
        """Say that an operation is done."""
        return self.release(attempt, token, now=now, key=key, outcome=Outcome(True, result, keep))

    def fail(
        self, attempt: str, token: int, *, now: float, key: str = KEY, error: str = "no space left"
    ) -> Released | NotHeld | Refused:
        """Say that an operation went wrong."""
        return self.release(attempt, token, now=now, key=key, outcome=Outcome(False, error))

    def downgrade(
        self, attempt: str, token: int, *, now: float, key: str = KEY
    ) -> Granted | NotHeld | Refused:
        """Make an exclusive lease a shared one."""
        return self.store.execute(Downgrade(key, attempt, token, now=now))

    def resize(self, there_are: int, *, now: float, key: str = KEY, by: str = "olga") -> Resized:
        """Set how many permits there are."""
        return self.store.execute(Resize(key, there_are, by, now=now))

    def withdraw(
        self, attempt: str, *, now: float, key: str = KEY, held: bool = False
    ) -> Withdrawn | NotHeld:
        """End an attempt."""
        return self.store.execute(Withdraw(key, attempt, held, now=now))

    def break_(
        self,
        *,
        now: float,
        key: str = KEY,
        by: str = "olga",
        reason: str = "stuck",
        token: int | None = None,
    ) -> Broken | NotHeld:
        """Take the lock away from its holder."""
        return self.store.execute(Break(key, by, reason, token=token, now=now))

    def renew(
        self, attempt: str, token: int, *, now: float | None, key: str = KEY, ttl: float = 10.0
    ) -> LeaseAnswer:
        """Renew one lease."""
        (answer,) = self.renew_all([RenewLease(key, attempt, token, ttl)], now=now)
        return answer

    def renew_all(self, leases: Iterable[RenewLease], *, now: float | None) -> tuple[LeaseAnswer, ...]:
        """Renew a batch of leases."""
        return self.store.execute(Renew(leases=tuple(leases), now=now)).leases

    def refresh(self, attempt: str, *, now: float, key: str = KEY, patience: float = 15.0) -> TicketAnswer:
        """Refresh one ticket."""
        (answer,) = self.refresh_all([RefreshTicket(key, attempt, patience)], now=now)
        return answer

    def refresh_all(self, tickets: Iterable[RefreshTicket], *, now: float) -> tuple[TicketAnswer, ...]:
        """Refresh a batch of tickets."""
        return self.store.execute(Renew(tickets=tuple(tickets), now=now)).tickets

    def look(self, *, now: float | None, key: str = KEY) -> LockView:
        """Inspect a lock that there is."""
        view = self.inspect(now=now, key=key)
        assert view is not None
        return view

    def inspect(self, *, now: float | None, key: str = KEY) -> LockView | None:
        """Inspect a lock, if there is one."""
        return self.store.execute(Inspect(key, now=now))

    def page(
        self,
        *,
        now: float,
        prefix: str = "",
        owner: str | None = None,
        type: str | None = None,
        state: LockState | None = None,
        after: str = "",
        limit: int = 100,
    ) -> Page:
        """Ask for one page of locks."""
        return self.store.execute(List(prefix, owner, type, state, after, limit, now=now))

    def history(self, *, key: str = KEY, limit: int = 100) -> tuple[Event, ...]:
        """Read the newest events of a key."""
        return self.store.execute(History(key, limit))

    def watch(self, key: str = "", *, exact: bool = False, after: int | None = 0, limit: int = 1000) -> Feed:
        """Read the feed, from its beginning unless *after* says otherwise."""
        return self.store.execute(Watch(key, exact, after, limit))

    def sweep(
        self,
        *,
        now: float,
        limit: int = 1000,
        after: str = "",
        idle: float = 3600.0,
        keep_history: float = 30 * 86400.0,
    ) -> Swept:
        """Tidy up."""
        return self.store.execute(Sweep(limit, after, idle, keep_history, now=now))

    def signals(self) -> list[tuple[str, str]]:
        """Return who was told what since the last call: (kind, attempt), sorted."""
        return sorted((signal.kind, signal.attempt) for signal in self.full_signals())

    def full_signals(self) -> tuple[Signal, ...]:
        """Return the signals since the last call."""
        told = tuple(self._signals)
        del self._signals[: len(told)]  # a listener may add another one at this moment
        return told


class AsyncAdapter:
    """A store whose requests run in a worker thread of an event loop, as those of an async client do."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    @property
    def traits(self) -> Traits:
        """Return what the store says of itself."""
        return self._store.traits

    def open(self) -> None:
        """Open the store in a worker thread."""
        self._run(asyncio.to_thread(self._store.open))

    def execute(self, request: Request[A]) -> A:
        """Answer *request* in a worker thread."""
        return self._run(asyncio.to_thread(self._store.execute, request))

    def execute_many(self, requests: Sequence[Request[Any]]) -> list[Any]:
        """Answer *requests* in a worker thread."""
        return self._run(asyncio.to_thread(self._store.execute_many, requests))

    def execute_within(self, connection: Any, request: Request[A], awaits: Awaits | None = None) -> A:
        """Answer *request* in the caller's thread, as an async client does for a driver that blocks."""
        return self._store.execute_within(connection, request, awaits)

    def listen(self, listener: Listener) -> None:
        """Call *listener* with the signals, as the store does."""
        self._store.listen(listener)

    def be_reachable(self) -> None:
        """Make sure that signals arrive."""
        self._store.be_reachable()

    def after_fork(self, client: Client) -> None:
        """Become the store of *client*."""
        self._store.after_fork(client)

    def close(self) -> None:
        """Close the store, and the loop."""
        self._store.close()
        if not self._loop.is_closed():
            self._run(self._loop.shutdown_default_executor())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()
