"""Handlers of what changes locks, where there is more to it than to ask the store."""

from __future__ import annotations

import asyncio
import secrets
from typing import Any, cast

from holdfast import errors
from holdfast.core import requests as r
from holdfast.core import wire
from holdfast.core.data import replace
from holdfast.core.plans import Grant
from holdfast.core.settings import check_at_least
from holdfast.server.admission.access import Principal, own_name, scoped
from holdfast.server.admission.limits import Asking, Budget
from holdfast.server.backend import Backend
from holdfast.server.call import Call
from holdfast.server.http.message import Response, Stream
from holdfast.server.locks.waits import Manner, Waits
from holdfast.server.replies import answered, hide, outward, refused, settled

RENEWED_AS_ONE = 100  # leases or tickets of a batch that cost as much as a request


class LockChanges:
    """See the module."""

    def __init__(self, backend: Backend, waits: Waits, budget: Budget) -> None:
        self._backend = backend
        self._waits = waits
        self._budget = budget

    async def acquire(self, call: Call) -> Response | Stream:
        """Take a lock, or wait for it."""
        request = self.asked(call)
        if not self.waits(call):
            with self.asking(call):
                return self.acquired(call, request, await self._ask_once(request, call))
        if call.wants_stream:
            return self._stream(call, request)
        return await self._long_poll(call, request)

    def waits(self, call: Call) -> bool:
        """Tell whether the server is to wait for the lock."""
        return bool(call.given["timeout"]) or (call.given["wait"] and call.wants_stream)

    def asking(self, call: Call) -> Asking:
        """Count an acquire that the store is asked for."""
        return self._budget.asking(call.principal)

    def asked(self, call: Call) -> r.Acquire:
        """Return the acquire that is asked for, within what its caller may have."""
        given = call.given
        takes = bool(given["permits"]) or given["take"] != 1
        if takes and given["mode"] not in (None, "permits"):
            raise errors.SettingsError(f"permits and take are for the mode permits, not {given['mode']}")
        given["mode"] = given["mode"] or ("permits" if takes else "exclusive")
        if given["at_least"]:
            check_at_least(given["mode"])
        attempt = given["attempt"] or secrets.token_hex(16)
        if given["owner"] is None:
            owner = own_name(call.principal, attempt, self._backend.secret)
        else:
            owner = scoped(call.principal, given["owner"])
        request = cast("r.Acquire", call.request(attempt=attempt, owner=owner))
        self._budget.check_acquire(call.principal, request)
        return request

    def acquired(self, call: Call, request: r.Acquire, answer: Any) -> Response:
        """Count what the store has answered, and return what the caller is told."""
        self._note(call.principal, request, answer)
        return self._reply(call, request, answer)

    async def _ask_once(self, request: r.Acquire, call: Call) -> Any:
        try:
            return await self._backend.ask(request, call.history)
        except asyncio.CancelledError:
            # The caller has gone. With an attempt of its own it can come back; otherwise nobody can.
            if call.given["attempt"] is None:
                self._waits.withdraw(request, call.history)
            raise

    def _served(self, request: r.Acquire) -> r.Acquire:
        """Return the request of a caller for whom the server waits: its signals come to us."""
        return replace(request, wait=True, client=replace(request.client, instance=self._backend.instance))

    async def _long_poll(self, call: Call, request: r.Acquire) -> Response:
        manner = self._manner(call)
        with self._budget.waiter(call.principal):
            try:
                answer = await self._waits.acquire(self._served(request), manner)
            except errors.DeadlockDetected as error:
                return refused(_hidden(call, error))
        return self._reply(call, *self._became(call, request, answer))

    def _stream(self, call: Call, request: r.Acquire) -> Stream:
        def say(answer: Any) -> dict[str, Any]:
            """Return what is sent to who listens for the lock: an answer, or the problem."""
            if isinstance(answer, errors.HoldfastError):
                return wire.error_to_json(outward(_hidden(call, answer)))
            became, told = self._became(call, request, answer)
            return {**wire.answer_to_json(told), **_names(became)}

        stream, place = Stream(), self._budget.waiter(call.principal)
        self._waits.stream(self._served(request), stream, self._manner(call), say, place)
        return stream

    def _manner(self, call: Call) -> Manner:
        """Return how the caller waits. Without a timeout it listens to a stream, for as long as it likes."""
        given = call.given
        timeout = self._budget.check_wait(given["timeout"]) if given["timeout"] else None
        named = given["attempt"] is not None
        return Manner(timeout, given["wait"], named, call.history, call.principal)

    def _became(self, call: Call, request: r.Acquire, answer: Any) -> tuple[r.Acquire, Any]:
        """Return a request and its answer, counted. What was granted may be a successor of the attempt."""
        if isinstance(answer, Grant):
            request = replace(request, attempt=answer.attempt)
            answer = r.Granted(answer.token, answer.ttl, answer.holds, answer.failures)
        self._note(call.principal, request, answer)
        return request, answer

    def _note(self, principal: Principal, request: r.Acquire, answer: Any) -> None:
        if isinstance(answer, r.Granted):
            self._budget.granted(principal, request.key, request.attempt, request.ttl)
        elif isinstance(answer, r.Queued):
            self._budget.queued(principal, request.key, request.attempt, request.patience)
        elif not isinstance(answer, r.Busy):
            self._budget.ended(principal, request.key, request.attempt)

    def _reply(self, call: Call, request: r.Acquire, answer: Any) -> Response:
        if isinstance(answer, r.Deadlocked):
            answer = r.Deadlocked(hide(answer.cycle, call.may_know))
        return settled(request, answer, **_names(request))

    async def release(self, call: Call) -> Response:
        """Give a lock back."""
        return await self._end(call)

    async def withdraw(self, call: Call) -> Response:
        """Leave the queue."""
        self._budget.check_key(call.principal, call.named)  # the store remembers it, whatever it was
        return await self._end(call)

    async def _end(self, call: Call) -> Response:
        request = call.request()
        return self.ended(call, request, await self._backend.ask_surely(request, call.history))

    def ended(self, call: Call, request: r.Release | r.Withdraw, answer: Any) -> Response:
        """Count what the store has answered, and return what the caller is told."""
        if isinstance(answer, r.Released | r.Withdrawn):
            self._budget.ended(call.principal, call.named, request.attempt)
        return settled(request, answer)

    async def renew(self, call: Call) -> Response:
        """Keep leases and tickets alive. All keys must be allowed, or nothing is done."""
        request: r.Renew = call.request()
        items = len(request.leases) + len(request.tickets)
        self._budget.asked(call.principal, items / RENEWED_AS_ONE)  # beside the request itself
        for key in [lease.key for lease in request.leases] + [ticket.key for ticket in request.tickets]:
            call.require("acquire", key)
        for lease in request.leases:
            self._budget.check_ttl(lease.ttl, renewing=True)
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


def _names(request: r.Acquire) -> dict[str, str]:
    return {"key": request.key, "attempt": request.attempt, "owner": request.owner}


def _hidden(call: Call, error: errors.HoldfastError) -> errors.HoldfastError:
    """Return an error without what the caller may not know of."""
    if isinstance(error, errors.DeadlockDetected):
        return errors.DeadlockDetected(error.key, hide(error.cycle, call.may_know))
    return error
