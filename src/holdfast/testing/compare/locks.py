"""Random requests for locks: of all kinds, on all terms, at the very instants at which something ends."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

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
    Sweep,
    Withdraw,
)
from holdfast.stores.base import micros

Makers = dict[Callable[[], Request[Any]], int]  # what can be asked: how often, of all

OWNERS = ("ann", "bob", "cy", "dee")
KEYS = ("node:1:fetch", "node:1:fetch:2", "workflow:1")
DURATIONS = (0.5, 1.0, 2.0, 3.5, 5.0, 15.0)  # whole microseconds, and sums that often coincide
STATES: tuple[LockState | None, ...] = (None, None, "held", "expired", "free")
FLAVOURS = ("plain", "shared", "permits", "operation", "anything")  # what a key is used for
OUTCOMES = (
    Outcome(True, '"done"'),
    Outcome(True, "null"),
    Outcome(True, '"kept"', 3.5),
    Outcome(True, '"kept for long"', 700.0),
    Outcome(False, "no space left"),
    Outcome(False, "no space left", 3.5),
)
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
        makers = self.makers()
        (make,) = self.dice.choices(list(makers), list(makers.values()))
        return make()

    def makers(self) -> Makers:
        """Return what is asked, and how often."""
        return {
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

    def everything(self) -> Iterator[Request[Any]]:
        """Return requests that show all there is to see."""
        for key in self.keys:
            yield Inspect(key, now=self._at())
            yield History(key)
        yield List(now=self._at())

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
        at_least = self._at_least()
        match flavour:
            case "shared":
                if dice.random() < 0.7:
                    return Terms(mode="shared", delay=delay)
                return Terms(delay=delay, at_least=at_least)
            case "permits" if dice.random() < 0.9:
                permits = dice.choice((PERMITS, PERMITS, PERMITS, PERMITS, 0, 4))
                return Terms(
                    mode="permits", take=dice.choice((1, 1, 1, 2, 3, 4)), permits=permits, delay=delay
                )
            case "operation":
                return Terms(operation=True, max_attempts=dice.choice((0, 0, 1, 2, 3)), at_least=at_least)
            case "plain" if at_least:
                return Terms(delay=delay, at_least=at_least)
        return PLAIN

    def _at_least(self) -> float:
        """Return for how long a lock is to stay taken; mostly it is not."""
        return self._duration() if self.dice.random() < 0.15 else 0.0

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
            seen=self.dice.choice((0, 0, 0, *list(self.tokens.values())[-2:])),
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
        return Withdraw(key, attempt, self.dice.random() < 0.5, now=self._at())

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

    def _look(self) -> Request[Any]:
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
