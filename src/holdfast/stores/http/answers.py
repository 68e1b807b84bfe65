"""What an answer of a lock server means for a request; or that it is none of a lock server's.

Errors are told apart by what is certain. `StoreUnavailable` was certainly not applied, `OutcomeUnknown` may
have been: what a balancer says in the place of its server is worth no more than silence.
"""

from __future__ import annotations

import json
from typing import Any

from holdfast import errors
from holdfast.core import wire
from holdfast.core.requests import Request
from holdfast.stores.http.message import Reply
from holdfast.stores.http.options import HTTPOptions


def answer_of(request: Request[Any], reply: Reply, options: HTTPOptions) -> Any:
    """Return the answer to *request*, or raise what the server has told."""
    body = _json(reply)
    if reply.head.status >= 300:
        if not isinstance(body, dict) or "because" not in body:
            raise error_of(reply, options)
        body = body["because"]
    try:
        answer = wire.answer_from_json(request, body)
    except ValueError:
        raise no_server(reply, options) from None
    if type(answer) not in wire.POSSIBLE[type(request)]:
        raise no_server(reply, options)
    return answer


def server_of(reply: Reply, options: HTTPOptions) -> dict[str, Any]:
    """Return what a server says of itself."""
    body = _json(reply)
    if reply.head.status >= 300:
        raise error_of(reply, options)
    if isinstance(body, dict) and body.get("answer") == "server" and isinstance(body.get("store"), dict):
        return body
    raise no_server(reply, options)


def error_of(reply: Reply, options: HTTPOptions) -> errors.HoldfastError:
    """Return the error that a server, or whatever is in its place, has answered with."""
    status = reply.head.status
    body = _json(reply)
    if isinstance(body, dict) and str(body.get("type", "")).startswith(wire.PROBLEM):
        try:
            error = wire.error_from_json(status, body)
        except (TypeError, ValueError):
            return no_server(reply, options)
        if isinstance(error, errors.RequestRefused) and status >= 500:
            return errors.OutcomeUnknown(f"{options} failed: {error}")
        return error
    answered = f"{options} answered {_shown(reply)}"
    if status >= 500:
        return errors.OutcomeUnknown(f"{answered}: whatever is in front of it has failed")
    if status in (408, 425, 429):
        return errors.StoreUnavailable(f"{answered}: try again later")
    if status == 413:
        return errors.RequestRefused(status, f"{answered}: the request was too large")
    if status == 401:
        return errors.NotAuthenticated(answered)
    return no_server(reply, options)


def no_server(reply: Reply, options: HTTPOptions) -> errors.StoreMisconfigured:
    """Return what to raise when it is not a lock server that answers."""
    if 300 <= reply.head.status < 400 and (place := reply.head.text(b"location")):
        return errors.StoreMisconfigured(
            f"{options} is somewhere else: it answered {reply.head.status} and {place[:200]!r}; use that url"
        )
    return errors.StoreMisconfigured(
        f"{options} is no lock server, or the path in the url is wrong; it answered {_shown(reply)}"
    )


def _json(reply: Reply) -> Any:
    try:
        return json.loads(reply.body.decode())
    except (ValueError, RecursionError):
        return None


def _shown(reply: Reply) -> str:
    """Return the first of what was answered, for a message."""
    kind = reply.head.text(b"content-type").partition(";")[0][:60]
    text = " ".join(reply.body[:400].decode("utf-8", "replace").split())
    text = "".join(sign if sign.isprintable() else "?" for sign in text)
    return f"{reply.head.status} {kind} {text[:100]!r}".replace("  ", " ")
