"""What one database has of its own: statements, fast paths, errors, and how callers' transactions are.

Each fast path takes only the case in which there is nothing to settle, and does what the rules would do.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Generic, TypeVar

from holdfast import errors
from holdfast.core import requests as r
from holdfast.core.cluster import Claim, Claimed, Offer
from holdfast.core.events import HistoryLevel
from holdfast.core.family import Notes, Terms, dump
from holdfast.stores.base import instant, is_soon, micros, place_of
from holdfast.stores.signals import Signals
from holdfast.stores.sql.callers import rehearsal
from holdfast.stores.sql.callers.connections import Caller
from holdfast.stores.sql.callers.rehearsal import Foreseen
from holdfast.stores.sql.rules import decisions
from holdfast.stores.sql.rules.columns import Row
from holdfast.stores.sql.rules.lock import LockRow
from holdfast.stores.sql.rules.renewals import Changes
from holdfast.stores.sql.rules.runner import Deals, json_lists
from holdfast.stores.sql.transactions.session import RowLocked
from holdfast.stores.sql.transactions.sessions import Sessions

S = TypeVar("S", bound=Sessions)

BATCH = 1000  # leases or tickets in one statement: it locks them all until it is done


def queueing(request: r.Acquire) -> dict[str, Any]:
    """Return what the statements of `Dialect.queue` are given."""
    named = {"key": request.key, "attempt": request.attempt, "owner": request.owner}
    times = {"claim": micros(request.claim), "patience": micros(request.patience)}
    return {**named, **times, "now": instant(request.now), **place_of(request.client)}


def joining(request: r.Acquire) -> dict[str, Any]:
    """Return what the statements of `Dialect.join_full` are given: also what the notes and the ticket say."""
    terms = request.terms
    notes = dump(Notes(mode=terms.mode, permits=terms.permits))
    return {**queueing(request), "notes": notes, "terms": dump(terms)}


def may_join_full(terms: Terms) -> bool:
    """Tell whether terms are such that whoever asks can do no more than wait, if no permit is left."""
    return terms.mode == "permits" and terms.enters and 0 < terms.take <= terms.permits


def asked(request: r.Acquire) -> dict[str, Any]:
    """Return what the statements of `Dialect.acquire` are given."""
    client = request.client
    return {
        "key": request.key,
        "attempt": request.attempt,
        "owner": request.owner,
        "ttl": micros(request.ttl),
        "instance": client.instance,
        "host": client.host,
        "pid": client.pid,
        "long": request.ttl >= request.claim,
        "now": instant(request.now),
    }


class Dialect(ABC, Generic[S]):
    """See the module. What most databases have in common is said here."""

    database: str  # as callers' connections name it
    reads_may_be_old = False  # a transaction may read what was there when it began, and write by that
    can_unlock = False  # what was locked can be unlocked before the transaction ends
    savepoints_may_commit = False  # the end of a savepoint may commit what was done in it
    hands_over = False  # has a fast path for it
    groups = False  # can take and release many locks in one transaction that waits for nobody: see together

    def __init__(self, sessions: S, level: HistoryLevel, signals: Signals) -> None:
        self.sessions = sessions
        self.level: HistoryLevel = level
        self.signals = signals

    @abstractmethod
    def sql(self, name: str) -> str:
        """Return a statement for a caller's connection, with the names that the tables have here."""

    @abstractmethod
    def translate(self, error: Exception) -> errors.HoldfastError | None:
        """Return our error for one of a caller's driver; None if it is not one of a driver."""

    # Fast paths. None: nothing was done, and the rules are needed.

    @abstractmethod
    def acquire(self, request: r.Acquire, *, is_queued: bool) -> r.Granted | None:
        """Take a free lock, or claim what was handed to us: if it *is_queued*, that is most likely."""

    def queue(self, request: r.Acquire) -> tuple[r.Queued, bool] | None:
        """Join a queue. And tell whether that may have closed a circle: whether the owner is waited for."""
        return None

    def release(self, request: r.Release) -> r.Released | None:
        """Release a lock that nobody waits for."""
        key, attempt, now = request.key, request.attempt, instant(request.now)
        rows = self.sessions.fetch("release", key=key, attempt=attempt, token=request.token, now=now)
        return r.Released() if rows else None

    def hand_over(self, request: r.Release) -> r.Released | None:
        """Release to the next."""
        return None

    def join_full(self, request: r.Acquire) -> tuple[r.Queued, bool] | None:
        """Join the queue of a semaphore that has no permit left, as `queue` does that of a plain lock."""
        return None

    def pass_permit(self, request: r.Release) -> r.Released | None:
        """Release one of a semaphore's permits to the next, who waits for one as well."""
        return None

    def _passed(self, key: str, winners: list[Row]) -> r.Released | None:
        """Answer by what `pass_permit` did, and tell those who are clients of ours.

        With the winner comes when the first of all holds ends, and who is head of the queue now, if anybody.
        """
        for owner, instance, attempt, token, now, lasts, end, head, its_attempt, its_claim in winners:
            granted = r.Signal("granted", key, attempt, lasts / 1e6, token=token, at=now / 1e6)
            told = [r.addressed(instance, granted)]
            if head is not None and is_soon(end - now, its_claim):  # see `settlement.tell_head`
                told.append(r.addressed(head, r.Signal("head", key, its_attempt, (end - now) / 1e6)))
            self.sessions.tell(told)
            return r.Released(0, owner)
        return None

    def _handed(self, key: str, winners: list[Row]) -> r.Released | None:
        """Answer by what a hand-over returned; if the winner is a client of ours, tell it.

        A dialect that is sure that the hand-over is on the disk tells token, instant and length as well.
        """
        for owner, instance, attempt, *grant in winners:
            token, at, lasts = grant or (0, 0, 0)
            handed = r.Signal("granted", key, attempt, lasts / 1e6, token=token, at=at / 1e6)
            self.sessions.tell([r.addressed(instance, handed)])
            return r.Released(0, owner)
        return None

    def claim(self, request: Claim) -> tuple[Claimed, list[str]] | None:
        """Claim work. And return the keys of what has to be put off."""
        return None

    # Many at once.

    def together(
        self, acquires: Sequence[r.Acquire], releases: Sequence[r.Release]
    ) -> tuple[dict[str, int], set[str]]:
        """Do for many keys what `acquire` and `release` do for one, in one transaction.

        No key is there twice. Return the tokens of the locks that were taken, and the keys that were
        released; for all others the rules are needed. It waits for no row that somebody has locked, and is
        durable if a lock was taken.
        """
        return {}, set()

    def renew(self, leases: Sequence[r.RenewLease], now: float | None) -> set[int]:
        """Renew leases on plain terms; return the places of those that were renewed."""
        items = [
            {"key": each.key, "attempt": each.attempt, "token": each.token, "ttl": micros(each.ttl)}
            for each in leases
        ]
        return self._in_batches("renew", "leases", items, now)

    def write_renewed(self, run: Deals, holds: Changes, locks: Changes) -> None:
        """Write the new ends of holds in their table, and bring the rows of their locks up to them."""
        run.later("renew_holds", leases=json.dumps(holds))
        run.later("renew_locks", leases=json.dumps(locks))

    def refresh(self, tickets: Sequence[r.RefreshTicket], now: float | None) -> set[int]:
        """Refresh tickets; return the places of those that are there."""
        items = [
            {"key": each.key, "attempt": each.attempt, "patience": micros(each.patience)} for each in tickets
        ]
        return self._in_batches("refresh_tickets", "tickets", items, now)

    def _in_batches(
        self, name: str, parameter: str, items: list[dict[str, Any]], now: float | None
    ) -> set[int]:
        """Run a statement for many items, as few times as is good; return the places it found."""
        found: set[int] = set()
        for chosen in json_lists([{"place": place, **item} for place, item in enumerate(items)], BATCH):
            rows = self.sessions.fetch_urgently(name, **{parameter: chosen}, now=instant(now))
            found.update(place for (place,) in rows)
        return found

    def portions(self, request: Offer) -> list[Offer]:
        """Cut an offer into as many as one statement can take."""
        return [request]

    def tidy_up(self, request: r.Sweep, now: int, forget_before: int) -> None:
        """Do what else this database needs now and then."""

    def expect_events(self, address: str) -> bool:
        """Have *address* told of the next event that is committed, once; False if that cannot be."""
        return False

    # Requests inside a caller's transaction: see `callers.within`.

    def prepare_within(self, request: r.Request[Any]) -> None:
        """Make ready for a request inside a caller's transaction.

        There is a row then that all can see, so that a renewal finds it locked and not missing before they
        commit. If it is locked, it is there: maybe they have it already.
        """
        if isinstance(request, r.Acquire):
            with suppress(RowLocked):
                self.sessions.fetch("ensure_lock", key=request.key, now=instant(request.now))

    def enter(self, caller: Caller, request: r.Request[Any]) -> None:
        """Raise `SettingsError` if their transaction is of a kind that the request cannot be part of."""

    def check_level(self, level: Row) -> None:
        """Raise `SettingsError` if nothing can be written at their isolation level."""

    @abstractmethod
    def foresee(self, caller: Caller, request: r.Acquire | r.Release, rule: rehearsal.Rule) -> Foreseen:
        """Rehearse a request without a lock in their transaction."""

    def explain(self, request: r.Fence, caller: Caller) -> r.NotHeld | None:
        """Say why a lease is not alive, without a lock in their transaction; None if it is.

        By what is committed at least: "unknown" may be one that was granted in their transaction.
        """
        return self.sessions.peek(lambda run: rehearsal.explain(run, request, self.level))

    def signal_within(self, caller: Caller, instance: str, signal: r.Signal) -> None:
        """Wake a client when the caller commits, if the database can do that."""

    def wait_for_row(self, key: str) -> None:
        """Wait until nobody has the row of a key locked. Raise `RowLocked` if that takes long."""
        self.sessions.fetch("lock_row", key=key)

    def put_off(self, request: r.Acquire) -> r.Queued | r.Busy:
        """Return the answer to who cannot have the row now."""
        key, attempt, now = request.key, request.attempt, instant(request.now)
        return self.sessions.peek(
            lambda run: decisions.put_off(LockRow(run, key, now, self.level, [], attempt), request)
        )
