"""How a store gets at its database: who may ask when, short transactions, and trying again.

`Sessions` is what the store needs. On a server it is a pool of connections; SQLite has its own.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol, TypeVar

from holdfast import errors
from holdfast.core.requests import Client
from holdfast.stores.pool import Pool
from holdfast.stores.signals import Signals
from holdfast.stores.sql.rules.columns import Row
from holdfast.stores.sql.rules.runner import Deals, Fetch, Peek, Post, Runner
from holdfast.stores.sql.transactions.session import Conflict, RowLocked, Session, Transaction

A = TypeVar("A")

TRIES = 4  # of a request that the database rolled back because of somebody else


class Reader(Protocol):
    """Reads what is committed."""

    def look(self, look: Callable[[Fetch], A], /) -> A:
        """Have *look* read what is committed."""

    def place(self, place: Callable[[Runner], bool], /) -> bool:
        """Have *place* give places to events; False if somebody else is at it."""


class Sessions(Protocol):
    """What asks the database."""

    alone: bool  # whoever is in a transaction is the only one to write, so nobody commits in between

    @property
    def reader(self) -> Reader:
        """What those look at who only look."""

    def open(self) -> None:
        """Connect, and check the tables."""

    def close(self) -> None: ...

    def before_fork(self) -> None: ...

    def after_fork_in_parent(self) -> None: ...

    def after_fork(self, client: Client, /) -> None: ...

    def store_id(self) -> str:
        """Return what tells our tables from all others."""

    def execute(self, answer: Callable[[Any], A], request: Any, /) -> A:
        """Have *request* answered when it is its turn."""

    def fetch(self, name: str, /, **parameters: Any) -> list[Row]:
        """Run one statement by itself."""

    def fetch_urgently(self, name: str, /, **parameters: Any) -> list[Row]:
        """Run one for which nobody who hangs may be waited for."""

    def read(self, name: str, /, **parameters: Any) -> list[Row]:
        """Run a statement that only reads: whatever became of it, nothing was applied."""

    def transact(self, work: Callable[[Deals], A], /, *, create: bool = False, urgent: bool = False) -> A:
        """Run *work* in a short transaction, which it ends. *create*: a key that is locked has a row then."""

    def peek(self, look: Callable[[Runner], A], /, *, urgent: bool = False) -> A:
        """Have *look* read a key without locking it."""

    def tell(self, signals: Post, /) -> None:
        """Wake those whom the commit has not woken yet."""


class PooledSessions:
    """Sessions of a database server. Any number of threads may ask."""

    alone = False

    def __init__(
        self,
        pool: Pool[Any],
        signals: Signals,
        check: Callable[[Any], None],
        is_passing: Callable[[BaseException], bool],
    ) -> None:
        self.pool = pool
        self._signals = signals
        self._check = check
        self._is_passing = is_passing
        self._store_id: str | None = None

    @property
    def reader(self) -> Reader:
        """What is committed, by any connection."""
        return self

    def open(self) -> None:
        """Connect, and check the tables."""
        self.pool.reopen()
        try:
            self.use(self._check)
        except BaseException:
            self.pool.close()  # nobody has the client, so nobody would close it
            raise

    def close(self) -> None:
        """Close the connections."""
        self.pool.close()

    def before_fork(self) -> None:
        """Let nobody be in the middle of taking a connection."""
        self.pool.before_fork()

    def after_fork_in_parent(self) -> None:
        """Go on."""
        self.pool.after_fork_in_parent()

    def after_fork(self, client: Client) -> None:
        """Have connections of our own in a forked child."""
        self.pool.after_fork()

    def store_id(self) -> str:
        """Return what tells our tables from all others."""
        if self._store_id is None:
            self._store_id = str(self.fetch("store_id")[0][0])
        return self._store_id

    def execute(self, answer: Callable[[Any], A], request: Any) -> A:
        """Have *request* answered at once."""
        return answer(request)

    def use(self, work: Callable[[Any], A], *, urgent: bool = False) -> A:
        """Do something with a connection; again, if the database rolled it back because of somebody else."""
        for tries in range(1, TRIES + 1):
            session = self.pool.take(urgent=urgent)
            try:
                answer = work(session)
            except BaseException as error:
                session.roll_back()
                if session.is_alive():
                    self.pool.give_back(session)
                else:
                    self.pool.discard(session)
                if not self._is_passing(error) or tries == TRIES:
                    raise
            else:
                self.pool.give_back(session)
                return answer
        raise AssertionError("unreachable")

    def fetch(self, name: str, /, **parameters: Any) -> list[Row]:
        """Run one statement by itself, in one round trip."""
        return self.use(lambda session: session.fetch(name, parameters))

    def fetch_urgently(self, name: str, /, **parameters: Any) -> list[Row]:
        """Run one for which nobody who hangs may be waited for."""
        return self.use(lambda session: session.fetch(name, parameters), urgent=True)

    def read(self, name: str, /, **parameters: Any) -> list[Row]:
        """Run a statement that only reads: whatever became of it, nothing was applied."""
        try:
            return self.fetch(name, **parameters)
        except errors.OutcomeUnknown as error:
            raise errors.StoreUnavailable(str(error)) from error

    def transact(self, work: Callable[[Deals], A], *, create: bool = False, urgent: bool = False) -> A:
        """Run *work* in a transaction: two round trips if it locks what it needs all at once."""
        here = self._signals.instance
        return self.use(lambda session: work(Transaction(session, here, create=create)), urgent=urgent)

    def peek(self, look: Callable[[Runner], A], *, urgent: bool = False) -> A:
        """Have *look* read a key without locking it."""

        def peek(session: Session) -> A:
            return look(Peek(lambda name, /, **parameters: session.fetch(name, parameters)))

        return self.use(peek, urgent=urgent)

    def look(self, look: Callable[[Fetch], A]) -> A:
        """Have *look* read what is committed."""
        return look(self.read)

    def place(self, place: Callable[[Runner], bool]) -> bool:
        """Have *place* give places to events; False if somebody else is at it for long."""

        def work(run: Deals) -> bool:
            more = place(run)
            run.commit([])
            return more

        with suppress(RowLocked):
            return self.transact(work)
        return False

    def tell(self, signals: Post) -> None:
        """Tell our own client: no database is needed for that."""
        self._signals.tell(signals)


def is_passing(error: BaseException) -> bool:
    """Tell whether trying again at once is likely to work."""
    return isinstance(error, Conflict) and not isinstance(error, RowLocked)
