"""When two states are one: what a state is, without what makes no difference to what can come of it.

A fingerprint is a digest of everything that the moves, the real code and the invariants read of a state, in a
form in which states that behave alike are equal:

- Instants count from now, on the clock that they are compared with: none is compared with anything but now,
  and sums of now and constants, so a shift of all of them changes nothing. One that has come counts as now,
  where all that is ever asked is whether it has come.
- Tokens count by their rank among those of the key that somebody still has. They are compared with each other
  and with nothing else, but for the next one, which is the store's time if that is larger: so how far the
  highest is ahead of the store's clock counts, too.
- Attempts are named by client and turn. How many turns a client has begun is part of the state, so the names
  are the same however a state came about. Ends of attempts that nobody can name any more are left out.
- Owners are named by client and turn, too: by the turn in which their block was entered.
- Plans count by where they stand: see `proof.explorer.plans`.
- What the invariants have in their books counts as far as it is about attempts that can still be heard of.
- Clients are alike, and so are keys, if `Bounds.symmetric`: they are put into an order by what there is to
  say of each. Equal fingerprints then mean that one state is the other with clients and keys renamed. Where
  that order is not found, a merger is missed that would have been possible, and no more.

Left out altogether are texts, hosts, times that are only shown (since when somebody holds or waits), and
counts that nobody reads. ``tests/explorer`` compares what comes of states that were taken to be one.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

from holdfast.core.requests import Acquire, Granted, Release, Renew, Renewed, Signal
from holdfast.stores.base import micros
from proof.explorer.bounds import CLOCK_STEP, Bounds
from proof.explorer.portrait import (
    Form,
    attempts,
    attempts_of,
    can_be_entered,
    in_use,
    portrait,
    request_form,
    tokens,
    written,
)
from proof.explorer.world import SECOND, Actor, Flight, World


def fingerprint(world: World, bounds: Bounds) -> bytes:
    """Return the digest of a state."""
    return blake2b(written(form(world, bounds)), digest_size=12).digest()


def form(world: World, bounds: Bounds) -> Form:
    """Return what a fingerprint is made of."""
    keys = list(world.entries)
    if bounds.symmetric and len(keys) > 1:
        outlines = {key: _outline(world, key) for key in keys}
        keys.sort(key=outlines.__getitem__)
        if outlines[keys[0]] == outlines[keys[-1]]:
            both = _Form(world, keys, bounds).made(), _Form(world, keys[::-1], bounds).made()
            return min(both, key=written)
    return _Form(world, keys, bounds).made()


def _outline(world: World, key: str) -> Form:
    """Return what can be said of a key without naming anybody."""
    state, now = world.entries[key].state, world.store_now
    return (
        [(hold.end - now, hold.claimed) for hold in state.holds.values()],
        [ticket.end - now for ticket in state.tickets.values()],
        sum([actor.key == key for actor in world.actors]),
        sum([kept.grant.key == key for actor in world.actors for kept in in_use(actor)]),
    )


class _Form:
    """One way to write a state down: with the keys in this order."""

    def __init__(self, world: World, keys: list[str], bounds: Bounds) -> None:
        self._world = world
        self._store_now = world.store_now
        self._keys = keys
        self._ranks = self._ranked()
        self._symmetric = bounds.symmetric
        # What has come by the store's clock may be to come again, if that can still be set back.
        self._reach = world.faults * CLOCK_STEP * SECOND if "clock back" in bounds.kinds else 0
        self._heard_of = {attempt for actor in world.actors for attempt in attempts(actor)}
        for flight in world.flights:
            self._heard_of.update(attempts_of(flight.request))
        self._heard_of.update([signal.attempt for _, signal in world.signals])
        self._order = {str(actor.number): 0 for actor in world.actors}  # nobody is told apart yet

    def made(self) -> Form:
        world = self._world
        clients = [(self._client(actor), actor.number) for actor in world.actors]
        if self._symmetric:
            clients = self._sorted(clients)
        self._order = {str(number): place for place, (_, number) in enumerate(clients)}
        return (
            world.faults,
            world.calm,
            tuple([form for form, _ in clients]),
            tuple([self._lock(key, self._heard_of) for key in self._keys]),
            tuple(sorted([self._flight(flight) for flight in world.flights], key=written)),
            tuple(sorted([self._signal(signal) for _, signal in world.signals])),
            tuple(sorted([self._name(attempt) for attempt in world.excused & self._heard_of])),
            tuple(sorted([self._name(attempt) for attempt in world.told & self._heard_of])),
        )

    def _ranked(self) -> dict[tuple[str, int], int]:
        """Return the rank of every token that somebody can name, among those of its key."""
        world = self._world
        known: set[tuple[str, int]] = set()
        for key in self._keys:
            _, _, state, books = world.entries[key]
            known.add((key, state.token))
            known.add((key, books.highest))
            known.update([(key, hold.token) for hold in state.holds.values()])
        for actor in world.actors:
            known.update(tokens(actor))
        for flight in world.flights:
            known.update(_tokens_under_way(flight))
        known.update([(signal.key, signal.token) for _, signal in world.signals if signal.token])
        return {each: rank for rank, each in enumerate(sorted(known, key=self._by_key))}

    def _by_key(self, token: tuple[str, int]) -> tuple[int, int]:
        return self._keys.index(token[0]), token[1]

    def _name(self, attempt: str) -> tuple[int, str]:
        return self._order[attempt[0]], attempt[2:]

    def _stored(self, instant: int) -> int:
        """Return how long it is to an instant by the store's clock; all that have come for good are alike."""
        return max(instant - self._store_now, -self._reach)

    # Clients, and who is who.

    def _client(self, actor: Actor) -> Form:
        seen = portrait(actor, self._world.now, self._keys)
        ranks = tuple([self._ranks[token] for token in tokens(actor)])
        return seen, ranks, self._anchors(actor), self._gone(actor)

    def _anchors(self, actor: Actor) -> Form:
        """Return what the tickets of a client would count a hand-over from, as long as that matters."""
        now = self._world.now
        return tuple(
            [
                (attempt[2:], int(ticket.asked) - now, self._since(ticket.answered_at))
                for attempt, ticket in actor.keeper.tickets.items()
                if can_be_entered(ticket.asked, now)
            ]
        )

    def _since(self, at: float) -> int:
        """Return how long ago a time that the store has told was, by its clock."""
        return micros(at) - self._store_now if at else 1

    def _gone(self, actor: Actor) -> Form:
        """Return the ends of leases that are trusted, while the store has nothing of them any more.

        They are what trust is compared with.
        """
        return tuple(
            [
                (kept.grant.attempt[2:], self._world.ends.get(kept.grant.attempt, 0) - self._store_now)
                for kept in in_use(actor)
                if kept.lost is None
                and kept.trusted_until > self._world.now
                and kept.grant.attempt not in self._world.entries[kept.grant.key].state.holds
            ]
        )

    def _sorted(self, clients: list[tuple[Form, int]]) -> list[tuple[Form, int]]:
        """Put clients into an order that does not depend on their numbers."""
        standing: dict[int, list[Form]] = {number: [] for _, number in clients}
        for place, key in enumerate(self._keys):
            state = self._world.entries[key].state
            for holds, those in (True, state.holds), (False, state.tickets):
                for position, attempt in enumerate(those):
                    standing[int(attempt[0])].append((place, holds, position, attempt[2:]))
        marks = {number: written((form, standing[number])) for form, number in clients}
        if len(set(marks.values())) < len(marks):  # then by what is said of them elsewhere
            marks = {number: mark + self._traces(number) for number, mark in marks.items()}
        return sorted(clients, key=lambda each: marks[each[1]])

    def _traces(self, number: int) -> bytes:
        """Return what else is said of a client."""
        world = self._world
        own = {attempt for attempt in self._heard_of if attempt[0] == str(number)}
        if not own:
            return b""
        return written(
            (
                [self._lock(key, own) for key in self._keys],
                sorted([written(self._flight(each)) for each in world.flights if each.client == number]),
                sorted([(signal.attempt[2:], signal.kind) for of, signal in world.signals if of == number]),
                sorted([attempt[2:] for attempt in world.excused & own]),
                sorted([attempt[2:] for attempt in world.told & own]),
            )
        )

    # The store, and what is under way.

    def _lock(self, key: str, heard_of: set[str]) -> Form:
        lock, ended, state, books = self._world.entries[key]
        if lock is None and not ended and not books.over:
            return ()
        now, ranks, name = self._store_now, self._ranks, self._name
        last = None if lock is None else lock.last
        return (
            ranks[key, state.token],
            self._stored(state.token + 1),
            ranks[key, books.highest],
            # What expired when counts for how long it will be remembered, if anybody is left to ask.
            tuple(
                [
                    (
                        name(attempt),
                        hold.end - now if attempt in heard_of else self._stored(hold.end),
                        hold.claimed,
                        hold.owner[2:],
                        ranks[key, hold.token],
                    )
                    for attempt, hold in state.holds.items()
                ]
            ),
            tuple([(name(a), t.owner[2:], self._stored(t.end)) for a, t in state.tickets.items()]),
            # Since when somebody waits decides who is the victim of a deadlock.
            () if self._symmetric or lock is None else [now - t.queued_at for t in lock.tickets.values()],
            sorted(state.tickets, key=books.arrivals.__getitem__) == list(state.tickets),
            name(last) if last in heard_of else (),
            sorted(
                [(name(a), end.why, self._stored(end.until)) for a, end in ended.items() if a in heard_of]
            ),
            sorted([name(attempt) for attempt in books.over if attempt in heard_of]),
        )

    def _signal(self, signal: Signal) -> Form:
        rank = self._ranks[signal.key, signal.token] if signal.token else -1
        return self._name(signal.attempt), signal.kind, signal.expires_in, rank, self._since(signal.at)

    def _flight(self, flight: Flight) -> Form:
        answer = flight.answer
        said: Form = ()
        if isinstance(answer, Renewed):
            said = tuple([(lease.outcome, lease.why or "") for lease in answer.leases])
            said += tuple(
                [(told.outcome, told.head, told.expires_in, self._since(told.at)) for told in answer.tickets]
            )
        elif answer is not None:
            said = tuple([getattr(answer, name, "") for name in ("position", "expires_in", "why")])
            said += (self._since(getattr(answer, "at", 0.0)),)
        return (
            self._order[str(flight.client)],
            flight.part,
            request_form(flight.request, self._keys),
            tuple([self._ranks[token] for token in _tokens_under_way(flight)]),
            flight.until - self._world.now,
            flight.awaited,
            type(answer).__name__,
            said,
            flight.stale,
        )


def _tokens_under_way(flight: Flight) -> list[tuple[str, int]]:
    request: Any = flight.request
    if isinstance(request, Renew):
        return [(lease.key, lease.token) for lease in request.leases]
    if isinstance(request, Release):
        return [(request.key, request.token)]
    if isinstance(request, Acquire) and isinstance(flight.answer, Granted):
        return [(request.key, flight.answer.token)]
    return []
