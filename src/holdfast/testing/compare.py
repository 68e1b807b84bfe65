"""Put the same random requests to two stores, step by step, and expect the same answers and signals.

The memory store is the reference. A store that passes answers as it does, on sequences nobody thought
of. Everything follows from a seed, so a difference can be replayed; nothing waits, because time is
passed in. What the protocol leaves to the store is not compared: the order of the signals of one step, and
the places of events of different keys in the feed.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from holdfast.core.data import replace
from holdfast.core.events import Event
from holdfast.core.family import PLAIN, Outcome, Terms
from holdfast.core.requests import (
    Acquire,
    Break,
    Client,
    Downgrade,
    Granted,
    History,
    Inspect,
    List,
    LockState,
    Queued,
    RefreshTicket,
    Release,
    Renew,
    RenewLease,
    Request,
    Resize,
    Signal,
    Sweep,
    Watch,
    Withdraw,
)
from holdfast.stores.base import Store, micros

OWNERS = ("ann", "bob", "cy", "dee")
KEYS = ("node:1:fetch", "node:1:fetch:2", "workflow:1")
DURATIONS = (0.5, 1.0, 2.0, 3.5, 5.0, 15.0)  # whole microseconds, and sums that often coincide
STATES: tuple[LockState | None, ...] = (None, None, "held", "expired", "free")
FLAVOURS = ("plain", "shared", "permits", "operation", "anything")  # what a key is used for
OUTCOMES = (Outcome(True, '"done"'), Outcome(True, "null"), Outcome(False, "no space left"))
PERMITS = 3
HOUR = 3600.0
DAY = 86400.0


@dataclass(eq=False)
class Traffic:
    """Random requests of a few clients for a few keys. Time mostly moves forward.

    Attempts are few at any time, but go on being new: old ones stay remembered as ended. An attempt asks on
    the same terms however often it asks. What a store answered is fed back with `heard`, so that tokens are
    often right.
    """

    dice: random.Random
    client: Client
    keys: Sequence[str] = KEYS
    backwards: bool = True  # let time step back now and then
    now: int = micros(1000.0)
    steps: int = 0
    tokens: dict[tuple[str, str], int] = field(default_factory=dict)
    instants: deque[int] = field(default_factory=lambda: deque(maxlen=24))
    flavours: dict[str, str] = field(init=False)
    entangled: bool = field(init=False)  # owners want several keys at once, and so come to deadlocks

    def __post_init__(self) -> None:
        self.flavours = {key: self.dice.choice(FLAVOURS) for key in self.keys}
        self.entangled = self.dice.random() < 0.4
        self._terms: dict[tuple[str, str], Terms] = {}
        self._permits: dict[str, int] = {}  # as an operator said last
        self._queued: deque[tuple[str, str]] = deque(maxlen=8)

    def next(self) -> Request[Any]:
        """Return the next request, at a time a little (or not, or much) later."""
        self.steps += 1
        self._pass_time()
        makers: dict[Callable[[], Request[Any]], int] = {
            self._acquire: 44,
            self._release: 16,
            self._renew: 14,
            self._withdraw: 8,
            self._break: 3,
            self._sweep: 3,
            self._look: 12,
            self._downgrade: 3,
            self._resize: 2,
        }
        (make,) = self.dice.choices(list(makers), list(makers.values()))
        return make()

    def heard(self, request: Request[Any], answer: object) -> None:
        """Learn from an answer."""
        if isinstance(request, Acquire) and isinstance(answer, Granted):
            self.tokens[request.key, request.attempt] = answer.token
        elif isinstance(request, Acquire) and isinstance(answer, Queued):
            self._queued.append((request.key, request.attempt))

    def owner_of(self, key: str, attempt: str) -> str:
        """Return the owner that an attempt belongs to."""
        name = attempt.partition("-")[0]
        return name if self.entangled else f"{name} of {key}"

    def terms_of(self, key: str, attempt: str) -> Terms:
        """Return the terms on which an attempt asks for a key."""
        terms = self._terms.get((key, attempt))
        if terms is None:
            terms = self._terms[key, attempt] = self._new_terms(key)
        return terms

    def _new_terms(self, key: str) -> Terms:
        dice, flavour = self.dice, self.flavours[key]
        if flavour == "anything":
            flavour = dice.choice(("plain", "shared", "permits", "operation"))
        delay = dice.choice((0.0, 0.0, 0.0, 2.0))
        match flavour:
            case "shared":
                return Terms(mode="shared" if dice.random() < 0.7 else "exclusive", delay=delay)
            case "permits" if dice.random() < 0.9:
                permits = dice.choice((PERMITS, PERMITS, PERMITS, PERMITS, 0, 4))
                return Terms(
                    mode="permits", take=dice.choice((1, 1, 1, 2, 3, 4)), permits=permits, delay=delay
                )
            case "operation":
                return Terms(operation=True, max_attempts=dice.choice((0, 0, 1, 2, 3)))
        return PLAIN

    def _pass_time(self) -> None:
        dice = self.dice
        ahead = [instant for instant in self.instants if instant >= self.now]
        match dice.random():
            case roll if roll < 0.25:
                pass
            case roll if roll < 0.80 or (roll < 0.94 and not ahead):
                self.now += dice.randrange(1, 300_000)
            case roll if roll < 0.94:  # the very instant at which something ends, or just before or after
                self.now = max(dice.choice(sorted(ahead)[:4]) + dice.choice((-1, 0, 0, 0, 1)), self.now)
            case roll if roll < 0.96:
                self.now += micros(dice.choice((6.0, 20.0, 61.0)))
            case roll if roll < 0.965:
                self.now += micros(dice.choice((HOUR, DAY + 1)))
            case _ if self.backwards:
                self.now -= dice.choice((1, 1000, 700_000, 4_000_000))

    def _at(self) -> float:
        return self.now / 1e6

    def _duration(self) -> float:
        chosen = self.dice.choice(DURATIONS)
        self.instants.append(self.now + micros(chosen))
        return chosen

    def _key(self) -> str:
        return self.dice.choice(self.keys)

    def _attempt(self) -> str:
        generation = self.steps // 12
        number = generation - self.dice.choice((0, 0, 0, 0, 1, 2, 7))
        return f"{self.dice.choice(OWNERS)}-{max(number, 0)}"

    def _known(self) -> tuple[str, str, int]:
        """Return a grant: mostly one that there was, at times with another attempt, token or key."""
        recent = list(self.tokens.items())[-6:]
        match self.dice.random():
            case roll if roll < 0.1 or not recent:
                return self._key(), self._attempt(), self.now
            case roll:
                (key, attempt), token = self.dice.choice(recent)
                if roll < 0.2:
                    attempt = self._attempt()
                elif roll < 0.27:
                    token += self.dice.choice((-1, 1))
                return key, attempt, token

    def _acquire(self) -> Acquire:
        key, attempt = self._key(), self._attempt()
        if (
            self._queued and self.dice.random() < 0.25
        ):  # ask again: to claim it, or to learn what became of it
            key, attempt = self.dice.choice(self._queued)
        return Acquire(
            key=key,
            attempt=attempt,
            owner=self.owner_of(key, attempt),
            ttl=self._duration(),
            client=self.client,
            wait=self.dice.random() < 0.75,
            limit=self.dice.choice((64, 64, 2, 1)),
            patience=self._duration(),
            claim=self._duration(),
            terms=self.terms_of(key, attempt),
            now=self._at(),
        )

    def _release(self) -> Release:
        key, attempt, token = self._known()
        outcome = None
        if self.dice.random() < (0.8 if self.flavours[key] in ("operation", "anything") else 0.1):
            outcome = self.dice.choice(OUTCOMES)
        return Release(key, attempt, token, retire=self.dice.random() < 0.3, outcome=outcome, now=self._at())

    def _downgrade(self) -> Downgrade:
        key, attempt, token = self._known()
        return Downgrade(key, attempt, token, now=self._at())

    def _resize(self) -> Resize:
        semaphores = [key for key, flavour in self.flavours.items() if flavour in ("permits", "anything")]
        if not semaphores or self.dice.random() < 0.1:
            semaphores = list(self.keys)
        key = self.dice.choice(semaphores)
        self._permits[key] = self.dice.choice((1, 2, PERMITS, PERMITS, PERMITS, 5))
        return Resize(key, self._permits[key], "olga", now=self._at())

    def _renew(self) -> Renew:
        dice = self.dice
        leases = {
            (key, attempt): RenewLease(key, attempt, token, self._duration())
            for key, attempt, token in (self._known() for _ in range(dice.randrange(4)))
        }
        tickets = {
            (key, attempt): RefreshTicket(key, attempt, self._duration())
            for key, attempt in ((self._key(), self._attempt()) for _ in range(dice.randrange(4)))
        }
        return Renew(tuple(leases.values()), tuple(tickets.values()), now=self._at())

    def _withdraw(self) -> Withdraw:
        if self.dice.random() < 0.4:
            key, attempt, _ = self._known()
        else:
            key, attempt = self._key(), self._attempt()
        return Withdraw(key, attempt, now=self._at())

    def _break(self) -> Break:
        key, _, token = self._known()
        return Break(key, "olga", "stuck", token if self.dice.random() < 0.5 else None, now=self._at())

    def _sweep(self) -> Sweep:
        # Without a limit that bites: which ones a limited sweep takes first is the store's choice.
        return Sweep(
            limit=1000,
            after=self.dice.choice(("", "", *self.keys)),
            idle=self.dice.choice((0.0, 5.0, HOUR)),
            keep_history=self.dice.choice((5.0, HOUR, 30 * DAY)),
            now=self._at(),
        )

    def _look(self) -> Inspect | List | History:
        dice = self.dice
        match dice.randrange(3):
            case 0:
                return Inspect(self._key(), now=self._at())
            case 1:
                return History(self._key(), limit=dice.choice((1, 3, 100)))
            case _:
                return List(
                    prefix=dice.choice(("", "", "node:1", "node:1:fetch:", "w")),
                    owner=dice.choice((None, None, *(self.owner_of(self._key(), name) for name in OWNERS))),
                    type=dice.choice((None, None, "node", "nod")),
                    state=dice.choice(STATES),
                    after=dice.choice(("", "", *self.keys)),
                    limit=dice.choice((1, 2, 100)),
                    now=self._at(),
                )


def compare(
    reference: Store,
    other: Store,
    *,
    seed: int,
    steps: int = 400,
    client: Client,
    look_every: int = 40,
    show: int = 12,
    groups: int = 1,
) -> None:
    """Put *steps* requests to both stores; raise `AssertionError` at the first different answer.

    *client* must be the one both stores were opened for, so that they signal it directly. Every
    *look_every* steps everything there is to see is compared as well. With *groups* the other store is asked
    for up to that many at once, and the reference for one after the other.
    """
    traffic = Traffic(random.Random(seed), client)
    sizes = random.Random(seed)
    feeds = Reader(reference), Reader(other)
    heard: list[Signal] = []
    told: list[Signal] = []
    reference.listen(heard.append)
    other.listen(told.append)
    past: deque[str] = deque(maxlen=show)
    for step in range(1, steps + 1):
        size = sizes.randint(1, groups)
        asked = [[traffic.next() for _ in range(size)]]
        if step % look_every == 0:
            asked += [[request] for request in _everything(traffic)]
        for group in asked:
            heard.clear()
            told.clear()
            expected = [_comparable_answer(reference.execute(request)) for request in group]
            answers = [_comparable_answer(answer) for answer in _ask(other, group)]
            past += [f"{step}: {each!r}\n      -> {it!r}" for each, it in zip(group, expected, strict=True)]
            past[-1] += f" {_in_order(heard)}"
            if expected != answers or _comparable(group, heard) != _comparable(group, told):
                raise AssertionError(
                    f"seed {seed}, step {step}: the stores disagree\n"
                    f"  asked     {group}\n"
                    f"  reference {expected}\n"
                    f"            {_in_order(heard)}\n"
                    f"  other     {answers}\n"
                    f"            {_in_order(told)}\n"
                    f"the last steps, with the reference's answers:\n  " + "\n  ".join(past)
                )
            for request, answer in zip(group, expected, strict=True):
                traffic.heard(request, answer)
        if step % look_every == 0 or step == steps:
            watched, seen = (feed.read_on() for feed in feeds)
            if watched != seen:
                raise AssertionError(
                    f"seed {seed}, step {step}: the feeds differ\n  reference {watched}\n  other     {seen}"
                )


@dataclass(eq=False)
class Reader:
    """Somebody who watches all keys of a store, a page at a time."""

    store: Store
    after: int = 0

    def read_on(self) -> dict[str, list[Event]]:
        """Return what is new, by key: the order between keys is the store's own."""
        found: dict[str, list[Event]] = {}
        while True:
            page = self.store.execute(Watch("", after=self.after, limit=7))
            for event in page.events:
                assert event.id > self.after, f"out of order: {event} behind {self.after}"
                self.after = event.id
                found.setdefault(event.key, []).append(replace(event, id=0, number=0))
            if not page.events:
                return found


