"""One lock inside a transaction: read, changed by the rules of the protocol, written back.

What a lock consists of is in modules of its own: `holds`, `tickets`, `ended`, `notes`. This one keeps
them together, and the lock's row up to them. The rules are in `settlement`, `operations` and `decisions`.
"""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.core.data import replace
from holdfast.core.events import EventKind, HistoryLevel, is_kept
from holdfast.core.family import PLAIN, KeptResult, Notes, Terms, fits
from holdfast.core.requests import Client, Done, Holder, NotHeld, Signal, addressed, doer
from holdfast.stores.base import REMEMBER, micros, place_of
from holdfast.stores.sql.rules.columns import LockColumns, Ticket
from holdfast.stores.sql.rules.ended import EndedAttempts
from holdfast.stores.sql.rules.holds import Hold, Holds
from holdfast.stores.sql.rules.notes import gone, read_notes, write_notes
from holdfast.stores.sql.rules.runner import Post, Runner, tell_watchers
from holdfast.stores.sql.rules.tickets import Tickets

# When to ask again for a lock that is free but pinned by a transaction of its last holder, in microseconds.
PINNED_FOR = 250_000
PINNED = "a transaction that is still open"


class LockRow:
    """The state of one key, for decisions about one attempt."""

    def __init__(
        self, run: Runner, key: str, now: int | None, level: HistoryLevel, post: Post, attempt: str = ""
    ) -> None:
        row = run.lock(key, attempt, now)
        read = row.lock
        self._run = run
        self._level: HistoryLevel = level
        self._post = post
        self.key = key
        self.asking = attempt
        self.now = row.now
        self.pinned = row.pinned
        self._floor = row.floor
        self.is_row = row.is_row  # be it only to be locked
        self.token: int = read.token or 0  # 0: never granted yet, so there is no such lock
        self.owner, self.claimed = read.owner, read.claimed
        self.expires_at, self.granted_at = read.expires_at, read.granted_at
        self.instance, self.host, self.pid = read.instance, read.host, read.pid
        self.last_attempt = read.last_attempt
        self.next_ticket: int = read.next_ticket or 1
        self.events = read.events
        self.notes: Notes
        self.notes, self._shut_by = read_notes(read.notes)
        self._noted = self.notes, self._shut_by, read.notes  # not to be written again if nothing changes
        in_row = None if read.attempt is None else self._hold_in_row(read.attempt)
        self.holds = Holds(run, key, read.holds or 0, in_row)
        self.ended = EndedAttempts(run, key, self.now, attempt, row.ended)
        self.tickets = Tickets(run, self.now, attempt, row, key)
        self._read = read if self.is_row else self._values()

    def _hold_in_row(self, attempt: str) -> Hold:
        token, end, claimed = self.token, self.expires_at, bool(self.claimed)
        return Hold(attempt, self.owner, token, PLAIN, claimed, end, self.granted_at, **place_of(self))

    @property
    def exists(self) -> bool:
        """Whether the key was ever granted."""
        return self.token > 0

    def write(self) -> bool:
        """Write the key back, if anything about it changed; tell whether its row did."""
        values = self._values()
        # If only how attempts ended has changed, the row is written as well: whoever waits for it in a fast
        # path has looked at the ended attempts before, and sees by the row that it has to look again.
        changed = values != self._read or (self.ended.changed and self.is_row)
        if changed:
            name = "write_lock" if self.is_row else "insert_lock"
            self._run.later(name, key=self.key, **values._asdict())
            self._read, self.is_row, self.ended.changed = values, True, False
        self.holds.write()
        return changed

    def _values(self) -> LockColumns:
        """Return what the row is to be."""
        in_row = self.holds.in_row()
        notes, shut_by, text = self._noted
        is_noted = self.notes is notes and self._shut_by is shut_by
        lease = self.token, self.owner, in_row.attempt if in_row else None
        times = self.claimed, self.expires_at, self.granted_at
        place = self.instance, self.host, self.pid
        counts = self.holds.count_in_table(), self.tickets.count, self.next_ticket, self.events
        text = text if is_noted else write_notes(self.notes, self._shut_by)
        return LockColumns(*lease, *times, *place, self.last_attempt, *counts, text)

    # What it says.

    @property
    def is_shut(self) -> bool:
        """Whether it is granted to nobody for a while, because of the terms of a lease that is over."""
        return self.notes.shut_until > self.now

    def fits(self, terms: Terms) -> bool:
        """Tell whether a lease on these terms is possible now."""
        return not self.pinned and self.has_room_for(terms)

    def has_room_for(self, terms: Terms) -> bool:
        """Tell whether they fit beside what is held, whatever a transaction may pin."""
        if self.is_shut:
            return False
        held = [hold.terms for hold in self.holds.all]
        return not held or fits(terms, held, self.notes.permits)

    def end_for(self, terms: Terms) -> int:
        """Return when it may be worth asking again, for who wants the lock on these terms."""
        if terms.mode == self.notes.mode == "permits" and self.holds.all:
            return max(self.notes.shut_until, min(hold.end for hold in self.holds.all))
        return self.now if self.owner is None else int(self.expires_at)

    def expires_in(self, terms: Terms = PLAIN) -> float:
        return float(PINNED_FOR if self.owner is None else self.end_for(terms) - self.now) / 1e6

    def holder(self) -> Holder:
        """Return who has it; of several leases, who was granted first. Or whose lease keeps it shut."""
        for first in self.holds.all[:1]:
            return first.holder(self.now, claimed=bool(self.claimed))
        if self._shut_by is not None:
            return self._shut_by.holder(self.now)
        if not self.exists:  # somebody is about to take it for the first time
            return Holder(PINNED, "", 0, 0, 0.0)
        held_for = (self.now - self.granted_at) / 1e6
        return Holder(PINNED, self.host, self.pid, self.token, held_for, bool(self.claimed))

    def find_alive(self) -> Hold | None:
        """Return the hold of our attempt, if its end has not come."""
        hold = self.holds.find(self.asking)
        return hold if hold is not None and hold.end > self.now else None

    def how_it_ended(self) -> NotHeld | None:
        """Return how our attempt ended, if it is remembered to have ended."""
        if ended := self.ended.mine():
            return ended
        return NotHeld("already") if self.exists and self.last_attempt == self.asking else None

    def why_not_held(self, token: int) -> NotHeld:
        """Say why our attempt does not hold the lock under *token*."""
        taken_over = self.exists and self.token > token
        if ended := self.how_it_ended():
            return NotHeld("taken over") if ended.why == "expired" and taken_over else ended
        if taken_over:
            return NotHeld("taken over")
        return NotHeld("expired" if self.exists and self.token == token else "unknown")

    # Holds, and the row as it follows from them.

    def begin_lease(
        self, attempt: str, owner: str, terms: Terms, end: int, who: Client | Ticket, *, claimed: bool = True
    ) -> Hold:
        """Grant a lease, whose token is from now on the highest; *who* says where its owner is."""
        self.token = max((self.token or self._floor) + 1, self.now)
        hold = Hold(attempt, owner, self.token, terms, claimed, end, self.now, **place_of(who))
        self.put_hold(hold)
        return hold

    def put_hold(self, hold: Hold) -> None:
        """Add a hold, or change one."""
        self.holds.put(hold)
        self._sum_up()

    def remove_holds(self, holds: Iterable[Hold]) -> None:
        """Remove some holds; without any the lock is free, or shut."""
        self.holds.remove(holds)
        self._sum_up()

    def shut(self, hold: Hold, *, expired: bool = False) -> None:
        """Be granted to nobody for as long as the terms of a lease say, whose last hold this is."""
        terms = hold.terms
        until = hold.granted_at + micros(terms.at_least) if terms.at_least else 0
        if expired and terms.delay:
            until = max(until, hold.end + micros(terms.delay))
        if until > max(self.notes.shut_until, self.now):
            self.notes = replace(self.notes, shut_until=until)
            self._shut_by = gone(hold)

    def break_open(self, token: int | None) -> Holder | None:
        """Be shut no more, if it is because of a lease with this token; return whose that was."""
        by = self._shut_by
        if by is None or not self.is_shut or token not in (None, by.token):
            return None
        self.open()
        return by.holder(self.now)

    def open(self) -> None:
        """Be shut no more."""
        shut_by, self._shut_by = self._shut_by, None
        self.notes = replace(self.notes, shut_until=0)
        if self.owner is not None:
            self._sum_up()
            if self.owner is None and shut_by is not None:
                self.expires_at = self._used_at(shut_by.freed_at)

    def make(self) -> None:
        """Have a row, also for a key that nobody has asked for yet; it counts as used now."""
        self.token = self.token or self._floor
        if not self.is_row:
            self.claimed, self.granted_at, self.instance, self.host, self.pid = 1, self.now, "", "", 0
        if self.owner is None:
            self.expires_at = self._used_at(self.now)

    # The result of an operation that is kept.

    def keep(self, kept: KeptResult | None) -> None:
        """Keep a result for whoever asks for the operation, instead of the one before."""
        before = self.notes.kept
        if before is kept:  # there was none, and is none
            return
        if before is not None:  # its text is only for those who waited for it
            until_at = self.now + REMEMBER["done"]
            self._run.later("end_outcome", key=self.key, token=before.token, until_at=until_at)
        self.notes = replace(self.notes, kept=kept)

    def find_kept(self, seen: int) -> Done | None:
        """Return the result that is kept, unless that is one that was *seen* already. Of a settled lock."""
        kept = self.notes.kept
        if kept is None or kept.token <= seen:
            return None
        for _, text in self._run("read_outcome", key=self.key, token=kept.token):
            return Done(text, kept.token, kept=True)
        return None

    def break_kept(self, token: int | None) -> Holder | None:
        """Keep a result no longer, if it is the one with this token; return whose that was."""
        kept = self.notes.kept
        if kept is None or token not in (None, kept.token):
            return None
        self.keep(None)
        if self.owner is None:
            self.expires_at = self.now
        return doer(kept, self.now)

    def forget_kept(self) -> None:
        """Forget a result whose time is over."""
        if self.notes.kept is not None and self.notes.kept.until <= self.now:
            self.notes = replace(self.notes, kept=None)

    def _used_at(self, freed_at: int) -> int:
        """Return when a free lock was of use last: it is not idle as long as its result is kept."""
        kept = self.notes.kept
        return freed_at if kept is None else max(freed_at, kept.until)

    def _sum_up(self) -> None:
        """Bring the row up to its holds."""
        holds = self.holds.all
        if holds:
            first = holds[0]
            self.owner, self.granted_at = first.owner, first.granted_at
            self.instance, self.host, self.pid = first.instance, first.host, first.pid
            self.claimed = int(any(hold.claimed for hold in self.holds.lease(first.token)))
            self.expires_at = max(self.notes.shut_until, *(hold.end for hold in holds))
            self._set_mode(first.terms)
        elif self._shut_by is not None and self.is_shut:
            self._shut_by = replace(self._shut_by, freed_at=self._shut_by.freed_at or self.now)
            self.owner, self.granted_at = self._shut_by.owner, self._shut_by.granted_at
            self.host, self.pid = self._shut_by.host, self._shut_by.pid
            self.claimed = 1
            self.expires_at = self.notes.shut_until
            self._set_mode(PLAIN)
        else:
            self.owner, self.claimed = None, 1
            self.expires_at = self._used_at(self.now)
            self._set_mode(PLAIN)

    def _set_mode(self, terms: Terms) -> None:
        if terms.mode != self.notes.mode:
            self.notes = replace(self.notes, mode=terms.mode)

    # What others learn of it.

    def signal(self, address: str, signal: Signal) -> None:
        """Send a signal, once this is committed."""
        self._post.append(addressed(address, signal))

    def record(
        self,
        kind: EventKind,
        *,
        owner: str | None,
        token: int | None = None,
        operation: bool = False,
        by: str | None = None,
        reason: str | None = None,
    ) -> None:
        """Write an event, if the history is to have it. Without *token* it is about the key as a whole."""
        if is_kept(kind, self._level, operation=operation):
            self.events += 1
            token = self.token if token is None else token
            told = {"kind": kind, "at": self.now, "owner": owner, "by": by, "reason": reason}
            self._run.later("write_event", key=self.key, number=self.events, token=token, **told)
            tell_watchers(self._post)

    def write_outcome(self, token: int, *, succeeded: bool, text: str, until_at: int) -> None:
        """Keep how an operation ended."""
        told = {"succeeded": succeeded, "text": text, "until_at": until_at}
        self._run.later("write_outcome", key=self.key, token=token, **told)
