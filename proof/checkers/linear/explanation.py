"""Telling a person why no order explains a history: as little of it as shows that."""

from __future__ import annotations

from typing import TYPE_CHECKING

from proof.checkers.linear.lease_model import Lock, Operation

if TYPE_CHECKING:
    from proof.checkers.linear.search import Finding

MOST = 14  # requests that are shown
STATES = 3


def explain(finding: Finding[Lock, Operation], began: float) -> str:
    """Say what cannot be, the states that were possible before it, and what was going on around it."""
    stuck = finding.stuck
    assert stuck is not None
    lines = ["no order of these requests explains the one marked with >", *_states(finding.before, began)]
    around = [op for op in finding.window if op is not stuck]
    # What was under way beside it, then what is about the same attempt or changed something, newest first.
    around.sort(key=lambda op: (op.returned < stuck.called, not _changes(op), -op.called))
    shown = sorted([stuck, *around[: MOST - 1]], key=lambda op: op.called)
    if left_out := len(around) - len(shown) + 1:
        lines.append(f"  ({left_out} more since nothing was under way)")
    lines += [f"{'>' if op is stuck else ' '} {line(op, began)}" for op in shown]
    return "\n".join(lines)


def line(op: Operation, began: float) -> str:
    """Return a request and its answer in one line."""
    ask = op.ask
    asked = [ask.kind, _short(ask.attempt)]
    if ask.kind == "Acquire":
        asked += [f"by {op.owner}", f"ttl {ask.ttl:g}", *(["waiting"] if ask.wait else [])]
    elif ask.kind == "Renew":
        asked += [f"token {op.token}", f"ttl {ask.ttl:g}"]
    elif ask.kind in ("Release", "Break"):
        asked.append(f"token {op.token}")
    told = [op.answer if ask.outcome == "ok" else f"no answer, but {'' if op.must else 'maybe '}{op.answer}"]
    if op.answer == "Granted":
        told.append(f"token {op.token}, until {op.earliest - began:.3f} to {op.latest - began:.3f}")
    elif op.answer == "renewed":
        told.append(f"until {op.earliest - began:.3f} to {op.latest - began:.3f}")
    if op.count is not None and op.answer in ("Granted", "Released"):
        told.append(f"{op.count} hold{'s' * (op.count != 1)}{' left' * (op.answer == 'Released')}")
    if ask.outcome == "ok" and ask.why:
        told.append(f"({ask.why})")
    when = f"{op.called - began:9.3f} to {op.returned - began:9.3f}"
    return f"{when}  {ask.worker:<14} {' '.join(asked)}: {', '.join(told)}"


def _states(states: tuple[Lock, ...], began: float) -> list[str]:
    lines = [f"before it: {_state(state, began)}" for state in states[:STATES]]
    if len(states) > STATES:
        lines.append(f"           or {len(states) - STATES} more")
    return lines


def _state(state: Lock, began: float) -> str:
    ended = ", ".join(f"{_short(attempt)} {how}" for attempt, how in sorted(state.ended))
    ended = f"; ended: {ended}" if ended else ""
    if not state.holds:
        return f"free, last token {state.token}{ended}"
    holds = ", ".join(
        f"{_short(hold.attempt)} until {hold.earliest - began:.3f} to {hold.latest - began:.3f}"
        for hold in state.holds
    )
    return f"held by {state.owner}, token {state.token} ({holds}){ended}"


def _changes(op: Operation) -> bool:
    return op.answer in ("Granted", "renewed", "Released", "Withdrawn", "Broken")


def _short(attempt: str) -> str:
    return attempt if len(attempt) <= 12 else f"{attempt[:8]}…{attempt[-3:]}"
