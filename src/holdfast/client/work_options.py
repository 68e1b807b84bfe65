"""What a caller says about instances and work, or wants to know of them: checked and put into requests."""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from holdfast import identity
from holdfast.client.engine import Engine
from holdfast.client.operations import as_text
from holdfast.client.options import whole
from holdfast.core import cluster, keys
from holdfast.core.backoff import Backoff
from holdfast.core.membership import Membership, check_timing
from holdfast.core.plans import Plan
from holdfast.core.requests import Busy
from holdfast.core.settings import Seconds, seconds
from holdfast.errors import LockTimeout, SettingsError

Retry = Backoff | Seconds | None
CheckedRetry = Backoff | float | None
Works = Mapping[str, Any] | Iterable[str | tuple[str, Any]]

MOST_TYPES = 100  # in one claim
MOST_AT_ONCE = 256 * 1024  # bytes of data in one offer: a server takes only so much
_TYPES = "the type of 'workflow:123' is 'workflow', that of 'plain' is ''"
_STRANGE = re.compile(r"[^\w.-]+", re.ASCII)


def join_request(
    engine: Engine, name: str | None, capacity: int, heartbeat: Seconds, ttl: Seconds, version: str
) -> tuple[cluster.Join, Membership]:
    """Check how a caller wants to join."""
    beat, length = check_timing(heartbeat, ttl, engine.settings)
    shown = identity.program() if name is None else identity.check_name(name, "name")
    if version != "":
        identity.check_name(version, "version")
    # A part of urls and keys, and for people to read.
    id = identity.new_owner(_STRANGE.sub("-", shown).strip("-.") or "instance")
    me = engine.client
    request = cluster.Join(
        id=id, name=shown, client=me, capacity=whole(capacity, "capacity"), ttl=length, version=version
    )
    member = Membership(id, me, ttl=length, heartbeat=beat, settings=engine.settings, roll=random.random)
    return request, member


def check_types(types: tuple[Any, ...]) -> tuple[str, ...]:
    """Return the types of work that are asked for, each once."""
    if not types:
        raise SettingsError(f"say which types of work to claim: {_TYPES}")
    for each in types:
        if not isinstance(each, str) or ":" in each:
            raise SettingsError(f"{each!r} is no type of work: {_TYPES}")
        if each:
            keys.validate(each)
    if len(types) > MOST_TYPES:
        raise SettingsError(f"{len(types)} types of work are more than the {MOST_TYPES} of one claim")
    return tuple(dict.fromkeys(types))


def check_retry(retry: Retry) -> CheckedRetry:
    """Return how work is tried again that has failed in a block."""
    return retry if retry is None or isinstance(retry, Backoff) else seconds(retry, "retry")


def retry_delay(retry: CheckedRetry, tries: int) -> float | None:
    """Return how long to leave work alone that has failed; None: for ever."""
    return retry.delay(tries, random.random()) if isinstance(retry, Backoff) else retry


def as_json(key: str, value: object, what: str) -> str:
    """Return the data or the result of some work as it is kept."""
    return as_text(key, value, what, largest=cluster.LARGEST_DATA, use="kept")


def _pairs(works: Works) -> Iterator[tuple[Any, Any]]:
    if isinstance(works, str | bytes) or not isinstance(works, Iterable):
        raise SettingsError(f"works is {works!r}; it must be a list of keys or of (key, data), or a mapping")
    if isinstance(works, Mapping):
        yield from works.items()
        return
    for each in works:
        if isinstance(each, tuple):
            if len(each) != 2:
                raise SettingsError(f"{each!r} is no (key, data)")
            yield each
        else:
            yield each, None


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


def listing(prefix: str, state: cluster.WorkState | None, instance: str | None) -> cluster.ListWork:
    """Check which work is to be looked at."""
    if state is not None and state not in cluster.WORK_STATES:
        raise SettingsError(f"state is {state!r}; it must be one of {', '.join(cluster.WORK_STATES)}")
    if instance is not None:
        identity.check_name(instance, "instance")
    return cluster.ListWork(keys.validate(prefix) if prefix else "", state, instance)


def inspect(key: str) -> cluster.InspectWork:
    """Look at one piece of work."""
    return cluster.InspectWork(keys.validate(key))


# Plans: what takes several requests, or makes an error of an answer.


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
            raise SettingsError(f"{valid!r} is offered twice at once")
        pieces[valid] = cluster.OfferedWork(valid, as_json(valid, value, "data"), tries, later)
    answers: list[cluster.Offered] = []
    for part in _parts(pieces.values()):
        request = cluster.Offer(tuple(part), again)
        answers.append((yield from engine.asking(request, unknown_too=not again)))
    return cluster.Offered(
        tuple(state for answer in answers for state in answer.states),
        tuple(new for answer in answers for new in answer.new),
    )


def forget(engine: Engine, key: str) -> Plan[cluster.WorkView | None]:
    """Forget a piece of work, and return it as it was. Raise `LockTimeout` if somebody is at it."""
    answer = yield from engine.asking(cluster.Forget(keys.validate(key), engine.client.host))
    if isinstance(answer, Busy):
        raise LockTimeout(key, waited=0.0, holder=answer.holder, expires_in=answer.expires_in)
    return None if answer is None else answer.work
