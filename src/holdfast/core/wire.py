"""Requests, answers and errors as JSON: what a server and its clients send each other.

A request is a method, a path and a body. An answer is an object that says which it is in ``answer``; whatever
the Python clients raise for is a problem (RFC 9457) with the error's name and fields, and has the answer
itself under ``because``. Times and durations are seconds; keys are one percent-encoded path segment.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, cast

from holdfast import errors
from holdfast.core import cluster as c
from holdfast.core import requests as r
from holdfast.core.access import AccessToken, ListAccess
from holdfast.core.data import as_dict
from holdfast.core.events import Event
from holdfast.core.family import Failure, Link
from holdfast.core.wire_asked import ASK, Asked, Json
from holdfast.core.wire_cluster import ASK_CLUSTER

PROBLEM = "urn:holdfast:error:"

_ASK = {**ASK, **ASK_CLUSTER}


def ask(request: r.Request[Any]) -> Asked:
    """Return how *request* is asked over HTTP."""
    return _ASK[type(request)](request)


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
        r.Health,
        AccessToken,
        c.Beat,
        c.Offered,
        c.Claimed,
        c.Assigned,
        c.Full,
        c.NotDue,
        c.Ended,
        c.Finished,
        c.WorkView,
        c.WorkPage,
        c.InstancePage,
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
    r.LockView: {
        "holder": _one(r.Holder),
        "holders": _many(r.Holder),
        "waiters": _many(r.Waiter),
        "kept": _one(r.Holder),
    },
    r.Page: {"locks": _many(r.LockView)},
    AccessToken: {"rights": tuple},
    c.Offered: {"states": tuple, "new": tuple},
    c.Claimed: {"works": _many(c.Assigned)},
    c.Ended: {"work": _one(c.WorkView)},
    c.WorkPage: {"works": _many(c.WorkView)},
    c.InstancePage: {"instances": _many(c.InstanceView)},
}
# What is answered with a number of things, and nothing else.
_ITEMS: dict[type, type] = {r.History: Event, ListAccess: AccessToken, c.CountWork: c.WorkCount}


def answer_to_json(answer: Any) -> Json:
    """Return an answer as JSON."""
    return {"answer": _NAMES[type(answer)], **as_dict(answer)}


def items_to_json(name: str, items: tuple[Any, ...]) -> Json:
    """Return an answer that is only a number of things, such as events or access tokens, as JSON."""
    return {"answer": name, "items": as_dict(items)}


def answer_from_json(request: r.Request[Any], body: Json) -> Any:
    """Return the answer to *request* that a server has sent; `ValueError` if it makes no sense."""
    try:
        if kind := _ITEMS.get(type(request)):
            return _many(kind)(body["items"])
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
