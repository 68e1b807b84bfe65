"""The rules at the store, applied to each step of each key: tokens, exclusion, and who may end what.

All times are those of the store's own clock, and a step is judged by the very instant by which it was
decided: that is when its lease was granted, or since when its lock is free. It cannot be later than when
the trigger looked at that clock. So a clock that is stepped excuses nothing here, and nothing depends on
how fast anybody was. Only where others go on holding, and nobody is granted anything, no row has that
instant: then it is when the trigger looked, or later by as much as the clock was set back in between.
"""

from __future__ import annotations

from collections.abc import Iterable

from proof.checkers.order import rules
from proof.checkers.order.clocks import Clocks
from proof.checkers.order.ledger import Hold, Key, Lease, Ticket
from proof.checkers.order.line import Line
from proof.checkers.order.requests import STRANGER, Asked, micros
from proof.checkers.order.rules import Findings
from proof.checkers.order.terms import PLAIN, fit, read_terms
from proof.histories.records import LAST_LOOK, Audit

MOST_ROWS = 1000  # of one step, before the books are taken to be wrong
ROUNDING = 2  # microseconds


class Replay:
    """Reads rows in the order of their ids."""

    def __init__(
        self, findings: Findings, asked: Asked, clocks: Clocks, *, one_writer: bool, claim: int
    ) -> None:
        self.keys: dict[str, Key] = {}
        self.line = Line(findings, asked, clocks, one_writer=one_writer)
        self._findings = findings
        self._asked = asked
        self._clocks = clocks
        self._claim = claim

    def read(self, rows: Iterable[Audit]) -> None:
        """Read all rows."""
        for row in rows:
            key = self.keys.get(row.key)
            if key is None:
                key = self.keys[row.key] = Key(row.key)
            if key.unfinished and key.adds_up() and not _may_belong(row, key):
                self._step(key, key.lock)
            if not self._note(key, row):
                continue
            key.unfinished += 1
            if key.adds_up() and not key.misses_a_lease():
                self._step(key, row)
            elif key.unfinished > MOST_ROWS:
                self._does_not_add_up(key, row)
                self._step(key, row)
        for key in self.keys.values():
            self._findings.check(rules.ADDS_UP)
            key.lock_written = True
            if key.unfinished and key.adds_up():
                self._step(key, key.lock)
            elif key.unfinished:
                self._does_not_add_up(key, key.lock)
            self.line.end(key)

    def _note(self, key: Key, row: Audit) -> bool:
        """Take in a row; tell whether a step may be over with it."""
        what = row.what
        if what == "lock":
            key.lock = row
            key.lock_written = True
            self._check_end(key, row)
        elif what == "hold":
            key.table[row.attempt] = row
            self._check_end(key, row)
        elif what == "unhold":
            key.table.pop(row.attempt, None)
        elif what == "unticket":
            if (gone := key.tickets.pop(row.number, None)) is not None:
                gone.gone_at = row.at
                key.left[gone.attempt] = gone
        elif what == "ticket":
            if (ticket := key.tickets.get(row.number)) is not None:
                self.line.refresh(ticket, row)
                return False
            ticket = key.tickets[row.number] = Ticket(row)
            key.all_tickets.append(ticket)
            self._check_asked_for(key, row, "queued")
        elif what == "outcome":
            key.outcomes.append(row)
            key.told = True
            return False
        return True

    def _does_not_add_up(self, key: Key, row: Audit) -> None:
        lock = key.lock
        self._findings.violated(
            rules.ADDS_UP,
            key.name,
            f"at row {row.id} it counts {lock.holds} holds and {lock.waiters} tickets, and has"
            f" {len(key.table)} and {len(key.tickets)}; its token is {lock.token}",
        )

    def _step(self, key: Key, row: Audit) -> None:
        current, holds = key.current(), key.holds
        begun = [
            each
            for attempt, each in current.items()
            if (hold := holds.get(attempt)) is None or hold.token != each.token
        ]
        gone = [
            hold
            for attempt, hold in holds.items()
            if (each := current.get(attempt)) is None or each.token != hold.token
        ]
        if begun or gone or key.left:
            if len(begun) > 1:
                begun.sort(key=lambda each: each.token)
            new = [each for each in begun if each.token not in key.leases]
            now = row.at
            latest = now + micros(self._clocks.stepped_by(now))  # it may be set back before the trigger looks
            if new:
                now = latest = self._decided_at(new[0].granted_at, row)
            elif gone and not current and key.lock.expires_at:
                now = latest = self._decided_at(key.lock.expires_at, row)  # when it became free
            for hold in gone:
                self._ends(key, hold, latest, row, new)
            if key.left or key.tickets:
                self.line.check(key, new, begun, now)
            shut_until, key.shut_until = key.shut_until, 0
            for each in begun:
                self._begins(key, each, current, shut_until)
            if key.lock.owner and not current:
                key.shut_until = key.lock.expires_at
                key.shut.append((row.at, key.shut_until))
            key.left.clear()
            key.steps_at.append(row.at)
        key.highest = max(key.highest, key.lock.token)
        self.line.note_free(key, row.at, changed=bool(begun or gone))
        key.unfinished, key.lock_written, key.moved, key.told = 0, False, False, False

    def _decided_at(self, said: int, row: Audit) -> int:
        """Return the instant by which a step was decided: as it says, but not after its row was written."""
        return said if said <= row.at or self._clocks.stepped_by(row.at) else row.at

    def _check_end(self, key: Key, row: Audit) -> None:
        """See that a hold is still its owner's, and that its end was moved only before it had come."""
        hold = key.holds.get(row.attempt)
        if hold is None or hold.token != row.token:
            return
        if row.owner != hold.lease.owner:
            self._findings.violated(
                rules.ONE_OWNER,
                key.name,
                f"the hold of {hold.attempt} under {hold.token} became {row.owner}'s, and was"
                f" {hold.lease.owner}'s (row {row.id})",
            )
        if row.expires_at > hold.end or row.claimed != hold.claimed:
            self._findings.check(rules.STAYS_OVER)
            ttl = self._asked.attempts.get(hold.attempt, STRANGER).ttl
            decided_at = row.expires_at - ttl
            if ttl and decided_at >= hold.end + ROUNDING:
                self._findings.violated(
                    rules.STAYS_OVER,
                    key.name,
                    f"the hold of {hold.attempt} ({hold.lease.owner}) under {hold.token} had ended at"
                    f" {hold.end}, and at {decided_at} its end became {row.expires_at} (row {row.id})",
                )
            self._check_length(key, row)
        key.moved |= hold.end != row.expires_at
        hold.end, hold.claimed = row.expires_at, hold.claimed or row.claimed
        if row.what == "hold":
            hold.lease.terms = read_terms(row.terms)  # a downgrade

    def _check_length(self, key: Key, row: Audit) -> None:
        """See that an end is not later than it was asked to be: by the ttl, or by the claim window (P8)."""
        ttl = self._asked.attempts.get(row.attempt, STRANGER).ttl
        longest = ttl if row.claimed else self._claim
        if not ttl:
            return
        self._findings.check(rules.LASTS)
        # The clock is read for the end, and again when the row is written: it may be set in between.
        if row.expires_at > row.at + longest + micros(self._clocks.stepped_by(row.at)) + ROUNDING:
            self._findings.violated(
                rules.LASTS,
                key.name,
                f"at {row.at} {row.attempt} ({row.owner}) got {row.token} until {row.expires_at}, for"
                f" longer than {longest} µs (row {row.id})",
            )

    def _ends(self, key: Key, hold: Hold, now: int, row: Audit, new: list[Audit]) -> None:
        """See that a hold has run out, or that somebody who may had asked to end it (P5).

        If not, and others have got its place, it is they who do not fit (P2).
        """
        del key.holds[hold.attempt]
        hold.gone_at = row.at
        self._findings.check(rules.LET_GO)
        attempt = self._asked.attempts.get(hold.attempt)
        if hold.end <= now:
            hold.ended = "expired"
            if hold.claimed or not hold.lease.granted_terms.operation:  # its winner could have entered
                key.expired.add(hold.attempt)
        elif hold.lease.owner == LAST_LOOK:  # it is not recorded
            hold.ended = "let go"
        elif self._asked.may_be_broken(key.name, hold.token, row.at, self._clocks):
            hold.ended = "broken"
        elif attempt is not None and self._clocks.may_follow(row.at, attempt.let_go):
            hold.ended = "let go"
        else:
            hold.ended = "taken"
            others = f" for {new[0].owner} with {new[0].token}" if new else ""
            self._findings.violated(
                rules.FIT if new else rules.LET_GO,
                key.name,
                f"the hold of {hold.attempt} ({hold.lease.owner}) under {hold.token} was to end at"
                f" {hold.end}, and was gone at {now}{others}; nobody had asked for that (row {row.id})",
            )
        if all(each.ended for each in hold.lease.holds):
            key.last_end = hold.ended if hold.claimed else f"{hold.ended} unclaimed"
            self._findings.figures[f"leases {key.last_end}"] += 1

    def _begins(self, key: Key, row: Audit, current: dict[str, Audit], shut_until: int) -> None:
        """See that a hold is one of its owner's lease, or that its lease could begin (P1, P2)."""
        self._check_asked_for(key, row, "granted")
        self._check_length(key, row)
        self._findings.check(rules.STAYS_OVER)
        if row.attempt in key.expired:
            self._findings.violated(
                rules.STAYS_OVER,
                key.name,
                f"{row.attempt} of {row.owner} had a hold that has expired, and has {row.token} (row"
                f" {row.id})",
            )
        lease = key.leases.get(row.token)
        if lease is None:
            lease = self._lease_begins(key, row, current, shut_until)
        else:
            self._findings.check(rules.ONE_OWNER)
            if lease.owner != row.owner:
                self._findings.violated(
                    rules.ONE_OWNER,
                    key.name,
                    f"{row.attempt} of {row.owner} is in the lease {row.token} of {lease.owner} (row"
                    f" {row.id})",
                )
            if all(hold.ended for hold in lease.holds):
                self._findings.violated(
                    rules.RISE_AT_STORE,
                    key.name,
                    f"the lease {row.token} was over, and {row.attempt} of {row.owner} is in it (row"
                    f" {row.id})",
                )
        hold = key.holds[row.attempt] = Hold(row.attempt, row.token, lease)
        entered = self._asked.attempts.get(row.attempt, STRANGER).entered
        hold.end, hold.claimed = row.expires_at, row.claimed or entered == row.token
        lease.holds.append(hold)

    def _lease_begins(self, key: Key, row: Audit, current: dict[str, Audit], shut_until: int) -> Lease:
        terms = read_terms(row.terms) if row.what == "hold" else PLAIN
        lease = key.leases[row.token] = Lease(row, terms)
        self._findings.check(rules.RISE_AT_STORE)
        if row.token <= key.highest:
            self._findings.violated(
                rules.RISE_AT_STORE,
                key.name,
                f"a lease of {row.owner} begins under {row.token}; there was {key.highest} (row {row.id})",
            )
        self._findings.check(rules.FIT)
        now = self._decided_at(row.granted_at, row)
        beside = {
            each.token: each
            for each in current.values()
            if each.token != row.token and each.token in key.leases and each.expires_at > now
        }
        if not fit(terms, [key.leases[token].terms for token in beside]):
            self._findings.violated(
                rules.FIT,
                key.name,
                f"at {now} {row.owner} is granted {terms.mode} {terms.take} under {row.token} beside"
                f" {[(each.owner, each.token, each.expires_at) for each in beside.values()]} (row"
                f" {row.id})",
            )
        if shut_until > now:
            self._findings.violated(
                rules.FIT,
                key.name,
                f"at {now} {row.owner} is granted {row.token}, and it is shut until {shut_until}",
            )
        if (ticket := key.left.get(row.attempt)) is not None:
            lease.number = ticket.number
        lease.after, key.last_end = key.last_end, ""
        key.highest = row.token
        return lease

    def _check_asked_for(self, key: Key, row: Audit, what: str) -> None:
        self._findings.check(rules.ASKED_FOR)
        attempt = self._asked.attempts.get(row.attempt)
        if row.owner == LAST_LOOK:
            self._findings.figures["grants when all was over"] += 1
        elif attempt is None or not self._clocks.may_follow(row.at, attempt.asked):
            self._findings.violated(
                rules.ASKED_FOR,
                key.name,
                f"{row.attempt} of {row.owner} was {what} at {row.at}, and had not asked (row {row.id})",
            )


def _may_belong(row: Audit, key: Key) -> bool:
    """Tell whether a row may be of the same request as a step that adds up but for a lease that it misses.

    Then only holds can follow; heartbeats of those who wait come in between at any time.
    """
    return row.what in ("hold", "unhold") or (row.what == "ticket" and row.number in key.tickets)
