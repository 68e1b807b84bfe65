"""What processes believed: never longer than the store, and never what does not fit (P3).

Who has a lease trusts it by the clock of its own machine; here all share one, so beliefs are compared with
each other directly. Two things are not promised. If the store's clock is stepped, leases end at other times
than their holders were told: beliefs that end while such a fault is at work, or within the longest ttl
after it, are excused, and so are those that meet then. And whoever's lease is broken learns of it later.
"""

from __future__ import annotations

import heapq
import math
from collections import defaultdict
from typing import NamedTuple

from proof.checkers.order import rules
from proof.checkers.order.clocks import STEPPED, Clocks
from proof.checkers.order.ledger import Key, Lease
from proof.checkers.order.rules import Findings
from proof.checkers.order.terms import PLAIN, Terms, fit
from proof.checkers.order.tokens import TAKING
from proof.histories.records import Call, History


class Belief(NamedTuple):
    """That a turn has the lock."""

    since: float
    until: float
    owner: str
    token: int


class Beliefs:
    """All beliefs of a history."""

    def __init__(self, history: History, keys: dict[str, Key], clocks: Clocks, findings: Findings) -> None:
        self._history = history
        self._keys = keys
        self._clocks = clocks
        self._findings = findings
        longest = max((call.ttl for call in history.calls), default=0.0)
        self._excused = [
            (fault.began, fault.ended + longest) for fault in history.faults if STEPPED in fault.excuses
        ]

    def check(self) -> None:
        """Apply the rules."""
        self._check_trusts()
        self._check_calls()
        for key, beliefs in self._believed().items():
            self._check_fit(key, beliefs)

    def _lease(self, key: str, token: int) -> Lease | None:
        book = self._keys.get(key)
        return book.leases.get(token) if book else None

    def _is_excused(self, at: float) -> bool:
        return any(began <= at <= ended for began, ended in self._excused)

    def _check_trusts(self) -> None:
        """Nobody trusts a lease when it is over, be it expired or given back."""
        for trust in self._history.trusts:
            lease = self._lease(trust.key, trust.token)
            if lease is None or lease.owner != trust.owner:
                self._findings.violated(
                    rules.HONEST, trust.key, f"{trust.owner} trusted {trust.token}, which it never had"
                )
            elif lease.was_broken:
                self._findings.figures["trusted and broken"] += 1
            else:
                self._check_honest(trust.key, trust.owner, lease, trust.until, lease.end)

    def _check_calls(self) -> None:
        """What is trusted when the answer comes ends before the lease does, if that is left alone."""
        for call in self._history.calls:
            if call.kind in TAKING and call.outcome == "ok" and call.trusted_until:
                lease = self._lease(call.key, call.token)
                if lease is not None:  # else the answers do not agree, which is told elsewhere
                    last = max(hold.end for hold in lease.holds)
                    self._check_honest(call.key, call.owner, lease, call.trusted_until, last)

    def _check_honest(self, key: str, owner: str, lease: Lease, until: float, end: int) -> None:
        if self._is_excused(until):
            self._findings.figures["excused trust"] += 1
            return
        self._findings.check(rules.HONEST)
        earliest, _ = self._clocks.at(until)
        if end < max(hold.end for hold in lease.holds):
            # It was given back, and when that was may be by the stepped clock.
            earliest -= self._clocks.stepped_by(end) * 1e6
        if earliest > end:
            self._findings.violated(
                rules.HONEST,
                key,
                f"{owner} trusted {lease.token} until {until:.6f}, when the store's clock showed"
                f" {earliest:.0f} or more; it had ended at {end}",
            )

    def _believed(self) -> dict[str, list[Belief]]:
        """Return what was believed of each key: as noted, or, of those who died, while they were alive."""
        noted: dict[tuple[str, str, int], Belief] = {}
        for trust in self._history.trusts:
            name = trust.key, trust.owner, trust.token
            other = noted.get(name)
            since = min(trust.since, other.since) if other else trust.since
            until = max(trust.until, other.until) if other else trust.until
            noted[name] = Belief(since, until, trust.owner, trust.token)
        seen = self._last_seen()
        over: dict[tuple[str, str], float] = {}
        for call in self._history.calls:
            if call.kind in ("release", "downgrade"):
                over[call.key, call.owner] = min(call.called, over.get((call.key, call.owner), math.inf))
        for call in self._history.calls:
            name = call.key, call.owner, call.token
            if call.kind in TAKING and call.outcome == "ok" and name not in noted:
                alive = min(seen[_process(call)], over.get((call.key, call.owner), math.inf))
                until = min(call.trusted_until, alive)
                if until > call.returned:
                    self._findings.figures["beliefs of the dead"] += 1
                    noted[name] = Belief(call.returned, until, call.owner, call.token)
        believed: dict[str, list[Belief]] = defaultdict(list)
        for (key, _, token), belief in noted.items():
            lease = self._lease(key, token)
            if lease is None or not lease.was_broken:
                believed[key].append(belief)
        return believed

    def _last_seen(self) -> dict[str, float]:
        """Return when each process was certainly alive last."""
        seen: dict[str, float] = defaultdict(lambda: -math.inf)
        for call in self._history.calls:
            process = _process(call)
            seen[process] = max(seen[process], call.called, call.returned if call.returned < math.inf else 0)
        return seen

    def _check_fit(self, key: str, beliefs: list[Belief]) -> None:
        """At every instant those who believe have leases that fit beside each other."""
        active: list[tuple[float, Belief]] = []
        for belief in sorted(beliefs):
            while active and active[0][0] <= belief.since:
                heapq.heappop(active)
            self._findings.check(rules.BELIEFS)
            others = [other for _, other in active if other.token != belief.token]
            if others and not fit(
                self._terms(key, belief.token), [self._terms(key, each.token) for each in others]
            ):
                if self._is_excused(belief.since):
                    self._findings.figures["excused beliefs"] += 1
                else:
                    told = ", ".join(
                        f"{o.owner} with {o.token} from {o.since:.6f} to {o.until:.6f}" for o in others
                    )
                    self._findings.violated(
                        rules.BELIEFS,
                        key,
                        f"{belief.owner} believed in {belief.token} from {belief.since:.6f} on, and so"
                        f" did {told}",
                    )
            if belief.until > belief.since:
                heapq.heappush(active, (belief.until, belief))

    def _terms(self, key: str, token: int) -> Terms:
        lease = self._lease(key, token)
        return lease.granted_terms if lease else PLAIN


def _process(call: Call) -> str:
    return call.worker.rpartition(".")[0] or call.worker


def naive_overlaps(calls: list[Call]) -> int:
    """Return how often two would have had a lock at once who believe in it until they give it back.

    That is what a program does that never asks how long its lease can be trusted. If there are none, nobody
    was ever stopped for long enough, and the faults have shown nothing.
    """
    turns: dict[str, dict[tuple[str, int], tuple[float, float]]] = defaultdict(dict)
    for call in calls:
        if call.kind in ("acquire", "try") and call.outcome == "ok" and call.mode != "shared":
            until = call.returned + call.ttl
            turns[call.key].setdefault((call.owner, call.token), (call.returned, until))
        elif call.kind == "release" and (had := turns[call.key].get((call.owner, call.token))):
            turns[call.key][call.owner, call.token] = had[0], call.called
    overlaps = 0
    for key, beliefs in turns.items():
        if key.startswith("permits:"):
            continue
        latest = -math.inf
        for since, until in sorted(beliefs.values()):
            overlaps += since < latest
            latest = max(latest, until)
    return overlaps
