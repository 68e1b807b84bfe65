"""The protocol on a database server: fast paths in one round trip, everything else in one short transaction.

The slow path locks the lock's row, reads it, decides as the protocol says, and writes it back with the
commit: two round trips. What differs between databases is in their sessions and statements.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

from holdfast import errors
from holdfast.core.events import Event, HistoryLevel
from holdfast.core.requests import (
    Acquire,
    Break,
    Broken,
    Busy,
    Client,
    Fence,
    Granted,
    History,
    Inspect,
    LeaseAnswer,
    List,
    LockView,
    NotHeld,
    Page,
    Queued,
    RefreshTicket,
    Release,
    Released,
    Renew,
    Renewed,
    RenewLease,
    Request,
    Signal,
    Sweep,
    Swept,
    TicketAnswer,
    TooManyHolds,
    Withdraw,
    Withdrawn,
)
from holdfast.stores.base import Listener, StoreOptions, Traits, micros
from holdfast.stores.sql import deciding, views, within
from holdfast.stores.sql.callers import Caller, caller
from holdfast.stores.sql.pool import Pool
from holdfast.stores.sql.row import LockRow, Post
from holdfast.stores.sql.run import Row
from holdfast.stores.sql.session import Conflict, RowLocked, Session, Transaction

if TYPE_CHECKING:
    import asyncio

A = TypeVar("A")

MOST_CONTENDED = 1000
BATCH = 1000  # leases or tickets in one statement: it locks them all until it is done
TRIES = 4  # of a request that the database rolled back because of somebody else


class Signals(Protocol):
    """How a client of the database is woken. It is told of hints, and nothing depends on them."""

    def listen(self, listener: Listener, /) -> None: ...

    def deliver(self, signal: Signal, /) -> None: ...

    def hang_up_bell(self) -> None:
        """Make sure that we can be woken, before anybody could want to. Never raises."""

    def after_fork(self, instance: str, /) -> None: ...

    def close(self) -> None: ...


class ServerStore:
    """See the module. Connections come from a pool; any number of threads may ask."""

    traits: Traits
    database: str  # as callers' connections name it

    def __init__(self, options: StoreOptions, pool: Pool[Any], signals: Signals) -> None:
        self._client = options.client
        self._level: HistoryLevel = options.history
        self._pool = pool
        self._signals = signals
        self._store_id: str | None = None
        self._contended: dict[str, str] = {}  # key → the attempt of ours that was queued there last
        self._answer: dict[type, Callable[[Any], Any]] = {
            Acquire: self._acquire,
            Release: self._release,
            Withdraw: self._withdraw,
            Break: self._break,
            Renew: self._renew,
            Inspect: self._inspect,
            History: self._history,
            List: self._list,
            Sweep: self._sweep,
        }

    def open(self) -> None:
        """Connect, and check the tables."""
        self._pool.reopen()
        try:
            self.use(self._check_schema)
        except BaseException:
            self._pool.close()  # nobody has the client, so nobody would close it
            raise

    def _check_schema(self, session: Any) -> None:
        raise NotImplementedError

    def execute(self, request: Request[A]) -> A:
        """Answer *request*, and wake whoever is concerned."""
        return cast("A", self._answer[type(request)](request))

    def execute_within(
        self, connection: Any, request: Request[A], loop: asyncio.AbstractEventLoop | None = None
    ) -> A:
        """Answer *request* inside the caller's transaction."""
        theirs = caller(connection, self.database, loop)
        if isinstance(request, Acquire):
            # A row that all can see, so that a renewal finds it locked and not missing before they commit.
            self.use(
                lambda session: session.fetch("ensure_lock", {"key": request.key, "now": _given(request.now)})
            )
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

    def _translate(self, error: Exception) -> errors.HoldfastError | None:
        """Return our error for one of the driver's."""
        raise NotImplementedError

    def sql(self, name: str) -> str:
        """Return a statement with the names that the tables have here."""
        raise NotImplementedError

    def explain(self, request: Fence) -> NotHeld | None:
        """Say why a lease is not alive, by what is committed; None if it is."""
        return self.use(lambda session: deciding.explain(self._look(session, request), request.token))

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

    def _acquire(self, request: Acquire) -> Granted | Queued | Busy | TooManyHolds | NotHeld:
        key, attempt = request.key, request.attempt
        try:
            if self._level != "all" and (granted := self._acquire_fast(request)):  # else into the history
                return granted
            if not request.wait and (busy := self._peek(request)):
                return busy
            if request.wait:
                self._signals.hang_up_bell()
                if self._level != "all" and (queued := self._queue_fast(request)):
                    self._expect_contention(key, attempt)
                    return queued
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
            answer = self.use(lambda session: deciding.put_off(self._look(session, request), request))
        if isinstance(answer, Queued | Busy):
            self._expect_contention(key, attempt)
        return answer

    def _acquire_fast(self, request: Acquire) -> Granted | None:
        """Take a free lock, or claim what was handed to us, in one round trip; None: the slow path."""
        last_queued = self._contended.get(request.key)
        now = None if request.now is None else micros(request.now)
        if last_queued == request.attempt:
            rows = self._fetch(
                "claim",
                key=request.key,
                attempt=request.attempt,
                ttl=micros(request.ttl),
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

    def _queue_fast(self, request: Acquire) -> Queued | None:
        """Join a queue in one round trip, where the database can; None: the slow path."""
        return None

    def _peek(self, request: Acquire) -> Busy | None:
        """Refuse a try without locking the row, if that can be seen."""
        return self.use(lambda session: deciding.refuse(self._look(session, request), request))

    def _look(self, session: Session, request: Acquire | Fence) -> LockRow:
        return LockRow(Peek(session), request.key, _given(request.now), self._level, [], request.attempt)

    def _expect_contention(self, key: str, attempt: str) -> None:
        """Remember that the fast path would fail on this key, and cost a round trip for nothing.

        It is tried again when nobody waits any more; only *attempt* may claim on the fast path.
        """
        if len(self._contended) >= MOST_CONTENDED:
            self._contended.clear()
        self._contended[key] = attempt

    def _release(self, request: Release) -> Released | NotHeld:
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
            lazily=lambda _: True,
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
            now=_given(request.now),
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

    def _on_key(
        self,
        key: str,
        attempt: str,
        now: float | None,
        decide: Callable[[LockRow], A],
        *,
        create: bool = False,
        lazily: Callable[[A], bool] = lambda _: False,
        urgent: bool = False,
    ) -> A:
        """Lock the row of the key, decide, and write the row back: one transaction, two round trips.

        *lazily* tells which answers may be given before they have reached the disk: a release, because to
        lose it only delays the next holder, whose own grant or claim does reach the disk, and this with it;
        and a ticket, because to lose it costs its place in the queue and nothing else.
        """

        def work(session: Session) -> tuple[A, Post]:
            post: Post = []
            run = Transaction(session, create=create)
            lock = LockRow(run, key, _given(now), self._level, post, attempt)
            answer = decide(lock)
            lock.write()
            abroad = [each for each in post if each[0] != self._client.instance]
            run.commit(abroad, lazily=lazily(answer))
            return answer, post

        answer, post = self.use(work, urgent=urgent)
        for instance, signal in post:
            if instance == self._client.instance:  # no database is needed for that
                self._signals.deliver(signal)
        return answer

    def _fetch(self, name: str, /, **parameters: Any) -> list[Row]:
        return self.use(lambda session: session.fetch(name, parameters))

    def use(self, work: Callable[[Any], A], *, urgent: bool = False) -> A:
        """Do something with a connection; again, if the database rolled it back because of somebody else."""
        for tries in range(1, TRIES + 1):
            session = self._pool.take(urgent=urgent)
            try:
                answer = work(session)
            except BaseException as error:
                session.roll_back()
                if session.is_alive():
                    self._pool.give_back(session)
                else:
                    self._pool.discard(session)
                if not self._again(error) or tries == TRIES:
                    raise
            else:
                self._pool.give_back(session)
                return answer
        raise AssertionError("unreachable")

    def _again(self, error: BaseException) -> bool:
        """Tell whether trying again at once is likely to work."""
        return isinstance(error, Conflict) and not isinstance(error, RowLocked)

    # Many keys at once.

    def _renew(self, request: Renew) -> Renewed:
        return Renewed(
            self._renew_leases(request.leases, request.now),
            self._refresh_tickets(request.tickets, request.now),
        )

    def _renew_leases(self, leases: tuple[RenewLease, ...], now: float | None) -> tuple[LeaseAnswer, ...]:
        answers: dict[int, LeaseAnswer | None] = {}
        for place in self._in_batches(
            "renew",
            "leases",
            [
                {"key": each.key, "attempt": each.attempt, "token": each.token, "ttl": micros(each.ttl)}
                for each in leases
            ],
            now,
        ):
            answers[place] = LeaseAnswer("renewed", micros(leases[place].ttl) / 1e6)
        # First all that are alive, then what became of the others: settling their keys depends on the first.
        for decide in (deciding.renew_alive, deciding.explain_loss):
            for place, lease in enumerate(leases):
                if answers.get(place) is None:
                    answers[place] = self._on_lease(lease, now, decide)
        return tuple(cast("LeaseAnswer", answers[place]) for place in range(len(leases)))

    def _on_lease(
        self,
        lease: RenewLease,
        now: float | None,
        decide: Callable[[LockRow, RenewLease], LeaseAnswer | None],
    ) -> LeaseAnswer | None:
        try:
            return self._on_key(lease.key, lease.attempt, now, lambda lock: decide(lock, lease), urgent=True)
        except Conflict:
            return LeaseAnswer("unknown")  # somebody keeps the row locked; the others are none the worse

    def _refresh_tickets(
        self, tickets: tuple[RefreshTicket, ...], now: float | None
    ) -> tuple[TicketAnswer, ...]:
        if not tickets:
            return ()
        waited_for = self._settled(list(dict.fromkeys(ticket.key for ticket in tickets)), now)
        waiting = self._in_batches(
            "refresh_tickets",
            "tickets",
            [
                {"key": each.key, "attempt": each.attempt, "patience": micros(each.patience)}
                for each in tickets
            ],
            now,
        )
        answers = []
        for place, ticket in enumerate(tickets):
            if place in waiting:
                at, _, end, _, head, _ = waited_for[ticket.key]
                answers.append(TicketAnswer("waiting", head == ticket.attempt, (end - at) / 1e6))
            elif self._peek_hold(ticket, now):
                answers.append(TicketAnswer("handed"))
            else:
                answers.append(TicketAnswer("gone"))
        return tuple(answers)

    def _settled(self, keys: list[str], now: float | None) -> dict[str, Row]:
        """Settle the keys where there is anything to settle. Return what their waiters want to know."""
        found = self._waited_for(keys, now)
        to_settle = [
            key
            for key, (at, owner, end, holds, _, head_end) in found.items()
            if holds or owner is None or end <= at or (head_end is not None and head_end <= at)
        ]
        for key in to_settle:
            self._on_key(key, "", now, LockRow.settle, urgent=True)
        if to_settle:
            found |= self._waited_for(to_settle, now)
        return found

    def _waited_for(self, keys: list[str], now: float | None) -> dict[str, Row]:
        found: dict[str, Row] = {}
        for start in range(0, len(keys), BATCH):
            chosen = json.dumps(keys[start : start + BATCH])
            for key, *rest in self._fetch_urgently("waited_for", keys=chosen, now=_given(now)):
                found[key] = tuple(rest)
        return found

    def _peek_hold(self, ticket: RefreshTicket, now: float | None) -> bool:
        return self.use(
            lambda session: (
                LockRow(Peek(session), ticket.key, _given(now), self._level, [], ticket.attempt).find_hold()
                is not None
            ),
            urgent=True,
        )

    def _in_batches(
        self, name: str, parameter: str, items: list[dict[str, Any]], now: float | None
    ) -> set[int]:
        """Run a statement for many items, as few times as is good; return the places it found."""
        places: set[int] = set()
        for start in range(0, len(items), BATCH):
            chosen = json.dumps(
                [{"place": start + n, **item} for n, item in enumerate(items[start : start + BATCH])]
            )
            rows = self._fetch_urgently(name, **{parameter: chosen}, now=_given(now))
            places.update(place for (place,) in rows)
        return places

    def _fetch_urgently(self, name: str, /, **parameters: Any) -> list[Row]:
        return self.use(lambda session: session.fetch(name, parameters), urgent=True)

    def _sweep(self, request: Sweep) -> Swept:
        limit, given = request.limit, request.now
        now = cast("int", self._fetch("now", now=_given(given))[0][0])
        expired = self._fetch("sweep_expired", now=now, limit=limit)
        for (key,) in expired:
            self._on_key(key, "", given, LockRow.settle)
        ended = self._fetch("delete_ended", now=now, limit=limit)
        history = self._fetch("delete_history", before=now - micros(request.keep_history), limit=limit)
        if given is None:
            self._keep_partitions(now, now - micros(request.keep_history))
        idle_since = now - micros(request.idle)
        walk = self._fetch("sweep_walk", after=request.after, idle_since=idle_since, limit=limit + 1)
        tickets = 0
        idle: list[tuple[str, int]] = []
        after: str | None = request.after
        for key, token, is_idle, waiters in walk[:limit]:
            if waiters:
                most = limit - tickets
                tickets += self._on_key(key, "", given, lambda lock, most=most: lock.drop_dead_tickets(most))  # type: ignore[misc]
                if tickets == limit:
                    break  # there may be more of them: come back to this key
            elif is_idle:
                idle.append((key, token))
            after = key
        else:
            after = after if len(walk) > limit else None
        deleted = self._delete_idle(idle, idle_since)
        self._fetch(
            "delete_never_granted", after=request.after, upto=after, idle_since=idle_since, limit=limit
        )
        return Swept(len(expired), tickets, deleted, len(ended), len(history), after)

    def _delete_idle(self, idle: list[tuple[str, int]], idle_since: int) -> int:
        if not idle:
            return 0
        self._fetch("raise_floor", token=max(token for _, token in idle))
        return len(
            self._fetch("delete_idle", keys=json.dumps([key for key, _ in idle]), idle_since=idle_since)
        )

    def _keep_partitions(self, now: int, forget_before: int) -> None:
        """Make the history's partitions ahead, and drop those that are over."""
        raise NotImplementedError

    # Looking.

    def _read(self, name: str, /, **parameters: Any) -> list[Row]:
        """Run a statement that only reads: whatever became of it, nothing was applied."""
        try:
            return self._fetch(name, **parameters)
        except errors.OutcomeUnknown as error:
            raise errors.StoreUnavailable(str(error)) from error

    def _inspect(self, request: Inspect) -> LockView | None:
        return views.inspect(self._read, request)

    def _list(self, request: List) -> Page:
        return views.list_locks(self._read, request)

    def _history(self, request: History) -> tuple[Event, ...]:
        return views.history(self._read, request)


class Peek:
    """Reads a key without locking it."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def __call__(self, name: str, /, **parameters: Any) -> list[Row]:
        """Run a statement that reads."""
        return self._session.fetch(name, parameters)

    def later(self, name: str, /, **parameters: Any) -> None:
        """Refuse: whoever peeks changes nothing."""
        raise AssertionError(f"{name} in a peek")

    def lock(self, key: str, attempt: str, now: int | None) -> Row:
        """Read a key."""
        return self._session.fetch("read_lock", {"key": key, "attempt": attempt, "now": now})[0]


def _given(now: float | None) -> int | None:
    return None if now is None else micros(now)
