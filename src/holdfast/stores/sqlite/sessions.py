"""Sessions of an SQLite file: one connection to write and one to read, each used by one thread at a time.

SQLite lets one connection write at a time, so nothing can come between the statements of a transaction.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from holdfast import errors
from holdfast.core.cluster import Leave
from holdfast.core.requests import Client, Renew, Sweep
from holdfast.stores.sql.rules.columns import Row
from holdfast.stores.sql.rules.runner import Fetch, Peek, Post, Runner
from holdfast.stores.sqlite.at_once import AtOnce
from holdfast.stores.sqlite.database import SQL, Database, NotOurTurn, Transaction, is_busy
from holdfast.stores.sqlite.signals import Doorbells

A = TypeVar("A")

PLACED_WITHIN = 0.25  # seconds that who watches waits for a turn to write

# Whoever forks waits this long for requests that are under way; a signal handler that forks is one itself.
LONGEST_REST = 10.0

AS_ONE = frozenset({Renew, Sweep, Leave})  # what is many transactions elsewhere, and one here


class Reader:
    """Looks at the file by a connection of its own, which waits for no writer."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.mutex = threading.Lock()

    def look(self, look: Callable[[Fetch], A]) -> A:
        """Have *look* read everything as of one moment."""
        with self.mutex:
            return self.database.read(look)

    def place(self, place: Callable[[Runner], bool]) -> bool:
        """Have *place* give places to events; False if it is not our turn: they come with the next look."""
        with self.mutex:
            try:
                return self.database.transact(place, within=PLACED_WITHIN)
            except errors.StoreUnavailable as error:
                if not is_busy(error.__cause__):
                    raise
                return False


class FileSessions:
    """See the module. *how* is what `Database` is told."""

    alone = True

    def __init__(self, path: Path, signals: Doorbells, **how: Any) -> None:
        self.database = Database(path, **how)
        self.reader = Reader(Database(path, file=self.database.file, **how))
        self.at_once = AtOnce(Database(path, file=self.database.file, checkpoint=0, **how))
        self.mutex = threading.Lock()
        self._signals = signals
        self._afterwards: list[Callable[[], None]] = []  # what the request under way leaves to be done
        self._rests: list[threading.Lock] = []

    def open(self) -> None:
        """Connect, and create or check the tables."""
        with self.mutex:
            self.database.open()

    def close(self) -> None:
        """Close the connections."""
        with self.mutex:
            self.database.close()
        for other in (self.reader, self.at_once):
            with other.mutex:
                other.database.close()

    def before_fork(self) -> None:
        """Close the connections once no request uses them. Parent and child both connect again when they ask.

        SQLite keeps account of its file locks per process. A child that inherits an open connection
        inherits that account too: it would wait for ever for a lock that a thread of the parent had, or
        write to a log that the parent deletes when it closes.
        """
        self._rests = []  # first: an interrupt while we wait must not leave what was true of the fork before
        for resting in (self, self.reader, self.at_once):  # the last one's mutex is to be kept for least
            if resting.mutex.acquire(timeout=LONGEST_REST):
                self._rests.append(resting.mutex)
                resting.database.close()

    def after_fork_in_parent(self) -> None:
        """Answer requests again."""
        rests, self._rests = self._rests, []
        for mutex in rests:
            mutex.release()

    def after_fork(self, client: Client) -> None:
        """Connect again when a forked child asks."""
        self._rests = []
        for forked in (self, self.reader, self.at_once):
            forked.mutex = threading.Lock()
            forked.database.abandon()

    def store_id(self) -> str:
        """Return what tells this file from all others."""
        if not self.database.file.id:  # not by a question: somebody may wait there for whoever asks us
            self.open()
        return self.database.file.id

    def execute(self, answer: Callable[[Any], A], request: Any) -> A:
        """Have *request* answered when no other is, then ring whoever is concerned."""
        afterwards = [self._serve_at_once] if self.at_once.is_due else []
        try:
            with self.mutex:
                self.database.grouped = False  # an interrupt may have left it so
                self._afterwards = afterwards
                if type(request) in AS_ONE:
                    return self.database.as_one(lambda: answer(request))
                return answer(request)
        finally:  # whatever fails in the end: what was committed before concerns others all the same
            for work in afterwards:
                work()

    def _serve_at_once(self) -> None:
        """Do for those who answer at once what they must not wait for: connect, and see to the log.

        A commit makes a checkpoint if the log is long. Who writes next begins the log again, which waits for
        the disk.
        """
        with suppress(errors.StoreError):
            with self.mutex:
                self.database.grouped = False
                for _ in range(2):
                    self.database.transact(lambda run: run("lock_row", key=""), within=PLACED_WITHIN)
            self.at_once.open()

    def group(self, answers: Sequence[Callable[[], Any]], within: float | None = None) -> list[Any]:
        """Have many answered in one transaction, then ring whoever is concerned."""
        left: list[list[Callable[[], None]]] = [[] for _ in answers]

        def answer(place: int) -> Any:
            self._afterwards = left[place]
            return answers[place]()

        if not self.mutex.acquire(blocking=within != 0):
            raise NotOurTurn
        try:
            found = self.database.group([partial(answer, place) for place in range(len(answers))], within)
        finally:
            self.mutex.release()
        for each, afterwards in zip(found, left, strict=True):
            if not isinstance(each, errors.StoreError):
                for work in afterwards:
                    work()
        return found

    def try_group(self, answers: Sequence[Callable[[], Any]]) -> list[Any] | None:
        """Have many answered in one transaction, if that waits for nobody; None: nothing was done."""
        if not self.database.is_open:
            return None  # it would have to be opened first
        with suppress(NotOurTurn):
            return self.group(answers, within=0)
        return None

    def fetch(self, name: str, /, **parameters: Any) -> list[Row]:
        """Run one statement by itself."""
        return self.database.fetch(SQL[name], parameters)

    fetch_urgently = fetch
    read = fetch

    def transact(self, work: Callable[[Transaction], A], *, create: bool = False, urgent: bool = False) -> A:
        """Run *work* in a transaction."""
        return self.database.transact(work)

    def peek(self, look: Callable[[Runner], A], *, urgent: bool = False) -> A:
        """Have *look* read a key without becoming the writer."""
        return look(Peek(self.fetch))

    def look(self, look: Callable[[Fetch], A]) -> A:
        """Have *look* read, in a group: it may look for what the group did."""
        return look(self.fetch)

    def place(self, place: Callable[[Runner], bool]) -> bool:
        """Have *place* give places to events."""
        return self.database.transact(place)

    def tell(self, signals: Post) -> None:
        """Ring whoever is concerned, once the request is answered."""
        self.afterwards(lambda: self._signals.tell(signals))

    def afterwards(self, work: Callable[[], None]) -> None:
        """Have something done once the request is answered, and others may ask."""
        self._afterwards.append(work)
