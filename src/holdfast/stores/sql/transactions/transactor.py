"""Runs the rules in short transactions, and sees to what they leave for the time after the commit."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

from holdfast import errors
from holdfast.core.cluster import Assign
from holdfast.core.events import HistoryLevel
from holdfast.core.requests import Acquire, RefreshTicket, Signal, addressed
from holdfast.stores.base import instant
from holdfast.stores.sql.rules import claims
from holdfast.stores.sql.rules.deal import Call, Deal, PendingAnswer, wanted_as
from holdfast.stores.sql.rules.lock import LockRow
from holdfast.stores.sql.rules.runner import Deals, Post
from holdfast.stores.sql.transactions.sessions import Sessions

A = TypeVar("A")
Asked = Acquire | RefreshTicket | Assign


class Transactor:
    """See the module."""

    def __init__(self, sessions: Sessions, level: HistoryLevel) -> None:
        self.sessions = sessions
        self.level: HistoryLevel = level

    def on_key(
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

        def on_row(deal: Deal) -> A:
            lock = deal.lock(key, attempt)
            answer = decide(lock)
            lock.write()
            deal.lazily = lazily(answer)
            return answer

        answer: A = self.run(on_row, now, create=create, urgent=urgent)
        return answer

    def peek(
        self, asked: Asked, now: float | None, look: Callable[[LockRow], A], *, urgent: bool = False
    ) -> A:
        """Look at the key of a request without locking it."""
        key, attempt, given = asked.key, asked.attempt, instant(now)
        return self.sessions.peek(
            lambda run: look(LockRow(run, key, given, self.level, [], attempt)), urgent=urgent
        )

    def run(
        self, decide: Callable[[Deal], Any], now: float | None, *, create: bool = True, urgent: bool = False
    ) -> Any:
        """Decide in one transaction, then do what is to come after its commit."""
        given = instant(now)

        def work(run: Deals) -> tuple[Any, Any, Deal]:
            deal = Deal(run, given, self.level)
            answer = decide(deal)
            if deal.calls and self.sessions.alone:
                deal.signals += _called(run, deal.calls, given)  # nobody can want work in between
                deal.calls = []
            read = answer.read if isinstance(answer, PendingAnswer) else None
            # A winner may enter by the hand-over: then it has to be as durable as a grant.
            lazily = deal.lazily and not any(signal.token for _, signal in deal.signals)
            return answer, run.commit(deal.signals, lazily=lazily, read=read), deal

        answer, rows, deal = self.sessions.transact(work, create=create, urgent=urgent)
        if deal.signals:
            self.sessions.tell(deal.signals)
        if deal.calls:
            self._call(deal.calls, given)
        if not isinstance(answer, PendingAnswer):
            return answer
        if answer.read is not None and not rows:
            name, parameters = answer.read
            try:
                rows = self.sessions.read(name, **parameters)
            except errors.StoreUnavailable as error:  # of the read; the rest is committed
                raise errors.OutcomeUnknown(str(error)) from error
        concluded = answer.conclude(rows)
        self.put_off(deal.postponed, now)
        return concluded

    def put_off(self, keys: list[str], now: float | None) -> None:
        """Put off work that could not be taken. If that fails, the next claim finds it as it is."""
        with suppress(errors.StoreError):
            for key in keys:
                self.run(lambda deal, key=key: claims.put_off(deal, key), now)  # type: ignore[misc]

    def _call(self, calls: list[Call], now: int | None) -> None:
        """Tell instances that there is work of a type. It is a hint: that it fails changes nothing."""

        def call(run: Deals) -> Post:
            post = _called(run, calls, now)
            run.commit(post)
            return post

        with suppress(errors.StoreError):
            self.sessions.tell(self.sessions.transact(call))


def _called(run: Deals, calls: list[Call], now: int | None) -> Post:
    """Return the signals for those who want to know of work."""
    *others, last = [{"wanted": wanted_as(type), "now": now, "limit": count} for type, count in calls]
    found = [run.soon("wanting", **asked) for asked in others]
    rows = [run("wanting", **last)]
    return [
        addressed(address, Signal("work", type, id))
        for (type, _), each in zip(calls, [soon.rows for soon in found] + rows, strict=True)
        for id, address in each
    ]
