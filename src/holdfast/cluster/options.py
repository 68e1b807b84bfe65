"""What a caller may say about instances and work, checked and put into requests."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from holdfast import errors, identity
from holdfast.core import keys
from holdfast.core.backoff import Backoff
from holdfast.core.cluster import (
    LARGEST_DATA,
    MOST_OFFERED,
    WORK_STATES,
    Join,
    ListWork,
    Offer,
    Offered,
    OfferedWork,
    WorkState,
)
from holdfast.core.membership import Membership, check_timing
from holdfast.core.settings import Seconds, seconds
from holdfast.options import whole

if TYPE_CHECKING:
    from holdfast.client import BaseClient


Retry = Backoff | Seconds | None
Works = Mapping[str, Any] | Iterable[str | tuple[str, Any]]

MOST_TYPES = 100  # in one claim
MOST_AT_ONCE = 256 * 1024  # bytes of data in one offer: a server takes only so much
_TYPES = "the type of 'workflow:123' is 'workflow', that of 'plain' is ''"
_STRANGE = re.compile(r"[^\w.-]+", re.ASCII)


def joining(
    client: BaseClient,
    name: str | None,
    *,
    capacity: int,
    heartbeat: Seconds,
    ttl: Seconds,
    version: str,
) -> tuple[Join, Membership]:
    """Check how a caller wants to join."""
    beat, length = check_timing(heartbeat, ttl, client.settings)
    shown = identity.program() if name is None else identity.check_name(name, "name")
    if version != "":
        identity.check_name(version, "version")
    # A part of urls and keys, and for people to read.
    id = identity.new_owner(_STRANGE.sub("-", shown).strip("-.") or "instance")
    me = client._client  # noqa: SLF001
    request = Join(
        id=id, name=shown, client=me, capacity=whole(capacity, "capacity"), ttl=length, version=version
    )
    member = Membership(id, me, ttl=length, heartbeat=beat, settings=client.settings, roll=random.random)
    return request, member


def check_types(types: tuple[Any, ...]) -> tuple[str, ...]:
    """Return the types of work that are asked for, each once."""
    if not types:
        raise errors.SettingsError(f"say which types of work to claim: {_TYPES}")
    for each in types:
        if not isinstance(each, str) or ":" in each:
            raise errors.SettingsError(f"{each!r} is no type of work: {_TYPES}")
        if each:
            keys.validate(each)
    if len(types) > MOST_TYPES:
        raise errors.SettingsError(f"{len(types)} types of work are more than the {MOST_TYPES} of one claim")
    return tuple(dict.fromkeys(types))


def check_retry(retry: object) -> Retry:
    """Return how work is tried again that has failed in a block."""
    if retry is None or isinstance(retry, Backoff):
        return retry
    return seconds(retry, "retry")


def retry_delay(retry: Retry, tries: int) -> float | None:
    """Return how long to leave work alone that has failed; None: for ever."""
    if retry is None:
        return None
    if isinstance(retry, Backoff):
        return retry.delay(tries, random.random())
    return seconds(retry, "retry")


def as_json(key: str, value: object, what: str) -> str:
    """Return the data or the result of some work as it is kept."""
    try:
        text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    except Exception as error:  # values of the user's own types may raise anything
        raise errors.SettingsError(
            f"the {what} of {key!r} is no JSON ({error}): pass on where it is, not what it is"
        ) from error
    if len(text) > LARGEST_DATA:
        raise errors.SettingsError(
            f"the {what} of {key!r} has {len(text)} bytes as JSON, and {LARGEST_DATA} can be kept:"
            " pass on where it is, not what it is"
        )
    return text


def offers(works: Works, *, max_tries: int | None, delay: Seconds, again: bool) -> list[Offer]:
    """Check what is offered, and put it into as many requests as it needs."""
    tries = 0 if max_tries is None else whole(max_tries, "max_tries")
    later = seconds(delay, "delay")
    pieces: dict[str, OfferedWork] = {}
    for key, value in _pairs(works):
        valid = keys.validate(key)
        if valid in pieces:
            raise errors.SettingsError(f"{valid!r} is offered twice at once")
        pieces[valid] = OfferedWork(valid, as_json(valid, value, "data"), tries, later)
    return [Offer(tuple(part), again) for part in _parts(pieces.values())]


def _pairs(works: Works) -> Iterator[tuple[Any, Any]]:
    if isinstance(works, str | bytes) or not isinstance(works, Iterable):
        raise errors.SettingsError(
            f"works is {works!r}; it must be a list of keys or of (key, data), or a mapping"
        )
    if isinstance(works, Mapping):
        yield from works.items()
        return
    for each in works:
        if isinstance(each, tuple):
            if len(each) != 2:
                raise errors.SettingsError(f"{each!r} is no (key, data)")
            yield each
        else:
            yield each, None


def _parts(works: Iterable[OfferedWork]) -> Iterator[list[OfferedWork]]:
    part: list[OfferedWork] = []
    size = 0
    for work in works:
        if part and (len(part) == MOST_OFFERED or size + len(work.data) > MOST_AT_ONCE):
            yield part
            part, size = [], 0
        part.append(work)
        size += len(work.data)
    if part:
        yield part


def listing(prefix: str, state: WorkState | None, instance: str | None) -> ListWork:
    """Check which work is to be looked at."""
    if state is not None and state not in WORK_STATES:
        raise errors.SettingsError(f"state is {state!r}; it must be one of {', '.join(WORK_STATES)}")
    if instance is not None:
        identity.check_name(instance, "instance")
    return ListWork(keys.validate(prefix) if prefix else "", state, instance)


def together(answers: list[Offered]) -> Offered:
    """Return the answers to the parts of an offer as one."""
    return Offered(
        tuple(state for answer in answers for state in answer.states),
        tuple(new for answer in answers for new in answer.new),
    )
