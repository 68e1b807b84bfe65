"""Answers and errors as responses: JSON with the right status, and the headers that belong to it."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Callable
from json import encoder
from typing import Any

from holdfast import errors
from holdfast.core import wire
from holdfast.core.cluster import Assign, Beat, Ended, NotDue
from holdfast.core.data import as_dict, fields, replace
from holdfast.core.events import Event
from holdfast.core.refusals import error_for
from holdfast.core.requests import Acquire, NotHeld, Queued, Request
from holdfast.server.http.message import PROBLEM, Response
from holdfast.server.locks.waits import ENDED
from holdfast.server.router import WrongMethod

HIDDEN = "(hidden)"
NOTHING = {"answer": "nothing"}
PIECE = 50  # things of a long list that are made JSON at once
LONGEST_TEXT = 200  # characters of a result in a problem: all of it is in the answer that comes with it

_GONE = {
    "dead": "its heartbeats were missed, or nobody knows of it",
    "left": "it has left",
    "draining": "it is draining, and takes no more work",
}

_json = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, check_circular=False)
# What `_json.encode` makes anew for each call, which takes as long as to use it.
_make: Any = getattr(encoder, "c_make_encoder", None)
_chunks = _make and _make(None, _json.default, encoder.encode_basestring, None, ":", ",", False, False, True)


def _encode(body: Any) -> str:
    return _json.encode(body) if _chunks is None else "".join(_chunks(body, 0))


def to_bytes(body: Any) -> bytes:
    """Return *body* as a line of JSON."""
    return f"{_encode(body)}\n".encode("utf-8", "replace")


def answered(answer: Any, **more: Any) -> Response:
    """Return the response for an answer that is none to raise for."""
    said = wire.answer_to_json(answer)
    said.update(more)
    return Response(202 if type(answer) is Queued else 200, to_bytes(said))


async def page(answer: Any) -> Response:
    """Return the response for an answer with many things in it, made in pieces."""
    return await _in_pieces({"answer": wire.answer_name(answer), **fields(answer)})


async def listed(name: str, items: tuple[Any, ...]) -> Response:
    """Return the response for a number of things, made in pieces."""
    return await _in_pieces({"answer": name, "items": items})


async def _in_pieces(said: dict[str, Any]) -> Response:
    """Make JSON of something large. Others have their turn after each piece."""
    members = []
    for name, value in said.items():
        if isinstance(value, tuple) and len(value) > PIECE:
            texts = []
            for at in range(0, len(value), PIECE):
                texts.append(_encode(as_dict(value[at : at + PIECE]))[1:-1])
                await asyncio.sleep(0)
            text = f"[{','.join(texts)}]"
        else:
            text = _encode(as_dict(value))
        members.append(f"{_encode(name)}:{text}")
    return Response(200, f"{{{','.join(members)}}}\n".encode("utf-8", "replace"))


def refused(error: errors.HoldfastError, because: Any = None) -> Response:
    """Return the response for an error, with the answer that it is raised for."""
    body = wire.error_to_json(error, because)
    headers: dict[str, str] = {}
    if isinstance(error, WrongMethod):
        headers["Allow"] = error.allowed
    elif isinstance(error, errors.NotAuthenticated):
        headers["WWW-Authenticate"] = 'Bearer realm="holdfast"'
    elif isinstance(error, errors.TooManyRequests):
        headers["Retry-After"] = str(math.ceil(error.retry_after))
    elif body["status"] == 503:
        headers["Retry-After"] = "1"
    return Response(body["status"], to_bytes(body), PROBLEM, tuple(headers.items()))


def missing(text: str) -> Response:
    """Return the response for what is not there."""
    return refused(errors.RequestRefused(404, text), NOTHING)


def outward(error: errors.HoldfastError) -> errors.HoldfastError:
    """Return an error as callers are told of it: what the store says names hosts, files and statements."""
    if isinstance(error, errors.StoreError) and getattr(error, "from_store", False):
        return type(error)("the store fails; the server's log says more")
    return error


def error_told(request: Request[Any], answer: Any) -> errors.HoldfastError | None:
    """Return the error that callers are told for *answer*, if it is one; they may know no more than HTTP."""
    error = error_for(request, answer)
    if error is None:
        return None
    match answer:
        case NotHeld() if isinstance(request, Acquire) and isinstance(error, errors.NotHeld):
            detail = f"{error.detail}; {ENDED}" if error.detail else ENDED
            return errors.NotHeld(error.key, answer.why, detail=detail)
        case Beat() if isinstance(error, errors.InstanceLost):
            return errors.InstanceLost(error.id, _GONE[answer.state])
        case Ended() if isinstance(request, Assign):
            return errors.WorkEnded(request.key, answer.work.state, answer.work.text[:LONGEST_TEXT])
        case NotDue() if isinstance(request, Assign):
            return errors.RequestRefused(409, f"{request.key!r} is due in {answer.due_in:g} s, not before")
    return error


def settled(request: Request[Any], answer: Any, **more: Any) -> Response:
    """Return the response for an answer, whichever it is."""
    if error := error_told(request, answer):
        return refused(error, answer)
    return answered(answer, **more)


def without_others(event: Event) -> Event:
    """Return an event as those see it who may not see every key: the circle of a deadlock names others."""
    return replace(event, reason=None) if event.kind == "deadlocked" else event


def hide(cycle: tuple[Any, ...], may_see: Callable[[str], bool]) -> tuple[Any, ...]:
    """Return the links of a deadlock without what the caller may not know of."""
    return tuple(
        link if may_see(link.key) else replace(link, owner=HIDDEN, key=HIDDEN, host=HIDDEN, pid=0)
        for link in cycle
    )
