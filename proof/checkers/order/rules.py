"""The rules that a history is held against, and the books of what they were applied to and have found."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from proof.histories.records import Verdict, Violation

MOST_TOLD = 50  # violations of one rule that are told; the others are counted


class Rule(NamedTuple):
    """A rule: what it is called, which promise it defends, and what must be so."""

    name: str
    promise: str
    says: str


ONE_TURN = Rule("a token belongs to one turn", "P1", "no two turns are told the same token of a key")
RISE = Rule(
    "tokens rise in real time", "P1", "who asks after a grant was answered is granted under a larger token"
)
RISE_AT_STORE = Rule(
    "tokens rise at the store", "P1", "a new lease has a larger token than all before; a lease keeps its own"
)
FIT = Rule(
    "leases fit at the store",
    "P2",
    "when a lease begins, those it does not fit beside have ended by the store's clock, or were let go",
)
ONE_OWNER = Rule("a lease has one owner", "P2", "all holds of a lease are its owner's")
STAYS_OVER = Rule(
    "what has expired stays so", "P2", "no end is moved once it has come, and its attempt does not come back"
)
LASTS = Rule("no lease lasts longer than asked", "P8", "an end is at most a ttl, or a claim window, away")
LET_GO = Rule(
    "only who has a lease ends it",
    "P5",
    "a hold ends before its time only after its own attempt, or a break, asked for that",
)
ASKED_FOR = Rule("grants were asked for", "P6", "every hold and every ticket is of an attempt that had asked")
AGREE = Rule(
    "answers agree with the store", "P6", "what was granted by an answer is in the tables, at that time"
)
RELEASED = Rule("releases are seen", "P5", "what was answered to be released has ended in the tables by then")
NOTHING_LEFT = Rule(
    "refusals leave nothing behind",
    "P6",
    "what a refused call leaves in the tables ends within its ttl and patience",
)
LEFT = Rule(
    "what is left is let go",
    "P6",
    "once the next turn has begun, nothing moves the end of a hold or a ticket of the one before",
)
RESOLVED = Rule(
    "unknown calls are resolved", "P6", "the tables tell whether a call without an answer was done"
)
HONEST = Rule("trust ends before the lease", "P3", "nobody trusts a lease past its end in the store")
BELIEFS = Rule("beliefs fit", "P3", "those who trust leases of a key at one time have leases that fit")
NOT_PASSED = Rule(
    "nobody is passed at the store", "P7", "no lease begins past a live ticket with a lower number"
)
KEPT = Rule(
    "tickets are kept", "P7", "a live ticket goes only when it is granted, or told why not, or leaves"
)
FIRST_COME = Rule(
    "first come, first served", "P7", "who was queued before another asked, and stays alive, is granted first"
)
UPDATES_THERE = Rule(
    "acknowledged updates are there", "P4", "each acknowledged fenced update is in the resource, once"
)
UPDATES_KNOWN = Rule(
    "nothing else is there", "P4", "what is in a fenced resource was asked for, not refused, and there once"
)
UPDATES_IN_ORDER = Rule(
    "updates are in the order of tokens", "P4", "no update of an older lease comes behind one of a newer"
)
ONE_SUCCESS = Rule("one success for each token", "operations", "an operation succeeds once for a lease of it")
REPORTED = Rule(
    "results were reported",
    "operations",
    "whoever is told a result is told one that somebody who did it gave",
)
REASON = Rule(
    "refusals have a reason",
    "P8",
    "who is told to wait or to go away has somebody before it whose lease or ticket is in its way",
)
NOT_STUCK = Rule("nothing stays stuck", "P8", "no live ticket waits for long for a lock that is free")
SERVED = Rule("somebody is served", "P8", "when no fault is at work, somebody is answered all the time")
GOES_ON = Rule("everybody goes on", "P8", "no thread of a process that lives is without a call for long")
CAUSE = Rule("errors have a cause", "P8", "who is told of an error is told so while a fault explains it")
ADDS_UP = Rule(
    "the books add up", "the protocol's ninth invariant", "a lock's row counts its tickets and its holds"
)
RULES = tuple(value for value in list(globals().values()) if isinstance(value, Rule))


class Findings:
    """What was looked at, and what was found."""

    def __init__(self) -> None:
        self.applied: Counter[str] = Counter({rule.name: 0 for rule in RULES})
        self.figures: Counter[str] = Counter()
        self._violations: list[Violation] = []
        self._found: Counter[str] = Counter()

    def check(self, rule: Rule, number: int = 1) -> None:
        """Note that a rule was applied to so many things."""
        self.applied[rule.name] += number

    def violated(self, rule: Rule, key: str, text: str) -> None:
        """Note that something must not be."""
        self._found[rule.name] += 1
        if self._found[rule.name] <= MOST_TOLD:
            self._violations.append(Violation(rule.name, key, f"{text} ({rule.promise}: {rule.says})"))

    def verdict(self) -> Verdict:
        """Return all of it."""
        more = [
            Violation(name, "", f"and {found - MOST_TOLD} more")
            for name, found in self._found.items()
            if found > MOST_TOLD
        ]
        figures = {name: float(value) for name, value in self.figures.items()}
        return Verdict("order", self._violations + more, dict(self.applied), 0, figures)
