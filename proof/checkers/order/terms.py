"""On what terms something is held or waited for, as the tables say it: read here anew, not by the library."""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import cache
from typing import NamedTuple

from proof.histories.records import SEMAPHORE


class Terms(NamedTuple):
    """What of it matters beside others."""

    mode: str = "exclusive"
    take: int = 1
    permits: int = SEMAPHORE
    operation: bool = False


PLAIN = Terms()


@cache
def read_terms(text: str) -> Terms:
    """Return what the tables say; empty is plain."""
    if not text:
        return PLAIN
    fields = json.loads(text)
    return Terms(
        fields.get("mode", "exclusive"),
        fields.get("take", 1),
        fields.get("permits") or SEMAPHORE,
        bool(fields.get("operation")),
    )


def fit(wanted: Terms, held: Iterable[Terms]) -> bool:
    """Tell whether a lease on these terms may be beside those."""
    others = list(held)
    if not others:
        return wanted.mode != "permits" or wanted.take <= wanted.permits
    if wanted.mode == "exclusive" or any(each.mode != wanted.mode for each in others):
        return False
    return wanted.mode == "shared" or wanted.take + sum(each.take for each in others) <= wanted.permits
