"""Handlers of what changes locks: acquire, renew, release, withdraw, downgrade, break, resize, sweep."""

from __future__ import annotations

import asyncio
import secrets
from typing import Any

from holdfast import errors
from holdfast.core import wire
from holdfast.core.data import replace
from holdfast.core.family import Outcome, Terms, check_at_least
from holdfast.core.plans import Grant
from holdfast.core.requests import (
    Acquire,
    Break,
    Busy,
    Deadlocked,
    Done,
    Downgrade,
    Granted,
    Queued,
    RefreshTicket,
    Release,
    Released,
    Renew,
    RenewLease,
    Request,
    Resize,
    Sweep,
    Withdraw,
    Withdrawn,
)
from holdfast.server.admission.access import Principal, own_name, scoped
from holdfast.server.admission.limits import Budget
from holdfast.server.backend import Backend
from holdfast.server.handlers.call import Call
from holdfast.server.handlers.replies import answered, error_for, hide, outward, refused
from holdfast.server.http.message import Response, Stream
from holdfast.server.streams.waiting import Waiting

RENEWED_AS_ONE = 100  # leases or tickets of a batch that cost as much as a request


class Acting:
    """See the module."""

    def __init__(self, backend: Backend, waiting: Waiting, budget: Budget) -> None:
        self._backend = backend
        self._waiting = waiting
        self._budget = budget

    async def acquire(self, call: Call) -> Response | Stream:
        """Take a lock, or wait for it."""
        given = call.given
        request = self._asked(call)
        self._budget.check_acquire(call.principal, request)
        if not given["timeout"] and not (call.wants_stream and given["wait"]):
            with self._budget.asking(call.principal):
                answer = await self._ask_once(request, call)
                self._note(call.principal, request, answer)
            return self._reply(call, request, answer)
        if call.wants_stream:
            return self._stream(call, request)
        return await self._long_poll(call, request)

    def _asked(self, call: Call) -> Acquire:
        given = call.given
        takes = bool(given["permits"]) or given["take"] != 1
        if takes and given["mode"] not in (None, "permits"):
            raise errors.SettingsError(f"permits and take are for the mode permits, not {given['mode']}")
        given["mode"] = given["mode"] or ("permits" if takes else "exclusive")
        if given["at_least"]:
            check_at_least(given["mode"])
        attempt = given["attempt"] or secrets.token_hex(16)
        return Acquire(
            key=call.named,
            attempt=attempt,
            owner=self._owner(call, attempt),
            ttl=given["ttl"],
            client=call.client,
            wait=given["wait"],
            limit=given["limit"],
            patience=given["patience"],
            claim=given["claim"],
            terms=Terms(
                mode=given["mode"],
                take=given["take"],
                permits=given["permits"],
                delay=given["lock_delay"],
                operation=given["operation"],
                max_attempts=given["max_attempts"],
                at_least=given["at_least"],
            ),
            seen=given["seen"],
            now=given["now"],
        )

    def _owner(self, call: Call, attempt: str) -> str:
        name = call.given["owner"]
        if name is None:
            return own_name(call.principal, attempt, self._backend.secret)
        return scoped(call.principal, name)

    async def _ask_once(self, request: Acquire, call: Call) -> Any:
        try:
            return await self._backend.ask(request, call.history)
        except asyncio.CancelledError:
            # The caller has gone. With an attempt of its own it can come back; else nobody can.
            if call.given["attempt"] is None:
                self._waiting.withdraw(request, call.history)
            raise

    def _served(self, call: Call, request: Acquire) -> Acquire:
        """Return the request of a caller for whom the server waits: its signals come to us."""
        return replace(request, wait=True, client=replace(request.client, instance=self._backend.instance))

    async def _long_poll(self, call: Call, request: Acquire) -> Response:
        timeout = self._budget.check_wait(call.given["timeout"])
        with self._budget.waiter(call.principal):
            try:
                answer = await self._waiting.acquire(
                    self._served(call, request),
                    timeout=timeout,
                    keep=call.given["wait"],
                    named=call.given["attempt"] is not None,
                    history=call.history,
                    principal=call.principal,
                )
            except errors.DeadlockDetected as error:
                cycle = hide(error.cycle, call.may_know)
                return refused(errors.DeadlockDetected(error.key, cycle))
        granted = self._granted(answer)
        became = self._as_it_became(request, answer)
        self._note(call.principal, became, granted)
        return self._reply(call, became, granted)

    def _stream(self, call: Call, request: Acquire) -> Stream:
        stream = Stream()
        timeout = call.given["timeout"]
        self._waiting.stream(
            self._served(call, request),
            stream,
            # Without a timeout for as long as the caller listens; with it, like a long poll.
            timeout=self._budget.check_wait(timeout) if timeout else None,
            keep=call.given["wait"],
            named=call.given["attempt"] is not None,
            history=call.history,
            principal=call.principal,
            place=self._budget.waiter(call.principal),
            say=lambda answer: self._said(call, request, answer),
        )
        return stream

    def _said(self, call: Call, request: Acquire, answer: Any) -> dict[str, Any]:
        """Return what is sent to who listens for the lock: an answer, or the problem."""
        if isinstance(answer, errors.HoldfastError):
            if isinstance(answer, errors.DeadlockDetected):
                answer = errors.DeadlockDetected(answer.key, hide(answer.cycle, call.may_know))
            return wire.error_to_json(outward(answer))
        told = self._granted(answer)
        became = self._as_it_became(request, answer)
        self._note(call.principal, became, told)
        return {**wire.answer_to_json(told), **_names(became)}

    @staticmethod
    def _granted(answer: Grant | Done | Queued) -> Granted | Done | Queued:
        if isinstance(answer, Grant):
            return Granted(answer.token, answer.ttl, answer.holds, answer.failures)
        return answer

    @staticmethod
    def _as_it_became(request: Acquire, answer: Grant | Done | Queued) -> Acquire:
        """Return the request with the attempt that was granted: it may be a successor of the first."""
        return replace(request, attempt=answer.attempt) if isinstance(answer, Grant) else request

    def _note(self, principal: Principal, request: Acquire, answer: Any) -> None:
        if isinstance(answer, Granted):
            self._budget.granted(principal, request.key, request.attempt, request.ttl)
        elif isinstance(answer, Queued):
            self._budget.queued(principal, request.key, request.attempt, request.patience)
        elif not isinstance(answer, Busy):
            self._budget.ended(principal, request.key, request.attempt)

    def _reply(self, call: Call, request: Acquire, answer: Any) -> Response:
        if isinstance(answer, Deadlocked):
            answer = Deadlocked(hide(answer.cycle, call.may_know))
        if error := error_for(request, answer):
            return refused(error, answer)
        return answered(answer, **_names(request))

    async def release(self, call: Call) -> Response:
        """Give a lock back."""
        given = call.given
        outcome = given["outcome"] and Outcome(**given["outcome"])
        request = Release(
            call.named, given["attempt"], given["token"], given["retire"], outcome, given["now"]
        )
        return await self._end(call, request, given["attempt"])

    async def withdraw(self, call: Call) -> Response:
        """Leave the queue."""
        self._budget.check_key(call.principal, call.named)  # the store remembers it, whatever it was
        request = Withdraw(call.named, call.given["attempt"], call.given["held"], call.given["now"])
        return await self._end(call, request, call.given["attempt"])

    async def _end(self, call: Call, request: Request[Any], attempt: str) -> Response:
        answer = await self._backend.ask_surely(request, call.history)
        if isinstance(answer, Released | Withdrawn):
            self._budget.ended(call.principal, call.named, attempt)
        return self._plain(request, answer)

    async def downgrade(self, call: Call) -> Response:
        """Make an exclusive lease a shared one."""
        given = call.given
        return await self._do(call, Downgrade(call.named, given["attempt"], given["token"], given["now"]))

    async def break_(self, call: Call) -> Response:
        """Take a lock away from whoever holds it."""
        given = call.given
        request = Break(call.named, call.by, given["reason"], given["token"], given["now"])
        return await self._do(call, request)

    async def resize(self, call: Call) -> Response:
        """Set how many permits there are."""
        given = call.given
        return await self._do(call, Resize(call.named, given["permits"], call.by, given["now"]))

    async def sweep(self, call: Call) -> Response:
        """Tidy up."""
        return await self._do(call, Sweep(**call.given))

    async def _do(self, call: Call, request: Request[Any]) -> Response:
        return self._plain(request, await self._backend.ask(request, call.history))

    async def renew(self, call: Call) -> Response:
        """Keep leases and tickets alive. All keys must be allowed, or nothing is done."""
        given = call.given
        items = len(given["leases"]) + len(given["tickets"])
        self._budget.asked(call.principal, items / RENEWED_AS_ONE)  # beside the request itself
        for each in (*given["leases"], *given["tickets"]):
            call.require("acquire", each["key"])
        for each in given["leases"]:
            self._budget.check_ttl(each["ttl"], renewing=True)
        request = Renew(
            tuple(RenewLease(**each) for each in given["leases"]),
            tuple(RefreshTicket(**each) for each in given["tickets"]),
            given["now"],
        )
        renewed = await self._backend.ask(request, call.history)
        for lease, answer in zip(request.leases, renewed.leases, strict=True):
            if answer.outcome == "renewed":
                self._budget.granted(call.principal, lease.key, lease.attempt, lease.ttl)
            # One that is lost ends by itself: with a token that is not its own it would be lost, and live on.
        for ticket, told in zip(request.tickets, renewed.tickets, strict=True):
            if told.outcome == "waiting":
                self._budget.queued(call.principal, ticket.key, ticket.attempt, ticket.patience)
            else:
                self._budget.left(call.principal, ticket.key, ticket.attempt)
        return answered(renewed)

    @staticmethod
    def _plain(request: Request[Any], answer: Any) -> Response:
        if error := error_for(request, answer):
            return refused(error, answer)
        return answered(answer)


def _names(request: Acquire) -> dict[str, str]:
    return {"key": request.key, "attempt": request.attempt, "owner": request.owner}
