"""The first checker: fencing tokens are the order of grants, so nothing has to be searched for.

What programs were told (`Call`), what their clients asked (`Ask`), what they trusted (`Trust`) and what the
triggers in the database wrote down (`Audit`) must agree with each other and with the promises. `rules` has
what is looked at; each rule counts what it was applied to, because one that was applied to nothing has
shown nothing.

    rules      what must be so, and the books of what was found
    requests   what was asked, by attempt      clocks   the store's clock, seen from the processes'
    ledger     leases, holds and tickets, read from the audit; `steps` looks at each change of them
    tokens, agreement, beliefs, queues, updates     rules about what programs were told
    refusals, departures, troubles                  … about what they were refused, left behind, and suffered
    figures    what else is worth telling
"""

from __future__ import annotations

import gc
from collections.abc import Iterator

from proof.checkers.order import queues, updates
from proof.checkers.order.agreement import Agreement
from proof.checkers.order.beliefs import Beliefs
from proof.checkers.order.clocks import SLEWED, Clocks
from proof.checkers.order.departures import Leaving
from proof.checkers.order.figures import count
from proof.checkers.order.refusals import Refusals
from proof.checkers.order.requests import Asked, micros
from proof.checkers.order.rules import Findings
from proof.checkers.order.steps import Replay
from proof.checkers.order.tokens import check_tokens
from proof.checkers.order.troubles import check_troubles
from proof.histories.records import KINDS, Audit, History, Verdict


def check(history: History) -> Verdict:
    """Hold a history against all rules."""
    collecting = gc.isenabled()
    gc.disable()  # millions of objects are made and none is garbage: to look for some takes most of the time
    try:
        return _check(history)
    finally:
        if collecting:
            gc.enable()


def _check(history: History) -> Verdict:
    findings = Findings()
    asked = Asked(history.asks)
    clocks = Clocks(history.clocks, _grants(history), history.faults)
    claim = micros(float(history.run.settings.get("claim", asked.patience)))
    replay = Replay(findings, asked, clocks, one_writer=history.run.store == "sqlite", claim=claim)
    replay.read(
        row for row in history.audit if row.key.partition(":")[0] in KINDS
    )  # others are the run's own
    keys = replay.keys
    check_tokens(history.calls, keys, findings)
    Agreement(history, keys, asked, clocks, findings).check()
    Leaving(history, keys, asked, clocks, findings).check()
    Beliefs(history, keys, clocks, findings).check()
    queues.check_first_come(keys, asked, clocks, findings)
    queues.check_stuck(history, replay.line.stretches, asked.patience, clocks, findings)
    Refusals(history, keys, asked, clocks, findings).check()
    updates.check_updates(history, findings)
    updates.check_operations(history, keys, findings)
    check_troubles(history, findings)
    count(history, keys, findings)
    findings.figures["seconds of contradicting clocks"] = clocks.contradictions
    findings.figures["host's clock moved by, ms"] = round(clocks.moved * 1e3)
    verdict = findings.verdict()
    verdict.undecided += clocks.moved > SLEWED  # a run by a clock that somebody sets shows nothing
    return verdict


def idle(verdict: Verdict) -> list[str]:
    """Return the rules that were applied to nothing, and so have shown nothing."""
    return [name for name, applied in verdict.checked.items() if not applied]


def _grants(history: History) -> Iterator[tuple[float, float, int]]:
    """Return when grants were asked for, told, and made, by two clocks: what is known of their difference."""
    granted: dict[tuple[str, int], Audit] = {}
    for row in history.audit:
        if row.attempt and row.what in ("lock", "hold"):
            granted.setdefault((row.key, row.token), row)
    for call in history.calls:
        if call.outcome == "ok" and call.kind in ("acquire", "try"):
            first = granted.get((call.key, call.token))
            if first is not None and first.owner == call.owner:
                yield call.called, call.returned, first.granted_at
