"""The invariants of the protocol page, checked on what really happened.

The checker is told every request a store executed, with its answer, its signals, and the key before and
after; and what the clients believe. It keeps its own books (tokens seen, order of arrival, attempts that
are over), so that it does not have to believe the store's. A flaw raises `Violation` with the name of
the invariant.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from holdfast.core.keeper import Kept
from holdfast.core.requests import (
    Acquire,
    Break,
    Broken,
    Granted,
    NotHeld,
    Release,
    Released,
    Request,
    Withdraw,
    Withdrawn,
)
from holdfast.stores.base import micros
from holdfast.testing.simulation import answers
from holdfast.testing.simulation.beliefs import Beliefs, Believer
from holdfast.testing.simulation.observed import NOT_THERE, State
from holdfast.testing.simulation.step import EPOCH, Books, Step, Violation, require, violation


class Checker:
    """All invariants, and the books they need."""

    def __init__(self, counts: Counter[str] | None = None) -> None:
        self.counts: Counter[str] = Counter() if counts is None else counts
        self._books: dict[str, Books] = {}
        self._beliefs = Beliefs()

    def step(self, step: Step) -> None:
        """Check one request's effect on one key."""
        books = self._of(step.key)
        # In the order in which a reader wants to hear of them: the first that fails is reported.
        self._tokens(step, books)
        self._exclusion(step)
        self._ended(step, books)
        self._fifo(step, books)
        self._scope(step)
        answers.acquired(step, books)
        answers.let_go(step)
        answers.renewed(step)
        self._served(step)
        self._settled(step)
        self._counts(step)
        answers.signals(step)
        self._write_down(step, books)
        self._beliefs.compare(step.key, step.after, step.now)

    # 3: no client trusts a lease past its end in the store. See `Beliefs`.

    def believes(self, client: Believer, kept: Kept, now: float, state: State) -> None:
        """Take note that a client trusts a lease from now on."""
        self._beliefs.begin(client, kept, now)
        self._beliefs.compare(kept.grant.key, state, micros(EPOCH + now))

    def extended(self, key: str, now: float, state: State) -> None:
        """Check the trust in a key after a client got an answer to its renewal."""
        self._beliefs.compare(key, state, micros(EPOCH + now))

    def looked(self, kept: Kept, now: float) -> None:
        """Check a lease that a client looked at, and found to be its own."""
        if not self._beliefs.honest(kept, now):
            raise Violation("3 trust", f"{kept.grant} is trusted, and over in the store")

    def doubts(self, kept: Kept) -> None:
        """Take note that a client gave a lease up, lost it, or is no more."""
        self._beliefs.end(kept)

    # Undo: nothing is left behind.

    def finished(self, key: str, attempt: str, state: State) -> None:
        """Take note that a client is done with an attempt, and see that it left nothing behind."""
        if attempt in state.holds or attempt in state.tickets:
            raise Violation("undo", f"{attempt} gave {key} up, and left something behind: {state}")
        self._of(key).over.setdefault(attempt, "been given up")

    def _of(self, key: str) -> Books:
        books = self._books.get(key)
        if books is None:
            books = self._books[key] = Books()
        return books

    # 1: tokens of a key strictly increase from lease to lease; renewal, re-entry and claim keep them.

    def _tokens(self, step: Step, books: Books) -> None:
        before, after = step.before, step.after
        if step.continued:
            require(after.token == before.token, "1 tokens", step, "the token changed within a lease")
        elif after.holds:
            require(
                after.token > books.highest,
                "1 tokens",
                step,
                f"a new lease has token {after.token}, and there was {books.highest}",
            )
        elif after.token != NOT_THERE:
            require(after.token >= books.highest, "1 tokens", step, "the token went back")
        if isinstance(step.answer, Granted):
            require(
                step.answer.token == after.token, "1 tokens", step, f"granted another token: {step.answer}"
            )

    # 2: at every instant of the store's clock all live holds of a key have one owner and one token.

    def _exclusion(self, step: Step) -> None:
        before, after = step.before, step.after
        if step.continued:
            require(after.owner == before.owner, "2 exclusion", step, "the owner changed within a lease")
        elif after.holds:
            named = step.named if isinstance(step.request, Release | Withdraw | Break) else set()
            alive = [a for a, hold in before.holds.items() if hold.end > step.now and a not in named]
            require(not alive, "2 exclusion", step, f"a new lease while {alive} hold it")
        require((after.owner is None) == (not after.holds), "2 exclusion", step, "an owner without a hold")
        if isinstance(step.request, Acquire) and isinstance(step.answer, Granted):
            require(after.owner == step.request.owner, "2 exclusion", step, "granted to another owner")

    # 4: a request changes only the attempt it names, except by settling.

    def _scope(self, step: Step) -> None:
        before, after, now = step.before, step.after, step.now
        named = step.named
        for attempt in _either(before.holds, after.holds):
            if attempt in named:
                continue
            old, new = before.holds.get(attempt), after.holds.get(attempt)
            if old == new:
                continue
            if new is None:
                require(old is None or old.end <= now, "4 scope", step, f"it ended the hold of {attempt}")
                continue
            ticket = before.tickets.get(attempt)
            handed = old is None and ticket is not None
            require(handed, "4 scope", step, f"it changed the hold of {attempt}")
            assert ticket is not None
            require(
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
            require(gone, "4 scope", step, f"it changed the ticket of {attempt}")

    # 5: a repeated request changes nothing the first did not, except moving that attempt's own end.

    def repeated(self, request: Request[Any], first: Any, second: Any, before: State, after: State) -> None:
        """Check a request that was executed twice in a row: both answers, and the key between and after."""
        step = Step(getattr(request, "key", ""), request, second, 0, before, after)
        own = getattr(request, "attempt", None)
        same = (
            before.token == after.token
            and before.owner == after.owner
            and _without(before.holds, own) == _without(after.holds, own)
            and list(before.tickets) == list(after.tickets)
            and list(before.holds) == list(after.holds)
        )
        require(same, "5 repetition", step, "asked twice, it did something twice")
        if isinstance(first, Released | Withdrawn):
            said_so = second == NotHeld("already")
        elif isinstance(first, Granted):
            said_so = isinstance(second, Granted) and second.token == first.token
        else:
            said_so = type(first) is type(second)
        require(said_so, "5 repetition", step, f"first {first}, then {second}")

    # 6: among live tickets the lowest number is granted first, and nobody is granted past one.

    def _fifo(self, step: Step, books: Books) -> None:
        before, after = step.before, step.after
        arrivals = books.arrivals
        queue = [arrivals[a] for a in after.tickets if a in before.tickets and not step.rejoins(a)]
        require(queue == sorted(queue), "6 fifo", step, "the queue is not in the order of arrival")
        if not after.holds or step.continued:
            return
        winner = next(iter(after.holds))
        place = arrivals.get(winner, books.arrived) if winner in before.tickets else books.arrived
        left = step.named if isinstance(step.request, Withdraw | Break) else set()
        passed = [
            attempt
            for attempt, ticket in before.tickets.items()
            if ticket.end > step.now
            and attempt != winner
            and attempt not in left
            and arrivals[attempt] < place
        ]
        require(not passed, "6 fifo", step, f"granted to {winner}, past {passed}")
        ticket = before.tickets.get(winner)
        dead = ticket is not None and ticket.end <= step.now and winner not in step.named
        require(not dead, "6 fifo", step, f"handed to {winner}, whose ticket is dead")

    # 7: after settling, a key is not both free and waited for by a live ticket.

    def _served(self, step: Step) -> None:
        if step.after.owner is None:
            waiting = [a for a, ticket in step.after.tickets.items() if ticket.end > step.now]
            require(not waiting, "7 served", step, f"it is free, and {waiting} wait")

    def _settled(self, step: Step) -> None:
        settles = isinstance(step.request, Release | Withdraw | Break) or any(step.refreshed())
        if isinstance(step.request, Acquire):
            own = step.before.holds.get(step.request.attempt)
            settles = own is None or own.end <= step.now
        if settles:
            over = [attempt for attempt, hold in step.after.holds.items() if hold.end <= step.now]
            require(not over, "7 served", step, f"the holds of {over} are over, and still there")

    # 8: an ended attempt never holds again.

    def _ended(self, step: Step, books: Books) -> None:
        before = step.before
        for attempt in _either(step.after.holds, step.after.tickets):
            if attempt in books.over and attempt not in before.holds and attempt not in before.tickets:
                raise violation("8 ended", step, f"{attempt} had {books.over[attempt]}, and is back")

    # 9: the number of tickets on a key's row equals its tickets.

    def _counts(self, step: Step) -> None:
        after = step.after
        require(
            after.waiters == len(after.tickets),
            "9 counts",
            step,
            f"waiters is {after.waiters}, tickets are {len(after.tickets)}",
        )
        require(
            after.counted == len(after.holds),
            "9 counts",
            step,
            f"holds is {after.counted}, and there are {len(after.holds)}",
        )

    def _write_down(self, step: Step, books: Books) -> None:
        """Bring the books up to date, and count what is worth seeing in a report."""
        before, after, now = step.before, step.after, step.now
        request, answer, counts = step.request, step.answer, self.counts
        named = step.named
        if isinstance(request, Break) and isinstance(answer, Broken):
            self._beliefs.broke(named)
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
        for attempt in after.tickets:
            if attempt not in before.tickets or step.rejoins(attempt):
                books.arrived += 1
                books.arrivals[attempt] = books.arrived
        for attempt, ticket in before.tickets.items():
            if attempt not in after.tickets and ticket.end <= now and attempt not in named:
                counts["tickets died"] += 1
        if after.holds and not step.continued:
            counts["grants"] += 1
            if next(iter(after.holds)) in before.tickets:
                counts["handed over"] += 1
        elif isinstance(request, Acquire) and isinstance(answer, Granted):
            old = before.holds.get(request.attempt)
            counts["re-entered" if old is None else "asked again" if old.claimed else "claimed"] += 1
        if before.token != NOT_THERE and after.token == NOT_THERE:
            counts["swept"] += 1
        books.highest = max(books.highest, after.token)


def _either(one: Iterable[str], other: Iterable[str]) -> list[str]:
    return list(dict.fromkeys([*one, *other]))


def _without(items: dict[str, Any], name: str | None) -> dict[str, Any]:
    return {each: value for each, value in items.items() if each != name}
