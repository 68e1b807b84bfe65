"""The invariants of the protocol page, checked on what really happened.

The checker is told every request a store executed, with its answer, its signals, and the key before and
after; and what the clients believe. It keeps its own books (tokens seen, order of arrival, attempts that
are over), so that it does not have to believe the store's. A flaw raises `Violation` with the name of
the invariant.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

from holdfast.core.keeper import Kept
from holdfast.core.requests import (
    Acquire,
    Break,
    Broken,
    Busy,
    Granted,
    LeaseAnswer,
    NotHeld,
    Queued,
    RefreshTicket,
    Release,
    Released,
    Renew,
    RenewLease,
    Request,
    Signal,
    TicketAnswer,
    TooManyHolds,
    Withdraw,
    Withdrawn,
)
from holdfast.stores.base import micros
from holdfast.testing.simulation.observed import NOT_THERE, NOTHING, State

EPOCH = 1_700_000_000.0  # the store's clock at virtual time 0


class Violation(AssertionError):
    """An invariant does not hold."""

    def __init__(self, invariant: str, text: str) -> None:
        self.invariant = invariant
        self.text = text
        super().__init__(f"{invariant}: {text}")


class Believer(Protocol):
    """A client, as far as its beliefs are concerned."""

    def true_time(self, local: float) -> float:
        """Return the virtual time at which its clock shows *local*."""


@dataclass(slots=True)
class Step:
    """One request's effect on one key."""

    key: str
    request: Request[Any]
    answer: Any
    now: int
    before: State
    after: State
    signals: list[tuple[str, Signal]] = field(default_factory=list)

    def leases(self) -> Iterator[tuple[RenewLease, LeaseAnswer]]:
        """Return the renewals of this key's leases, with their answers."""
        if isinstance(self.request, Renew):
            for lease, answer in zip(self.request.leases, self.answer.leases, strict=True):
                if lease.key == self.key:
                    yield lease, answer

    def refreshed(self) -> Iterator[tuple[RefreshTicket, TicketAnswer]]:
        """Return the refreshments of this key's tickets, with their answers."""
        if isinstance(self.request, Renew):
            for ticket, answer in zip(self.request.tickets, self.answer.tickets, strict=True):
                if ticket.key == self.key:
                    yield ticket, answer

    def named(self) -> set[str]:
        """Return the attempts that the request is about."""
        if isinstance(self.request, Acquire | Release | Withdraw):
            return {self.request.attempt}
        if isinstance(self.request, Break):
            return self._broken() if isinstance(self.answer, Broken) else set()
        return {lease.attempt for lease, _ in self.leases()} | {t.attempt for t, _ in self.refreshed()}

    def _broken(self) -> set[str]:
        """Return the attempts that lost the lock to an operator. It is settled first: whoever was handed
        it by that is the holder that is robbed.
        """
        if any(hold.end > self.now for hold in self.before.holds.values()):
            return set(self.before.holds)
        alive = (attempt for attempt, ticket in self.before.tickets.items() if ticket.end > self.now)
        return {*self.before.holds, *itertools.islice(alive, 1)}

    def continued(self) -> bool:
        """Tell whether the lease from before goes on."""
        return any(a in self.after.holds and hold.end > self.now for a, hold in self.before.holds.items())

    def rejoins(self, attempt: str) -> bool:
        """Tell whether an attempt with a dead ticket asked again, and came to stand at the tail."""
        if not isinstance(self.request, Acquire) or self.request.attempt != attempt:
            return False
        ticket = self.before.tickets.get(attempt)
        return ticket is not None and ticket.end <= self.now and next(reversed(self.after.tickets)) == attempt


@dataclass
class _Books:
    """What the checker knows of a key."""

    highest: int = 0  # of all tokens seen
    arrivals: dict[str, int] = field(default_factory=dict)  # attempt → when its ticket appeared
    arrived: int = 0
    ends: dict[str, int] = field(default_factory=dict)  # attempt → the last end of its hold
    over: dict[str, str] = field(default_factory=dict)  # attempt → why it must never hold again
    believers: dict[str, tuple[Believer, Kept]] = field(default_factory=dict)


