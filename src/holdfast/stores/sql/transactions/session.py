"""One connection to a database server, and transactions on it in few round trips."""

from __future__ import annotations

from typing import Any, Protocol

from holdfast import errors
from holdfast.core.requests import WATCHERS, Signal
from holdfast.stores.sql.rules.columns import KeyRead, Row, read_key
from holdfast.stores.sql.rules.runner import Post, Soon, Statement

Batch = list[tuple[str, dict[str, Any]]]  # named statements with their parameters


class Conflict(errors.StoreUnavailable):
    """The database rolled us back because of somebody else. Trying again at once is likely to work."""


class RowLocked(Conflict):
    """Somebody keeps the row locked, for longer than any request of ours does: a caller's transaction."""


class Session(Protocol):
    """A connection. Raises only `StoreError`: after `OutcomeUnknown` or a broken line it is of no use."""

    def fetch(self, name: str, parameters: dict[str, Any], /) -> list[Row]:
        """Run one statement by itself, in one round trip."""

    def send(self, batch: Batch, /, *, commits: bool = False) -> list[list[Row]]:
        """Run statements one after the other, in one round trip where the driver can.

        *commits*: the last but for signals is a COMMIT. If the line breaks then, nobody knows.
        """

    def signalling(self, instance: str, signal: Signal, /) -> Batch:
        """Return the statements that wake a client, to be sent after a commit."""

    def roll_back(self) -> None:
        """End a transaction that failed. Never raises."""

    def is_alive(self) -> bool: ...

    def close(self) -> None: ...


class Transaction:
    """Runs named statements inside a transaction; those that nobody waits for go out together.

    Of what it signals with its commit, what is for *here*, our own client, is left to the caller.
    """

    def __init__(self, session: Session, here: str, *, create: bool) -> None:
        self._session = session
        self._here = here
        self._create = create
        self._queue: Batch = [("begin", {})]
        self._awaited: dict[int, Soon] = {}  # by their places in the queue

    def __call__(self, name: str, /, **parameters: Any) -> list[Row]:
        """Send what is queued and this, and return the rows of this."""
        self._queue.append((name, parameters))
        return self._send()[-1]

    def later(self, name: str, /, **parameters: Any) -> None:
        """Queue a statement."""
        self._queue.append((name, parameters))

    def soon(self, name: str, /, **parameters: Any) -> Soon:
        """Queue a statement whose rows are wanted, but not before the next that is sent."""
        soon = self._awaited[len(self._queue)] = Soon()
        self._queue.append((name, parameters))
        return soon

    def _send(self, *, commits: bool = False) -> list[list[Row]]:
        batch, self._queue = self._queue, []
        awaited, self._awaited = self._awaited, {}
        results = self._session.send(batch, commits=commits)
        for place, soon in awaited.items():
            # What comes after a commit may have failed, and then there may be no result of it.
            soon.rows = results[place] if place < len(results) else []
        return results

    def lock(self, key: str, attempt: str, now: int | None) -> KeyRead:
        """Lock the row of a key, then read it: what the lock had to wait for is seen by the read."""
        row = self._lock(key, attempt, now)
        if not row.is_row and self._create:
            # Without a row there is nothing to lock, and two who find none would not see each other.
            self.later("ensure_lock", key=key, now=now)
            row = self._lock(key, attempt, now)
        return row

    def _lock(self, key: str, attempt: str, now: int | None) -> KeyRead:
        self.later("lock_row", key=key)
        self.later("probe_pin", key=key)
        self.later("read_lock", key=key, attempt=attempt, now=now)
        *_, locked, probe, read = self._send()
        row = read_key(read[0])
        if row.is_row and not locked:
            return self._lock(key, attempt, now)  # somebody made it just after we found none to lock
        return row._replace(pinned=row.is_row and not probe)

    def commit(self, signals: Post, *, lazily: bool = False, read: Statement | None = None) -> list[Row]:
        """Write what is queued, commit, and then wake whoever is concerned.

        *lazily*: the commit need not have reached the disk, because losing it would only delay somebody.
        *read* reads what others have committed by then; its rows are returned, or none if it failed.
        """
        if lazily:
            self.later("commit_lazily")
        self.later("commit")
        found = None if read is None else self.soon(read[0], **read[1])
        for instance, signal in sorted(signals, key=_is_for_watchers):
            if instance != self._here:
                self._queue += self._session.signalling(instance, signal)
        self._send(commits=True)
        return [] if found is None else found.rows


def _is_for_watchers(each: tuple[str, Signal]) -> bool:
    return each[0] == WATCHERS  # they come last: others wait for a lock
