"""Looking at locks, at their history, and at work. Reads only."""

from __future__ import annotations

from typing import Any, NamedTuple, cast

from holdfast.core import cluster as c
from holdfast.core import keys
from holdfast.core.data import replace
from holdfast.core.events import Event
from holdfast.core.requests import History, Holder, Inspect, List, LockState, LockView, Page, Waiter, doer
from holdfast.stores.base import WAITERS_SHOWN, instant
from holdfast.stores.sql.rules.holds import Hold, leases, read_holds, read_holds_of
from holdfast.stores.sql.rules.notes import read_notes
from holdfast.stores.sql.rules.runner import Fetch
from holdfast.stores.sql.rules.work_row import WorkRow


class ListedLock(NamedTuple):
    """A lock as ``inspect`` and ``list`` have it."""

    key: str
    token: int
    owner: Any  # a name, or None
    claimed: int
    expires_at: int
    granted_at: int
    host: str
    pid: int
    in_table: int  # how many of its holds are in their table
    waiting: int
    notes: str | None


def inspect(fetch: Fetch, request: Inspect) -> LockView | None:
    """Return one lock, with the first of its waiters and holders."""
    now = _now(fetch, request.now)
    for row in map(ListedLock._make, fetch("inspect", key=request.key)):
        waiters = tuple(
            Waiter(owner, host, pid, (now - queued_at) / 1e6)
            for owner, host, pid, queued_at in fetch("waiters", key=request.key, limit=WAITERS_SHOWN)
        )
        holds = read_holds(fetch, request.key) if row.in_table else []
        view = _view(row, holds, now)
        return replace(view, waiters=waiters, holders=_holders(view, holds, now))
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
    name = "list" if request.owner is None else "list_by_owner"
    rows = fetch(name, owner=request.owner, **parameters)
    locks, more = [ListedLock._make(row) for row in rows[: request.limit]], len(rows) > request.limit
    holds = read_holds_of(fetch, [lock.key for lock in locks if lock.in_table])
    page = tuple(_view(lock, holds.get(lock.key, []), now) for lock in locks)
    return Page(page, page[-1].key if more and page else None)


def history(fetch: Fetch, request: History) -> tuple[Event, ...]:
    """Return the newest events of a key, oldest first."""
    rows = fetch("history", key=request.key, limit=request.limit)
    return tuple(
        Event(request.key, number, kind, at / 1e6, token, owner, by, reason, place or 0)
        for number, kind, at, token, owner, by, reason, place in reversed(rows)
    )


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
    name = "list_work" if request.instance is None else "list_work_of"
    rows = fetch(name, instance=request.instance, **parameters)
    page = tuple(WorkRow(row).view() for row in rows[: request.limit])
    return c.WorkPage(page, page[-1].key if len(rows) > len(page) and page else None)


def count_work(fetch: Fetch, request: c.CountWork) -> tuple[c.WorkCount, ...]:
    """Count the work of each type that is not completed."""
    return tuple(
        c.WorkCount(type, offered, assigned, failed, 0.0 if oldest is None else max(now - oldest, 0) / 1e6)
        for type, offered, assigned, failed, oldest, now in fetch("count_work", now=instant(request.now))
    )


def _now(fetch: Fetch, given: float | None) -> int:
    return cast("int", fetch("now", now=instant(given))[0][0])


def _view(row: ListedLock, table: list[Hold], now: int) -> LockView:
    """Return a lock by its row, and by its holds if they are in their table."""
    key, token, owner, claimed, expires_at, granted_at, host, pid, in_table, waiting, noted = row
    notes, shut_by = read_notes(noted)
    kept = notes.kept if notes.kept is not None and notes.kept.until > now else None
    state: LockState = "free"
    holder, holds = None, 0
    if owner is not None:
        # Shut, it may have no hold: nobody who could expire any more.
        holds = in_table or (0 if shut_by else 1)
        state = "held" if expires_at > now else "expired" if holds else "free"
    if state != "free":
        holder = Holder(owner, host, pid, token, (now - granted_at) / 1e6, bool(claimed))
        if shut_by and not holds:
            holder = shut_by.holder(now)
        elif notes.mode != "exclusive":  # the row's token is of who was granted last, and may be another's
            holder = next(iter(_leases(table, now)), holder)
    return LockView(
        key=key,
        state=state,
        token=token,
        holder=holder,
        expires_in=max(expires_at - now, 0) / 1e6 if holder else 0.0,
        holds=holds,
        waiting=waiting,
        mode=notes.mode,
        permits=notes.permits,
        taken=sum(hold.terms.take for hold in table) if notes.mode == "permits" else 0,
        operation=any(hold.terms.operation for hold in table),
        kept=doer(kept, now) if kept else None,
        kept_for=(kept.until - now) / 1e6 if kept else 0.0,
    )


def _holders(view: LockView, table: list[Hold], now: int) -> tuple[Holder, ...]:
    if view.holder is None or not view.holds:
        return ()
    if view.mode == "exclusive":
        return (view.holder,)
    return tuple(_leases(table, now)[:WAITERS_SHOWN])


def _leases(table: list[Hold], now: int) -> list[Holder]:
    return [hold.holder(now, claimed=hold.claimed) for hold in leases(table)]
