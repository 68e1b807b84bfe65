"""What else is worth telling of a history: how much there was of what."""

from __future__ import annotations

from collections.abc import Sequence

from proof.checkers.order.beliefs import naive_overlaps
from proof.checkers.order.ledger import Key
from proof.checkers.order.rules import Findings
from proof.histories.records import History, entered


def count(history: History, keys: dict[str, Key], findings: Findings) -> None:
    """Count it."""
    figures = findings.figures
    for call in history.calls:
        figures[f"calls {call.kind} {call.outcome}"] += 1
    figures["entered by the hand-over"] += len(entered(history))
    for fault in history.faults:
        figures[f"fault {fault.fault}"] += 1
    for key in keys.values():
        for lease in key.leases.values():
            figures["grants"] += 1
            figures["handed over"] += lease.number > 0
            figures["takeovers"] += lease.after == "expired"
            figures["re-entries"] += len(lease.holds) - 1
    for name in ("takeovers", "bare_lost", "fenced_lost", "unknown applied", "unknown not applied"):
        figures[name] += 0  # said also where there are none
    figures["naive_overlaps"] = naive_overlaps(history.calls)
    _latencies(history, keys, findings)


def _latencies(history: History, keys: dict[str, Key], findings: Findings) -> None:
    """Of acquires that had to wait for nobody, and of releases; in milliseconds."""
    acquires, releases = [], []
    for call in history.calls:
        if call.outcome != "ok":
            continue
        if call.kind == "release":
            releases.append(call.returned - call.called)
        elif call.kind in ("acquire", "try") and (book := keys.get(call.key)):
            lease = book.leases.get(call.token)
            if lease is not None and not lease.number:
                acquires.append(call.returned - call.called)
    for name, times in (("acquire", sorted(acquires)), ("release", sorted(releases))):
        for part, place in (("median", 0.5), ("p99", 0.99), ("max", 1.0)):
            if times:
                findings.figures[f"{name} {part}, µs"] = round(_at(times, place) * 1e6)


def _at(times: Sequence[float], part: float) -> float:
    return times[min(len(times) - 1, int(len(times) * part))]
