"""What a caller says about instances and the work that they take, checked and put into requests."""

from __future__ import annotations

import random
import re
from typing import Any

from holdfast import identity
from holdfast.client.engine import Engine
from holdfast.client.options import Retry, whole
from holdfast.core import cluster, keys
from holdfast.core.backoff import Backoff
from holdfast.core.membership import Membership, check_timing
from holdfast.core.settings import Seconds, seconds
from holdfast.errors import SettingsError

CheckedRetry = Backoff | float | None

MOST_TYPES = 100  # in one claim
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
