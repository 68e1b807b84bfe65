"""The table of all routes, and how a client asks by it: a method, a path, and maybe a body.

Keys and ids are one percent-encoded path segment.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any
from urllib.parse import quote, urlencode

from holdfast.core.data import data
from holdfast.core.requests import Request, Watch
from holdfast.core.wire.locks import LOCKS
from holdfast.core.wire.route import Route
from holdfast.core.wire.shapes import Json
from holdfast.core.wire.system import SYSTEM
from holdfast.core.wire.work import WORK_ROUTES

ROUTES: tuple[Route, ...] = (*LOCKS, *WORK_ROUTES, *SYSTEM)
BY_REQUEST: dict[type, Route] = {route.request: route for route in ROUTES if route.request is not None}


@data
class Asked:
    """A request on its way: what to send where."""

    method: str
    path: str  # and query
    body: Json | None = None


def ask(request: Request[Any]) -> Asked:
    """Return how *request* is asked over HTTP."""
    if isinstance(request, Watch):
        return _ask_watch(request)
    return ask_by(BY_REQUEST[type(request)], request)


def ask_by(route: Route, request: Request[Any]) -> Asked:
    """Return how *request* is asked at *route*."""
    path = route.path
    if route.attribute is not None:
        path = _path(route, getattr(request, route.attribute))
    said = route.members.say(request)
    if route.method == "POST":
        return Asked("POST", path, said)
    return Asked(route.method, f"{path}?{query}" if (query := _query(route, said)) else path)


def segment(name: str) -> str:
    """Return a key, or an id, as one segment of a path."""
    # Dots as well: a path of dots alone means another one to whatever is between us and the server.
    quoted = quote(name, safe=":@!$&'()*+,;=~-_")
    return quoted.replace(".", "%2E") if set(quoted) <= {"."} else quoted


@lru_cache(maxsize=1000)
def _path(route: Route, named: str) -> str:
    return route.path.replace(f"{{{route.parameter}}}", segment(named))


def _query(route: Route, said: Json) -> str:
    """Return a query; what may be empty, and is said all the same, comes last."""
    fields = route.members.fields
    last = {name: value for name, value in said.items() if fields[name].blank}
    return urlencode({name: value for name, value in said.items() if value != "" and name not in last} | last)


def _ask_watch(request: Watch) -> Asked:
    """Return how to ask for events: its key is exact or a prefix, and these are two parts of a query."""
    query: Json = {"key" if request.exact else "prefix": request.key, "limit": request.limit}
    if request.after is not None:
        query["after"] = request.after
    if request.address:
        query["address"] = request.address
    return Asked("GET", f"/v1/events?{urlencode(query)}")
