"""How requests are asked over HTTP: a method, a path, and maybe a body.

Keys and ids are one percent-encoded path segment. Instances and their work are in `wire_cluster`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any
from urllib.parse import quote, urlencode

from holdfast.core import requests as r
from holdfast.core.access import GrantAccess, ListAccess, RevokeAccess
from holdfast.core.data import as_dict, data
from holdfast.core.family import Terms

Json = dict[str, Any]


@data
class Asked:
    """A request on its way: what to send where."""

    method: str
    path: str  # and query
    body: Json | None = None


def segment(name: str) -> str:
    """Return a key, or an id, as one segment of a path."""
    # Dots as well: a path of dots alone means another one to whatever is between us and the server.
    quoted = quote(name, safe=":@!$&'()*+,;=~-_")
    return quoted.replace(".", "%2E") if set(quoted) <= {"."} else quoted


@lru_cache(maxsize=1000)
def _lock(key: str, what: str = "") -> str:
    return f"/v1/locks/{segment(key)}{what}"


def _ask_acquire(request: r.Acquire) -> Asked:
    terms = request.terms
    body: Json = {
        "attempt": request.attempt,
        "owner": request.owner,
        "ttl": request.ttl,
        "wait": request.wait,
        "client": {
            "instance": request.client.instance,
            "host": request.client.host,
            "pid": request.client.pid,
        },
        "limit": request.limit,
        "patience": request.patience,
        "claim": request.claim,
    }
    # What is usual is left out: a server of an earlier release may not know it.
    for name, field in TERMS.items():
        if (value := getattr(terms, field)) != getattr(_PLAIN, field):
            body[name] = value
    if request.seen:
        body["seen"] = request.seen
    return Asked("POST", _lock(request.key, "/acquire"), at(body, request.now))


def _ask_release(request: r.Release) -> Asked:
    body: Json = {"attempt": request.attempt, "token": request.token, "retire": request.retire}
    if request.outcome is not None:
        body["outcome"] = as_dict(request.outcome)
        if not request.outcome.keep:
            del body["outcome"]["keep"]
    return Asked("POST", _lock(request.key, "/release"), at(body, request.now))


def _ask_withdraw(request: r.Withdraw) -> Asked:
    body: Json = {"attempt": request.attempt}
    if request.held:  # a server of an earlier release does not know it
        body["held"] = True
    return Asked("POST", _lock(request.key, "/withdraw"), at(body, request.now))


def _ask_renew(request: r.Renew) -> Asked:
    body = {"leases": as_dict(request.leases), "tickets": as_dict(request.tickets)}
    return Asked("POST", "/v1/renew", at(body, request.now))


def _on_lock(what: str, *fields: str) -> Callable[[Any], Asked]:
    """Return how to ask for *what* to be done to a lock; a field that is None is left out."""

    def asked(request: Any) -> Asked:
        body = {name: value for name in fields if (value := getattr(request, name)) is not None}
        return Asked("POST", _lock(request.key, f"/{what}"), at(body, request.now))

    return asked


def looking(path: Callable[[Any], str], *fields: str) -> Callable[[Any], Asked]:
    """Return how to ask for a look; a field that is None or empty is left out."""

    def asked(request: Any) -> Asked:
        given = {name: getattr(request, name) for name in (*fields, "now") if hasattr(request, name)}
        query = urlencode({name: value for name, value in given.items() if value not in (None, "")})
        return Asked("GET", f"{path(request)}?{query}" if query else path(request))

    return asked


def _ask_watch(request: r.Watch) -> Asked:
    query: Json = {"key" if request.exact else "prefix": request.key, "limit": request.limit}
    if request.after is not None:
        query["after"] = request.after
    return Asked("GET", f"/v1/events?{urlencode(query)}")


def _ask_sweep(request: r.Sweep) -> Asked:
    return Asked("POST", "/v1/sweep", without_none(request))


def _ask_grant_access(request: GrantAccess) -> Asked:
    return Asked("POST", "/v1/access-tokens", without_none(request))


def _ask_revoke_access(request: RevokeAccess) -> Asked:
    query = "" if request.now is None else f"?now={request.now!r}"
    return Asked("DELETE", f"/v1/access-tokens/{quote(request.id, safe='')}{query}")


def without_none(request: object) -> Json:
    """Return all that a request says."""
    return {name: value for name, value in as_dict(request).items() if value is not None}


def at(body: Json, now: float | None) -> Json:
    """Return a body, with the time if there is one."""
    return body if now is None else {**body, "now": now}


_PLAIN = Terms()
# As callers know them: the name of each of the terms in a body.
TERMS = {
    "mode": "mode",
    "take": "take",
    "permits": "permits",
    "lock_delay": "delay",
    "operation": "operation",
    "max_attempts": "max_attempts",
    "at_least": "at_least",
}

ASK: dict[type, Callable[[Any], Asked]] = {
    r.Acquire: _ask_acquire,
    r.Release: _ask_release,
    r.Renew: _ask_renew,
    r.Withdraw: _ask_withdraw,
    r.Downgrade: _on_lock("downgrade", "attempt", "token"),
    r.Break: _on_lock("break", "by", "reason", "token"),
    r.Resize: _on_lock("resize", "permits", "by"),
    r.Inspect: looking(lambda request: _lock(request.key)),
    r.History: looking(lambda request: _lock(request.key, "/history"), "limit"),
    r.List: looking(lambda _: "/v1/locks", "prefix", "owner", "type", "state", "after", "limit"),
    r.Watch: _ask_watch,
    r.Sweep: _ask_sweep,
    r.Probe: lambda _: Asked("GET", "/readyz"),
    GrantAccess: _ask_grant_access,
    RevokeAccess: _ask_revoke_access,
    ListAccess: looking(lambda _: "/v1/access-tokens"),
}
