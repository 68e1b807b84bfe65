"""Who waits for whom, and whether that is a circle. Pure: a store says what there is, see `Look`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from holdfast.core.data import data, replace
from holdfast.core.family import Link, Terms, fits


@data
class Held:
    """A live hold."""

    owner: str
    attempt: str
    terms: Terms


@data
class Waiting:
    """A live ticket."""

    owner: str
    attempt: str
    terms: Terms
    queued_at: int
    host: str
    pid: int


@data
class KeyState:
    """The live holds and tickets of a key, the tickets in their order."""

    holds: tuple[Held, ...]
    tickets: tuple[Waiting, ...]
    permits: int = 0


class Look(Protocol):
    """What a store has to show. Each may be looked at a moment later than the one before."""

    def is_waited_for(self, owner: str, /) -> bool:
        """Tell whether *owner* holds anything that somebody waits for: without that there is no circle."""

    def keys_wanted_by(self, owners: Iterable[str], /) -> Iterable[str]:
        """Return the keys that these owners have tickets for."""

    def states(self, keys: Iterable[str], /) -> Mapping[str, KeyState]:
        """Return what there is at these keys."""


@data
class Deadlock:
    """A circle: each link waits for the owner of the next, the last for the first, who is the victim."""

    cycle: tuple[Link, ...]
    victim: tuple[str, str]  # the key and the attempt of the first: for the store alone
    evidence: frozenset[tuple[str, str]]  # the holds and tickets it is made of, as (key, attempt)


def find(owner: str, look: Look) -> Deadlock | None:
    """Return the circle that *owner* waits for, if there is one.

    It is looked for twice: what is there both times with the same holds and tickets was there all at once.
    """
    if not look.is_waited_for(owner):
        return None
    first = _find_once(owner, look)
    return first if first is not None and _find_once(owner, look) == first else None


def _find_once(owner: str, look: Look) -> Deadlock | None:
    states = _everything_before(owner, look)
    stuck = _stuck(states)
    return _circle(owner, states, stuck) if owner in stuck else None


def _everything_before(owner: str, look: Look) -> dict[str, KeyState]:
    """Return all keys that *owner* waits for, and whoever is before it there waits for, and so on."""
    states: dict[str, KeyState] = {}
    known = new = {owner}
    while new:
        keys = set(look.keys_wanted_by(sorted(new))) - states.keys()
        found = {key: _without_reentry(state) for key, state in look.states(sorted(keys)).items()}
        states.update(found)
        met = {hold.owner for state in found.values() for hold in state.holds}
        met |= {ticket.owner for state in found.values() for ticket in state.tickets}
        known, new = known | met, met - known
    return states


def _without_reentry(state: KeyState) -> KeyState:
    """Leave out who need not wait, because its owner has the lock already and only has to ask again."""
    entered = {(hold.owner, hold.terms.mode) for hold in state.holds}
    tickets = (
        ticket
        for ticket in state.tickets
        if (ticket.owner, "exclusive") not in entered
        and not (ticket.terms.mode == "shared" and (ticket.owner, "shared") in entered)
    )
    return replace(state, tickets=tuple(tickets))


def _stuck(states: Mapping[str, KeyState]) -> set[str]:
    """Return the owners who wait and can never be served, even if all others give back what they have."""
    stuck = {ticket.owner for state in states.values() for ticket in state.tickets}
    while True:
        served = set()
        for state in states.values():
            held = [hold.terms for hold in state.holds if hold.owner in stuck]
            for ticket in state.tickets:
                if not fits(ticket.terms, held, state.permits):
                    break  # and nobody behind it is served before
                served.add(ticket.owner)
        if not served & stuck:
            return stuck
        stuck -= served


def _circle(owner: str, states: Mapping[str, KeyState], stuck: set[str]) -> Deadlock:
    """Follow who is stuck from one to the next until somebody comes again."""
    path: dict[str, tuple[str, Waiting]] = {}
    while owner not in path:
        key, ticket = next(
            (key, ticket)
            for key, state in sorted(states.items())
            for ticket in state.tickets
            if ticket.owner == owner
        )
        path[owner] = key, ticket
        owner = _blocker(ticket, states[key], stuck)
    circle = list(path.values())[list(path).index(owner) :]
    newest = max(range(len(circle)), key=lambda place: (circle[place][1].queued_at, circle[place][1].attempt))
    circle = circle[newest:] + circle[:newest]
    evidence = {(key, ticket.attempt) for key, ticket in circle}
    evidence |= {
        (key, hold.attempt) for key, _ in circle for hold in states[key].holds if hold.owner in stuck
    }
    key, victim = circle[0]
    links = tuple(Link(each.owner, key, each.host, each.pid) for key, each in circle)
    return Deadlock(links, (key, victim.attempt), frozenset(evidence))


def _blocker(ticket: Waiting, state: KeyState, stuck: set[str]) -> str:
    """Return one of those that a ticket waits for: a holder, or who is before it in the queue."""
    held = [hold for hold in state.holds if hold.owner in stuck]
    terms = [hold.terms for hold in held]
    if not fits(ticket.terms, terms, state.permits):
        own = [hold.terms for hold in held if hold.owner == ticket.owner]
        if not fits(ticket.terms, own, state.permits):
            return ticket.owner  # it is in its own way, whatever others do
        return min(hold.owner for hold in held if hold.owner != ticket.owner)
    first = next(each for each in state.tickets if not fits(each.terms, terms, state.permits))
    # Its owner may be served elsewhere, and then what keeps it from being served here is what we wait for.
    return first.owner if first.owner in stuck else _blocker(first, state, stuck)
