"""Instances and work on SQLite: each request is one transaction, and whoever is in one is alone."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from holdfast.core import cluster as c
from holdfast.core.events import HistoryLevel
from holdfast.stores.base import instant
from holdfast.stores.sql import instances, work, workviews
from holdfast.stores.sql.dealing import Behind, Deal, Decide, call_parameters, signals
from holdfast.stores.sql.row import Post
from holdfast.stores.sql.run import Fetch
from holdfast.stores.sqlite.database import Transaction

RunDeal = Callable[[Any, Decide, Post], Any]


LOOKS: dict[type, Callable[[Fetch, Any], Any]] = {
    c.ListInstances: instances.list_instances,
    c.InspectWork: workviews.inspect_work,
    c.ListWork: workviews.list_work,
    c.CountWork: workviews.count_work,
}


def answers(run: RunDeal) -> dict[type, Callable[[Any, Post], Any]]:
    """Return what answers which request that is decided in a transaction, by *run*."""
    deciding: dict[type, Decide] = {
        c.Join: instances.join,
        c.Heartbeat: instances.heartbeat,
        c.Leave: leave,
        c.Offer: work.offer,
        c.Assign: work.assign,
        c.Finish: work.finish,
        c.Forget: work.forget,
    }
    return {kind: partial(_decide, run, decide) for kind, decide in deciding.items()}


def _decide(run: RunDeal, decide: Decide, request: Any, post: Post) -> Any:
    return run(request, decide, post)


def deal(
    run: Transaction,
    request: Any,
    decide: Decide,
    level: HistoryLevel,
    post: Post,
) -> Any:
    """Decide, and do at once what elsewhere comes behind the commit: nobody else can commit meanwhile."""
    given = instant(request.now)
    deal = Deal(run, given, level, post)
    answer = decide(deal, request)
    for call in deal.calls:
        post += signals(call, run("wanting", **call_parameters(call, given)))
    if not isinstance(answer, Behind):
        return answer
    return answer.conclude([] if answer.name is None else run(answer.name, **answer.parameters))


def leave(deal: Deal, request: c.Leave) -> Behind | None:
    """Return what the instance has, and end it."""
    if deal.run("lock_instance", id=request.id):
        types = [
            work.give_back(deal, request.id, key, attempt)
            for key, attempt in deal.run("works_of", id=request.id)
        ]
        deal.call_for(*(type for type in types if type is not None))
    return instances.leave(deal, request.id)
