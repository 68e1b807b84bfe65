"""The audit read back: which leases, holds and tickets each key had, and what happened to them.

Where a hold is kept is the store's business: the only hold on plain terms is in the row of its lock, all
others are in a table of their own, and they move. So one request writes several rows, and in between the
books do not add up. The lock's row counts both its holds and its tickets: a *step* is over when these
counts are right, and a lease that the row knows of is there. Each step is then looked at as a whole, by
`steps`.
"""

from __future__ import annotations

from proof.checkers.order.terms import Terms, read_terms
from proof.histories.records import Audit

NOBODY = Audit(0, 0, "lock", "")


class Hold:
    """One entry of one attempt into a lease."""

    __slots__ = ("attempt", "claimed", "end", "ended", "gone_at", "lease", "token")

    def __init__(self, attempt: str, token: int, lease: Lease) -> None:
        self.attempt = attempt
        self.token = token
        self.lease = lease
        self.claimed = False  # or entered by the hand-over: somebody has believed in it
        self.end = 0
        self.gone_at = 0  # when it was seen to be gone; 0: never
        self.ended = ""  # expired, let go, broken; empty: not yet


class Lease:
    """All holds under one token."""

    __slots__ = (
        "after",
        "granted_at",
        "granted_terms",
        "holds",
        "number",
        "owner",
        "terms",
        "token",
    )

    def __init__(self, row: Audit, terms: Terms) -> None:
        self.token = row.token
        self.owner = row.owner
        self.granted_at = row.granted_at
        self.granted_terms = self.terms = terms  # the latter change with a downgrade
        self.number = 0  # of the ticket that it was handed to; 0: it was taken by who asked
        self.after = ""  # how the last lease before it ended
        self.holds: list[Hold] = []

    @property
    def end(self) -> int:
        """When its last hold ended, by the store's clock: at its end, or when it was let go."""
        return max(
            hold.end if hold.ended in ("", "expired") else min(hold.end, hold.gone_at) for hold in self.holds
        )

    @property
    def was_broken(self) -> bool:
        return any(hold.ended == "broken" for hold in self.holds)

    @property
    def was_claimed(self) -> bool:
        return any(hold.claimed for hold in self.holds)


class Ticket:
    """A place in a queue. *alive_until* is how long it certainly lived: see `refresh`."""

    __slots__ = (
        "alive_until",
        "attempt",
        "gone_at",
        "last_end",
        "number",
        "owner",
        "queued_at",
        "terms",
        "token",
        "underway",
    )

    def __init__(self, row: Audit) -> None:
        self.number = row.number
        self.attempt = row.attempt
        self.owner = row.owner
        self.terms = read_terms(row.terms)
        self.queued_at = row.at
        self.alive_until = self.last_end = row.expires_at
        self.gone_at = 0
        self.token = 0  # under which it was granted
        self.underway: list[tuple[float, int]] = []  # ends, and when they were certainly seen by all

    def refresh(self, end: int, seen_at: float) -> None:
        """Take note of a new end, which others see at *seen_at* at the latest.

        Heartbeats do not wait for the lock's row. One that was written in time, but committed late, may
        have come too late for who settled the key meanwhile, and then its ticket was dead. So a new end
        counts from when its client had been answered.
        """
        self.last_end = max(self.last_end, end)
        self.underway.append((seen_at, end))

    def lives_at(self, at: float) -> bool:
        """Tell whether it certainly has been alive all the time until then."""
        while self.underway and self.underway[0][0] <= at:
            seen_at, end = self.underway.pop(0)
            if seen_at < self.alive_until:
                self.alive_until = max(self.alive_until, end)
        return at < self.alive_until


class Key:
    """The state of one key, as its rows were written."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.lock = NOBODY
        self.table: dict[str, Audit] = {}  # attempt → row of the table of holds
        self.tickets: dict[int, Ticket] = {}  # in the order of their numbers
        self.expired: set[str] = set()  # attempts whose holds have, and that do not come back
        self.left: dict[str, Ticket] = {}  # attempt → tickets that have gone in this step
        self.holds: dict[str, Hold] = {}  # attempt → as of the last step
        self.unfinished = 0  # rows since the last step
        self.lock_written = False  # in this step
        self.moved = False  # an end, in this step
        self.told = False  # an outcome was written, in this step
        self.highest = 0  # token
        self.shut_until = 0
        self.shut: list[tuple[int, int]] = []  # all such times: since, until
        self.steps_at: list[int] = []  # when each step was written
        self.last_end = ""  # how the last lease ended, if no other has begun since
        self.free_since = 0  # from when on its head can be granted; 0: nobody waits
        self.head = 0  # number of that ticket
        self.waits: list[tuple[float, float]] = []  # for a free lock, since the last lease began
        self.leases: dict[int, Lease] = {}
        self.all_tickets: list[Ticket] = []
        self.outcomes: list[Audit] = []

    def current(self) -> dict[str, Audit]:
        """Return the rows of all that is held now."""
        return {self.lock.attempt: self.lock} if self.lock.attempt else self.table

    def adds_up(self) -> bool:
        """Tell whether the books are right, so that a step may be over."""
        lock = self.lock
        if len(self.table) != lock.holds or len(self.tickets) != lock.waiters:
            return False
        # One ticket has gone and another has come. If that was all, the lock's row need not be written; if
        # not, it is still to come. To take what follows for the same step does no harm.
        return self.lock_written or not self.left

    def misses_a_lease(self) -> bool:
        """Tell whether the lock's row knows of a lease that is not there.

        Either its hold has just been written in place of another, and is still to come: they are the last
        that a request writes. Or somebody was granted the lock, and gave it up with the same request.
        """
        lock = self.lock
        if lock.token <= self.highest or not lock.holds:
            return False
        return all(row.token != lock.token for row in self.table.values())
