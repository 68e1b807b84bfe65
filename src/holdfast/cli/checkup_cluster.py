"""What ``holdfast doctor`` says of instances and work, where there are any: what nobody takes care of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from holdfast import errors
from holdfast.cli.checkup import Finding, failed
from holdfast.cli.connection import Connection
from holdfast.cli.instances import instances
from holdfast.cli.output import count, duration_text
from holdfast.core.cluster import INSTANCE_STATES, CountWork, InstanceView, WorkCount

LONG = 60.0  # seconds that work may be due before somebody should be told
NAMED = 3


def look_at_cluster(url: str) -> Iterator[Finding]:
    """Return what is to be said: nothing if nobody has joined and nothing was offered, or we may not look."""
    try:
        with Connection(url) as connection:
            members, counts = list(instances(connection)), connection.ask(CountWork())
    except errors.AccessDenied:
        return
    except errors.HoldfastError as error:
        yield failed("instances", error)
        return
    if members:
        yield _instances(members)
    if counts:
        yield _work(counts)
    yield from _left_alone(members, counts)


def _instances(members: Sequence[InstanceView]) -> Finding:
    states = Counter(each.state for each in members)
    there = [each for each in members if each.state in ("alive", "draining")]
    taken, capacity = sum(each.assigned for each in there), sum(each.capacity for each in there)
    text = ", ".join(f"{states[state]} {state}" for state in INSTANCE_STATES if states[state])
    return Finding("instances", True, f"{text}; {taken} of {count(capacity, 'place')} for work taken")


def _work(counts: Sequence[WorkCount]) -> Finding:
    offered, assigned = sum(each.offered for each in counts), sum(each.assigned for each in counts)
    return Finding("work", True, f"{offered} offered, {assigned} assigned, of {count(len(counts), 'type')}")


def _left_alone(members: Sequence[InstanceView], counts: Sequence[WorkCount]) -> Iterator[Finding]:
    if dead := [each for each in members if each.state == "dead" and each.assigned]:
        pieces = count(sum(each.assigned for each in dead), "piece")
        yield Finding(
            "dead instances",
            None,
            f"{_some([each.name for each in dead])} died with {pieces} of work, not taken over yet",
            "that happens when its leases have ended and an instance asks for this type: see 'holdfast work'",
        )
    if late := [each for each in counts if each.offered and each.waiting > LONG]:
        longest = max(each.waiting for each in late)
        yield Finding(
            "unclaimed work",
            None,
            f"of type {_some([each.type for each in late])}: it is due for up to {duration_text(longest)}",
            "is an instance there that claims this type, with capacity left? See 'holdfast instances'",
        )
    if gone := [each for each in counts if each.failed]:
        pieces = count(sum(each.failed for each in gone), "piece")
        yield Finding(
            "failed work",
            None,
            f"{pieces} of type {_some([each.type for each in gone])}",
            "see 'holdfast work list --state failed', then 'holdfast work retry KEY' or 'forget KEY'",
        )


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(map(repr, names[:NAMED]))
    return shown if len(names) <= NAMED else f"{shown} and {len(names) - NAMED} more"
