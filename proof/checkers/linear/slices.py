"""From a history to what is asked of one key: operations that are known, each between two instants.

An ask without an answer, or with an error that leaves its outcome open, is *unknown*. The audit resolves it,
and is used for nothing else here: whatever took effect has left a row that names the attempt, in the same
transaction. So an unknown request of an attempt that no row names as holder did nothing. Of one that is named

- the first unknown Acquire is part of the grant: that was at some instant between it and the first answer
  that says so, or, if there was none, the row that does. It has the token of the row, and must have been;
- a later one, and a renewal, may have moved the end of the hold: it moves the latest end that is assumed;
- a release, a withdrawal or a break may have taken effect: an operation that need not have happened.

None of them stays open for ever: the order of the rows tells by when. A row was there before those behind it,
and some of those are about grants whose answers were there at a known instant. No database's clock is asked.

When the database's clock is set (a fault that excuses "belief"), everything that lives at that time may end
from then on, and may live longer by as much as the clock was set; see `_ends`. Nothing else is relaxed:
tokens rise, and nobody is told what another answer excludes.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from proof.checkers.linear.lease_model import TOLD, LeaseModel, Operation
from proof.checkers.linear.traces import UNDER_WAY, Rows, Spans, Waits, pins
from proof.histories.records import BARE, FENCED, PLAIN, RAISED, Ask, Audit, Call, History, Violation

KINDS = (PLAIN, FENCED, RAISED, BARE)  # keys that are exclusive locks

# The store's clock is the machine's wall clock, which may be slewed against the one we measure with: by half
# a thousandth at most. The rest is for its resolution.
SLEW = 0.001
TICK = 0.002
ROW_LOCKED = (
    0.4  # seconds: an answer that took longer may be "the row is locked", from a timeout of half a second
)
REMEMBERED = 60.0  # seconds: how an attempt ended
# A release need not reach the disk before it is answered: a database that dies may have lost the last ones.
# That is what PostgreSQL's WAL writer has not come to yet, which looks every 0.2 s: three rounds at most.
CRASHES = ("kill database", "promote standby", "failing fsync", "full disk", "power cut")
LAZY = 1.0  # seconds
_ENDS = {"Release": "Released", "Withdraw": "Withdrawn"}
NOTICED = 0.1  # seconds between what is done to a database and when that is noted


@dataclass
class Slice:
    """What was asked of one key."""

    key: str
    operations: list[Operation] = field(default_factory=list)
    last: dict[str, float] = field(default_factory=dict)  # attempt → when the last of its operations returned
    resolved: int = 0  # unknown asks that the audit has resolved
    unresolved: int = 0  # … that it has not, because there is no audit
    strange: int = 0  # asks on other than plain terms: nobody can judge a key that has any
    violations: list[Violation] = field(default_factory=list)


@dataclass(frozen=True)
class Step:
    """A time in which the database's clock was set to something else, by at most so many seconds."""

    began: float
    ended: float
    most: float


def cut(history: History) -> Iterator[Slice]:
    """Return the operations on each key that is an exclusive lock."""
    asks: dict[str, list[Ask]] = defaultdict(list)
    rows: dict[str, list[Audit]] = defaultdict(list)
    calls: dict[str, list[Call]] = defaultdict(list)
    keys_of: dict[str, set[str]] = defaultdict(set)  # by owner
    for ask in history.asks:
        if ask.key.partition(":")[0] in KINDS:
            asks[ask.key].append(ask)
        keys_of[ask.owner].add(ask.key)
    for row in history.audit:
        rows[row.key].append(row)
    for call in history.calls:
        if call.kind == "update":
            calls[call.key].append(call)
    wanderers = {owner for owner, keys in keys_of.items() if owner and len(keys) > 1}
    for key in sorted(asks):
        if strange := sum(not ask.plain for ask in asks[key]):
            yield Slice(key, strange=strange)
        else:
            yield _Cutter(history, asks[key], rows[key], calls[key], wanderers).cut()


