"""The order of grants, as programs were told: fencing tokens are that order."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterable

from proof.checkers.order import rules
from proof.checkers.order.ledger import Key
from proof.checkers.order.rules import Findings
from proof.histories.records import Call

TAKING = frozenset({"acquire", "try", "reenter"})


def check_tokens(calls: Iterable[Call], keys: dict[str, Key], findings: Findings) -> None:
    """Apply the rules to all calls that were told a token, and to those of which the audit tells it."""
    turns: dict[str, list[tuple[float, float, int, str]]] = defaultdict(list)
    resolved = {
        (key.name, lease.owner): lease.token
        for key in keys.values()
        for lease in key.leases.values()
        if lease.was_claimed
    }
    for call in calls:
        if call.kind not in TAKING or call.outcome == "refused":
            continue
        token = call.token
        if call.outcome == "unknown" and call.kind != "reenter":
            token = resolved.get((call.key, call.owner), 0)
        if token:
            turns[call.key].append((call.called, call.returned, token, call.owner))
    for key, grants in turns.items():
        _one_turn(key, grants, findings)
        _rise(key, grants, findings)


def _one_turn(key: str, grants: list[tuple[float, float, int, str]], findings: Findings) -> None:
    """No two turns are told one token (P1)."""
    owners: dict[int, str] = {}
    for called, _, token, owner in grants:
        findings.check(rules.ONE_TURN)
        other = owners.setdefault(token, owner)
        if other != owner:
            findings.violated(rules.ONE_TURN, key, f"{other} and {owner} (at {called:.6f}) were told {token}")


def _rise(key: str, grants: list[tuple[float, float, int, str]], findings: Findings) -> None:
    """Whoever asks when a grant has been answered is granted under a larger token (P1).

    Of a turn only its first call is a grant; the others enter again, under the same token.
    """
    first: dict[int, tuple[float, float, int, str]] = {}
    for grant in sorted(grants):
        first.setdefault(grant[2], grant)
    answered: list[tuple[float, int, str]] = []  # by when they returned: a heap
    highest, whose = 0, ""
    for called, returned, token, owner in sorted(first.values()):
        while answered and answered[0][0] < called:
            _, earlier, by = heapq.heappop(answered)
            if earlier > highest:
                highest, whose = earlier, by
        findings.check(rules.RISE)
        if token <= highest:
            findings.violated(
                rules.RISE,
                key,
                f"{owner} asked at {called:.6f} and was granted {token}; {whose} had been told"
                f" {highest} before",
            )
        heapq.heappush(answered, (returned, token, owner))