def _comparable_answer(answer: Any) -> Any:
    """Return an answer as all stores give it.

    Without the places of events; and a key that was swept away and used again may count its events from
    anywhere, if all those before were swept away too.
    """
    if isinstance(answer, tuple):
        start = answer[0].number if answer else 0
        return tuple(replace(event, id=0, number=event.number - start) for event in answer)
    return answer


def _everything(traffic: Traffic) -> Iterator[Request[Any]]:
    now = traffic.now / 1e6
    for key in traffic.keys:
        yield Inspect(key, now=now)
        yield History(key)
    yield List(now=now)


def _ask(store: Store, group: list[Request[Any]]) -> list[Any]:
    return store.execute_many(group) if len(group) > 1 else [store.execute(group[0])]


def _comparable(group: Iterable[Request[Any]], signals: Sequence[Signal]) -> list[Signal]:
    renewals = [request for request in group if isinstance(request, Renew)]
    if any(len({lease.key for lease in each.leases}) < len(each.leases) for each in renewals):
        # A batch is worked off in any order: a head may be told the end of a lease before or after
        # another entry of the same batch moved it.
        signals = [replace(signal, expires_in=0.0) for signal in signals]
    return _in_order(signals)


def _in_order(signals: Sequence[Signal]) -> list[Signal]:
    return sorted(signals, key=lambda signal: (signal.key, signal.attempt, signal.kind, signal.expires_in))
