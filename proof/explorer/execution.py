"""The store's end of a request: the real store executes it, and the invariants are checked on what it did."""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

from holdfast.core.data import replace
from holdfast.core.requests import Acquire, Break, Release, Renew, Request, Withdraw
from proof.explorer.invariants import Judge, copied
from proof.explorer.portrait import attempts_of
from proof.explorer.shelf import Entry, Shelf
from proof.explorer.world import World
from proof.simulation.network import brief, brief_answer
from proof.simulation.observed import Post, State
from proof.simulation.step import Step, Violation

MOST_REMEMBERED = 100_000


class Done(NamedTuple):
    """What a request has done."""

    answer: Any
    post: Post
    entries: dict[str, Entry]
    before: tuple[Entry, ...]  # kept, so that their identity is nobody else's


class Serving:
    """Executes requests. All state is in the `World` it is given; what it remembers only saves time."""

    def __init__(self, *, nested: bool) -> None:
        self.counts: Counter[str] = Counter()
        self.log: list[str] | None = None  # for telling a run to a person
        self._store = Shelf()
        self._nested = nested  # only then a request for one key may change another: the circle it closes
        self._remembered: dict[tuple[Any, ...], Done] = {}

    def note(self, text: str, *about: Any) -> None:
        """Write down what happens, if somebody wants to know."""
        if self.log is not None:
            shown = (brief(each) if isinstance(each, Request) else each for each in about)
            self.log.append(text.format(*shown))

    def execute(self, world: World, request: Any) -> Any:
        """Let the store execute a request, check what it did, and send its signals."""
        keys = list(world.entries) if self._nested else _keys_of(request)
        before = tuple(world.entries[key] for key in keys)
        # The same request to the same store at the same time is met again and again: by its other fates, and
        # wherever only something else is different.
        question = world.store_now, request, *map(id, before)
        done = self._remembered.get(question)
        if done is None:
            if len(self._remembered) > MOST_REMEMBERED:
                self._remembered.clear()
            try:
                done = self._remembered[question] = self._executed(world, request, before)
            except Violation:
                self.note("{}: and that breaks it", request)
                raise
        self.note("{} = {}", request, brief_answer(done.answer) if self.log is not None else "")
        old, world.entries = world.entries, world.entries | done.entries
        if isinstance(request, Break):
            _excuse(world, frozenset(signal.attempt for _, signal in done.post if signal.kind == "lost"))
        trust = world.trust()
        for key in done.entries:
            trust.compare(key, world.entries[key].state, world.store_now)
            if world.calm:
                _nobody_lost_its_turn(world, key, old[key].state, world.entries[key].state)
        world.ends = trust.ends
        for instance, signal in done.post:
            number = int(instance)
            actor = world.actors[number]
            if actor.alive and (actor.attempt == signal.attempt or signal.kind == "lost"):
                world.signals = (*world.signals, (number, signal))
        return done.answer

    def _executed(self, world: World, request: Any, before: tuple[Entry, ...]) -> Done:
        now = world.store_now
        dated = replace(request, now=now / 1e6)
        try:
            answer, post = self._store.execute_on(world.entries, dated)
        except Exception as error:
            raise Violation("answers", f"{request} raised {error!r}") from error
        touched = {signal.key for _, signal in post}.union(_keys_of(request))
        books = {key: copied(world.entries[key].books) for key in touched}
        judge = Judge(self.counts, books)
        entries: dict[str, Entry] = {}
        for key, old in world.entries.items():
            if key in touched:
                new = entries[key] = self._store.entry(key, books[key])
                signals = [(instance, signal) for instance, signal in post if signal.key == key]
                step = Step(key, request, answer, now, old.state, new.state, signals)
                judge.step(step)
            elif (state := self._store.state(key)) != old.state:
                raise Violation("4 scope", f"{key} changed without a request: {old.state} to {state}")
        if isinstance(request, Acquire | Release | Withdraw):
            again, _ = self._store.execute_on(world.entries | entries, dated)
            between = entries[request.key].state
            judge.repeated(request, answer, again, between, self._store.state(request.key))
        return Done(answer, post, entries, before)

    def look(self, world: World) -> None:
        """See that every lease that somebody could look at now, and trust, is not over in the store."""
        judge = Judge(self.counts, {}, world.trust())
        for kept in world.kept():
            if kept.lost is None and world.now < kept.trusted_until:
                judge.looked(kept, float(world.now + world.ahead))


def _keys_of(request: Any) -> list[str]:
    if isinstance(request, Renew):
        return sorted({lease.key for lease in request.leases} | {ticket.key for ticket in request.tickets})
    return [request.key]


def _excuse(world: World, broken: frozenset[str]) -> None:
    """Let those whose leases an operator broke trust them: they learn of it when they ask."""
    world.excused |= broken
    world.flights = tuple(
        flight._replace(stale=flight.stale or not broken.isdisjoint(attempts_of(flight.request)))
        if flight.answer is not None
        else flight
        for flight in world.flights
    )


def _nobody_lost_its_turn(world: World, key: str, before: State, after: State) -> None:
    """P7: who is able to wait does not lose its place, nor what it was handed, even if signals are lost."""
    now = world.store_now
    waiting = {attempt for actor in world.actors for attempt in actor.keeper.tickets}
    for attempt, hold in before.holds.items():
        late = not hold.claimed and hold.end <= now and after.holds.get(attempt) != hold
        if late and attempt in waiting:
            raise Violation("P7 turn", f"{attempt} was handed {key}, and did not come for it in time")
    for attempt, ticket in before.tickets.items():
        gone = ticket.end <= now and attempt not in after.tickets and attempt not in after.holds
        if gone and attempt in waiting:
            raise Violation("P7 turn", f"{attempt} waits for {key}, and its ticket died")
