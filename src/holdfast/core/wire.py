"""Requests, answers and errors as JSON: what a server and its clients send each other.

A request is a method, a path and a body. An answer is an object that says which it is in ``answer``; whatever
the Python clients raise for is a problem (RFC 9457) with the error's name and fields, and has the answer
itself under ``because``. Times and durations are seconds; keys are one percent-encoded path segment.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any, cast
from urllib.parse import quote, urlencode

from holdfast import errors
from holdfast.core import requests as r
from holdfast.core.access import AccessToken, GrantAccess, ListAccess, RevokeAccess
from holdfast.core.data import as_dict, data
from holdfast.core.events import Event
from holdfast.core.family import Failure, Link, Terms

PROBLEM = "urn:holdfast:error:"

Json = dict[str, Any]


@data
class Asked:
    """A request on its way: what to send where."""

    method: str
    path: str  # and query
    body: Json | None = None


@lru_cache(maxsize=1000)
def _lock(key: str, what: str = "") -> str:
    # Dots as well: a path of dots alone means another one to whatever is between us and the server.
    segment = quote(key, safe=":@!$&'()*+,;=~-_")
    if set(segment) <= {"."}:
        segment = segment.replace(".", "%2E")
    return f"/v1/locks/{segment}{what}"


def ask(request: r.Request[Any]) -> Asked:
    """Return how *request* is asked over HTTP."""
    return _ASK[type(request)](request)


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
    if terms != _PLAIN:
        body |= {name: getattr(terms, field) for name, field in TERMS.items()}
    return Asked("POST", _lock(request.key, "/acquire"), _at(body, request.now))


def _ask_release(request: r.Release) -> Asked:
    body: Json = {"attempt": request.attempt, "token": request.token, "retire": request.retire}
    if request.outcome is not None:
        body["outcome"] = as_dict(request.outcome)
    return Asked("POST", _lock(request.key, "/release"), _at(body, request.now))


def _ask_renew(request: r.Renew) -> Asked:
    body = {"leases": as_dict(request.leases), "tickets": as_dict(request.tickets)}
    return Asked("POST", "/v1/renew", _at(body, request.now))


def _on_lock(what: str, *fields: str) -> Callable[[Any], Asked]:
    """Return how to ask for *what* to be done to a lock; a field that is None is left out."""

    def asked(request: Any) -> Asked:
        body = {name: value for name in fields if (value := getattr(request, name)) is not None}
        return Asked("POST", _lock(request.key, f"/{what}"), _at(body, request.now))

    return asked


def _looking(path: Callable[[Any], str], *fields: str) -> Callable[[Any], Asked]:
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
    return Asked("POST", "/v1/sweep", _without_none(request))


def _ask_grant_access(request: GrantAccess) -> Asked:
    return Asked("POST", "/v1/access-tokens", _without_none(request))


def _ask_revoke_access(request: RevokeAccess) -> Asked:
    query = "" if request.now is None else f"?now={request.now!r}"
    return Asked("DELETE", f"/v1/access-tokens/{quote(request.id, safe='')}{query}")


def _without_none(request: object) -> Json:
    return {name: value for name, value in as_dict(request).items() if value is not None}


def _at(body: Json, now: float | None) -> Json:
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
}

_ASK: dict[type, Callable[[Any], Asked]] = {
    r.Acquire: _ask_acquire,
    r.Release: _ask_release,
    r.Renew: _ask_renew,
    r.Withdraw: _on_lock("withdraw", "attempt"),
    r.Downgrade: _on_lock("downgrade", "attempt", "token"),
    r.Break: _on_lock("break", "by", "reason", "token"),
    r.Resize: _on_lock("resize", "permits", "by"),
    r.Inspect: _looking(lambda request: _lock(request.key)),
    r.History: _looking(lambda request: _lock(request.key, "/history"), "limit"),
    r.List: _looking(lambda _: "/v1/locks", "prefix", "owner", "type", "state", "after", "limit"),
    r.Watch: _ask_watch,
    r.Sweep: _ask_sweep,
    GrantAccess: _ask_grant_access,
    RevokeAccess: _ask_revoke_access,
    ListAccess: _looking(lambda _: "/v1/access-tokens"),
}


# Answers.


def _name(kind: type) -> str:
    return re.sub("(?<!^)(?=[A-Z])", "_", kind.__name__).lower()


ANSWERS: dict[str, type] = {
    _name(kind): kind
    for kind in (
        r.Granted,
        r.Queued,
        r.Busy,
        r.TooManyHolds,
        r.Refused,
        r.Done,
        r.Failed,
        r.Deadlocked,
        r.NotHeld,
        r.Released,
        r.Withdrawn,
        r.Broken,
        r.Resized,
        r.Feed,
        r.Renewed,
        r.LockView,
        r.Page,
        r.Swept,
        AccessToken,
    )
}

_NAMES = {kind: name for name, kind in ANSWERS.items()}


def _many(kind: type) -> Callable[[Any], Any]:
    return lambda values: tuple(_read(kind, value) for value in values)


def _one(kind: type) -> Callable[[Any], Any]:
    return lambda value: None if value is None else _read(kind, value)


# What is made of values that are no plain ones; cheaper than looking at annotations, and checked by a test.
_INSIDE: dict[type, dict[str, Callable[[Any], Any]]] = {
    r.Granted: {"failures": _many(Failure)},
    r.Queued: {"holder": _one(r.Holder)},
    r.Busy: {"holder": _one(r.Holder)},
    r.Failed: {"failures": _many(Failure)},
    r.Deadlocked: {"cycle": _many(Link)},
    r.Broken: {"holder": _one(r.Holder)},
    r.Feed: {"events": _many(Event)},
    r.Renewed: {"leases": _many(r.LeaseAnswer), "tickets": _many(r.TicketAnswer)},
    r.LockView: {"holder": _one(r.Holder), "holders": _many(r.Holder), "waiters": _many(r.Waiter)},
    r.Page: {"locks": _many(r.LockView)},
    AccessToken: {"rights": tuple},
}


def answer_to_json(answer: Any) -> Json:
    """Return an answer as JSON."""
    return {"answer": _NAMES[type(answer)], **as_dict(answer)}


def items_to_json(name: str, items: tuple[Any, ...]) -> Json:
    """Return an answer that is only a number of things, of events or access tokens, as JSON."""
    return {"answer": name, "items": as_dict(items)}


def answer_from_json(request: r.Request[Any], body: Json) -> Any:
    """Return the answer to *request* that a server has sent; `ValueError` if it makes no sense."""
    try:
        if isinstance(request, r.History):
            return _many(Event)(body["items"])
        if isinstance(request, ListAccess):
            return _many(AccessToken)(body["items"])
        if body["answer"] == "nothing":
            return None
        return _read(ANSWERS[body["answer"]], body)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"no answer to {type(request).__name__}: {body!r:.200}") from error


def _read(kind: type, values: Json) -> Any:
    """Make *kind* of its fields. Others are left out: a newer server may say more."""
    inside = _INSIDE.get(kind, {})
    names: Iterable[str] = kind.__match_args__  # type: ignore[attr-defined]
    fields = {name: values[name] for name in names if name in values}
    for name in inside.keys() & fields.keys():
        fields[name] = inside[name](fields[name])
    return kind(**fields)


# Errors.


def error_to_json(error: errors.HoldfastError, because: Any = None) -> Json:
    """Return an error as a problem, with the answer that it is raised for."""
    kind = next(each for each in type(error).__mro__ if each in errors.CODES)  # what callers know of
    name = kind.__name__
    fields = {
        field: as_dict(value)
        for field, value in vars(error).items()
        if not field.startswith("_") and field not in ("detail", "status")
    }
    problem: Json = {
        "type": f"{PROBLEM}{name}",
        "title": _title(kind),
        "status": errors.http_status(error),
        "detail": str(error),
        "error": name,
        **fields,
    }
    if because is not None:
        problem["because"] = because if isinstance(because, dict) else answer_to_json(because)
    return problem


def _title(kind: type) -> str:
    """Return what kind of error it is, in words: its documentation's first sentence."""
    return (kind.__doc__ or "").partition(".")[0]


def _number(value: Any, otherwise: float) -> float:
    """Return a number of a problem, which may come from anybody on the way."""
    return float(value) if isinstance(value, int | float) and 0 <= value < 1e9 else otherwise


def error_from_json(status: int, body: Json) -> errors.HoldfastError:
    """Return the error that a problem tells of, for what a store may raise."""
    detail = str(body.get("detail", ""))
    kind = getattr(errors, str(body.get("error")), None)
    if kind is errors.TooManyRequests:
        return errors.TooManyRequests(_number(body.get("retry_after"), 1.0), detail)
    if kind is errors.LimitExceeded:
        return errors.LimitExceeded(str(body.get("limit")), _number(body.get("most"), 0.0), detail)
    if kind is errors.InvalidKey:
        return errors.InvalidKey(body.get("key"), str(body.get("reason")))
    if kind is errors.RequestRefused or not isinstance(kind, type):
        kind = None
    if kind is not None and issubclass(kind, errors.StoreError | errors.SettingsError):
        return cast("errors.HoldfastError", kind(detail))
    return errors.RequestRefused(status, detail or f"the server answered {status}")
