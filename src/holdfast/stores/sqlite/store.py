"""The protocol on SQLite: fast paths in one statement, everything else in one short transaction.

The slow path reads the lock's row, decides as the protocol says, and writes the row back; SQLite lets
one connection write at a time, so nothing can come between.
"""

from __future__ import annotations

import math
import sqlite3
import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast
from urllib.parse import parse_qsl, unquote

from holdfast import errors
from holdfast.core.access import GrantAccess, ListAccess, RevokeAccess
from holdfast.core.cluster import Beat, Claim, Claimed
from holdfast.core.deadlocks import Deadlock
from holdfast.core.events import HistoryLevel
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
    NotHeld,
    Probe,
    Queued,
    Refused,
    Release,
    Released,
    Renew,
    Renewed,
    Request,
    Resize,
    Resized,
    Sweep,
    Swept,
    Watch,
    Withdraw,
    Withdrawn,
)
from holdfast.stores.base import READS, Awaits, Listener, StoreOptions, Traits, instant, micros, one_by_one
from holdfast.stores.sql import access, deciding, feed, rehearsing, views, within
from holdfast.stores.sql.callers import Caller, caller
from holdfast.stores.sql.deadlock import Tables, end_circles
from holdfast.stores.sql.dealing import Decide
from holdfast.stores.sql.deciding import Acquired
from holdfast.stores.sql.holds import is_plain
from holdfast.stores.sql.probing import probe
from holdfast.stores.sql.row import LockRow, Post
from holdfast.stores.sql.run import Fetch, Row
from holdfast.stores.sqlite import batch, claiming, cluster, glancing
from holdfast.stores.sqlite.database import SQL, Database, Run, Transaction, is_busy
from holdfast.stores.sqlite.signals import SUPPORTED, Doorbells

A = TypeVar("A")

MOST_CONTENDED = 1000
PLACED_WITHIN = 0.25  # seconds that who watches waits for a turn to write

Look = Callable[[Fetch, Any], Any]
LOOKS: dict[type, Look] = {
    Inspect: views.inspect,
    List: views.list_locks,
    History: views.history,
    ListAccess: access.list_all,
    **cluster.LOOKS,
}

_SYNCHRONOUS = ("normal", "full", "extra")
# In many urls, and about their own connections.
_LEFT_OUT = ("autocommit", "cached_statements", "check_same_thread", "detect_types", "isolation_level")

# Whoever forks waits this long for requests that are under way; a signal handler that forks is one itself.
LONGEST_REST = 10.0


def from_url(url: str, options: StoreOptions) -> SQLiteStore:
    """Return the store for ``sqlite:///relative.db`` or ``sqlite:////absolute.db``.

    Options after ``?``: ``synchronous=full`` survives a power cut with every grant (the default,
    ``normal``, may forget the last ones, when every client of the file died with the machine too);
    ``busy_timeout=5`` is how many seconds to wait for whoever keeps the file locked.
    """
    place, _, query = url.partition("?")
    path = unquote(place.removeprefix("sqlite:///"))
    if not place.startswith("sqlite:///") or not path or path == ":memory:":
        raise errors.SettingsError(
            f"{url!r} names no file: use sqlite:///relative.db, sqlite:////absolute/path.db, or memory://"
        )
    if "#" in url or any(sign < " " for sign in path):
        raise errors.SettingsError(f"{url!r} has a # or a control character; a # in a name is written %23")
    given = dict(parse_qsl(query, keep_blank_values=True))
    for name in _LEFT_OUT:
        given.pop(name, None)
    synchronous = given.pop("synchronous", "normal").lower()
    if synchronous not in _SYNCHRONOUS:
        raise errors.SettingsError(f"synchronous is {synchronous!r}; it must be one of {_SYNCHRONOUS}")
    try:
        busy_timeout = float(given.pop("busy_timeout", "5"))
        if not 0 <= busy_timeout < math.inf:
            raise ValueError
    except ValueError as error:
        raise errors.SettingsError(f"busy_timeout in {url!r} must be a number of seconds") from error
    if given:
        raise errors.SettingsError(
            f"{url!r} has unknown options: {', '.join(sorted(given))}; there are synchronous and busy_timeout"
        )
    return SQLiteStore(Path(path), options, synchronous=synchronous, busy_timeout=busy_timeout)


