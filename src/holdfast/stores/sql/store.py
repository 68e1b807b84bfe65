"""The store for SQL databases: it has sessions, signals and a dialect, and the database gives all three.

Fast paths are one statement. Everything else is one short transaction, which locks the lock's row, reads it,
decides as the rules say, and writes it back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

from holdfast import errors
from holdfast.core import cluster as c
from holdfast.core.access import GrantAccess, ListAccess, RevokeAccess
from holdfast.core.data import replace
from holdfast.core.requests import WATCHERS, Client, Health, History, Inspect, List, Probe, Request, Watch
from holdfast.stores.base import Awaits, Listener, StoreOptions, Traits, instant, one_by_one
from holdfast.stores.sql.callers import within
from holdfast.stores.sql.callers.connections import caller
from holdfast.stores.sql.dialect import Dialect
from holdfast.stores.sql.rules import access, feed, instances, views
from holdfast.stores.sql.rules.runner import Fetch
from holdfast.stores.sql.transactions.batches import Batches
from holdfast.stores.sql.transactions.cluster import ClusterRequests
from holdfast.stores.sql.transactions.keys import KeyRequests
from holdfast.stores.sql.transactions.sessions import Reader, Sessions
from holdfast.stores.sql.transactions.together import Together
from holdfast.stores.sql.transactions.transactor import Transactor

A = TypeVar("A")

NO_LOCK = ""  # the key that no lock has

LOOKS: dict[type, Callable[[Fetch, Any], Any]] = {
    Inspect: views.inspect,
    List: views.list_locks,
    History: views.history,
    ListAccess: access.list_all,
    c.ListInstances: instances.list_instances,
    c.InspectWork: views.inspect_work,
    c.ListWork: views.list_work,
    c.CountWork: views.count_work,
}


class SqlStore:
    """See the module."""

    def __init__(self, options: StoreOptions, dialect: Dialect[Any], **traits: Any) -> None:
        self.traits = Traits(
            durable=True, blocking=True, repeats=False, transactions=True, together=dialect.groups, **traits
        )
        self.dialect = dialect
        self.sessions: Sessions = dialect.sessions
        self.signals = dialect.signals
        self._client = options.client
        transactor = Transactor(self.sessions, options.history)
        self._keys = KeyRequests(transactor, dialect)
        self._together = Together(self._keys, dialect)
        self._answers: dict[type, Callable[[Any], Any]] = {
            **self._keys.answers,
            **Batches(transactor, dialect).answers,
            **ClusterRequests(transactor, dialect).answers,
            Probe: self._probe,
            GrantAccess: lambda request: access.grant(self.sessions.fetch, request),
            RevokeAccess: lambda request: access.revoke(self.sessions.fetch, request),
        }

    def open(self) -> None:
        """Connect, and check the tables."""
        self.sessions.open()

    def execute(self, request: Request[A]) -> A:
        """Answer *request*, and wake whoever is concerned."""
        answer = self._answers.get(type(request))
        if answer is None:
            return cast("A", self._look(self.sessions.reader, request))
        return cast("A", self.sessions.execute(answer, request))

    def execute_many(self, requests: Sequence[Request[Any]]) -> list[Any]:
        """Answer *requests* in their order; those together that do not depend on each other, if that goes."""
        if not self.traits.together or len(requests) < 2:
            return one_by_one(self, requests)
        return [answer for group in self._together.groups(requests) for answer in self._answer_all(group)]

    def _answer_all(self, group: list[Request[Any]]) -> list[Any]:
        """Answer requests together as far as that goes, and the others by themselves."""
        answers = self.try_together(group) if len(group) > 1 else [None]
        return [
            one_by_one(self, [request])[0] if answer is None else answer
            for request, answer in zip(group, answers, strict=True)
        ]

    def may_go_together(self, request: Request[Any]) -> bool:
        """Tell whether *request* is worth trying together with others."""
        return self._together.may_have(request)

    def try_together(self, requests: Sequence[Request[Any]]) -> list[Any]:
        """Answer plain requests of different keys in one transaction, as far as that goes."""
        return self._together.answer(requests)

    def answer(self, request: Request[Any], reader: Reader) -> Any:
        """Answer *request* when it is its turn already; if it only looks, from *reader*."""
        answer = self._answers.get(type(request))
        return self._look(reader, request) if answer is None else answer(request)

    def _look(self, reader: Reader, request: Request[Any]) -> Any:
        if isinstance(request, Watch):
            tells = bool(request.address) and self.dialect.expect_events(request.address)
            while reader.look(feed.has_new) and reader.place(feed.place):
                pass
            found = reader.look(lambda fetch: feed.read(fetch, request))
            return replace(found, tells=True) if tells else found
        return reader.look(lambda fetch: LOOKS[type(request)](fetch, request))

    def _probe(self, request: Probe) -> Health:
        """Note that an attempt of ours, which was at no lock, has ended just now. The next sweep forgets it.

        A row in a table that grants are written to as well, and another one than the last time: to write
        what is there already is no write to some databases. Each client has its own: none waits for another.
        """
        fetch = self.sessions.fetch
        ((now,),) = fetch("now", now=instant(request.now))
        ended = {"why": "withdrawn", "by": None, "reason": None, "until_at": now}
        fetch("write_ended", key=NO_LOCK, attempt=self._client.instance, **ended)
        return Health()

    def execute_within(self, connection: Any, request: Request[A], awaits: Awaits | None = None) -> A:
        """Answer *request* inside the caller's transaction."""
        dialect = self.dialect
        theirs = caller(connection, dialect.database, awaits)
        within.check_nesting(connection, request, dialect)
        dialect.prepare_within(request)
        try:
            answer, post = within.answer(theirs, request, dialect)
            for instance, signal in post:
                if instance != WATCHERS:  # they look now and then, too
                    dialect.signal_within(theirs, instance, signal)
        except errors.HoldfastError:
            raise
        except Exception as error:
            # SQLAlchemy wraps what the driver raised.
            if (known := dialect.translate(getattr(error, "orig", error))) is None:
                raise
            if isinstance(known, errors.SchemaMismatch):  # ours are there, so those are others
                raise errors.SettingsError(within.ELSEWHERE) from error
            raise known from error
        return cast("A", answer)

    def store_id(self) -> str:
        """Return what tells our tables from all others."""
        return self.sessions.store_id()

    def listen(self, listener: Listener) -> None:
        """Call *listener* with the signals for this client."""
        self.signals.listen(listener)

    def be_reachable(self) -> None:
        """Make sure that signals arrive."""
        self.signals.be_reachable()

    def before_fork(self) -> None:
        """Finish what is under way."""
        self.sessions.before_fork()

    def after_fork_in_parent(self) -> None:
        """Go on."""
        self.sessions.after_fork_in_parent()

    def after_fork(self, client: Client) -> None:
        """Become the store of *client* in a forked child, with connections of its own."""
        self._client = client
        self.sessions.after_fork(client)
        self.signals.after_fork(client.instance)

    def close(self) -> None:
        """Stop listening, and close the connections."""
        self.signals.close()
        self.sessions.close()
