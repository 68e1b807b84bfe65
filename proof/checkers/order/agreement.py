"""What programs were told against what is in the tables: answers, releases, refusals, and what is unknown."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict

from proof.checkers.order import rules
from proof.checkers.order.clocks import LATE, Clocks
from proof.checkers.order.ledger import Hold, Key, Lease, Ticket
from proof.checkers.order.requests import Asked, micros
from proof.checkers.order.rules import Findings
from proof.checkers.order.tokens import TAKING
from proof.histories.records import Call, History

# PostgreSQL may answer a release before it is on the disk: losing it delays the next one, and breaks nothing.
# This is how long before a crash such an answer may have been given: its WAL writer comes by every 0.2 s, and
# is done with what it has found after three rounds at most.
LAZY = 1.0
# Which faults end its processes. A disk that is full or fails has it give up of itself, at some time within.
CRASHES = frozenset({"kill database", "promote standby", "failing fsync", "full disk"})

Turn = tuple[str, str]  # key and owner


class Agreement:
    """All turns, as calls and as leases."""

    def __init__(
        self, history: History, keys: dict[str, Key], asked: Asked, clocks: Clocks, findings: Findings
    ) -> None:
        self._findings = findings
        self._clocks = clocks
        self._asked = asked
        self._keys = keys
        self._crashes = _crashes(history)
        self._patience = micros(asked.patience)
        self._lost: set[Turn] = set()  # whose releases were lost in a crash
        self._leases: dict[Turn, list[Lease]] = defaultdict(list)
        self._tickets: dict[Turn, list[Ticket]] = defaultdict(list)
        for key in keys.values():
            for lease in key.leases.values():
                self._leases[key.name, lease.owner].append(lease)
            for ticket in key.all_tickets:
                self._tickets[key.name, ticket.owner].append(ticket)
        self._turns: dict[Turn, list[Call]] = defaultdict(list)
        for call in history.calls:
            if call.kind in TAKING or call.kind == "release":
                self._turns[call.key, call.owner].append(call)

    def check(self) -> None:
        """Apply all rules."""
        self._check_answers()
        self._check_releases()
        for turn, calls in self._turns.items():
            self._check_turn(turn, calls)
            self._resolve(turn, calls)

    def _check_answers(self) -> None:
        """What the store has granted by an answer is in its tables (P6)."""
        for name, attempt in self._asked.attempts.items():
            for ask in attempt.granted:
                self._findings.check(rules.AGREE)
                if self._find(ask.key, name, ask.token) is None:
                    self._findings.violated(
                        rules.AGREE,
                        ask.key,
                        f"{name} of {ask.owner} was told {ask.token} at {ask.returned:.6f}, and never had it",
                    )

    def _find(self, key: str, attempt: str, token: int) -> Hold | None:
        """Return a hold by which its client was right to say that it has the lock."""
        book = self._keys.get(key)
        lease = book.leases.get(token) if book else None
        holds = lease.holds if lease else ()
        return next((hold for hold in holds if hold.attempt == attempt and hold.claimed), None)

    def _check_releases(self) -> None:
        """What was answered to be released is gone from the tables by then (P5)."""
        for ask in self._asked.releases:
            self._findings.check(rules.RELEASED)
            hold = self._find(ask.key, ask.attempt, ask.token)
            if hold is not None and hold.ended and hold.gone_at <= self._clocks.latest(ask.returned):
                continue
            if any(began - LAZY <= ask.returned <= ended for began, ended in self._crashes):
                self._findings.figures["releases lost in a crash"] += 1
                self._lost.add((ask.key, self._asked.attempts[ask.attempt].owner))
                continue
            seen = f"it was gone at {hold.gone_at}" if hold and hold.ended else "it is still there"
            self._findings.violated(
                rules.RELEASED,
                ask.key,
                f"{ask.attempt} was told at {ask.returned:.6f} that {ask.token} is released; {seen}",
            )

    def _check_turn(self, turn: Turn, calls: list[Call]) -> None:
        key, owner = turn
        leases = {lease.token: lease for lease in self._leases[turn]}
        for call in calls:
            if call.kind not in TAKING or call.outcome != "ok":
                continue
            self._findings.check(rules.AGREE)
            lease = leases.get(call.token)
            if lease is None or not lease.was_claimed:
                self._findings.violated(
                    rules.AGREE,
                    key,
                    f"{owner} was told at {call.returned:.6f} that it has {call.token}; the tables know"
                    f" {sorted(leases) or 'nothing'} of it",
                )
            elif call.kind != "reenter" and not self._was_during(lease, call):
                self._findings.violated(
                    rules.AGREE,
                    key,
                    f"{owner} asked at {call.called:.6f} and was told at {call.returned:.6f}, which is"
                    f" from {self._clocks.earliest(call.called):.0f} to"
                    f" {self._clocks.latest(call.returned):.0f}; {call.token} was granted at"
                    f" {lease.granted_at}",
                )
        released = sum(call.kind == "release" and call.outcome == "ok" for call in calls)
        self._findings.check(rules.RELEASED, released)
        ended = sum(bool(hold.ended) for lease in leases.values() for hold in lease.holds)
        if released > ended and turn not in self._lost:
            self._findings.violated(
                rules.RELEASED,
                key,
                f"{owner} was told {released} times that it has released it, and {ended} ended",
            )
        taking = [call for call in calls if call.kind in TAKING]
        if taking and all(call.outcome == "refused" for call in taking):
            self._check_nothing_left(turn, taking)

    def _was_during(self, lease: Lease, call: Call) -> bool:
        return self._clocks.earliest(call.called) <= lease.granted_at <= self._clocks.latest(call.returned)

    def _check_nothing_left(self, turn: Turn, calls: list[Call]) -> None:
        """Whoever was refused was granted nothing but what it never claimed, and its ticket ends (P6)."""
        self._findings.check(rules.NOTHING_LEFT)
        key, owner = turn
        told = self._clocks.latest(max(call.returned for call in calls))
        for lease in self._leases[turn]:
            if lease.was_claimed or lease.end > told + micros(LATE) + self._patience:
                self._findings.violated(
                    rules.NOTHING_LEFT,
                    key,
                    f"{owner} was refused at {told:.0f}, and has {lease.token} until {lease.end}"
                    f"{', claimed' if lease.was_claimed else ''}",
                )
        for ticket in self._tickets[turn]:
            ends_at = min(ticket.gone_at or ticket.last_end, ticket.last_end)  # it may be cleared away later
            if ends_at > told + micros(LATE) + self._patience:
                self._findings.violated(
                    rules.NOTHING_LEFT,
                    key,
                    f"{owner} was refused at {told:.0f}, and waits with ticket {ticket.number} until"
                    f" {ends_at}",
                )

    def _resolve(self, turn: Turn, calls: list[Call]) -> None:
        """Tell by the tables which of the calls without an answer were done: each that has a hold of its own.

        What was done and is none of them nobody was told of: a call that was refused, or done twice.
        """
        taking = [call for call in calls if call.kind in TAKING]
        done: dict[int, tuple[float, Hold]] = {}  # which of them have had a hold, and the last that each had
        for hold in (hold for lease in self._leases[turn] for hold in lease.holds if hold.claimed):
            attempt = self._asked.attempts.get(hold.attempt)
            if attempt is None:
                continue  # who looks when all is over is not recorded
            which = bisect_right(taking, attempt.asked, key=lambda call: call.called) - 1
            # A grant that came too late to be trusted is given back without a call, or has run out: then the
            # same call has asked again, and only what it got last is there to be released.
            if which not in done or done[which][0] < attempt.asked:
                done[which] = attempt.asked, hold
            if which < 0 or taking[which].outcome == "refused":
                self._findings.violated(
                    rules.RESOLVED,
                    turn[0],
                    f"{hold.attempt} of {turn[1]} has had {hold.token}, and the call that asked for it was"
                    f" {'refused' if which >= 0 else 'never made'}",
                )
        counts = Counter(call.outcome for call in calls if call.kind == "release")
        unknown = sum(call.outcome == "unknown" for call in taking)
        gone = [hold for _, hold in done.values() if hold.ended == "let go"]
        let_go = len(gone)
        # A release that fails because the store does is done later, in the background: as a withdrawal.
        withdrawn = sum(self._asked.attempts[hold.attempt].withdrawn for hold in gone)
        later = min(withdrawn, counts["refused"])
        # Whoever does not live to see its grant gives it back of itself, without a call.
        if let_go > counts["ok"] + later + counts["unknown"] + unknown:
            self._findings.violated(
                rules.RESOLVED,
                turn[0],
                f"{turn[1]} has released it {let_go} times; it was told of {counts['ok']}, and"
                f" {counts['unknown'] + unknown} of its calls have had no answer, {later} were done"
                " later",
            )
        self._findings.check(rules.RESOLVED, unknown + counts["unknown"])
        applied = sum(taking[which].outcome == "unknown" for which in done)
        applied += min(counts["unknown"], max(let_go - counts["ok"], 0))
        self._findings.figures["unknown applied"] += applied
        self._findings.figures["unknown not applied"] += unknown + counts["unknown"] - applied


def _crashes(history: History) -> list[tuple[float, float]]:
    """Return when the store may have forgotten what it had answered; only PostgreSQL is set up so."""
    if history.run.store != "postgres":
        return []
    return [(fault.began, fault.ended) for fault in history.faults if fault.fault in CRASHES]
