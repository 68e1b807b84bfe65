"""One lock in memory: who holds it, who waits, and what it says of itself."""

from __future__ import annotations

from holdfast.core import requests as r
from holdfast.core.data import replace
from holdfast.core.family import Failure, KeptResult, Mode, Terms, fits
from holdfast.stores.base import is_soon, micros

Post = list[tuple[str, r.Signal]]  # signals to send once the mutex is free: (address, signal)
HeldBy = dict[str, set[tuple[str, str]]]  # owner → its holds, as (key, attempt)


class Hold:
    """One entry into a lock, with its own end. All that have one token are one lease, of one owner."""

    __slots__ = ("claimed", "client", "end", "owner", "since", "terms", "token")

    def __init__(
        self, owner: str, client: r.Client, terms: Terms, token: int, since: int, end: int, claimed: bool
    ) -> None:
        self.owner = owner
        self.client = client
        self.terms = terms
        self.token = token
        self.since = since  # when its lease began
        self.end = end
        self.claimed = claimed

    def holder(self, now: int, claimed: bool) -> r.Holder:
        """Return who has it, as others are told; *claimed* is about the whole lease."""
        take = self.terms.take if self.terms.mode == "permits" else 1
        held_for = (now - self.since) / 1e6
        return r.Holder(self.owner, self.client.host, self.client.pid, self.token, held_for, claimed, take)


class Ticket:
    """A place in a queue."""

    __slots__ = ("claim", "client", "end", "owner", "queued_at", "terms")

    def __init__(self, request: r.Acquire, now: int) -> None:
        self.owner = request.owner
        self.client = request.client
        self.terms = request.terms
        self.claim = micros(request.claim)
        self.end = now + micros(request.patience)
        self.queued_at = now


