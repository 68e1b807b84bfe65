"""One state of an exploration: the store, the clients, what is under way between them, and the time.

States share what they have in common. Whoever makes a new one from an old one calls `World.copy`, and
`World.own` for each client that it is going to change.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

from holdfast.core.keeper import Keeper, Kept
from holdfast.core.plans import Grant, Handed, Wait
from holdfast.core.requests import Renew, Request, Signal
from proof.explorer.bounds import ROLL, SETTINGS, Bounds
from proof.explorer.invariants import Ends, StoreClock, Trust
from proof.explorer.plans import NEVER, Play, seconds
from proof.explorer.shelf import UNUSED, Entry
from proof.simulation.step import EPOCH

Part = Literal["plan", "keeper"]  # of a client: each has one request under way at most
SECOND = 1_000_000  # microseconds
BEGINNING = int(EPOCH) * SECOND


def roll() -> float:
    """Roll the dice that have one side."""
    return ROLL


class Flight(NamedTuple):
    """A request that is under way, or its answer."""

    client: int
    part: Part
    request: Request[Any]
    until: int  # then it is gone
    awaited: bool = True  # else the client has given it up, or it is a copy
    answer: Any = None
    stale: bool = False  # the store's clock was set forward since the answer was given


class Written(NamedTuple):
    """What a fingerprint says of a client, kept for as long as the client does not change."""

    now: int
    keys: list[str]
    form: bytes


class Actor:
    """A client: what it wants, the plan that it follows, and its keeper."""

    __slots__ = (
        "alive",
        "attempt",
        "begun",
        "gives_up_at",
        "held",
        "keeper",
        "key",
        "mail",
        "number",
        "passed",
        "paused_until",
        "play",
        "releasing",
        "renew_asked",
        "renew_gives_up_at",
        "renewing",
        "traces",
        "unsent",
        "withdrew",
        "written",
    )

    def __init__(self, number: int) -> None:
        self.number = number
        self.alive = True
        self.paused_until: int | None = None
        self.begun = 0  # attempts, each of which is a turn
        self.held: tuple[Kept, ...] = ()  # the innermost last; lost or not, until they are released
        self.passed: Kept | None = None  # to another thread of the client, which releases it
        # The plan, if there is one.
        self.play: Play | None = None
        self.key = ""
        self.attempt: str | None = None  # that signals are for; None while it releases
        self.releasing: Grant | None = None
        self.mail: tuple[Signal | Handed, ...] = ()
        self.unsent = False  # it wants to ask something, and nothing has come of that yet
        self.gives_up_at: int | None = None  # waiting for an answer
        self.traces = False  # something of its attempt may be left in the store
        self.withdrew = False
        self.written: Written | None = None
        # The keeper, and what it has under way.
        self.keeper = Keeper(SETTINGS, roll)
        self.renewing: Renew | None = None
        self.renew_asked = 0
        self.renew_gives_up_at: int | None = None

    def copy(self) -> Actor:
        """Return one that can be changed."""
        new = object.__new__(Actor)
        new.number, new.alive, new.paused_until = self.number, self.alive, self.paused_until
        new.begun, new.play, new.key = self.begun, self.play, self.key
        new.attempt, new.releasing, new.mail = self.attempt, self.releasing, self.mail
        new.unsent, new.gives_up_at = self.unsent, self.gives_up_at
        new.traces, new.withdrew = self.traces, self.withdrew
        new.renewing, new.renew_asked = self.renewing, self.renew_asked
        new.renew_gives_up_at = self.renew_gives_up_at
        new.written = None
        new.keeper = Keeper(SETTINGS, roll)
        new.keeper.hurried_at = self.keeper.hurried_at
        leases = {attempt: copied_kept(kept) for attempt, kept in self.keeper.leases.items()}
        new.keeper.leases = leases
        for attempt, ticket in self.keeper.tickets.items():
            new.keeper.wait(ticket.key, attempt, 0.0)
            own = new.keeper.tickets[attempt]
            own.refresh_at, own.failures = ticket.refresh_at, ticket.failures
            own.asked, own.answered_at = ticket.asked, ticket.answered_at
        # A lease that was lost is not kept any more, and does not change any more.
        new.held = tuple(leases.get(kept.grant.attempt, kept) for kept in self.held)
        passed = self.passed
        new.passed = leases.get(passed.grant.attempt, passed) if passed is not None else None
        return new

    @property
    def runs(self) -> bool:
        """Whether anything can happen in it."""
        return self.alive and self.paused_until is None

    @property
    def inside(self) -> str:
        """The context of its block."""
        return f"client {self.number}"

    @property
    def elsewhere(self) -> str:
        """The context of the thread that it passes leases to."""
        return f"another thread of client {self.number}"

    @property
    def waits(self) -> bool:
        """Whether its plan waits for a signal or a time."""
        return self.play is not None and isinstance(self.play.step, Wait)

    def wakes_at(self) -> int:
        """Return when its plan goes on by itself."""
        if self.gives_up_at is not None:
            return self.gives_up_at
        if self.play is not None and isinstance(self.play.step, Wait):
            return seconds(self.play.step.until)
        return NEVER

    def looks_at(self) -> int:
        """Return when its keeper has something to do."""
        if self.renewing is None:
            return seconds(self.keeper.next_at())
        trusts = min((kept.trusted_until for kept in self.keeper.leases.values()), default=None)
        return min(seconds(trusts), NEVER if self.renew_gives_up_at is None else self.renew_gives_up_at)


def copied_kept(kept: Kept) -> Kept:
    """Return a lease in a keeper's care that can be changed."""
    new = Kept(kept.grant, renew_at=kept.renew_at, margin=kept.margin, stop_at=kept.stop_at)
    new.trusted_until = kept.trusted_until
    new.renews, new.hurried_at, new.failures = kept.renews, kept.hurried_at, kept.failures
    new.trouble, new.lost = kept.trouble, kept.lost
    return new


