"""What an answer of a lock server means for a request; or that it is none of a lock server's.

Errors are told apart by what is certain. `StoreUnavailable` was certainly not applied, `OutcomeUnknown` may
have been: what a balancer says in the place of its server is worth no more than silence.
"""

from __future__ import annotations

import json
from typing import Any

from holdfast import errors
from holdfast.core import cluster as c
from holdfast.core import requests as r
from holdfast.core import wire
from holdfast.core.access import AccessToken, GrantAccess, ListAccess, RevokeAccess
from holdfast.stores.http.message import Reply
from holdfast.stores.http.options import HTTPOptions

# What each request can be answered with, as its class says. An answer to something else would be believed.
POSSIBLE: dict[type, tuple[type, ...]] = {
    r.Acquire: (
        r.Granted,
        r.Queued,
        r.Busy,
        r.TooManyHolds,
        r.NotHeld,
        r.Refused,
        r.Done,
        r.Failed,
        r.Deadlocked,
    ),
    r.Renew: (r.Renewed,),
    r.Release: (r.Released, r.NotHeld, r.Refused),
    r.Withdraw: (r.Withdrawn, r.NotHeld),
    r.Downgrade: (r.Granted, r.NotHeld, r.Refused),
    r.Resize: (r.Resized,),
    r.Break: (r.Broken, r.NotHeld),
    r.Inspect: (r.LockView, type(None)),
    r.List: (r.Page,),
    r.History: (tuple,),
    r.Watch: (r.Feed,),
    r.Sweep: (r.Swept,),
    r.Probe: (r.Health,),
    GrantAccess: (AccessToken,),
    RevokeAccess: (AccessToken, type(None)),
    ListAccess: (tuple,),
    c.Join: (c.Beat,),
    c.Heartbeat: (c.Beat,),
    c.Leave: (c.Beat,),
    c.Claim: (c.Claimed, c.Beat),
    c.Offer: (c.Offered,),
    c.Assign: (c.Assigned, r.Busy, r.NotHeld, c.Full, c.NotDue, c.Ended, c.Beat),
    c.Finish: (c.Finished, r.NotHeld),
    c.Forget: (c.Ended, r.Busy, type(None)),
    c.InspectWork: (c.WorkView, type(None)),
    c.ListWork: (c.WorkPage,),
    c.CountWork: (tuple,),
    c.ListInstances: (c.InstancePage,),
}


def answer_of(request: r.Request[Any], reply: Reply, options: HTTPOptions) -> Any:
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
    if type(answer) not in POSSIBLE[type(request)]:
        raise no_server(reply, options)
    return answer


def server_of(reply: Reply, options: HTTPOptions) -> dict[str, Any]:
    """Return what a server says of itself."""
    body = _json(reply)
    if reply.head.status >= 300:
        raise error_of(reply, options)
    if (
        not isinstance(body, dict)
        or body.get("answer") != "server"
        or not isinstance(body.get("store"), dict)
    ):
        raise no_server(reply, options)
    return body


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
    if status >= 500:
        return errors.OutcomeUnknown(
            f"{options} answered {_shown(reply)}: whatever is in front of it has failed"
        )
    if status in (408, 425, 429):
        return errors.StoreUnavailable(f"{options} answered {_shown(reply)}: try again later")
    if status == 413:
        return errors.RequestRefused(status, f"{options} answered {_shown(reply)}: the request was too large")
    if status == 401:
        return errors.NotAuthenticated(f"{options} answered {_shown(reply)}")
    return no_server(reply, options)


def no_server(reply: Reply, options: HTTPOptions) -> errors.StoreMisconfigured:
    """Return what to raise when it is no lock server that answers."""
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