class Lock:
    """One key: who holds it, who waits, and its notes."""

    __slots__ = (
        "events",
        "failed",
        "failures",
        "freed_at",
        "held_by",
        "holds",
        "kept",
        "key",
        "last",
        "permits",
        "result",
        "shut_by",
        "shut_until",
        "tickets",
        "token",
    )

    def __init__(self, key: str, token: int, events: int, held_by: HeldBy) -> None:
        self.key = key
        self.token = token
        self.events = events  # how many there were; history forgets some, and goes on counting
        self.holds: dict[str, Hold] = {}  # by attempt
        self.held_by = held_by  # of all locks of the shard
        self.tickets: dict[str, Ticket] = {}  # by attempt, in the order of arrival
        self.last: str | None = None
        self.freed_at = 0
        self.permits = 0  # how many there are; 0: nobody has said
        self.shut_until = 0
        self.shut_by: Hold | None = None  # whose lease is over; meaningless unless shut
        self.failed = 0  # attempts at the operation that is going on
        self.failures: tuple[Failure, ...] = ()  # the last of them
        self.kept: KeptResult | None = None
        self.result = ""  # that is kept; meaningless unless one is

    @property
    def owner(self) -> str | None:
        """The owner of the lease that was granted first; None when nobody has one."""
        return self.first().owner if self.holds else None

    @property
    def end(self) -> int:
        """The end of the last hold, or of being shut; in the past if there is neither."""
        return max([self.shut_until, *[hold.end for hold in self.holds.values()]])

    def has_hold(self, attempt: str, now: int) -> bool:
        hold = self.holds.get(attempt)
        return hold is not None and hold.end > now

    def first(self) -> Hold:
        """Return the hold that stands for the lease that was granted first."""
        first = next(iter(self.holds.values()))
        if first.terms.mode == "permits":  # none of them is entered again, so they are in order
            return first
        return min(self.holds.items(), key=_by_grant)[1]

    def add(self, attempt: str, hold: Hold) -> None:
        """Add a hold. What the index has too much does no harm, if an interrupt comes in between."""
        self.held_by.setdefault(hold.owner, set()).add((self.key, attempt))
        self.holds[attempt] = hold

    def remove(self, attempt: str) -> Hold:
        """Remove a hold, and return it."""
        hold = self.holds.pop(attempt)
        others = self.held_by[hold.owner]
        others.discard((self.key, attempt))
        if not others:
            del self.held_by[hold.owner]
        return hold

    def lease(self, token: int) -> list[Hold]:
        """Return the holds of a lease."""
        return [hold for hold in self.holds.values() if hold.token == token]

    def fits(self, terms: Terms, permits: int) -> bool:
        """Tell whether a lease on these terms is possible beside those there are, with so many permits."""
        return fits(terms, [hold.terms for hold in self.holds.values()], permits)

    def give(
        self, attempt: str, owner: str, client: r.Client, terms: Terms, now: int, end: int, claimed: bool
    ) -> None:
        if terms.operation:
            self.kept = None  # it is being done again
        self.token = max(self.token + 1, now)
        self.add(attempt, Hold(owner, client, terms, self.token, now, end, claimed))

    def granted(self, hold: Hold, now: int) -> r.Granted:
        """Return what the holder of a hold is told."""
        holds = 1 if len(self.holds) == 1 else len(self.lease(hold.token))
        failures = self.failures if hold.terms.operation else ()
        return r.Granted(hold.token, (hold.end - now) / 1e6, holds, failures)

    def shut(self, hold: Hold, now: int, *, expired: bool = False) -> None:
        """Keep everybody out for as long as the terms of a lease say, whose last hold this is."""
        terms = hold.terms
        until = hold.since + micros(terms.at_least) if terms.at_least else 0
        if expired and terms.delay:
            until = max(until, hold.end + micros(terms.delay))
        if until > max(self.shut_until, now):
            self.shut_until, self.shut_by = until, hold

    def keep(self, hold: Hold, result: str, keep: float, now: int) -> None:
        """Have a result told to whoever asks for the operation within the next *keep* seconds."""
        client = hold.client
        until = now + micros(keep)
        self.kept = KeptResult(hold.token, until, hold.owner, client.host, client.pid, hold.since)
        self.result = result

    def kept_result(self, seen: int) -> r.Done | None:
        """Return the result that is kept, unless that is one that was *seen* already. Of a settled lock."""
        if self.kept is None or self.kept.token <= seen:
            return None
        return r.Done(self.result, self.kept.token, kept=True)

    def used_at(self) -> int:
        """Return when it was of use last, if it is free."""
        return self.freed_at if self.kept is None else max(self.freed_at, self.kept.until)

    def forget_failures(self) -> None:
        self.failed, self.failures = 0, ()

    def state(self, now: int) -> r.LockState:
        if self.end > now:
            return "held"
        return "expired" if self.holds else "free"

    def prune_head(self, now: int) -> bool:
        """Remove dead tickets from the head of the queue; tell whether there were any."""
        pruned = False
        while self.tickets:
            attempt, ticket = next(iter(self.tickets.items()))
            if ticket.end > now:
                break
            del self.tickets[attempt]
            pruned = True
        return pruned

    def ask_again_at(self, terms: Terms) -> int:
        """Return when it may be worth asking again for a lease on these terms."""
        if terms.mode == self.mode == "permits":
            return max(self.shut_until, min([hold.end for hold in self.holds.values()]))
        return self.end

    def head_watches(self) -> int:
        """Return the instant that the head of the queue waits for; 0 if nobody waits."""
        return self.ask_again_at(next(iter(self.tickets.values())).terms) if self.tickets else 0

    def tell_head(self, now: int, post: Post) -> None:
        """Tell the head what to watch, if that comes before its next heartbeat can tell it."""
        if self.tickets:
            attempt, ticket = next(iter(self.tickets.items()))
            expires_in = self.ask_again_at(ticket.terms) - now
            if is_soon(expires_in, ticket.claim):
                post.append((ticket.client.instance, r.Signal("head", self.key, attempt, expires_in / 1e6)))

    @property
    def mode(self) -> Mode:
        """The mode of all that hold it; they would not fit beside each other else."""
        return next(iter(self.holds.values())).terms.mode if self.holds else "exclusive"

    def view(self, now: int) -> r.LockView:
        """Return the lock as others may see it, without those who wait."""
        return r.LockView(
            key=self.key,
            state=self.state(now),
            token=self.token,
            holder=self.holder(now),
            expires_in=max(self.end - now, 0) / 1e6,
            holds=len(self.holds),
            waiting=len(self.tickets),
            mode=self.mode,
            permits=self.permits,
            taken=sum(hold.terms.take for hold in self.holds.values()) if self.mode == "permits" else 0,
            operation=any(hold.terms.operation for hold in self.holds.values()),
            kept=r.doer(self.kept, now) if self.kept and self.kept.until > now else None,
            kept_for=max(self.kept.until - now, 0) / 1e6 if self.kept else 0.0,
        )

    def holder(self, now: int) -> r.Holder | None:
        """Return who was granted it first, of those who have it; or whose lease keeps it shut."""
        if self.holds:
            first = self.first()
            claimed = first.claimed or any(hold.claimed for hold in self.lease(first.token))
            return first.holder(now, claimed)
        if self.shut_by is not None and self.shut_until > now:
            # Of permits it has none any more.
            return replace(self.shut_by.holder(now, claimed=True), take=1, gone=True)
        return None

    def holders(self, now: int) -> list[r.Holder]:
        """Return all who have it, in the order in which it was granted to them."""
        leases: dict[int, tuple[Hold, bool]] = {}
        for _, hold in sorted(self.holds.items(), key=_by_grant):
            first, claimed = leases.get(hold.token, (hold, False))
            leases[hold.token] = first, claimed or hold.claimed
        return [hold.holder(now, claimed) for hold, claimed in leases.values()]

    def waiters(self, now: int) -> list[r.Waiter]:
        """Return all who wait, in their order."""
        queue = self.tickets.values()
        return [r.Waiter(t.owner, t.client.host, t.client.pid, (now - t.queued_at) / 1e6) for t in queue]


def _by_grant(item: tuple[str, Hold]) -> tuple[int, str]:
    attempt, hold = item
    return hold.token, attempt
