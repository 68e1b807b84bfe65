"""Requests on one key: a fast path in one statement where there is nothing to settle, otherwise the rules."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from holdfast.core import requests as r
from holdfast.core.deadlocks import Deadlock
from holdfast.stores.base import instant
from holdfast.stores.sql.dialect import Dialect, may_join_full
from holdfast.stores.sql.rules import decisions
from holdfast.stores.sql.rules.circles import WaitTables, end_circles
from holdfast.stores.sql.rules.deal import PendingAnswer
from holdfast.stores.sql.rules.decisions import Acquired
from holdfast.stores.sql.rules.holds import is_plain
from holdfast.stores.sql.rules.lock import LockRow
from holdfast.stores.sql.transactions.session import RowLocked
from holdfast.stores.sql.transactions.transactor import Transactor

MOST_CONTENDED = MOST_NOT_PLAIN = MOST_QUEUED = 1000


class KeyRequests:
    """See the module."""

    def __init__(self, transactor: Transactor, dialect: Dialect[Any]) -> None:
        self._transactor = transactor
        self._on_key = transactor.on_key
        self._dialect = dialect
        self._is_fast = transactor.level != "all"  # otherwise everything goes into the history as well
        self._expect = dialect.signals.expect
        self._contended: dict[str, str] = {}  # key → the attempt of ours that was queued there last
        # Keys that we were asked for on other terms last, and whether those were permits.
        self._not_plain: dict[str, bool] = {}
        self._queued: set[str] = set()  # attempts on such terms that wait, as far as we know
        self.answers: dict[type, Callable[[Any], Any]] = {
            r.Acquire: self._acquire,
            r.Release: self._release,
            r.Withdraw: partial(self._decide, decisions.withdraw, create=True),
            r.Break: partial(self._decide, decisions.break_),
            r.Downgrade: partial(self._decide, decisions.downgrade),
            r.Resize: partial(self._decide, decisions.resize, create=True),
        }

    def at_once(self, request: r.Request[Any], fast: Any) -> Any | None:
        """Have *fast* answer a request by the statement that would be tried first; None: nothing was done."""
        if not self._is_fast or getattr(request, "key", None) in self._not_plain:
            return None
        if type(request) is r.Acquire and is_plain(request.terms):
            may_be_had = self._contended.get(request.key, request.attempt) == request.attempt
            return fast.acquire(request) if may_be_had else None
        if type(request) is r.Release and not request.retire and request.key not in self._contended:
            return fast.release(request)
        return None

    def is_likely_fast(self, request: r.Request[Any]) -> bool:
        """Tell whether *request* most likely takes a free lock, or releases one that nobody waits for."""
        if not self._is_fast or not isinstance(request, r.Acquire | r.Release):
            return False
        if request.key in self._contended or request.key in self._not_plain:
            return False
        return is_plain(request.terms) if isinstance(request, r.Acquire) else not request.retire

    def _acquire(self, request: r.Acquire) -> Acquired:
        key, attempt = request.key, request.attempt
        plain = is_plain(request.terms)
        self._expect_terms(request, plain)
        is_fast = plain and self._is_fast
        may_close_a_circle = True
        try:
            if is_fast:
                last_queued = self._contended.get(key)
                if last_queued is None or last_queued == attempt:
                    granted = self._dialect.acquire(request, is_queued=last_queued is not None)
                    if granted is not None:
                        return granted
            if plain and not request.wait and (busy := self._refuse(request)):
                return busy
            if request.wait:
                self._expect(request.patience)
            answer: Acquired
            queued = None
            if is_fast and request.wait:
                queued = self._dialect.queue(request)
            elif self._is_likely_full(request):
                queued = self._dialect.join_full(request)
            if queued is not None:
                answer, may_close_a_circle = queued
            else:
                answer, may_close_a_circle = self._decide(_acquire, request, create=True, lazily=_is_queued)
        except RowLocked:
            # A caller's open transaction is about to take or free the lock. Whoever waits asks again soon.
            answer = self._dialect.put_off(request)
        if isinstance(answer, r.Queued | r.Busy):
            self._expect_contention(key, attempt)
            if not plain and request.wait:
                self._expect_again(attempt)
        if isinstance(answer, r.Queued) and may_close_a_circle:
            return self._end_circles(request) or answer
        return answer

    def _refuse(self, request: r.Acquire) -> r.Busy | None:
        """Refuse a try without locking the row, if that can be seen."""
        return self._transactor.peek(request, request.now, lambda lock: decisions.refuse(lock, request))

    def _end_circles(self, request: r.Acquire) -> r.Deadlocked | None:
        """End the circles that a ticket has closed, now that others can see it."""

        def end(found: Deadlock) -> None:
            key, attempt = found.victim
            self._on_key(key, attempt, request.now, lambda lock: decisions.break_deadlock(lock, found))

        waits = WaitTables(self._transactor.sessions.read, instant(request.now))
        return end_circles(request, waits, end)

    def _expect_contention(self, key: str, attempt: str) -> None:
        """Remember that the fast path would fail on this key, and cost a round trip for nothing.

        It is tried again when nobody waits any more; only *attempt* may claim on the fast path.
        """
        if len(self._contended) >= MOST_CONTENDED:
            self._contended.clear()
        self._contended[key] = attempt

    def _is_likely_full(self, request: r.Acquire) -> bool:
        """Tell whether *request* most likely joins the queue of a semaphore that has no permit left."""
        if not self._is_fast or not request.wait or not may_join_full(request.terms):
            return False
        if request.attempt in self._queued:  # it was granted something, most likely
            self._queued.discard(request.attempt)
            return False
        return request.key in self._contended

    def _expect_again(self, attempt: str) -> None:
        """Remember that an attempt waits already: it does not join a queue when it asks again."""
        if len(self._queued) >= MOST_QUEUED:
            self._queued.clear()
        self._queued.add(attempt)

    def _expect_terms(self, request: r.Acquire, plain: bool) -> None:
        """Remember on what terms a key is asked for: leases on other ones are released in other ways."""
        key = request.key
        if plain:
            self._not_plain.pop(key, None)
            return
        if key not in self._not_plain and len(self._not_plain) >= MOST_NOT_PLAIN:
            self._not_plain.clear()
        self._not_plain[key] = may_join_full(request.terms)

    def _release(self, request: r.Release) -> r.Released | r.NotHeld | r.Refused:
        answer: r.Released | r.NotHeld | r.Refused | None = None
        if self._is_fast and not request.retire:
            answer = self._release_fast(request)
        if answer is None:
            # But for outcomes: nobody may have been told of one that is not there after a crash.
            answer = self._decide(
                decisions.release,
                request,
                lazily=lambda answer: (
                    request.outcome is None and not (isinstance(answer, r.Released) and answer.told)
                ),
            )
        if isinstance(answer, r.Released) and answer.next is None:
            self._contended.pop(request.key, None)
        return answer

    def _release_fast(self, request: r.Release) -> r.Released | None:
        """Release, or hand over, in one round trip; None: the rules."""
        dialect = self._dialect
        are_permits = self._not_plain.get(request.key)
        if are_permits is not None:
            return dialect.pass_permit(request) if are_permits and request.key in self._contended else None
        if request.key not in self._contended:
            return dialect.release(request) or dialect.hand_over(request)
        if not dialect.hands_over:  # somebody waits, most likely
            return None
        return dialect.hand_over(request) or dialect.release(request)

    def _decide(self, rule: Callable[[LockRow, Any], Any], request: Any, **how: Any) -> Any:
        key, attempt, now = request.key, getattr(request, "attempt", ""), request.now
        return self._on_key(key, attempt, now, lambda lock: rule(lock, request), **how)


def _acquire(lock: LockRow, request: r.Acquire) -> tuple[Acquired, bool] | PendingAnswer:
    """Decide; whether a ticket may have closed a circle is read with the commit, when others can see it."""
    answer = decisions.acquire(lock, request)
    if not isinstance(answer, r.Queued):
        return answer, False
    return PendingAnswer(("is_waited_for", {"owner": request.owner}), lambda rows: (answer, bool(rows[0][0])))


def _is_queued(answer: tuple[Acquired, bool] | PendingAnswer) -> bool:
    return isinstance(answer, PendingAnswer)
