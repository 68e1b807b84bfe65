"""What a caller wants to know or to change about locks, checked and put into requests."""

from __future__ import annotations

from holdfast import errors, identity
from holdfast.client.engine import Engine
from holdfast.client.options import whole
from holdfast.clock import boot_time
from holdfast.core import keys, plans, requests
from holdfast.core.data import replace
from holdfast.core.plans import Plan


def inspect(key: str) -> requests.Inspect:
    """Look at one lock."""
    return requests.Inspect(keys.validate(key))


def history(key: str, limit: int) -> requests.History:
    """Read what happened to a lock."""
    return requests.History(keys.validate(key), whole(limit, "limit"))


def listing(
    prefix: str, owner: str | None, type: str | None, state: requests.LockState | None
) -> requests.List:
    """List locks."""
    if state not in (None, "held", "expired", "free"):
        raise errors.SettingsError(f"state is {state!r}; it must be 'held', 'expired' or 'free'")
    return requests.List(
        prefix=keys.validate(prefix) if prefix else "",
        owner=owner if owner is None else identity.check_name(owner, "owner"),
        type=type if type is None else keys.validate(type),
        state=state,
    )


def resize(engine: Engine, key: str, permits: int, by: str | None) -> requests.Resize:
    """Change how many permits a semaphore has."""
    return requests.Resize(key=keys.validate(key), permits=whole(permits, "permits"), by=named(engine, by))


def watch(pattern: str, after: int | None) -> requests.Watch:
    """Watch what happens to locks."""
    if after is not None and (isinstance(after, bool) or not isinstance(after, int) or after < 0):
        raise errors.SettingsError(f"after is {after!r}; it must be the id of an event, or 0 for all")
    if not isinstance(pattern, str) or not pattern.endswith("*"):
        return requests.Watch(keys.validate(pattern), exact=True, after=after)
    prefix = pattern.removesuffix("*")
    return requests.Watch(keys.validate(prefix) if prefix else "", after=after)


# Plans: what takes several requests.


def break_lock(
    engine: Engine, key: str, reason: str, by: str | None, token: int | None
) -> Plan[requests.Broken | None]:
    """Take a lock away from its holders; return the first lease that was broken, if there was one."""
    if not isinstance(reason, str) or not reason.strip():
        raise errors.SettingsError("a lock is broken for a reason: say which, it goes into the history")
    if token is not None and (isinstance(token, bool) or not isinstance(token, int)):
        raise errors.SettingsError(f"token is {token!r}; it must be a lease's token")
    request = requests.Break(
        key=keys.validate(key),
        by=named(engine, by),
        reason=identity.check_name(reason, "reason", longest=1000),
        token=token,
    )
    broken = yield from plans.break_leases(request, **engine.how())
    return next(iter(broken), None)


def sweep(engine: Engine, limit: int) -> Plan[requests.Swept]:
    """Settle and forget everything that is over, in batches of *limit*; return the totals."""
    total, after = requests.Swept(), ""
    while True:
        swept = yield from engine.asking(requests.Sweep(whole(limit, "limit"), after))
        total = total.plus(swept)
        if swept.after is None:
            return total
        after = swept.after


def events(engine: Engine, request: requests.Watch, quiet: float | None) -> Plan[requests.Feed]:
    """Wait for events, for *quiet* seconds at most."""
    until = None if quiet is None else boot_time() + quiet
    return plans.next_events(request, until=until, **engine.how())


def from_now(engine: Engine, request: requests.Watch) -> Plan[requests.Watch]:
    """Have a watch begin with what happens from now on, unless it says where to begin."""
    if request.after is not None:
        return request
    feed = yield from plans.next_events(request, until=None, **engine.how())
    return replace(request, after=feed.after)


def named(engine: Engine, by: str | None) -> str:
    """Return who does something, for the history: by default this host."""
    return engine.client.host if by is None else identity.check_name(by, "by")