class Checker:
    """All invariants, and the books they need."""

    def __init__(self, counts: Counter[str] | None = None) -> None:
        self.counts: Counter[str] = Counter() if counts is None else counts
        self._books: dict[str, _Books] = {}
        self._broken: set[str] = set()
        # In the order in which a reader wants to hear of them: the first that fails is reported.
        self._checks: tuple[Callable[[Step, _Books], None], ...] = (
            self._tokens,
            self._exclusion,
            self._ended,
            self._fifo,
            self._scope,
            self._acquired,
            self._let_go,
            self._renewed,
            self._served,
            self._settled,
            self._counts,
            self._signals,
        )

    def step(self, step: Step) -> None:
        """Check one request's effect on one key."""
        books = self._of(step.key)
        for check in self._checks:
            check(step, books)
        self._write_down(step, books)
        self._trust(step.key, step.after, books, step.now)

    def _of(self, key: str) -> _Books:
        books = self._books.get(key)
        if books is None:
            books = self._books[key] = _Books()
        return books

    # 1: tokens of a key strictly increase from lease to lease; renewal, re-entry and claim keep them.

    def _tokens(self, step: Step, books: _Books) -> None:
        before, after = step.before, step.after
        if step.continued():
            _require(after.token == before.token, "1 tokens", step, "the token changed within a lease")
        elif after.holds:
            _require(
                after.token > books.highest,
                "1 tokens",
                step,
                f"a new lease has token {after.token}, and there was {books.highest}",
            )
        elif after.token != NOT_THERE:
            _require(after.token >= books.highest, "1 tokens", step, "the token went back")
        if isinstance(step.answer, Granted):
            _require(
                step.answer.token == after.token, "1 tokens", step, f"granted another token: {step.answer}"
            )

    # 2: at every instant of the store's clock all live holds of a key have one owner and one token.

    def _exclusion(self, step: Step, books: _Books) -> None:
        before, after = step.before, step.after
        if step.continued():
            _require(after.owner == before.owner, "2 exclusion", step, "the owner changed within a lease")
        elif after.holds:
            named = step.named() if isinstance(step.request, Release | Withdraw | Break) else set()
            alive = [a for a, hold in before.holds.items() if hold.end > step.now and a not in named]
            _require(not alive, "2 exclusion", step, f"a new lease while {alive} hold it")
        _require((after.owner is None) == (not after.holds), "2 exclusion", step, "an owner without a hold")
        if isinstance(step.request, Acquire) and isinstance(step.answer, Granted):
            _require(after.owner == step.request.owner, "2 exclusion", step, "granted to another owner")

    # 4: a request changes only the attempt it names, except by settling.

    def _scope(self, step: Step, books: _Books) -> None:
        before, after, now = step.before, step.after, step.now
        named = step.named()
        for attempt in _either(before.holds, after.holds):
            if attempt in named:
                continue
            old, new = before.holds.get(attempt), after.holds.get(attempt)
            if old == new:
                continue
            if new is None:
                _require(old is None or old.end <= now, "4 scope", step, f"it ended the hold of {attempt}")
                continue
            ticket = before.tickets.get(attempt)
            handed = old is None and ticket is not None
            _require(handed, "4 scope", step, f"it changed the hold of {attempt}")
            assert ticket is not None
            _require(
                not new.claimed and new.end == now + ticket.claim,
                "4 scope",
                step,
                f"handed to {attempt} as {new}, not for its claim window",
            )
        for attempt in _either(before.tickets, after.tickets):
            if attempt in named:
                continue
            waited, waits = before.tickets.get(attempt), after.tickets.get(attempt)
            if waited == waits:
                continue
            gone = waits is None and waited is not None and (waited.end <= now or attempt in after.holds)
            _require(gone, "4 scope", step, f"it changed the ticket of {attempt}")

    # 5: a repeated request changes nothing the first did not, except moving that attempt's own end.

    def repeated(self, request: Request[Any], first: Any, second: Any, before: State, after: State) -> None:
        """Check a request that was executed twice in a row: first and second answer, key between and after."""
        step = Step(getattr(request, "key", ""), request, second, 0, before, after)
        own = getattr(request, "attempt", None)
        same = (
            before.token == after.token
            and before.owner == after.owner
            and _without(before.holds, own) == _without(after.holds, own)
            and list(before.tickets) == list(after.tickets)
            and list(before.holds) == list(after.holds)
        )
        _require(same, "5 repetition", step, "asked twice, it did something twice")
        if isinstance(first, Released | Withdrawn):
            said_so = second == NotHeld("already")
        elif isinstance(first, Granted):
            said_so = isinstance(second, Granted) and second.token == first.token
        else:
            said_so = type(first) is type(second)
        _require(said_so, "5 repetition", step, f"first {first}, then {second}")

    # 6: among live tickets the lowest number is granted first, and nobody is granted past one.

    def _fifo(self, step: Step, books: _Books) -> None:
        before, after = step.before, step.after
        arrivals = books.arrivals
        queue = [arrivals[a] for a in after.tickets if a in before.tickets and not step.rejoins(a)]
        _require(queue == sorted(queue), "6 fifo", step, "the queue is not in the order of arrival")
        if not after.holds or step.continued():
            return
        winner = next(iter(after.holds))
        place = arrivals.get(winner, books.arrived) if winner in before.tickets else books.arrived
        left = step.named() if isinstance(step.request, Withdraw | Break) else set()
        passed = [
            attempt
            for attempt, ticket in before.tickets.items()
            if ticket.end > step.now and attempt != winner and attempt not in left and arrivals[attempt] < place
        ]
        _require(not passed, "6 fifo", step, f"granted to {winner}, past {passed}")
        ticket = before.tickets.get(winner)
        dead = ticket is not None and ticket.end <= step.now and winner not in step.named()
        _require(not dead, "6 fifo", step, f"handed to {winner}, whose ticket is dead")

    # 7: after settling, a key is not both free and waited for by a live ticket.

    def _served(self, step: Step, books: _Books) -> None:
        if step.after.owner is None:
            waiting = [a for a, ticket in step.after.tickets.items() if ticket.end > step.now]
            _require(not waiting, "7 served", step, f"it is free, and {waiting} wait")

    def _settled(self, step: Step, books: _Books) -> None:
        settles = isinstance(step.request, Release | Withdraw | Break) or any(step.refreshed())
        if isinstance(step.request, Acquire):
            own = step.before.holds.get(step.request.attempt)
            settles = own is None or own.end <= step.now
        if settles:
            over = [attempt for attempt, hold in step.after.holds.items() if hold.end <= step.now]
            _require(not over, "7 served", step, f"the holds of {over} are over, and still there")

    # 8: an ended attempt never holds again.

    def _ended(self, step: Step, books: _Books) -> None:
        before = step.before
        for attempt in _either(step.after.holds, step.after.tickets):
            if attempt in books.over and attempt not in before.holds and attempt not in before.tickets:
                raise _violation("8 ended", step, f"{attempt} had {books.over[attempt]}, and is back")

    # 9: the number of tickets on a key's row equals its tickets.

    def _counts(self, step: Step, books: _Books) -> None:
        after = step.after
        _require(
            after.waiters == len(after.tickets),
            "9 counts",
            step,
            f"waiters is {after.waiters}, tickets are {len(after.tickets)}",
        )
        _require(
            after.counted == len(after.holds),
            "9 counts",
            step,
            f"holds is {after.counted}, and there are {len(after.holds)}",
        )

    # What the tables of the protocol say of each request's answer and of the attempt it names.

    def _acquired(self, step: Step, books: _Books) -> None:
        request, answer, after, now = step.request, step.answer, step.after, step.now
        if not isinstance(request, Acquire):
            return
        attempt = request.attempt
        old, new = step.before.holds.get(attempt), after.holds.get(attempt)
        if isinstance(answer, Granted):
            end = now + micros(request.ttl)
            ticket = step.before.tickets.get(attempt)
            if old is not None and old.end > now:
                end = max(old.end, end)
            elif ticket is not None and not step.continued():  # settling handed it over, for its claim window
                end = max(now + ticket.claim, end)
            right = new is not None and new.claimed and new.end == end and attempt not in after.tickets
            _require(right, "answers", step, f"granted, and the hold is {new}")
            _require(micros(answer.expires_in) == end - now, "answers", step, f"the wrong end: {answer}")
            return
        _require(old is None or old.end <= now, "answers", step, f"it holds, and was answered {answer}")
        _require(new is None, "answers", step, f"answered {answer}, and it holds")
        if isinstance(answer, Queued):
            place = list(after.tickets).index(attempt) + 1 if attempt in after.tickets else 0
            _require(answer.position == place, "answers", step, f"it is number {place}, not {answer}")
            _require(after.tickets[attempt].end >= now + micros(request.patience), "answers", step, "impatient")
        elif isinstance(answer, NotHeld):
            _require(attempt in books.over or attempt in step.before.holds, "answers", step, "it never ended")
        elif isinstance(answer, TooManyHolds):
            _require(len(after.holds) >= request.limit, "answers", step, "there are fewer holds")
        if isinstance(answer, Queued | Busy):
            _require(after.owner != request.owner, "answers", step, "it waits for itself")
            _require(any(hold.end > now for hold in after.holds.values()), "answers", step, "for nobody")

    def _let_go(self, step: Step, books: _Books) -> None:
        request, answer, before, after = step.request, step.answer, step.before, step.after
        if not isinstance(request, Release | Withdraw):
            return
        hold = before.holds.get(request.attempt)
        alive = hold is not None and hold.end > step.now
        if isinstance(answer, Released | Withdrawn):
            gone = request.attempt not in after.holds and request.attempt not in after.tickets
            _require(gone, "answers", step, "let go, and still there")
        if isinstance(request, Release):
            ours = alive and before.token == request.token
            _require(ours == isinstance(answer, Released), "answers", step, f"alive: {alive}, but {answer}")
        else:
            _require(
                not (alive and isinstance(answer, NotHeld)), "answers", step, "it holds, and may not withdraw"
            )

    def _renewed(self, step: Step, books: _Books) -> None:
        before, after, now = step.before, step.after, step.now
        for lease, said in step.leases():
            old, new = before.holds.get(lease.attempt), after.holds.get(lease.attempt)
            if old is None or old.end <= now or before.token != lease.token:
                _require(said.outcome == "lost", "answers", step, f"it is lost, and was answered {said}")
                _require(
                    new is None or new == old, "answers", step, f"a lost lease was renewed from {old} to {new}"
                )
                continue
            end = max(old.end, now + micros(lease.ttl))
            outcome = "held" if end > now + micros(lease.ttl) else "renewed"
            _require(said.outcome == outcome, "answers", step, f"not {outcome} but {said}")
            _require(new == (end, old.claimed), "answers", step, f"renewed from {old} to {new}")
        for refresh, told in step.refreshed():
            attempt = refresh.attempt
            ticket = after.tickets.get(attempt)
            outcome = "handed" if attempt in after.holds else "gone" if ticket is None else "waiting"
            _require(told.outcome == outcome, "answers", step, f"not {outcome} but {told}")
            if ticket is not None:
                _require(told.head == (after.first() == attempt), "answers", step, f"head or not: {told}")
                _require(ticket.end >= now + micros(refresh.patience), "answers", step, "impatient")

    # Who is signalled: the winner of a hand-over, whoever is head now, and who was robbed. Nobody else.

    def _signals(self, step: Step, books: _Books) -> None:
        before, after = step.before, step.after
        wanted: set[tuple[str, str]] = set()
        for attempt, hold in after.holds.items():
            if attempt in before.tickets and attempt not in before.holds and not hold.claimed:
                wanted.add(("granted", attempt))
        head = after.first()
        if head is not None and head != before.first() and head in before.tickets:
            wanted.add(("head", head))
        if isinstance(step.answer, Broken):
            wanted |= {("lost", a) for a, hold in before.holds.items() if hold.end > step.now}
        sent = {(signal.kind, signal.attempt) for _, signal in step.signals}
        _require(wanted <= sent, "signals", step, f"not told: {sorted(wanted - sent)}")
        for instance, signal in step.signals:
            ticket = before.tickets.get(signal.attempt)
            known = signal.attempt in before.holds or (ticket is not None and ticket.instance == instance)
            _require(known, "signals", step, f"{instance} was told {signal}")
        # Two a hand-over, at most two hand-overs (settling, then the request itself), and who was robbed.
        _require(len(step.signals) <= 4 + len(before.holds), "signals", step, "a herd was woken")

    def _write_down(self, step: Step, books: _Books) -> None:
        """Bring the books up to date, and count what is worth seeing in a report."""
        before, after, now = step.before, step.after, step.now
        request, answer, counts = step.request, step.answer, self.counts
        named = step.named()
        if isinstance(request, Break) and isinstance(answer, Broken):
            self._broken |= named
            books.over.update(dict.fromkeys(named, "been broken"))
            counts["broken"] += 1
        elif isinstance(answer, Released):
            books.over[getattr(request, "attempt", "")] = "been released"
        elif isinstance(request, Withdraw) and isinstance(answer, Withdrawn):
            books.over[request.attempt] = "been withdrawn"
        for attempt, hold in before.holds.items():
            if hold.end <= now and after.holds.get(attempt) != hold:
                if hold.claimed:
                    books.over[attempt] = "expired"
                    counts["expired"] += 1
                else:
                    counts["unclaimed"] += 1
        for attempt, hold in after.holds.items():
            books.ends[attempt] = hold.end
        for attempt in after.tickets:
            if attempt not in before.tickets or step.rejoins(attempt):
                books.arrived += 1
                books.arrivals[attempt] = books.arrived
        for attempt, ticket in before.tickets.items():
            if attempt not in after.tickets and ticket.end <= now and attempt not in named:
                counts["tickets died"] += 1
        if after.holds and not step.continued():
            counts["grants"] += 1
            if next(iter(after.holds)) in before.tickets:
                counts["handed over"] += 1
        elif isinstance(request, Acquire) and isinstance(answer, Granted):
            old = before.holds.get(request.attempt)
            counts["re-entered" if old is None else "asked again" if old.claimed else "claimed"] += 1
        if before.token != NOT_THERE and after.token == NOT_THERE:
            counts["swept"] += 1
        books.highest = max(books.highest, after.token)

    # 3: no client trusts a lease past its end in the store.

    def believes(self, client: Believer, kept: Kept, now: float, state: State = NOTHING) -> None:
        """Take note that a client trusts a lease from now on."""
        grant = kept.grant
        books = self._of(grant.key)
        for attempt, (other, theirs) in books.believers.items():
            if theirs.grant.token == grant.token or theirs.lost is not None:
                continue
            if self._broken & {attempt, grant.attempt}:
                continue  # by an operator, which its holder does not know yet
            if other.true_time(theirs.trusted_until) > now:
                raise Violation(
                    "3 trust",
                    f"{grant.attempt} trusts {grant.key} with token {grant.token}, while {attempt} trusts"
                    f" it with token {theirs.grant.token} until {other.true_time(theirs.trusted_until):.4f}",
                )
        books.believers[grant.attempt] = (client, kept)
        self.extended(grant.key, state, now)

    def extended(self, key: str, state: State, now: float) -> None:
        """Check the trust in a key, after a client got an answer."""
        self._trust(key, state, self._of(key), micros(EPOCH + now))

    def doubts(self, kept: Kept) -> None:
        """Take note that a client gave a lease up, lost it, or is no more."""
        self._of(kept.grant.key).believers.pop(kept.grant.attempt, None)

    def finished(self, key: str, attempt: str, state: State) -> None:
        """Take note that a client is done with an attempt, and see that it left nothing behind."""
        if attempt in state.holds or attempt in state.tickets:
            raise Violation("undo", f"{attempt} gave {key} up, and left something behind: {state}")
        self._of(key).over.setdefault(attempt, "been given up")

    def was_broken(self, attempt: str) -> bool:
        """Tell whether an operator ended this attempt: its client learns of it when it asks."""
        return attempt in self._broken

    def end_of(self, key: str, attempt: str) -> int:
        """Return the last end that the store had for a hold."""
        return self._of(key).ends.get(attempt, 0)

    def _trust(self, key: str, state: State, books: _Books, now: int) -> None:
        for attempt, (client, kept) in books.believers.items():
            if kept.lost is not None or attempt in self._broken:
                continue
            until = micros(EPOCH + client.true_time(kept.trusted_until))
            hold = state.holds.get(attempt)
            end = books.ends.get(attempt, 0) if hold is None else hold.end
            if until > end or (hold is None and end > now and until > now):
                raise Violation(
                    "3 trust",
                    f"{attempt} trusts {key} until {until / 1e6 - EPOCH:.4f}; in the store it is"
                    f" {'gone' if hold is None else 'over'} at {min(end, now) / 1e6 - EPOCH:.4f}",
                )


def _violation(invariant: str, step: Step, text: str) -> Violation:
    return Violation(
        invariant,
        f"{text}\n  request {step.request}\n  answer  {step.answer}"
        f"\n  before  {step.before}\n  after   {step.after}\n  at      {step.now}",
    )


def _require(holds: bool, invariant: str, step: Step, text: str) -> None:
    if not holds:
        raise _violation(invariant, step, text)


def _either(one: Iterable[str], other: Iterable[str]) -> list[str]:
    return list(dict.fromkeys([*one, *other]))


def _without(items: dict[str, Any], name: str | None) -> dict[str, Any]:
    return {each: value for each, value in items.items() if each != name}
