"""What a caller wants to know or to change about locks and work, checked and put into requests."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from holdfast import errors, identity
from holdfast.client.engine import WATCHED, Engine
from holdfast.client.operations import as_json
from holdfast.client.options import Works, whole
from holdfast.clock import boot_time
from holdfast.core import cluster, keys, plans, requests
from holdfast.core.data import replace
from holdfast.core.plans import Plan
from holdfast.core.settings import Seconds, seconds

MOST_AT_ONCE = 256 * 1024  # bytes of data in one offer: a server takes only so much


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


def inspect_work(key: str) -> cluster.InspectWork:
    """Look at one piece of work."""
    return cluster.InspectWork(keys.validate(key))


def work_listing(prefix: str, state: cluster.WorkState | None, instance: str | None) -> cluster.ListWork:
    """Check which work is to be looked at."""
    if state is not None and state not in cluster.WORK_STATES:
        raise errors.SettingsError(f"state is {state!r}; it must be one of {', '.join(cluster.WORK_STATES)}")
    if instance is not None:
        identity.check_name(instance, "instance")
    return cluster.ListWork(keys.validate(prefix) if prefix else "", state, instance)


# Plans: what takes several requests, or makes an error of an answer.


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
    if quiet == 0:
        return (yield from plans.next_events(request, until=boot_time(), **engine.how()))
    until = None if quiet is None else boot_time() + quiet
    attempt = engine.attempts.new()
    request = replace(request, address=engine.client.instance)
    engine.mailboxes[attempt] = WATCHED, engine.new_mailbox()
    try:
        return (yield from plans.next_events(request, attempt, until=until, **engine.how()))
    finally:
        engine.mailboxes.pop(attempt, None)


def from_now(engine: Engine, request: requests.Watch) -> Plan[requests.Watch]:
    """Have a watch begin with what happens from now on, unless it says where to begin."""
    if request.after is not None:
        return request
    feed = yield from plans.next_events(request, until=None, **engine.how())
    return replace(request, after=feed.after)


def offer(
    engine: Engine, works: Works, *, max_tries: int | None, delay: Seconds, again: bool
) -> Plan[cluster.Offered]:
    """Offer work, in as many requests as it needs; return the answers to them as one."""
    tries = 0 if max_tries is None else whole(max_tries, "max_tries")
    later = seconds(delay, "delay")
    pieces: dict[str, cluster.OfferedWork] = {}
    for key, value in _pairs(works):
        valid = keys.validate(key)
        if valid in pieces:
            raise errors.SettingsError(f"{valid!r} is offered twice at once")
        pieces[valid] = cluster.OfferedWork(valid, as_json(valid, value, "data"), tries, later)
    answers: list[cluster.Offered] = []
    for part in _parts(pieces.values()):
        request = cluster.Offer(tuple(part), again)
        answers.append((yield from engine.asking(request, unknown_too=not again)))
    return cluster.Offered(
        tuple(state for answer in answers for state in answer.states),
        tuple(new for answer in answers for new in answer.new),
    )


def forget_work(engine: Engine, key: str) -> Plan[cluster.WorkView | None]:
    """Forget a piece of work, and return it as it was. Raise `LockTimeout` if somebody is at it."""
    answer = yield from engine.asking(cluster.Forget(keys.validate(key), engine.client.host))
    if isinstance(answer, requests.Busy):
        raise errors.LockTimeout(key, waited=0.0, holder=answer.holder, expires_in=answer.expires_in)
    return None if answer is None else answer.work


def named(engine: Engine, by: str | None) -> str:
    """Return who does something, for the history: by default this host."""
    return engine.client.host if by is None else identity.check_name(by, "by")


def _pairs(works: Works) -> Iterator[tuple[Any, Any]]:
    if isinstance(works, str | bytes) or not isinstance(works, Iterable):
        raise errors.SettingsError(
            f"works is {works!r}; it must be a list of keys or of (key, data), or a mapping"
        )
    for each in works.items() if isinstance(works, Mapping) else works:
        pair = each if isinstance(each, tuple) else (each, None)
        if len(pair) != 2:
            raise errors.SettingsError(f"{each!r} is no (key, data)")
        yield pair


def _parts(works: Iterable[cluster.OfferedWork]) -> Iterator[list[cluster.OfferedWork]]:
    part: list[cluster.OfferedWork] = []
    size = 0
    for work in works:
        if part and (len(part) == cluster.MOST_OFFERED or size + len(work.data) > MOST_AT_ONCE):
            yield part
            part, size = [], 0
        part.append(work)
        size += len(work.data)
    if part:
        yield part