class World:
    """See the module."""

    __slots__ = (
        "_owned",
        "actors",
        "ahead",
        "calm",
        "ends",
        "entries",
        "excused",
        "faults",
        "flights",
        "now",
        "signals",
        "told",
    )

    def __init__(self, bounds: Bounds) -> None:
        self.now = 0  # seconds; all clients' clocks show it
        self.ahead = 0  # by how much the store's clock was set
        self.actors = [Actor(number) for number in range(bounds.clients)]
        self.entries: dict[str, Entry] = dict.fromkeys(bounds.names, UNUSED)
        self.flights: tuple[Flight, ...] = ()
        self.signals: tuple[tuple[int, Signal], ...] = ()
        self.faults = bounds.faults  # that may still happen
        self.calm = True  # nothing but signals was lost so far
        self.ends: Ends = {}
        # Attempts whose leases were cut short, by a step of the clock or by an operator; and of the latter
        # those that have heard of it.
        self.excused: frozenset[str] = frozenset()
        self.told: frozenset[str] = frozenset()
        self._owned: set[int] = set()

    def copy(self) -> World:
        """Return a state to go on from."""
        new = object.__new__(World)
        new.now, new.ahead = self.now, self.ahead
        new.actors = self.actors.copy()
        new.flights, new.signals = self.flights, self.signals
        new.faults, new.calm = self.faults, self.calm
        new.entries, new.ends = self.entries, self.ends
        new.excused, new.told = self.excused, self.told
        new._owned = set()
        return new

    def own(self, number: int) -> Actor:
        """Return a client that can be changed here without changing it elsewhere."""
        if number not in self._owned:
            self._owned.add(number)
            self.actors[number] = self.actors[number].copy()
        return self.actors[number]

    @property
    def store_now(self) -> int:
        """What the store's clock shows, in microseconds."""
        return BEGINNING + (self.now + self.ahead) * SECOND

    def local(self, instant: int) -> int:
        """Return the second at which the store's clock shows *instant*, if it is not set."""
        return -((BEGINNING + self.ahead * SECOND - instant) // SECOND)

    def trust(self) -> Trust:
        """Return who trusts what."""
        return Trust(self.contexts(), self.clock(), self.ends.copy(), self.excused)

    def clock(self) -> StoreClock:
        """Return the clock by which trust is measured."""
        return StoreClock(self.ahead)

    def contexts(self) -> Iterator[tuple[str, Kept]]:
        """Return all leases that somebody keeps, each with who uses it: what is inside a block is one."""
        for actor in self.actors:
            if actor.alive:
                for kept in actor.keeper.leases.values():
                    yield (actor.elsewhere if kept is actor.passed else actor.inside), kept

    def kept(self) -> Iterator[Kept]:
        """Return all leases that somebody keeps."""
        for actor in self.actors:
            if actor.alive:
                yield from actor.keeper.leases.values()
