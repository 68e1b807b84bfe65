"""The fast paths of many locks in one implicit transaction: one round trip and one commit for all of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from holdfast.core import requests as r
from holdfast.stores.base import instant, micros, place_of
from holdfast.stores.postgres.session import PostgresSession
from holdfast.stores.sql.transactions.session import Batch


def together(
    session: PostgresSession, acquires: Sequence[r.Acquire], releases: Sequence[r.Release]
) -> tuple[dict[str, int], set[str]]:
    """See `Dialect.together`. With a grant among them, the releases reach the disk with it."""
    batch: Batch = []
    if acquires:
        batch.append(("acquire_many", {"acquires": json.dumps([_acquiring(each) for each in acquires])}))
    if releases:
        given = json.dumps([_releasing(each) for each in releases])
        batch.append(("release_many", {"releases": given, "lazily": not acquires}))
    found = session.send(batch, commits=True)
    granted: Any = found.pop(0) if acquires else []
    released = found.pop() if releases else []
    return dict(granted), {key for (key,) in released}


def _acquiring(request: r.Acquire) -> dict[str, object]:
    return {
        "key": request.key,
        "attempt": request.attempt,
        "owner": request.owner,
        "ttl": micros(request.ttl),
        **place_of(request.client),
        "now": instant(request.now),
    }


def _releasing(request: r.Release) -> dict[str, object]:
    asked = {"key": request.key, "attempt": request.attempt, "token": request.token}
    return {**asked, "now": instant(request.now)}
