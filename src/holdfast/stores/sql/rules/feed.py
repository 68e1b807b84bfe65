"""One order of all events, for those who watch. An event gets its place when it is first read."""

from __future__ import annotations

from holdfast.core.events import Event
from holdfast.core.requests import Feed, Watch
from holdfast.stores.sql.rules.runner import Fetch, Runner

AT_ONCE = 1000  # events that one statement places or reads


def has_new(fetch: Fetch) -> bool:
    """Tell whether there are events without a place: a look that keeps nobody from anything."""
    return bool(fetch("feed_new", limit=1))


def place(run: Runner) -> bool:
    """Give places to the next events that have none, in a transaction; tell whether there may be more.

    Nobody else does meanwhile. So whatever commits later comes after what was read already.
    """
    last = run("feed_lock")[0][0]
    new = run("feed_new", limit=AT_ONCE)
    latest: dict[str, int] = {}
    order = []
    for key, number, at in sorted(new, key=lambda row: (row[0], row[1])):
        # Time may have gone back between two events of a key, but numbers never do.
        latest[key] = max(latest.get(key, at), at)
        order.append((latest[key], key, number, at))
    for feed, (_, key, number, at) in enumerate(sorted(order), last + 1):
        run.later("feed_place", key=key, number=number, at=at, feed=feed)
    if new:
        run.later("feed_end", last=last + len(new))
    return len(new) == AT_ONCE


def read(fetch: Fetch, request: Watch) -> Feed:
    """Return what has a place after the one that was asked for."""
    if request.after is None:
        return Feed((), fetch("feed_last")[0][0])
    after = request.after
    found: list[Event] = []
    limit = AT_ONCE if request.key else min(request.limit, AT_ONCE)
    for feed, key, number, kind, at, token, owner, by, reason in fetch("feed_read", after=after, limit=limit):
        if len(found) == request.limit:
            break
        after = feed
        if key == request.key if request.exact else key.startswith(request.key):
            found.append(Event(key, number, kind, at / 1e6, token, owner, by, reason, feed))
    return Feed(tuple(found), after)