class _Cutter:
    """Makes the operations of one key."""

    def __init__(
        self, history: History, asks: list[Ask], rows: list[Audit], updates: list[Call], wanderers: set[str]
    ) -> None:
        asks = sorted(asks, key=lambda ask: ask.called)
        self._slice = Slice(asks[0].key)
        self._began = history.run.began
        self._asks: dict[str, list[Ask]] = defaultdict(list)  # by attempt
        for ask in asks:
            self._asks[ask.attempt].append(ask)
        self._owners = {ask.attempt: ask.owner for ask in asks if ask.kind == "Acquire"}
        self._wanderers = wanderers
        self._rows = Rows(rows, asks)
        self._steps = _steps(history)
        self._crashes = Spans(_crashes(history))
        self._is_lazy = history.run.store == "postgres"  # what was answered may be undone, too
        self._shows_early = history.run.store == "mariadb"  # others see a commit before it is on the disk
        self._breaks = Spans((ask.called, ask.called + UNDER_WAY) for ask in asks if ask.kind == "Break")
        self._pins = Spans(pins(updates, asks) if self._slice.key.partition(":")[0] == FENCED else ())
        claim = float(history.run.settings.get("claim") or max(ask.patience for ask in asks))
        self._waits = Waits(asks, lambda ask, heard: self._ends(ask.called, heard, ask.patience + claim)[1])

    def cut(self) -> Slice:
        """Return the slice."""
        for attempt, asks in self._asks.items():
            unknown = [ask for ask in asks if _is_unknown(ask)]
            if unknown and self._rows.is_missing:
                self._slice.unresolved += len(unknown)
                continue
            self._slice.resolved += len(unknown)
            self._add_known(asks, unknown)
            self._add_unknown(attempt, asks, unknown)
            self._deny(attempt, asks, unknown)
        for operation in self._slice.operations:
            attempt = operation.attempt
            self._slice.last[attempt] = max(self._slice.last.get(attempt, 0.0), operation.returned)
        return self._slice

    def _add_known(self, asks: list[Ask], unknown: list[Ask]) -> None:
        """Add what was answered, and the grant of which only the row tells."""
        attempt = asks[0].attempt
        tried = [ask.called for ask in unknown if ask.kind == "Acquire"]
        answers = [ask for ask in asks if ask.answer == "Granted"]
        first = min(answers, key=lambda ask: ask.returned, default=None)
        for ask in asks:
            if ask.outcome == "ok" and LeaseModel.knows(ask.kind, ask.answer):
                called = min([ask.called, *tried]) if ask is first else ask.called
                self._add(ask, ask.answer, ask.token, called, ask.returned)
        token = self._rows.token_of(attempt)
        if first is None and tried and token and tried[0] <= self._rows.granted_by(attempt):
            ask = next(ask for ask in unknown if ask.kind == "Acquire")
            self._add(ask, "Granted", token, ask.called, self._rows.granted_by(attempt))

    def _add_unknown(self, attempt: str, asks: list[Ask], unknown: list[Ask]) -> None:
        """Add what may have ended a hold, or not."""
        # That it has ended is also told to whoever asks again.
        by = max([self._rows.gone_by(attempt), *(ask.returned for ask in asks if ask.outcome == "ok")])
        added = set()
        for ask in unknown:
            if ask.kind == "Break":
                self._add(ask, "Broken", ask.token, ask.called, ask.called + UNDER_WAY, must=False)
            elif ask.kind in _ENDS and ask.kind not in added and ask.called <= by:
                added.add(ask.kind)  # a second one can do nothing that the first did not
                self._add(ask, _ENDS[ask.kind], ask.token, ask.called, by, must=False)

    def _deny(self, attempt: str, asks: list[Ask], unknown: list[Ask]) -> None:
        """Find grants that nobody can have been given, by what was answered. One of a key is told."""
        token, by = self._rows.token_of(attempt), self._rows.granted_by(attempt)
        acquires = [ask for ask in asks if ask.kind in ("Acquire", "Enter")]
        if not token or not acquires or any(ask.token == token for ask in acquires):
            return
        if not any(ask.called <= by for ask in unknown if ask.kind == "Acquire"):
            told = ", ".join(
                f"{ask.answer or ask.outcome}{f' {ask.token}' * (ask.answer == 'Granted')}"
                f" at {ask.returned - self._began:.3f}"
                for ask in acquires
            )
            text = f"{attempt} has token {token} in the store, but was told: {told}"
            if not self._slice.violations:
                self._slice.violations.append(Violation("no grant is denied", self._slice.key, text))

    def _add(
        self, ask: Ask, answer: str, token: int, called: float, returned: float, *, must: bool = True
    ) -> None:
        attempt = ask.attempt
        owner, first = self._owners.get(attempt, ask.owner), self._asks[attempt][0].called
        is_exact = ask.outcome == "ok" and called == ask.called and ask.kind in ("Acquire", "Release")
        is_alone = not self._waits.overlaps(called, returned, attempt, owner)
        earliest, latest = self._ends(ask.called, returned, ask.ttl)
        self._slice.operations.append(
            Operation(
                ask,
                answer,
                owner,
                token,
                called,
                returned,
                must=must,
                count=ask.holds if is_exact and is_alone else None,
                earliest=earliest,
                latest=self._moved(ask, latest) if ask.ttl else latest,
                excused=self._waits.overlaps(called, returned, attempt),
                pinned=returned - called >= ROW_LOCKED or self._pins.count(called, returned) > 0,
                lossy=(self._shows_early if answer == "handed" else self._is_lazy or not must)
                and self._crashes.count(called, returned) > 0,
                forgotten=returned - first >= REMEMBERED,
                by_others=self._by_others(attempt, owner, first, returned),
            )
        )

    def _moved(self, given: Ask, latest: float) -> float:
        """Return the latest end of a hold, by what unknown asks may have made of it since it was given."""
        for ask in self._asks[given.attempt]:
            if ask.ttl and _is_unknown(ask) and ask is not given and ask.called < latest:
                by = self._rows.gone_by(given.attempt)
                if given.called <= by and ask.called <= by:
                    latest = max(latest, self._ends(ask.called, by, ask.ttl)[1])
        return latest

    def _by_others(self, attempt: str, owner: str, first: float, returned: float) -> tuple[str, ...]:
        """Return what an attempt may be told when others ended its ticket, or what it had not claimed yet.

        What it was handed may also have run out.
        """
        why = TOLD["expired"] if self._rows.was_handed(attempt) else ()
        why += ("broken",) if self._breaks.count(first, returned) else ()
        return (*why, "already") if owner in self._wanderers else why  # it may be in a circle

    def _ends(self, called: float, returned: float, seconds: float) -> tuple[float, float]:
        """Return when what was given for so many *seconds* ends, at the earliest and at the latest.

        If the database's clock is set while it lives, it may end from then on, and it may live longer by as
        much as the clock was set. Also what is over already, as long as nobody has noticed.
        """
        slack = TICK + SLEW * seconds
        earliest, latest = called + seconds - slack, returned + seconds + slack
        for step in self._steps:
            if called <= step.ended and step.began <= latest + step.most:
                earliest = min(earliest, max(called, step.began))
                latest += step.most
        return earliest, latest


def _is_unknown(ask: Ask) -> bool:
    """Tell whether nobody knows if it took effect.

    A batch of renewals is not one transaction: some may be done before the store refuses the rest.
    """
    return ask.outcome == "unknown" or (ask.outcome == "refused" and ask.kind == "Renew")


def _steps(history: History) -> list[Step]:
    steps = []
    for fault in history.faults:
        if "belief" in fault.excuses:
            number = re.search(r"[-+]?\d+(\.\d+)?", fault.detail)
            most = abs(float(number.group())) if number else math.inf
            steps.append(Step(fault.began - NOTICED, fault.ended + NOTICED, most))
    return sorted(steps, key=lambda step: step.began)


def _crashes(history: History) -> list[tuple[float, float]]:
    """Return when a release may be seen by others, or on PostgreSQL be answered, that a crash undoes.

    SQLite shows nobody a commit before it is with the system. MariaDB does, and writes then.
    """
    if history.run.store == "sqlite":
        return []
    crashes = [fault for fault in history.faults if fault.fault in CRASHES]
    return [(fault.began - LAZY, fault.ended + NOTICED) for fault in crashes]
