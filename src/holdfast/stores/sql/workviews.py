"""Looking at work: one piece, a page of it, how much there is. Reads only."""

from __future__ import annotations

from typing import Any

from holdfast.core import cluster as c
from holdfast.core import keys
from holdfast.stores.base import instant
from holdfast.stores.sql.run import Fetch
from holdfast.stores.sql.workrow import WorkRow


def inspect_work(fetch: Fetch, request: c.InspectWork) -> c.WorkView | None:
    """Return one piece of work."""
    return next((WorkRow(row).view() for row in fetch("read_work", key=request.key)), None)


def list_work(fetch: Fetch, request: c.ListWork) -> c.WorkPage:
    """Return a page of work, in the order of its keys."""
    parameters: dict[str, Any] = {
        "after": request.after,
        "from_key": max(request.prefix, request.after),
        "to_key": keys.prefix_end(request.prefix) if request.prefix else None,
        "state": request.state,
        "limit": request.limit + 1,
    }
    if request.instance is None:
        rows = fetch("list_work", **parameters)
    else:
        rows = fetch("list_work_of", instance=request.instance, **parameters)
    page = tuple(WorkRow(row).view() for row in rows[: request.limit])
    return c.WorkPage(page, page[-1].key if len(rows) > len(page) and page else None)


def count_work(fetch: Fetch, request: c.CountWork) -> tuple[c.WorkCount, ...]:
    """Count the work of each type that is not completed."""
    return tuple(
        c.WorkCount(type, offered, assigned, failed, 0.0 if oldest is None else max(now - oldest, 0) / 1e6)
        for type, offered, assigned, failed, oldest, now in fetch("count_work", now=instant(request.now))
    )
