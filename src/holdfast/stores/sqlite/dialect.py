"""What is SQLite's own: its fast paths, and how a caller's transaction is part of it."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from functools import partial
from typing import Any

from holdfast import errors
from holdfast.core import requests as r
from holdfast.core.cluster import Claim, Claimed
from holdfast.core.events import HistoryLevel
from holdfast.stores.base import REMEMBER, instant, micros, place_of
from holdfast.stores.sql.callers import rehearsal
from holdfast.stores.sql.callers.connections import Caller
from holdfast.stores.sql.callers.rehearsal import Foreseen
from holdfast.stores.sql.dialect import Dialect, asked, joining
from holdfast.stores.sql.rules.columns import Row
from holdfast.stores.sql.rules.renewals import Changes
from holdfast.stores.sql.rules.runner import Deals, Fetch
from holdfast.stores.sqlite import claims, glance
from holdfast.stores.sqlite.database import SQL, Transaction
from holdfast.stores.sqlite.sessions import FileSessions
from holdfast.stores.sqlite.signals import Doorbells


class SQLiteDialect(Dialect[FileSessions]):
    """See the module."""

    signals: Doorbells
    database = "sqlite"
    savepoints_may_commit = True  # if no BEGIN came before them, as with SQLAlchemy
    hands_over = True

    def __init__(self, sessions: FileSessions, level: HistoryLevel, signals: Doorbells) -> None:
        super().__init__(sessions, level, signals)
        self._database = sessions.database

    def sql(self, name: str) -> str:
        """Return a statement for a caller's connection."""
        return SQL[name]

    def translate(self, error: Exception) -> errors.HoldfastError | None:
        """Return our error for one of a caller's driver."""
        if not isinstance(error, sqlite3.Error):
            return None
        if "no such table" in str(error):
            return errors.SchemaMismatch(str(error))
        return self._database.translate(error)

    def acquire(self, request: r.Acquire, *, is_queued: bool) -> r.Granted | None:
        """Take a free lock, or claim what was handed to us, in one statement."""
        rows = self._database.fetch(SQL["acquire"], asked(request))
        return r.Granted(rows[0][0], rows[0][1] / 1e6) if rows else None

    def queue(self, request: r.Acquire) -> tuple[r.Queued, bool] | None:
        """Join a queue by two statements."""
        named = {"key": request.key, "attempt": request.attempt, "owner": request.owner}

        def join(run: Transaction) -> tuple[r.Queued, bool] | None:
            for row in run("join_queue", now=instant(request.now), **named):
                now, number, waiters, owner, host, pid, token, granted_at, claimed, end, is_waited_for = row
                times = {"queued_at": now, "expires_at": now + micros(request.patience)}
                terms = {"claim": micros(request.claim), "terms": None}
                run("queue", number=number, **named, **times, **terms, **place_of(request.client))
                holder = r.Holder(owner, host, pid, token, (now - granted_at) / 1e6, bool(claimed))
                return r.Queued(waiters, holder, (end - now) / 1e6, now / 1e6), bool(is_waited_for)
            return None

        return self.sessions.transact(join)

    def hand_over(self, request: r.Release) -> r.Released | None:
        """Release to the next by three statements."""
        key = request.key
        ours = {"key": key, "attempt": request.attempt, "token": request.token, "now": instant(request.now)}

        def hand_over(run: Transaction) -> list[Row]:
            for now, token, number, attempt, owner, claim, instance, host, pid in run("next_holder", **ours):
                place = {"instance": instance, "host": host, "pid": pid}
                lease = {"token": token, "attempt": attempt, "owner": owner, "claim": claim}
                run("hand_over", key=key, now=now, **lease, **place)
                run("delete_ticket", key=key, number=number)
                return [(owner, instance, attempt, token, now, claim)]
            return []

        return self._handed(key, self.sessions.transact(hand_over))

    def join_full(self, request: r.Acquire) -> tuple[r.Queued, bool] | None:
        """Join the queue of a semaphore by three statements."""
        asking = joining(request)

        def join(run: Transaction) -> tuple[r.Queued, bool] | None:
            for row in run("join_full", **asking):
                now, number, waiters, owner, host, pid, token, granted_at, claimed, end = row
                run("queue", number=number, queued_at=now, expires_at=now + asking["patience"], **asking)
                ((is_waited_for,),) = run("is_waited_for", owner=request.owner)
                holder = r.Holder(owner, host, pid, token, (now - granted_at) / 1e6, bool(claimed))
                return r.Queued(waiters, holder, (end - now) / 1e6, now / 1e6), bool(is_waited_for)
            return None

        return self.sessions.transact(join)

    def pass_permit(self, request: r.Release) -> r.Released | None:
        """Release a permit to the next by a few statements."""
        key, ours = request.key, request.attempt

        def pass_on(run: Transaction) -> list[Row]:
            named = {"key": key, "attempt": ours, "token": request.token, "now": instant(request.now)}
            for now, token, number, claim, attempt, owner, instance, host, pid, *head in run(
                "next_permit", **named
            ):
                # The row that counts both comes last: who reads these writes in their order sees one step.
                run("delete_ticket", key=key, number=number)
                until = now + REMEMBER["released"]
                ended = {"why": "released", "by": None, "reason": None, "until_at": until}
                run("write_ended", key=key, attempt=ours, **ended)
                lease = {"winner": attempt, "owner": owner, "token": token, "expires_at": now + claim}
                place = {"instance": instance, "host": host, "pid": pid}
                run("move_hold", key=key, attempt=ours, granted_at=now, **lease, **place)
                ((end,),) = run("pass_permit", key=key, token=token)
                return [(owner, instance, attempt, token, now, claim, end, *head)]
            return []

        return self._passed(key, self.sessions.transact(pass_on))

    def claim(self, request: Claim) -> tuple[Claimed, list[str]] | None:
        """Claim by few statements."""
        now = instant(request.now)
        claimed = self.sessions.transact(lambda run: claims.claim_fast(run, request, now))
        return None if claimed is None else (claimed, [])

    def renew(self, leases: Sequence[r.RenewLease], now: float | None) -> set[int]:
        """Renew leases one by one, in one transaction; nearly always all of them are renewed."""

        def renew(run: Transaction) -> set[int]:
            at = run("now", now=instant(now))[0][0]
            batch = [
                {
                    "key": lease.key,
                    "attempt": lease.attempt,
                    "token": lease.token,
                    "end": at + micros(lease.ttl),
                    "now": at,
                }
                for lease in leases
            ]
            if run.many("renew_lease", batch) == len(batch):
                return set(range(len(batch)))
            return {place for place, each in enumerate(batch) if run.many("renew_lease", [each])}

        return self.sessions.transact(renew)

    def write_renewed(self, run: Deals, holds: Changes, locks: Changes) -> None:
        """Write what changes one by one: a join with a list would be at the mercy of the planner."""
        assert isinstance(run, Transaction)
        run.many("renew_hold", holds)
        run.many("renew_lock", locks)

    def refresh(self, tickets: Sequence[r.RefreshTicket], now: float | None) -> set[int]:
        """Refresh tickets one by one, in one transaction."""

        def refresh(run: Transaction) -> set[int]:
            at = run("now", now=instant(now))[0][0]
            named = [{"key": each.key, "attempt": each.attempt} for each in tickets]
            ends = [{"expires_at": at + micros(each.patience)} for each in tickets]
            batch = [{**name, **end} for name, end in zip(named, ends, strict=True)]
            if run.many("keep_ticket", batch) == len(batch):
                return set(range(len(batch)))
            return {place for place, name in enumerate(named) if run("find_ticket", **name)}

        return self.sessions.transact(refresh)

    def tidy_up(self, request: r.Sweep, now: int, forget_before: int) -> None:
        """Remove the bells of dead processes, once others may ask."""
        self.sessions.afterwards(partial(self.signals.sweep, request.limit))

    def expect_events(self, address: str) -> bool:
        """Have *address* rung for the next event."""
        return self.signals.expect_events(address)

    # Requests inside a caller's transaction, which becomes the file's only writer. Whoever is concerned would
    # find nothing yet: they learn of it by their heartbeat.

    def prepare_within(self, request: r.Request[Any]) -> None:
        """See that the file is still the same."""
        self._database.look_again()

    def foresee(self, caller: Caller, request: r.Acquire | r.Release, rule: rehearsal.Rule) -> Foreseen:
        """Rehearse a request while nobody else writes."""

        def rehearse(fetch: Fetch) -> Any:
            return rehearsal.rehearse(fetch, request, rule, self.level)[0]

        return self._database.in_turn(lambda: glance.foresee(self._database.path, caller, rehearse))

    def explain(self, request: r.Fence, caller: Caller) -> r.NotHeld | None:
        """Say why a lease is not alive, by what is committed; None if it is."""
        self.sessions.store_id()
        path = self._database.path
        return glance.glance(path, lambda fetch: rehearsal.explain(fetch, request, self.level))

    def wait_for_row(self, key: str) -> None:
        """Wait for nobody: whoever has become the writer has all rows."""
