"""Looking at locks: inspect, list, history. Reads only."""

from __future__ import annotations

from typing import Any, cast

from holdfast.core import keys
from holdfast.core.events import Event
from holdfast.core.requests import History, Holder, Inspect, List, LockState, LockView, Page, Waiter
from holdfast.stores.base import WAITERS_SHOWN, instant
from holdfast.stores.sql.run import Fetch, Row


def inspect(fetch: Fetch, request: Inspect) -> LockView | None:
    """Return one lock, with the first of its waiters."""
    now = _now(fetch, request.now)
    for row in fetch("inspect", key=request.key):
        waiters = tuple(
            Waiter(owner, host, pid, (now - queued_at) / 1e6)
            for owner, host, pid, queued_at in fetch("waiters", key=request.key, limit=WAITERS_SHOWN)
        )
        return _view(row, now, waiters)
    return None


def list_locks(fetch: Fetch, request: List) -> Page:
    """Return a page of locks, in the order of their keys."""
    now = _now(fetch, request.now)
    prefixes = ["", request.prefix]
    if request.type is not None:
        prefixes.append(keys.type_prefix(request.type))
    ends = [end for prefix in prefixes if (end := keys.prefix_end(prefix)) is not None]
    parameters: dict[str, Any] = {
        "after": request.after,
        "from_key": max(*prefixes, request.after),
        "to_key": min(ends, default=None),
        "state": request.state,
        "now": now,
        "limit": request.limit + 1,
    }
    if request.owner is None:
        rows = fetch("list", **parameters)
    else:
        rows = fetch("list_by_owner", owner=request.owner, **parameters)
    page = tuple(_view(row, now) for row in rows[: request.limit])
    return Page(page, page[-1].key if len(rows) > len(page) and page else None)


def history(fetch: Fetch, request: History) -> tuple[Event, ...]:
    """Return the newest events of a key, oldest first."""
    rows = fetch("history", key=request.key, limit=request.limit)
    return tuple(
        Event(request.key, number, kind, at / 1e6, token, owner, by, reason)
        for number, kind, at, token, owner, by, reason in reversed(rows)
    )


def _now(fetch: Fetch, given: float | None) -> int:
    return cast("int", fetch("now", now=instant(given))[0][0])


def _view(row: Row, now: int, waiters: tuple[Waiter, ...] = ()) -> LockView:
    key, token, owner, claimed, expires_at, granted_at, host, pid, holds, waiting = row
    state: LockState = "free"
    holder = None
    if owner is not None:
        state = "held" if expires_at > now else "expired"
        holder = Holder(owner, host, pid, token, (now - granted_at) / 1e6, bool(claimed))
    return LockView(
        key=key,
        state=state,
        token=token,
        holder=holder,
        expires_in=max(expires_at - now, 0) / 1e6 if holder else 0.0,
        holds=holds or (1 if holder else 0),
        waiting=waiting,
        waiters=waiters,
    )