class SQLiteStore:
    """See the module. One connection to write, and one to read, each used by one thread at a time."""

    reads_may_be_old = False  # who reads by an old snapshot cannot write
    can_unlock = False
    savepoints_may_commit = True  # if no BEGIN came before them, as with SQLAlchemy
    traits = Traits(
        durable=True, signals=SUPPORTED, blocking=True, repeats=False, transactions=True, groups=True
    )

    def __init__(
        self, path: Path, options: StoreOptions, *, synchronous: str = "normal", busy_timeout: float = 5.0
    ) -> None:
        self.path = path.absolute()
        self._client = options.client
        self._level: HistoryLevel = options.history
        self._database = Database(self.path, synchronous=synchronous, busy_timeout=busy_timeout)
        self._mutex = threading.Lock()
        self._reader = Database(
            self.path, synchronous=synchronous, busy_timeout=busy_timeout, file=self._database.file
        )
        self._reading = threading.Lock()
        self._contended: dict[str, str] = {}  # key → the attempt of ours that was queued there last
        self._rests = self._reads_rest = False
        self._doorbells = Doorbells(self.path.resolve(), options.client.instance)
        self._answer: dict[type, Callable[..., Any]] = {
            Acquire: self._acquire,
            Release: self._release,
            Withdraw: self._withdraw,
            Break: self._break,
            Downgrade: self._downgrade,
            Resize: self._resize,
            Renew: self._renew,
            Watch: self._watch,
            Sweep: self._sweep,
            Probe: lambda request, _: probe(self._fetch, self._client, request),
            GrantAccess: lambda request, _: access.grant(self._fetch, request),
            RevokeAccess: lambda request, _: access.revoke(self._fetch, request),
            **cluster.answers(self._deal),
            Claim: self._claim,
            **{kind: partial(self._look_at, look) for kind, look in LOOKS.items()},
        }

    def open(self) -> None:
        """Connect, and create or check the tables."""
        with self._mutex:
            self._database.open()

    def execute(self, request: Request[A]) -> A:
        """Answer *request*, then ring whoever is concerned."""
        if type(request) in READS:
            return cast("A", self._read(request))
        post: Post = []
        try:
            with self._mutex:
                self._database.grouped = False  # an interrupt may have left it so
                return cast("A", self._answer[type(request)](request, post))
        finally:  # whatever fails in the end: what was committed before concerns others all the same
            for instance, signal in post:
                self._doorbells.ring(instance, signal)

    def execute_many(self, requests: Sequence[Request[Any]]) -> list[Any]:
        """Answer *requests* one after the other in one transaction; then ring whoever is concerned."""
        if len(requests) < 2 or all(type(request) in READS for request in requests):
            return one_by_one(self, requests)
        posts: list[Post] = [[] for _ in requests]
        works = [
            partial(self._answer[type(request)], request, post)
            for request, post in zip(requests, posts, strict=True)
        ]
        with self._mutex:
            answers = self._database.group(works)
        for answer, post in zip(answers, posts, strict=True):
            if not isinstance(answer, errors.StoreError):
                for instance, signal in post:
                    self._doorbells.ring(instance, signal)
        return answers

    def execute_within(self, connection: Any, request: Request[A], awaits: Awaits | None = None) -> A:
        """Answer *request* inside the caller's transaction, which becomes the file's only writer."""
        theirs = caller(connection, "sqlite", awaits)
        self._database.look_again()
        within.check_nesting(connection, request, self)
        try:
            # Whoever is concerned would find nothing yet: they learn of it by their heartbeat.
            answer, _ = within.answer(theirs, request, self, self._level)
        except errors.HoldfastError:
            raise
        except Exception as error:
            cause = getattr(error, "orig", error)  # SQLAlchemy wraps what the driver raised
            if not isinstance(cause, sqlite3.Error):
                raise
            if "no such table" in str(cause):  # ours are there, so those are others
                raise errors.SettingsError(within.ELSEWHERE) from error
            raise self._database.translate(cause) from error
        return cast("A", answer)

    def sql(self, name: str) -> str:
        """Return a statement for a caller's connection."""
        return SQL[name]

    def look(self, name: str, /, **parameters: Any) -> list[Row]:
        """Run a statement that only reads, outside of a caller's transaction."""
        return self._fetch(name, **parameters)

    def explain(self, request: Fence, caller: Caller) -> NotHeld | None:
        """Say why a lease is not alive, by what is committed; None if it is."""
        self.store_id()
        path = self._database.path
        return glancing.glance(path, lambda fetch: rehearsing.explain(fetch, request, self._level))

    def enter(self, caller: Caller, request: Request[Any]) -> None:
        """Be part of any transaction."""

    def check_level(self, level: Row) -> None:
        """Be content: there is one level."""

    def foresee(self, caller: Caller, request: Acquire | Release, rule: rehearsing.Rule) -> within.Foreseen:
        """Rehearse a request while nobody else writes."""

        def rehearse(fetch: Fetch) -> Any:
            return rehearsing.rehearse(fetch, request, rule, self._level)[0]

        return self._database.in_turn(lambda: glancing.foresee(self._database.path, caller, rehearse))

    def wait_for_row(self, key: str) -> None:
        """Wait for nobody: whoever has become the writer has all rows."""

    def put_off(self, request: Acquire) -> Busy:
        raise AssertionError("whoever is the writer has all rows")

    def store_id(self) -> str:
        """Return what tells this file from all others."""
        if not self._database.file.id:  # else not by a question: somebody may wait there for whoever asks us
            self.open()
        return self._database.file.id

    def _look(self, request: Acquire | Fence, fetch: Callable[[str, dict[str, Any]], list[Row]]) -> LockRow:
        now = instant(request.now)
        return LockRow(Run(fetch), request.key, now, self._level, [], request.attempt)

    def listen(self, listener: Listener) -> None:
        """Call *listener* with the signals for this client."""
        self._doorbells.listen(listener)

    def be_reachable(self) -> None:
        """Hang up the doorbell."""
        self._doorbells.hang_up_bell()

    def before_fork(self) -> None:
        """Close the connection once no request uses it. Parent and child both connect anew when they ask.

        SQLite keeps account of its file locks per process. A child that inherits an open connection
        inherits that account too: it would wait for ever for a lock that a thread of the parent had, or
        write to a log that the parent deletes when it closes.
        """
        # First: an interrupt while we wait must not leave what was true of the fork before.
        self._rests = self._reads_rest = False
        self._rests = self._mutex.acquire(timeout=LONGEST_REST)
        if self._rests:
            self._database.close()
        self._reads_rest = self._reading.acquire(timeout=LONGEST_REST)
        if self._reads_rest:
            self._reader.close()

    def after_fork_in_parent(self) -> None:
        """Answer requests again."""
        rests, self._rests = self._rests, False
        if rests:
            self._mutex.release()
        rests, self._reads_rest = self._reads_rest, False
        if rests:
            self._reading.release()

    def after_fork(self, client: Client) -> None:
        """Become the store of *client* in a forked child; it connects anew when it is used."""
        self._client = client
        self._mutex, self._reading = threading.Lock(), threading.Lock()
        self._database.abandon()
        self._reader.abandon()
        self._doorbells.after_fork(client.instance)

    def close(self) -> None:
        """Close the connections and take the doorbell down."""
        self._doorbells.close()
        with self._mutex:
            self._database.close()
        with self._reading:
            self._reader.close()

    # Requests on one key.

    def _acquire(self, request: Acquire, post: Post) -> Acquired:
        key, attempt = request.key, request.attempt
        if is_plain(request.terms) and (at_once := self._acquire_fast(request)):
            return at_once
        if request.wait:
            self._doorbells.hang_up_bell()
        may_close_a_circle = False

        def decide(lock: LockRow, request: Acquire) -> Acquired:
            nonlocal may_close_a_circle
            answer = deciding.acquire(lock, request)
            if isinstance(answer, Queued):
                lock.write()  # first: an owner can be in its own way
                may_close_a_circle = lock.is_waited_for(request.owner)
            return answer

        answer = self._on_key(request, post, decide, attempt)
        if isinstance(answer, Queued | Busy):
            self._expect_contention(key, attempt)
        return (self._end_circles(request, post) or answer) if may_close_a_circle else answer

    def _acquire_fast(self, request: Acquire) -> Granted | Busy | None:
        """Answer a request on plain terms with one statement; None: the slow path."""
        key, attempt = request.key, request.attempt
        last_queued = self._contended.get(key, attempt)
        if last_queued == attempt and self._level != "all":  # else the grant goes into the history as well
            rows = self._database.fetch(
                SQL.acquire,
                {
                    "key": key,
                    "attempt": attempt,
                    "owner": request.owner,
                    "ttl": micros(request.ttl),
                    "instance": request.client.instance,
                    "host": request.client.host,
                    "pid": request.client.pid,
                    "long": request.ttl >= request.claim,
                    "now": instant(request.now),
                },
            )
            if rows:
                token, expires_in = rows[0]
                return Granted(token, expires_in / 1e6)
        elif not request.wait:  # refuse it without becoming the writer, if that can be seen
            return deciding.refuse(self._look(request, self._database.fetch), request)
        return None

    def _end_circles(self, request: Acquire, post: Post) -> Deadlocked | None:
        """End the circles that a ticket has closed."""
        now = instant(request.now)

        def end(found: Deadlock) -> None:
            key, attempt = found.victim

            def work(run: Transaction) -> None:
                lock = LockRow(run, key, now, self._level, post, attempt)
                deciding.break_deadlock(lock, found)
                lock.write()

            self._database.transact(work)

        return end_circles(request, Tables(self._fetch, now), end)

    def _expect_contention(self, key: str, attempt: str) -> None:
        """Remember that the fast paths would fail on this key, and cost a commit each for nothing.

        They are tried again when nobody waits any more; only *attempt* may claim on the fast path.
        """
        if len(self._contended) >= MOST_CONTENDED:
            self._contended.clear()
        self._contended[key] = attempt

    def _release(self, request: Release, post: Post) -> Released | NotHeld | Refused:
        if request.key not in self._contended and self._level != "all" and not request.retire:
            rows = self._database.fetch(
                SQL.release,
                {
                    "key": request.key,
                    "attempt": request.attempt,
                    "token": request.token,
                    "now": instant(request.now),
                },
            )
            if rows:
                return Released()
        answer = self._on_key(request, post, deciding.release, request.attempt)
        if isinstance(answer, Released) and answer.next is None:
            self._contended.pop(request.key, None)
        return answer

    def _withdraw(self, request: Withdraw, post: Post) -> Withdrawn | NotHeld:
        return self._on_key(request, post, deciding.withdraw, request.attempt)

    def _break(self, request: Break, post: Post) -> Broken | NotHeld:
        return self._on_key(request, post, deciding.break_)

    def _downgrade(self, request: Downgrade, post: Post) -> Granted | NotHeld | Refused:
        return self._on_key(request, post, deciding.downgrade, request.attempt)

    def _resize(self, request: Resize, post: Post) -> Resized:
        return self._on_key(request, post, deciding.resize)

    def _on_key(self, request: Any, post: Post, decide: Callable[[LockRow, Any], A], attempt: str = "") -> A:
        """Read the row of the key, decide, and write the row back: one transaction."""
        given = instant(request.now)

        def work(run: Transaction) -> A:
            lock = LockRow(run, request.key, given, self._level, post, attempt)
            answer = decide(lock, request)
            lock.write()
            return answer

        return self._transact(work, post)

    def _transact(self, work: Callable[[Transaction], A], post: Post) -> A:
        try:
            return self._database.transact(work)
        except BaseException:
            post.clear()  # nothing happened, so there is nothing to tell
            raise

    def _deal(self, request: Any, decide: Decide, post: Post) -> Any:
        """Answer a request about instances or work, in one transaction."""
        return self._transact(lambda run: cluster.deal(run, request, decide, self._level, post), post)

    def _claim(self, request: Claim, post: Post) -> Claimed | Beat:
        self._doorbells.hang_up_bell()  # if there is too little for it, it is called when there is more
        answer: Claimed | Beat = self._deal(request, claiming.claim, post)
        return answer

    # Many keys at once.

    def _renew(self, request: Renew, post: Post) -> Renewed:
        return self._transact(lambda run: batch.renew(run, request, self._level, post), post)

    def _sweep(self, request: Sweep, post: Post) -> Swept:
        swept = self._transact(lambda run: batch.sweep(run, request, self._level, post), post)
        self._doorbells.sweep(request.limit)
        return swept

    # Looking: on the connection for that, but for what is in a group, which may look for what the group did.

    def _read(self, request: Request[Any]) -> Any:
        with self._reading:
            if isinstance(request, Watch):
                return self._watch_apart(request)
            return self._reader.read(lambda run: LOOKS[type(request)](run, request))

    def _look_at(self, look: Look, request: Any, post: Post) -> Any:
        return look(self._fetch, request)

    def _watch(self, request: Watch, post: Post) -> Feed:
        while feed.has_new(self._fetch) and self._database.transact(feed.place):
            pass
        return feed.read(self._fetch, request)

    def _watch_apart(self, request: Watch) -> Feed:
        while self._reader.read(feed.has_new) and self._place_events():
            pass
        return self._reader.read(lambda run: feed.read(run, request))

    def _place_events(self) -> bool:
        """Give events their places; tell whether there may be more, and it is our turn."""
        try:
            return self._reader.transact(feed.place, within=PLACED_WITHIN)
        except errors.StoreUnavailable as error:
            if not is_busy(error.__cause__):
                raise
            return False  # what has its place can be read; the rest comes with the next look

    def _fetch(self, name: str, /, **parameters: Any) -> list[Row]:
        return self._database.fetch(SQL[name], parameters)
