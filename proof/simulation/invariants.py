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

from holdfast.core.cluster import Finish, Finished, Leave
from holdfast.core.family import fits
from holdfast.core.keeper import Kept
from holdfast.core.requests import (
    Acquire,
    Break,
    Broken,
    Deadlocked,
    Done,
    Downgrade,
    Failed,
    Granted,
    NotHeld,
    Queued,
    Refused,
    Release,
    Released,
    Request,
    Resize,
    Resized,
    Withdraw,
    Withdrawn,
)
from holdfast.stores.base import micros
from proof.simulation import answers
from proof.simulation.beliefs import Beliefs, Believer
from proof.simulation.observed import NOT_THERE, State
from proof.simulation.step import EPOCH, Books, Step, Violation, require, violation


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
        answers.changed(step)
        answers.renewed(step)
        self._outcomes(step, books)
        self._staying(step, books)
        self._served(step)
        self._settled(step)
        self._counts(step)
        answers.signals(step)
        self._write_down(step, books)
        self._beliefs.compare(step.key, step.after, step.now)

    # 3: no client trusts a lease past its end in the store. See `Beliefs`.

    def believes(self, client: Believer, kept: Kept, now: float, state: State, context: str) -> None:
        """Take note that a client trusts a lease from now on, in the block *context*."""
        self._beliefs.begin(client, kept, now, state, context)
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
        for attempt, old in before.live(step.now).items():
            new = after.holds.get(attempt)
            kept = new is None or new.token == old.token
            require(kept, "1 tokens", step, "the token changed within a lease")
        for hold in step.granted.values():
            require(
                hold.token > books.highest,
                "1 tokens",
                step,
                f"a new lease has token {hold.token}, and there was {books.highest}",
            )
        if after.token != NOT_THERE:
            highest = max([books.highest, *(hold.token for hold in after.holds.values())])
            require(after.token >= highest, "1 tokens", step, "the token went back")
        if isinstance(step.request, Acquire) and isinstance(step.answer, Granted):
            own = after.holds.get(step.request.attempt)
            right = own is not None and step.answer.token == own.token
            require(right, "1 tokens", step, f"granted another token: {step.answer}")

    # 2: the live leases of a key fit beside each other, and all holds of a lease have one owner.

    def _exclusion(self, step: Step) -> None:
        before, after, now = step.before, step.after, step.now
        owners: dict[int, str] = {}
        for attempt, hold in after.holds.items():
            same = owners.setdefault(hold.token, hold.owner) == hold.owner
            require(same, "2 exclusion", step, f"{attempt} is in the lease of {owners[hold.token]}")
            old = before.holds.get(attempt)
            if old is not None and old.token == hold.token:
                require(old.owner == hold.owner, "2 exclusion", step, "the owner changed within a lease")
        letting_go = isinstance(step.request, Release | Withdraw | Break | Finish | Leave)
        beside = after.leases(now)
        for attempt, hold in before.live(now).items():
            if attempt not in after.holds and not (letting_go and attempt in step.named):
                beside.setdefault(hold.token, hold)
        for attempt, new in step.granted.items():
            others = [hold.terms for token, hold in beside.items() if token != new.token]
            possible = new.end <= now or fits(new.terms, others, after.permits)
            if isinstance(step.request, Resize) and before.holds.keys() != before.live(now).keys():
                # What had ended by then was handed over first, by the number before.
                possible = possible or fits(new.terms, others, before.permits)
            require(possible, "2 exclusion", step, f"a new lease of {attempt} beside {others}")
        if isinstance(step.request, Acquire) and isinstance(step.answer, Granted):
            own = after.holds.get(step.request.attempt)
            right = own is not None and own.owner == step.request.owner
            require(right, "2 exclusion", step, "granted to another owner")

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
            gone |= attempt in step.told
            require(gone, "4 scope", step, f"it changed the ticket of {attempt}")

    # 5: a repeated request changes nothing the first did not, except moving that attempt's own end.

    def repeated(self, request: Request[Any], first: Any, second: Any, before: State, after: State) -> None:
        """Check a request that was executed twice in a row: both answers, and the key between and after."""
        step = Step(getattr(request, "key", ""), request, second, 0, before, after)
        own = getattr(request, "attempt", None)
        same = (
            before.token == after.token
            and _without(before.holds, own) == _without(after.holds, own)
            and list(before.tickets) == list(after.tickets)
            and list(before.holds) == list(after.holds)
        )
        require(same, "5 repetition", step, "asked twice, it did something twice")
        if isinstance(first, Released | Withdrawn):
            said_so = second == NotHeld("already")
        elif isinstance(first, Granted):
            said_so = isinstance(second, Granted) and second.token == first.token
        elif isinstance(first, Queued) and own in before.holds:  # the victim of a circle has made room
            said_so = isinstance(second, Granted)
        else:
            said_so = type(first) is type(second)
        require(said_so, "5 repetition", step, f"first {first}, then {second}")

    # 6: among live tickets the lowest number is granted first, and nobody is granted past one.

    def _fifo(self, step: Step, books: Books) -> None:
        before, after = step.before, step.after
        arrivals = books.arrivals
        queue = [arrivals[a] for a in after.tickets if a in before.tickets and not step.rejoins(a)]
        require(queue == sorted(queue), "6 fifo", step, "the queue is not in the order of arrival")
        winners = list(step.granted)  # in the order of their tokens
        newcomer = books.arrived + 1
        places = [arrivals[a] if a in before.tickets else newcomer for a in winners]
        require(places == sorted(places), "6 fifo", step, f"{winners} were granted in another order")
        left = step.named if isinstance(step.request, Withdraw | Break) else set()
        for winner, place in zip(winners, places, strict=True):
            passed = [
                attempt
                for attempt, ticket in before.tickets.items()
                if ticket.end > step.now
                and attempt not in step.granted
                and attempt not in left
                and attempt not in step.told
                and arrivals[attempt] < place
            ]
            require(not passed, "6 fifo", step, f"granted to {winner}, past {passed}")
            waited = before.tickets.get(winner)
            dead = waited is not None and waited.end <= step.now and winner not in step.named
            require(not dead, "6 fifo", step, f"handed to {winner}, whose ticket is dead")

    # 7: after settling, the first live ticket of a key does not fit beside what is held, unless it is shut.

    def _served(self, step: Step) -> None:
        after, now = step.after, step.now
        if not self._settles(step) and (after.holds or after.shut_until):
            return
        waiting = {attempt: ticket for attempt, ticket in after.tickets.items() if ticket.end > now}
        if waiting and after.shut_until <= now:
            first = next(iter(waiting))
            held = [hold.terms for hold in after.leases(now).values()]
            served = not fits(waiting[first].terms, held, after.permits)
            require(served, "7 served", step, f"{first} waits, and would fit beside {held}")

    @staticmethod
    def _settles(step: Step) -> bool:
        if isinstance(step.request, Acquire):
            own = step.before.holds.get(step.request.attempt)
            return step.direct and (own is None or own.end <= step.now)
        return isinstance(step.request, Release | Withdraw | Break | Downgrade | Resize) or any(
            step.refreshed()
        )

    def _settled(self, step: Step) -> None:
        if self._settles(step):
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

    # 10: an operation has at most one outcome for each token, and whoever waited for it learns that one.

    def _outcomes(self, step: Step, books: Books) -> None:
        request, answer = step.request, step.answer
        if not isinstance(request, Acquire) or not step.direct:
            return
        if isinstance(answer, Done):
            waited = books.waited.get(request.attempt)
            if answer.kept:
                waited = books.kept[0] if books.kept[1] > step.now else None
            right = answer.token == waited and books.outcomes.get(answer.token) == answer.result
            require(right, "10 outcomes", step, f"it waited for {waited}, and learns {answer}")
        elif isinstance(answer, Failed):
            told = request.attempt in step.told or books.waited.get(request.attempt, 0) is None
            require(told and bool(answer.failures), "10 outcomes", step, "nobody has given up")
        elif request.attempt in books.waited:
            require(isinstance(answer, NotHeld), "10 outcomes", step, "it was to learn the outcome")

    # 16: nobody is granted a lock before the grant of a lease that was released plus its at_least.
    # 17: nobody is to do an operation whose result is kept. (Here nobody says to have seen it.)

    def _staying(self, step: Step, books: Books) -> None:
        request, answer, now = step.request, step.answer, step.now
        if isinstance(request, Break) and isinstance(answer, Broken):
            books.shut_until = 0
            if request.token in (None, books.kept[0]):
                books.kept = 0, 0
        for attempt in step.granted:
            hold = step.after.holds[attempt]
            books.began.setdefault(hold.token, now)
            require(now >= books.shut_until, "16 at least", step, f"{attempt} got it before its time")
            again = hold.terms.operation and books.kept[1] > now
            require(not again, "17 kept", step, f"{attempt} is to do what was done")
        if isinstance(request, Release) and isinstance(answer, Released) and not answer.holds:
            hold = step.before.holds[request.attempt]
            if hold.terms.at_least:
                began = books.began[hold.token]
                books.shut_until = max(books.shut_until, began + micros(hold.terms.at_least))

    def _note_outcomes(self, step: Step, books: Books) -> None:
        request = step.request
        over = any(signal.kind == "over" for _, signal in step.signals)
        if isinstance(request, Release) and isinstance(step.answer, Released):
            hold = step.before.holds.get(request.attempt)
            outcome = request.outcome
            if hold is not None and hold.terms.operation and outcome is not None and outcome.succeeded:
                once = request.token not in books.outcomes
                require(once, "10 outcomes", step, "it has a second outcome")
                require(not step.granted, "10 outcomes", step, "somebody inherits what is done")
                books.outcomes[request.token] = outcome.text
                books.waited.update(dict.fromkeys(step.told, request.token))
                if outcome.keep:
                    books.kept = request.token, step.now + micros(outcome.keep)
                self.counts["operations done"] += 1
                return
        if over:
            books.waited.update(dict.fromkeys(step.told))
            self.counts["operations given up"] += 1

    def _write_down(self, step: Step, books: Books) -> None:
        """Bring the books up to date, and count what is worth seeing in a report."""
        before, after, now = step.before, step.after, step.now
        request, answer, counts = step.request, step.answer, self.counts
        named = step.named
        if isinstance(request, Break) and isinstance(answer, Broken):
            self._beliefs.broke(named)
            books.over.update(dict.fromkeys(named, "been broken"))
            counts["broken"] += 1
        elif isinstance(answer, Released | Finished):
            books.over[getattr(request, "attempt", "")] = "been released"
        elif isinstance(request, Withdraw) and isinstance(answer, Withdrawn):
            books.over[request.attempt] = "been withdrawn"
        for attempt, hold in before.holds.items():
            if hold.end <= now and after.holds.get(attempt) != hold:
                if hold.claimed or hold.terms.enters:
                    books.over[attempt] = "expired"
                counts["expired" if hold.claimed else "unclaimed"] += 1
        self._note_outcomes(step, books)
        self._count_family(step)
        books.over.update(dict.fromkeys(step.told, "been told to go"))
        for attempt in after.tickets:
            if attempt not in before.tickets or step.rejoins(attempt):
                books.arrived += 1
                books.arrivals[attempt] = books.arrived
        for attempt, ticket in before.tickets.items():
            if attempt not in after.tickets and ticket.end <= now and attempt not in named:
                counts["tickets died"] += 1
        counts["grants"] += len(step.granted)
        counts["handed over"] += sum(attempt in before.tickets for attempt in step.granted)
        if (
            isinstance(request, Acquire)
            and isinstance(answer, Granted)
            and request.attempt not in step.granted
        ):
            old = before.holds.get(request.attempt)
            counts["re-entered" if old is None else "asked again" if old.claimed else "claimed"] += 1
        if before.token != NOT_THERE and after.token == NOT_THERE:
            counts["swept"] += 1
        books.highest = max(books.highest, after.token)

    def _count_family(self, step: Step) -> None:
        """Count what there is only on other than plain terms."""
        counts, answer = self.counts, step.answer
        leases = step.after.leases(step.now)
        if step.granted and len(leases) > 1:
            counts[f"{next(iter(leases.values())).terms.mode} together"] += 1
        if sum(attempt in step.before.tickets for attempt in step.granted) > 1:
            counts["handed over together"] += 1
        if step.after.shut_until > step.now:
            counts["shut"] += 1
        if step.direct and isinstance(answer, Done | Failed | Deadlocked | Refused | Resized):
            name = type(answer).__name__.lower()
            if isinstance(answer, Done) and answer.kept:
                name = "told what was kept"
            counts[f"refused: {answer.why}" if isinstance(answer, Refused) else name] += 1
        elif isinstance(step.request, Downgrade) and isinstance(answer, Granted):
            counts["downgraded"] += 1


def _either(one: Iterable[str], other: Iterable[str]) -> list[str]:
    return list(dict.fromkeys([*one, *other]))


def _without(items: dict[str, Any], name: str | None) -> dict[str, Any]:
    return {each: value for each, value in items.items() if each != name}
