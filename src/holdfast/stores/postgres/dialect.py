"""What is PostgreSQL's own: its fast paths, and how a caller's transaction is part of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import psycopg

from holdfast import errors
from holdfast.core import requests as r
from holdfast.core.cluster import Assigned, Claim, Claimed
from holdfast.core.events import HistoryLevel
from holdfast.log import log
from holdfast.stores.base import REMEMBER, instant, is_not_made_yet, micros, place_of
from holdfast.stores.postgres import failures, groups
from holdfast.stores.postgres.schema import SCHEMA, SQL, named
from holdfast.stores.postgres.session import CHANNEL, END, WATCHED, notification
from holdfast.stores.signals import Signals
from holdfast.stores.sql.callers import rehearsal
from holdfast.stores.sql.callers.connections import Caller
from holdfast.stores.sql.callers.rehearsal import Foreseen
from holdfast.stores.sql.dialect import Dialect, asked, joining, queueing
from holdfast.stores.sql.options import ServerOptions
from holdfast.stores.sql.rules import claims
from holdfast.stores.sql.rules.columns import Row
from holdfast.stores.sql.rules.deal import listed, wanted_as
from holdfast.stores.sql.transactions.session import Batch
from holdfast.stores.sql.transactions.sessions import PooledSessions

PLAIN, PERMITS = "plain locks", "semaphores"  # kinds of locks that have functions

EXPECTED = 60_000_000  # microseconds for which who watched is told of the next event


class PostgresDialect(Dialect[PooledSessions]):
    """See the module."""

    database = "postgresql"
    can_unlock = True  # by a savepoint of ours
    hands_over = True
    groups = True

    def __init__(
        self, sessions: PooledSessions, level: HistoryLevel, signals: Signals, server: ServerOptions
    ) -> None:
        super().__init__(sessions, level, signals)
        self._server = server
        self._tells = server.signals
        self._without: set[str] = set()  # kinds of locks whose functions cannot be called

    def sql(self, name: str) -> str:
        """Return a statement for a caller's connection."""
        return named(SQL[name], self._server)

    def translate(self, error: Exception) -> errors.HoldfastError | None:
        """Return our error for one of a caller's driver."""
        if isinstance(error, UnicodeEncodeError):  # nothing was sent
            return errors.SettingsError(
                f"the connection's client_encoding ({error.encoding}) has no"
                f" {error.object[error.start : error.end]!r}; set it to UTF8"
            )
        if isinstance(error, psycopg.Error):
            state = error.sqlstate
        elif type(error).__module__.startswith("psycopg2."):
            state = getattr(error, "pgcode", None)
        else:
            return None
        if state is None:
            return failures.lost(str(error), unknown=False)
        return failures.translate(state, str(error))

    def acquire(self, request: r.Acquire, *, is_queued: bool) -> r.Granted | None:
        """Take a free lock, or claim what was handed to us, in one round trip."""
        given = asked(request)
        name = "claim" if is_queued else "acquire"
        rows = self.sessions.use(lambda session: session.fetch(name, given))
        if not rows:
            return None
        return r.Granted(rows[0][0], rows[0][1] / 1e6 if is_queued else request.ttl)

    def together(
        self, acquires: Sequence[r.Acquire], releases: Sequence[r.Release]
    ) -> tuple[dict[str, int], set[str]]:
        """Take free locks and release others, all in one transaction."""
        return self.sessions.use(lambda session: groups.together(session, acquires, releases))

    def queue(self, request: r.Acquire) -> tuple[r.Queued, bool] | None:
        """Join a queue in one round trip."""
        return self._join("join_queue", PLAIN, queueing(request))

    def join_full(self, request: r.Acquire) -> tuple[r.Queued, bool] | None:
        """Join the queue of a semaphore in one round trip."""
        return self._join("join_full", PERMITS, joining(request))

    def _join(self, name: str, kind: str, asking: dict[str, Any]) -> tuple[r.Queued, bool] | None:
        for row in self._call(kind, [(name, asking)])[0]:
            owner, host, pid, token, granted_at, claimed, expires_at, waiters, now, has_any = row
            holder = r.Holder(owner, host, pid, token, (now - granted_at) / 1e6, bool(claimed))
            return r.Queued(waiters, holder, (expires_at - now) / 1e6, now / 1e6), has_any
        return None

    def hand_over(self, request: r.Release) -> r.Released | None:
        """Release to the next in one round trip."""
        return self._handed(request.key, self._release(PLAIN, "hand_over", "notify_winner", request))

    def pass_permit(self, request: r.Release) -> r.Released | None:
        """Release a permit to the next in one round trip."""
        memory = {"memory": REMEMBER["released"]}
        rows = self._release(PERMITS, "pass_permit", "notify_permit", request, **memory)
        return self._passed(request.key, rows)

    def _release(self, kind: str, name: str, notify: str, request: r.Release, **more: Any) -> list[Row]:
        """Run what releases to the next, and, once that is on the disk, what tells other clients of it."""
        asking = {"key": request.key, "attempt": request.attempt, **more}
        batch: Batch = [
            (name, {**asking, "token": request.token, "now": instant(request.now)}),
            (END, {}),
            (notify, {**asking, "instance": self.signals.instance, "channel": CHANNEL}),
        ]
        return self._call(kind, batch)[0]

    def _call(self, kind: str, batch: Batch) -> list[list[Row]]:
        """Run statements that call our functions for a *kind* of lock. Who may not call them has the rules.

        The tables may be of an older version, or made by somebody who has not granted them yet.
        """
        if kind not in self._without:
            try:
                return self.sessions.use(lambda session: session.send(batch, commits=True))
            except (errors.StoreMisconfigured, errors.SchemaMismatch) as error:
                if not is_not_made_yet(error):
                    raise
                self._without.add(kind)
                log().warning(
                    "going on without holdfast's functions for %s, which is slower: %s", kind, error
                )
        return [[]]

    def claim(self, request: Claim) -> tuple[Claimed, list[str]] | None:
        """Claim in one round trip, and in a second one ask when there is more."""
        if request.spread and len(set(request.types)) > 1:
            return None  # where one type's share depends on the others', the rules have to see to it
        number, types, now = request.number, listed(request.types), instant(request.now)
        spread, ttl = micros(request.spread), micros(request.ttl)
        asked_for = {"id": request.id, "number": number, "attempt": request.attempt, "types": types}
        terms = {"limit": request.limit, "ttl": ttl, "spread": spread, **place_of(request.client)}
        rows = self.sessions.fetch("claim_works", now=now, **asked_for, **terms)
        if not rows:
            return None
        at, had, capacity = rows[0][:3]
        works = claims.in_order(
            Assigned(key, attempt, token, data, tries, ttl / 1e6, at / 1e6)
            for _, _, _, key, attempt, token, data, tries, _ in rows
            if token is not None
        )
        if left := [row[3] for row in rows if row[3] is not None and row[5] is None]:
            return Claimed(works, 0.0), left
        if len(works) >= min(request.limit, capacity - had):
            return Claimed(works, 0.0), []
        batch: Batch = [("next_due", {"types": types, "now": now}), (END, {})]
        if not works:
            wants = {"id": request.id, "number": number, "wants": wanted_as(*request.types)}
            batch = [("want_work", wants), (END, {}), *batch]
        try:
            (row,) = self.sessions.use(lambda session: session.send(batch, commits=True))[-2]
        except errors.StoreError:
            return Claimed(works, 0.0), []  # what was taken is taken; the next claim says how the store is
        again = claims.again_in(row, len(works), assigned=had, capacity=capacity, spread=spread)
        return Claimed(works, again), []

    def tidy_up(self, request: r.Sweep, now: int, forget_before: int) -> None:
        """Make the history's partitions ahead, and drop those that are over."""
        if request.now is None:
            self.sessions.use(lambda session: SCHEMA.keep_weeks(session, self._server, now, forget_before))

    def expect_events(self, address: str) -> bool:
        """Have *address* notified of the next event, if that may arrive."""
        if not self._tells or not self.signals.reaches(address):
            return False
        try:
            self.sessions.fetch("expect_events", key=WATCHED, attempt=address, lasts=EXPECTED, now=None)
        except (errors.StoreUnavailable, errors.OutcomeUnknown):
            return False
        except errors.StoreError:  # whoever only looks may not be allowed to
            self._tells = False
        return self._tells

    # Requests inside a caller's transaction.

    def explain(self, request: r.Fence, caller: Caller) -> r.NotHeld | None:
        """Say why a lease is not alive; None if it is."""
        # First where they are: it may have been granted there; and a pool that we share may have no other
        # connection left.
        asked = {"key": request.key, "attempt": request.attempt, "token": request.token}
        if caller.execute(self.sql("fence_alive"), {**asked, "now": instant(request.now)}):
            return None
        return super().explain(request, caller)

    def check_level(self, level: Row) -> None:
        """Refuse what would fail as soon as somebody else writes the row."""
        if level[1] not in ("read committed", "read uncommitted"):  # which are the same here
            raise errors.SettingsError(
                f"the transaction is {level[1].upper()}, and would fail as soon as the lease is renewed or"
                " somebody waits for it: use READ COMMITTED, or acquire before it and release after it"
            )

    def foresee(self, caller: Caller, request: r.Acquire | r.Release, rule: rehearsal.Rule) -> Foreseen:
        """Rehearse a request by what they see."""

        # At READ COMMITTED they see what they have done themselves, and the newest there is beside it.
        def fetch(name: str, /, **parameters: Any) -> list[Row]:
            return caller.execute(self.sql(name), parameters)

        return Foreseen(rehearsal.rehearse(fetch, request, rule, self.level)[0], sure=True)

    def signal_within(self, caller: Caller, instance: str, signal: r.Signal) -> None:
        """Wake a client when the caller commits."""
        if instance:
            said = notification(instance, signal)
            # Not the token: how durable the commit is, is up to them.
            caller.execute(SQL["notify_within"], {"channel": said["channel"], "payload": said["hint"]})
