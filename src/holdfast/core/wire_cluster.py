"""How requests about instances and their work are asked over HTTP."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode

from holdfast.core import cluster as c
from holdfast.core.data import as_dict
from holdfast.core.wire_asked import Asked, Json, at, looking, segment

# What need not be said of work that is offered: most of it is like that, and there may be much in one body.
_USUAL = {"data": "null", "max_tries": 0, "delay": 0.0, "at": None}


def _instance(id: str, what: str) -> str:
    return f"/v1/instances/{segment(id)}{what}"


def _work(key: str, what: str = "") -> str:
    return f"/v1/work/{segment(key)}{what}"


def _said(request: object, *left_out: str) -> Json:
    """Return all that a request says in its body."""
    fields: Json = as_dict(request)
    return {name: value for name, value in fields.items() if value is not None and name not in left_out}


def _ask_join(request: c.Join) -> Asked:
    return Asked("POST", "/v1/instances", _said(request))


def _ask_heartbeat(request: c.Heartbeat) -> Asked:
    return Asked("POST", _instance(request.id, "/heartbeat"), _said(request, "id"))


def _ask_leave(request: c.Leave) -> Asked:
    return Asked("POST", _instance(request.id, "/leave"), _said(request, "id"))


def _ask_claim(request: c.Claim) -> Asked:
    return Asked("POST", _instance(request.id, "/claim"), _said(request, "id"))


def _ask_offer(request: c.Offer) -> Asked:
    works = [
        {name: value for name, value in as_dict(work).items() if name == "key" or value != _USUAL[name]}
        for work in request.works
    ]
    return Asked("POST", "/v1/work", at({"works": works, "again": request.again}, request.now))


def _ask_assign(request: c.Assign) -> Asked:
    left_out = ("key",) if request.id else ("key", "id")
    return Asked("POST", _work(request.key, "/assign"), _said(request, *left_out))


def _ask_finish(request: c.Finish) -> Asked:
    return Asked("POST", _work(request.key, "/finish"), _said(request, "key"))


def _ask_forget(request: c.Forget) -> Asked:
    query = urlencode({name: value for name, value in (("by", request.by), ("now", request.now)) if value})
    return Asked("DELETE", f"{_work(request.key)}{query and f'?{query}'}")


def _ask_list_work(request: c.ListWork) -> Asked:
    asked = _LIST_WORK(request)
    if request.instance is None:
        return asked
    # Also the empty one: work that nobody has or had.
    return Asked("GET", f"{asked.path}&{urlencode({'instance': request.instance})}")


_LIST_WORK = looking(lambda _: "/v1/work", "prefix", "state", "after", "limit")

ASK_CLUSTER: dict[type, Callable[[Any], Asked]] = {
    c.Join: _ask_join,
    c.Heartbeat: _ask_heartbeat,
    c.Leave: _ask_leave,
    c.Claim: _ask_claim,
    c.Offer: _ask_offer,
    c.Assign: _ask_assign,
    c.Finish: _ask_finish,
    c.Forget: _ask_forget,
    c.InspectWork: looking(lambda request: _work(request.key)),
    c.ListWork: _ask_list_work,
    c.CountWork: looking(lambda _: "/v1/work-counts"),
    c.ListInstances: looking(lambda _: "/v1/instances", "after", "limit"),
}
