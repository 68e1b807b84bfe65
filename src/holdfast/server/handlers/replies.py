"""Answers and errors as responses: JSON with the right status, and the headers that belong to it."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

from holdfast import errors
from holdfast.core import wire
from holdfast.core.cluster import Assign, Beat, Claim, Ended, Full, Heartbeat, Join, NotDue
from holdfast.core.data import replace
from holdfast.core.events import Event
from holdfast.core.requests import (
    Acquire,
    Busy,
    Deadlocked,
    Failed,
    Granted,
    NotHeld,
    Queued,
    Refused,
    Released,
    Request,
    TooManyHolds,
)
from holdfast.server.http.message import Response
from holdfast.server.routes import WrongMethod
from holdfast.server.streams.waiting import ENDED

PROBLEM = "application/problem+json"
HIDDEN = "(hidden)"
LONGEST_TEXT = 200  # characters of a result in a problem: all of it is in the answer behind it

_REFUSALS = {
    "holds": "it has other holds as well, and this is for the last one",
    "free": "nobody holds it",
    "take": "there are not that many permits",
}

_GONE = {
    "dead": "its heartbeats were missed, or nobody knows of it",
    "left": "it has left",
    "draining": "it is draining, and takes no more work",
}

_GOOD = frozenset({Granted, Queued, Released})  # nearly all, and so looked for first
_encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, check_circular=False).encode


def to_bytes(body: Any) -> bytes:
    """Return *body* as a line of JSON."""
    return f"{_encode(body)}\n".encode("utf-8", "replace")


def answered(answer: Any, **more: Any) -> Response:
    """Return the response for an answer that is none to raise for."""
    status = 202 if isinstance(answer, Queued) else 200
    return Response(status, to_bytes(wire.answer_to_json(answer) | more))


def listed(name: str, items: Any) -> Response:
    """Return the response for a number of things."""
    return Response(200, to_bytes(wire.items_to_json(name, items)))


def refused(error: errors.HoldfastError, because: Any = None) -> Response:
    """Return the response for an error, with the answer that it is raised for."""
    headers: tuple[tuple[str, str], ...] = ()
    if isinstance(error, WrongMethod):
        headers = (("Allow", error.allowed),)
    elif isinstance(error, errors.NotAuthenticated):
        headers = (("WWW-Authenticate", 'Bearer realm="holdfast"'),)
    elif isinstance(error, errors.TooManyRequests):
        headers = (("Retry-After", str(math.ceil(error.retry_after))),)
    elif errors.http_status(error) == 503:
        headers = (("Retry-After", "1"),)
    body = wire.error_to_json(error, because)
    return Response(body["status"], to_bytes(body), PROBLEM, headers)


def outward(error: errors.HoldfastError) -> errors.HoldfastError:
    """Return an error as callers are told of it: what the store says names hosts, files and statements."""
    if isinstance(error, errors.StoreError) and getattr(error, "from_store", False):
        return type(error)("the store fails; the server's log says more")
    return error


def error_for(request: Request[Any], answer: Any) -> errors.HoldfastError | None:
    """Return what a client of the library would be raised for *answer*, if it would."""
    if type(answer) in _GOOD:
        return None
    key: str = getattr(request, "key", "")
    match answer:
        case Busy():
            return errors.LockTimeout(key, waited=0.0, holder=answer.holder, expires_in=answer.expires_in)
        case NotHeld():
            parts = [part for part in (answer.by and f"by {answer.by}", answer.reason) if part]
            detail = " ".join(parts)
            if isinstance(request, Acquire):
                detail = f"{detail}; {ENDED}" if detail else ENDED
            return errors.NotHeld(key, answer.why, detail=detail or None)
        case TooManyHolds() if isinstance(request, Acquire):
            return errors.ReentryLimit(key, owner=request.owner, holds=answer.holds, limit=request.limit)
        case Refused(why="upgrade") if isinstance(request, Acquire):
            return errors.UpgradeRefused(key, owner=request.owner)
        case Refused(why="capacity" | "take") if isinstance(request, Acquire):
            terms = request.terms
            return errors.CapacityMismatch(key, permits=terms.permits, stored=answer.permits, take=terms.take)
        case Refused():
            return errors.NotHeld(key, "refused", detail=_REFUSALS.get(answer.why, answer.why))
        case Deadlocked():
            return errors.DeadlockDetected(key, answer.cycle)
        case Failed():
            return errors.OperationFailed(key, answer.failures)
    return (
        _error_for_work(request, answer) if isinstance(request, Join | Heartbeat | Claim | Assign) else None
    )


def _error_for_work(request: Join | Heartbeat | Claim | Assign, answer: Any) -> errors.HoldfastError | None:
    match answer:
        case Beat(state="draining") if isinstance(request, Join | Heartbeat):
            return None
        case Beat(state="dead" | "left" | "draining" as state):
            return errors.InstanceLost(request.id, _GONE[state])
        case Full() if isinstance(request, Assign):
            return errors.AtCapacity(request.id, answer.capacity)
        case Ended() if isinstance(request, Assign):
            return errors.WorkEnded(request.key, answer.work.state, answer.work.text[:LONGEST_TEXT])
        case NotDue() if isinstance(request, Assign):
            return errors.RequestRefused(409, f"{request.key!r} is due in {answer.due_in:g} s, not before")
    return None


def without_others(event: Event) -> Event:
    """Return an event as those see it who may not see every key: the circle of a deadlock names others."""
    return replace(event, reason=None) if event.kind == "deadlocked" else event


def hide(cycle: tuple[Any, ...], may_see: Callable[[str], bool]) -> tuple[Any, ...]:
    """Return the links of a deadlock without what the caller may not know of."""
    return tuple(
        link if may_see(link.key) else replace(link, owner=HIDDEN, key=HIDDEN, host=HIDDEN, pid=0)
        for link in cycle
    )
