"""What is in the resources against what was acknowledged (P4), and what operations have told."""

from __future__ import annotations

import json
from collections import Counter, defaultdict

from proof.checkers.order import rules
from proof.checkers.order.ledger import Key
from proof.checkers.order.rules import Findings
from proof.histories.records import BARE, FENCED, RAISED, Call, History


def check_updates(history: History, findings: Findings) -> None:
    """Every acknowledged fenced update is there, once, in the order of tokens; bare ones are only counted."""
    asked: dict[str, dict[str, Call]] = defaultdict(dict)  # key → value → call
    for call in history.calls:
        if call.kind == "update":
            asked[call.key][call.value] = call
    for key in sorted({*asked, *history.resources}):
        kind = key.partition(":")[0]
        there = history.resources.get(key, [])
        acknowledged = [call for call in asked[key].values() if call.outcome == "ok"]
        if kind == BARE:
            findings.figures["bare_acknowledged"] += len(acknowledged)
            findings.figures["bare_lost"] += len({call.value for call in acknowledged} - set(there))
        elif kind in (FENCED, RAISED):
            findings.figures["fenced_acknowledged"] += len(acknowledged)
            _check_there(key, asked[key], there, findings)
            _check_order(key, asked[key], there, findings)


def _check_there(key: str, asked: dict[str, Call], there: list[str], findings: Findings) -> None:
    counts = Counter(there)
    for value, call in asked.items():
        if call.outcome == "ok":
            findings.check(rules.UPDATES_THERE)
            if not counts[value]:
                findings.figures["fenced_lost"] += 1
                findings.violated(
                    rules.UPDATES_THERE,
                    key,
                    f"{value} of {call.owner} under {call.token} was acknowledged at"
                    f" {call.returned:.6f}, and is lost",
                )
        elif call.outcome == "unknown":
            findings.check(rules.RESOLVED)
            findings.figures["unknown applied" if counts[value] else "unknown not applied"] += 1
    for value, times in counts.items():
        findings.check(rules.UPDATES_KNOWN)
        who = asked.get(value)
        if who is None:
            findings.violated(rules.UPDATES_KNOWN, key, f"{value} is there, and nobody asked for it")
        elif who.outcome == "refused":
            findings.violated(
                rules.UPDATES_KNOWN, key, f"{value} of {who.owner} is there, and was refused: {who.error}"
            )
        if times > 1:
            findings.violated(rules.UPDATES_KNOWN, key, f"{value} is there {times} times")


def _check_order(key: str, asked: dict[str, Call], there: list[str], findings: Findings) -> None:
    """None comes behind one of a newer lease, nor behind one that was begun after it was acknowledged."""
    before: Call | None = None
    last: Call | None = None  # asked for last, of those before
    for value in there:
        call = asked.get(value)
        if call is None:
            continue
        findings.check(rules.UPDATES_IN_ORDER)
        if before is not None and call.token < before.token:
            findings.violated(
                rules.UPDATES_IN_ORDER,
                key,
                f"{value} under {call.token} comes behind {before.value} under {before.token}",
            )
        if last is not None and call.returned < last.called:
            findings.violated(
                rules.UPDATES_IN_ORDER,
                key,
                f"{value} was acknowledged at {call.returned:.6f}, and comes behind {last.value}, which"
                f" was asked for at {last.called:.6f}",
            )
        before = call
        if last is None or call.called > last.called:
            last = call


def check_operations(history: History, keys: dict[str, Key], findings: Findings) -> None:
    """An operation succeeds once for each lease of it, and everybody is told what who did it has said.

    The value of a call is its result, and who does it gives its owner as the result: so who did what is
    known.
    """
    doers: dict[str, dict[str, Call]] = defaultdict(dict)  # key → owner → call
    told: list[Call] = []
    for call in history.calls:
        if call.kind == "operate":
            doers[call.key][call.owner] = call
            if call.outcome == "ok":
                told.append(call)
            elif call.outcome == "unknown":
                findings.check(rules.RESOLVED)
    for key in keys.values():
        _check_outcomes(key, doers.get(key.name, {}), findings)
    for call in told:
        findings.check(rules.REPORTED)
        doer = doers[call.key].get(call.value)
        if doer is None or doer.outcome == "refused" or doer.called > call.returned:
            findings.violated(
                rules.REPORTED,
                call.key,
                f"{call.owner} was told {call.value!r} at {call.returned:.6f}, and nobody had done that",
            )
    _check_done(history, keys, doers, findings)


def _check_outcomes(key: Key, doers: dict[str, Call], findings: Findings) -> None:
    """Look at the outcomes that the store has told those who waited."""
    seen: set[int] = set()
    for row in key.outcomes:
        if not row.claimed:
            continue  # it has failed: what is told then is a list of failures
        findings.check(rules.ONE_SUCCESS)
        if row.token in seen:
            findings.violated(rules.ONE_SUCCESS, key.name, f"{row.token} has succeeded twice (row {row.id})")
        seen.add(row.token)
        lease = key.leases.get(row.token)
        said = json.loads(row.terms)
        findings.check(rules.REPORTED)
        if lease is None or said != lease.owner or said not in doers:
            findings.violated(
                rules.REPORTED,
                key.name,
                f"the result of {row.token} is {said!r}, and {lease.owner if lease else 'nobody'} had"
                " that lease",
            )


def _check_done(
    history: History, keys: dict[str, Key], doers: dict[str, dict[str, Call]], findings: Findings
) -> None:
    """Whoever did it has had one lease of it, and gave that back in time."""
    leases = {
        (key.name, lease.owner): lease
        for key in keys.values()
        if key.name in doers
        for lease in key.leases.values()
    }
    for name, calls in doers.items():
        for owner, call in calls.items():
            lease = leases.get((name, owner))
            done = lease is not None and lease.was_claimed and lease.holds[0].ended == "let go"
            if call.outcome == "ok" and call.value == owner:
                findings.check(rules.ONE_SUCCESS)
                if not done:
                    findings.violated(
                        rules.ONE_SUCCESS,
                        name,
                        f"{owner} did it, as it was told at {call.returned:.6f}, but never gave a lease"
                        " back in time",
                    )
            elif call.outcome == "unknown":
                findings.figures["unknown applied" if done else "unknown not applied"] += 1
