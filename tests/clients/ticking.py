"""A fleet of nodes that keep one schedule, in virtual time: their plans, and the memory store as the truth.

Each node has a clock of its own, as wrong as a test wants it. Time goes from one thing to do to the next, so
a year costs nothing. A run is a `Record`; how long it takes and whether it fails, a test decides.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from typing import Any

from holdfast import Settings, errors
from holdfast.client.calendar import calendar
from holdfast.client.ticks import Await, Begin, Cease, Job, Result, Timekeeper
from holdfast.core.cluster import InspectWork, WorkView
from holdfast.core.data import data, replace
from holdfast.core.plans import Abandoned, Wait
from holdfast.core.requests import Client, Renew, RenewLease, Request
from holdfast.stores import open_store
from holdfast.stores.base import StoreOptions

START = 1_767_225_600.0  # 2026-01-01, a Thursday, at midnight in UTC
HOUR, DAY = 3600.0, 86400.0
TTL = 30.0
RENEW_EVERY = 10.0


@data
class Record:
    """One run: where, of which tick, from when until when by the store's clock; until is None if it died."""

    node: str
    tick: float
    token: int
    since: float
    until: float | None
    told: str


def no_fault(node: Node, request: Request[Any]) -> None:
    """All is well."""


class Node:
    """One process that has the schedule."""

    def __init__(self, world: World, name: str, job: Job, *, ahead: float, rate: float) -> None:
        self.world = world
        self.name = name
        self.keeper = Timekeeper(
            job,
            client=Client(name, "host", 1),
            owner=name,
            ttl=TTL,
            settings=Settings(),
            attempts=lambda: f"{name}-{next(world.numbers)}",
            clock=lambda: world.now * rate + ahead,
            roll=world.dice.random,
        )
        self.alive = True
        self.cut_off = False
        self.begin: Begin | None = None
        self.since = 0.0
        self.told = ""
        self._rate, self._ahead = rate, ahead
        self._plan = self.keeper.plan()
        self._waits: Any = None
        self._go(None)

    @property
    def running(self) -> bool:
        return self.begin is not None

    def stop(self) -> None:
        """Take no more ticks."""
        self.keeper.stopping = True
        if isinstance(self._waits, Wait):
            self._go(None)

    def kill(self) -> None:
        """Die without a word."""
        if self.begin is not None:
            self.world.note(self, None)
        self.alive = False

    def close(self) -> None:
        """Give everything back."""
        try:
            step = self._plan.throw(Abandoned())
            while True:
                try:
                    answer = self._do(step)
                except errors.StoreError as error:
                    step = self._plan.throw(error)
                else:
                    step = self._plan.send(answer)
        except (Abandoned, StopIteration):
            pass
        if self.begin is not None:
            self.world.note(self, self.world.now)
        self.alive = False

    def _go(self, answer: Any) -> None:
        if not self.alive:
            return
        try:
            step = self._plan.send(answer)
            while not isinstance(step, Wait | Await):
                try:
                    answer = self._do(step)
                except errors.StoreError as error:
                    step = self._plan.throw(error)
                else:
                    step = self._plan.send(answer)
        except StopIteration:
            self.alive = False
            return
        self._waits = step
        if step.until is not None:
            self.world.at((step.until - self._ahead) / self._rate, lambda: self._time(step))

    def _time(self, step: Any) -> None:
        if self._waits is step:
            self._go(None)

    def _do(self, step: Any) -> Any:
        if isinstance(step, Begin):
            self.begin, self.since, self.told = step, self.world.now, ""
            length, error = self.world.body(step.tick)
            self.world.at(self.world.now + length, lambda: self._ended(step, error))
            self.world.at(self.world.now + RENEW_EVERY, lambda: self._renew(step))
            return None
        if isinstance(step, Cease):
            self.told = step.reason or self.told
            return None
        return self.world.ask(step, self)

    def _ended(self, begin: Begin, error: str) -> None:
        if self.alive and self.begin is begin:
            self.world.note(self, self.world.now)
            self.begin = None
            self._go(Result(error))

    def _renew(self, begin: Begin) -> None:
        if self.alive and self.begin is begin and not self.told:
            lease = RenewLease(begin.grant.key, begin.grant.attempt, begin.grant.token, TTL)
            with suppress(errors.StoreError):
                self.world.ask(Renew((lease,)), self)
            self.world.at(self.world.now + RENEW_EVERY, lambda: self._renew(begin))


class World:
    """The store, the nodes and the time."""

    def __init__(self, start: float, seed: int = 0) -> None:
        self.now = start
        self.dice = random.Random(seed)
        self.numbers = itertools.count()
        self.store = open_store("memory://", StoreOptions(Client("world", "host", 1), "all"))
        self.records: list[Record] = []
        self.asked: list[tuple[str, Request[Any]]] = []
        self.body: Callable[[float], tuple[float, str]] = lambda _tick: (1.0, "")
        self.fault: Callable[[Node, Request[Any]], errors.StoreError | None] = no_fault
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []

    def node(self, name: str, job: Job, *, ahead: float = 0.0, rate: float = 1.0) -> Node:
        return Node(self, name, job, ahead=ahead, rate=rate)

    def at(self, when: float, do: Callable[[], None]) -> None:
        heapq.heappush(self._agenda, (max(when, self.now), next(self.numbers), do))

    def run_until(self, when: float) -> None:
        """Let everything happen up to then."""
        while self._agenda and self._agenda[0][0] <= when:
            self.now, _, do = heapq.heappop(self._agenda)
            do()
        self.now = when

    def ask(self, request: Request[Any], node: Node) -> Any:
        self.asked.append((node.name, request))
        assert len(self.asked) < 100_000, "somebody does not wait"
        error = errors.StoreUnavailable("cut off") if node.cut_off else self.fault(node, request)
        if error is not None and not isinstance(error, errors.OutcomeUnknown):
            raise error
        answer = self.store.execute(replace(request, now=self.now))
        if error is not None:
            raise error
        return answer

    def note(self, node: Node, until: float | None) -> None:
        assert node.begin is not None
        begin = node.begin
        self.records.append(Record(node.name, begin.tick, begin.grant.token, node.since, until, node.told))

    def work(self, key: str = "every:x") -> WorkView:
        view = self.store.execute(InspectWork(key, now=self.now))
        assert view is not None
        return view

    def ticks(self) -> list[float]:
        """The ticks that were run, in the order of their beginnings."""
        return [each.tick for each in sorted(self.records, key=lambda each: each.since)]


def job(schedule: Any = "*/5 * * * *", timezone: str = "UTC", **options: Any) -> Job:
    """What the nodes keep time for."""
    return Job("every:x", calendar(schedule, timezone), **options)


def multiples(length: float, since: float, until: float) -> list[float]:
    """The ticks of an interval after an instant, up to another."""
    first = since // length * length + length
    return [first + n * length for n in range(int((until - first) // length) + 1)]


def overlaps(world: World) -> list[tuple[Record, Record]]:
    """Runs that began before the one before them had ended."""
    runs = sorted(world.records, key=lambda each: each.since)
    return [(a, b) for a, b in pairwise(runs) if a.until is not None and b.since < a.until]
