"""How a server store talks to its database: a pool, short transactions on one key, and trying again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from holdfast import errors
from holdfast.core.events import HistoryLevel
from holdfast.core.requests import Acquire, Fence
from holdfast.stores.base import StoreOptions, instant
from holdfast.stores.listening import Listening
from holdfast.stores.pool import Pool
from holdfast.stores.sql.row import LockRow, Post
from holdfast.stores.sql.run import Row
from holdfast.stores.sql.session import Conflict, RowLocked, Session, Transaction

A = TypeVar("A")

TRIES = 4  # of a request that the database rolled back because of somebody else


class Serving:
    """Runs work on connections of a pool; any number of threads may."""

    def __init__(self, options: StoreOptions, pool: Pool[Any], signals: Listening) -> None:
        self._client = options.client
        self._level: HistoryLevel = options.history
        self._pool = pool
        self._signals = signals

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
            lock = LockRow(run, key, instant(now), self._level, post, attempt)
            answer = decide(lock)
            lock.write()
            run.commit(self._abroad(post), lazily=lazily(answer))
            return answer, post

        answer, post = self.use(work, urgent=urgent)
        self._deliver(post)
        return answer

    def _abroad(self, post: Post) -> Post:
        return [each for each in post if each[0] != self._client.instance]

    def _deliver(self, post: Post) -> None:
        for instance, signal in post:
            if instance == self._client.instance:  # no database is needed for that
                self._signals.deliver(signal)

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

    def _look(self, session: Session, request: Acquire | Fence) -> LockRow:
        return LockRow(Peek(session), request.key, instant(request.now), self._level, [], request.attempt)

    def _read(self, name: str, /, **parameters: Any) -> list[Row]:
        """Run a statement that only reads: whatever became of it, nothing was applied."""
        try:
            return self._fetch(name, **parameters)
        except errors.OutcomeUnknown as error:
            raise errors.StoreUnavailable(str(error)) from error


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
