"""What became of calls that were never answered, or with "unknown": the tables and the resources tell.

This is for the page. The checkers resolve for themselves what they judge, and in more detail.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from proof.histories.records import Call, History, entered
from proof.report.leases import Lease

TAKES = ("acquire", "try", "reenter")


@dataclass(slots=True)
class Resolved:
    """Of the unknown calls of one kind: which were applied."""

    applied: int = 0
    not_applied: int = 0
    open: int = 0  # nothing tells: left to the checkers, which try both


def resolve(history: History, found: list[Lease]) -> dict[str, Resolved]:
    """Return by kind of call what the unknown ones did."""
    unknown = [call for call in history.calls if call.outcome == "unknown"]
    taken = _attempts(history)
    granted = Counter(call.owner for call in history.calls if call.outcome == "ok" and call.kind in TAKES)
    ended = {lease.owner: lease for lease in found}
    finished = {row.token for row in history.audit if row.what == "outcome"}
    tokens = {lease.owner: lease.token for lease in found}
    values = {key: set(stored) for key, stored in history.resources.items()}
    result: dict[str, Resolved] = {}
    for call in unknown:
        resolved = result.setdefault(call.kind, Resolved())
        applied: bool | None
        if call.kind in TAKES:
            # Every hold of an owner is one that it was told of, or one of its unknown ones.
            applied = taken.get(call.owner, 0) > granted[call.owner]
            granted[call.owner] += applied
        elif call.kind == "update":
            applied = call.value in values.get(call.key, ())
        elif call.kind == "release":
            applied = _released(call, ended.get(call.owner))
        elif call.kind == "operate":
            applied = tokens.get(call.owner) in finished
        else:
            applied = None
        if applied is None:
            resolved.open += 1
        elif applied:
            resolved.applied += 1
        else:
            resolved.not_applied += 1
    return result


def _attempts(history: History) -> dict[str, int]:
    """Return how many holds that it has believed in each owner ever had."""
    seen: dict[str, set[str]] = {}
    came = entered(history)
    for row in history.audit:
        if (
            row.what in ("lock", "hold")
            and row.owner
            and row.attempt
            and (row.claimed or (row.attempt, row.token) in came)
        ):
            seen.setdefault(row.owner, set()).add(row.attempt)
    return {owner: len(attempts) for owner, attempts in seen.items()}


def _released(call: Call, lease: Lease | None) -> bool | None:
    if lease is None:
        return None  # shared and permits: their rows are several at once
    return lease.ended != 0 and not lease.expired
