"""Histories that are right by construction: clients, the reference store and a network, in virtual time.

Every request has an instant at which the store answers it, between its call and its return; or its answer is
lost, or the request itself, and then it may arrive long after its client has given up on it. The store is the
one in memory, which is given the time. What it changes is written down as the triggers of a run would do it.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable, Generator
from typing import Any

from holdfast.core.requests import (
    Acquire,
    Break,
    Broken,
    Client,
    Granted,
    NotHeld,
    Queued,
    RefreshTicket,
    Release,
    Released,
    Renew,
    RenewLease,
    Request,
    Withdraw,
)
from holdfast.stores.base import StoreOptions
from holdfast.stores.memory.store import MemoryStore
from proof.histories.records import Ask, Audit, History, Run

KEY = "plain:0"
PATIENCE, CLAIM = 1.5, 0.5
EPOCH = 1_700_000_000.0  # the store's clock when ours is 0
_ME = Client("simulated", "host", 1)

Turn = Generator[Any, Any, None]  # yields requests and pauses; gets answers, or None where there is none


class Simulation:
    """Some clients that take turns with one lock for a while. *loss*: the part that is lost on the way."""

    def __init__(
        self,
        seed: int,
        *,
        clients: int = 5,
        seconds: float = 6.0,
        loss: float = 0.1,
        store: type[MemoryStore] = MemoryStore,
    ) -> None:
        self._dice = random.Random(seed)
        self._loss = loss
        self._until = seconds
        self._store = store(StoreOptions(_ME))
        self._to_do: list[tuple[float, int, Callable[[float], None]]] = []
        self._order = itertools.count()
        self._numbers = itertools.count(1)
        self._holds: dict[str, tuple[Any, ...]] = {}
        self._last_token = 0
        self.history = History(Run("memory", seed, 0.0, settings={"claim": CLAIM}))
        for number in range(clients):
            self._go_on(self._client(f"c{number}"), f"c{number}", None, self._dice.random())

    def run(self) -> History:
        """Let it happen."""
        while self._to_do:
            at, _, act = heapq.heappop(self._to_do)
            act(at)
        self.history.run.ended = max(self._until, *(a.called for a in self.history.asks))
        self.history.asks.sort(key=lambda ask: ask.called)
        return self.history

    # What clients do.

    def _client(self, name: str) -> Turn:
        for turn in itertools.count():
            if (yield 0.0) > self._until:
                return
            yield from self._turn(f"{name}-{turn}")
            yield self._dice.expovariate(3.0)

    def _turn(self, owner: str) -> Turn:
        dice = self._dice
        if dice.random() < 0.02 and self._last_token:
            yield Break(KEY, "operator", "a test", self._last_token)
        leases = yield from self._acquire(owner, f"{owner}.a", dice.random() < 0.7)
        for level in range(dice.choice((0, 0, 0, 1, 2)) if leases else 0):
            yield dice.random() * 0.2
            leases += yield from self._acquire(owner, f"{owner}.{level}", True)
        for _ in range(dice.choice((0, 0, 1, 3)) if leases else 0):
            yield dice.random() * 0.6
            for attempt, token, ttl in leases:
                if dice.random() < 0.7:
                    yield Renew((RenewLease(KEY, attempt, token, ttl),))
                elif dice.random() < 0.2:
                    yield self._asking(owner, attempt, ttl, wait=False)
        dice.shuffle(leases)
        for attempt, token, _ in leases:
            yield dice.random() * 0.05
            how = dice.random()
            if how < 0.8:
                while (yield Release(KEY, attempt, token, retire=True)) is None and dice.random() < 0.8:
                    pass
            elif how < 0.9:
                yield Withdraw(KEY, attempt)  # else it is left to its end

    def _acquire(
        self, owner: str, attempt: str, wait: bool
    ) -> Generator[Any, Any, list[tuple[str, int, float]]]:
        dice, ttl = self._dice, round(self._dice.uniform(0.6, 1.5), 3)
        lost = False
        while True:
            answer = yield self._asking(owner, attempt, ttl, wait=wait)
            if isinstance(answer, Granted):
                return [(attempt, answer.token, ttl)]
            lost = lost or answer is None
            if answer is not None and not isinstance(answer, Queued):
                return []
            if dice.random() < 0.1:
                break
            yield dice.random() * 0.3
            if wait and dice.random() < 0.5:
                yield Renew((), (RefreshTicket(KEY, attempt, PATIENCE),))
        if dice.random() < 0.8:
            yield Withdraw(KEY, attempt)
        return []

    def _asking(self, owner: str, attempt: str, ttl: float, *, wait: bool) -> Acquire:
        return Acquire(KEY, attempt, owner, ttl, _ME, wait, patience=PATIENCE, claim=CLAIM)

    # The network and the store.

    def _at(self, at: float, act: Callable[[float], None]) -> None:
        heapq.heappush(self._to_do, (at, next(self._order), act))

    def _go_on(self, client: Turn, name: str, answer: Any, at: float) -> None:
        def act(now: float) -> None:
            try:
                wanted = client.send(answer)
            except StopIteration:
                return
            if isinstance(wanted, float):
                self._at(now + wanted, lambda then: self._tell(client, name, then))
            else:
                self._send(client, name, wanted, now)

        self._at(at, act)

    def _tell(self, client: Turn, name: str, now: float) -> None:
        self._go_on(client, name, now, now)

    def _send(self, client: Turn, name: str, request: Request[Any], now: float) -> None:
        dice = self._dice
        slow = 1.0 if dice.random() < 0.03 else 0.02
        arrives = now + dice.random() * slow
        fate = dice.random() / self._loss if self._loss else 1.0
        fields = {"worker": name, "number": next(self._numbers), "called": now, **_fields(request)}
        if fate >= 1.0:

            def answer_it(then: float) -> None:
                answer = self._answer(request, then)
                returned = then + dice.random() * slow
                self.history.asks.append(
                    Ask(**fields | _answer(request, answer) | {"returned": returned, "outcome": "ok"})
                )
                self._go_on(client, name, answer, returned)

            self._at(arrives, answer_it)
            return
        # Given up on before or after it arrives; or it never does.
        gives_up = now + dice.random() * 0.3
        if fate < 0.2:
            self.history.asks.append(Ask(**fields, returned=gives_up, outcome="refused"))
        else:
            said = {"returned": gives_up} if dice.random() < 0.7 else {}
            self.history.asks.append(Ask(**fields | said))
            if fate > 0.5:
                self._at(
                    arrives + dice.choice((0.0, 0.0, 1.0, 3.0)), lambda then: self._answer(request, then)
                )
        self._go_on(client, name, None, gives_up)

    def _answer(self, request: Any, now: float) -> Any:
        data = {name: getattr(request, name) for name in type(request).__match_args__}
        answer = self._store.execute(type(request)(**data | {"now": EPOCH + now}))
        if isinstance(answer, Granted):
            self._last_token = answer.token
        self._audit(now)
        return answer

    def _audit(self, now: float) -> None:
        """Write down what has changed: a hold that is alone is in the lock's row, others are in a table."""
        lock = self._store._world.shard(KEY).locks.get(KEY)
        holds = lock.holds if lock is not None else {}
        after = {a: (h.token, h.owner, a, h.claimed, h.end) for a, h in holds.items()}
        before, self._holds = self._holds, after
        alone = next(iter(after.values())) if len(after) == 1 else ()
        at = int((EPOCH + now) * 1e6)

        def write(what: str, *fields: Any) -> None:
            self.history.audit.append(Audit(len(self.history.audit) + 1, at, what, KEY, *fields))

        if alone != (next(iter(before.values())) if len(before) == 1 else ()):
            write("lock", *alone)
        if len(before) > 1:
            for attempt, hold in before.items():
                if attempt not in after or alone:
                    write("unhold", *hold)
        if len(after) > 1:
            for attempt, hold in after.items():
                if before.get(attempt) != hold or len(before) == 1:
                    write("hold", *hold)


def _fields(request: Any) -> dict[str, Any]:
    """Return what a recorder notes of a request."""
    names = {"kind": type(request).__name__, "key": KEY, "owner": "", "attempt": ""}
    if isinstance(request, Renew):
        (item,) = request.leases or request.tickets
        names["kind"] = "Renew" if request.leases else "Refresh"
    else:
        item = request
    given = ["attempt", "token", "ttl"]
    if isinstance(item, Acquire | RefreshTicket):
        given += ["owner", "wait", "patience"]
    return names | {name: value for name in given if (value := getattr(item, name, None)) is not None}


def _answer(request: Any, answer: Any) -> dict[str, Any]:
    """Return what a recorder notes of an answer."""
    if isinstance(request, Renew):
        (told,) = answer.leases or answer.tickets
        return {"answer": told.outcome, "why": getattr(told, "why", "") or ""}
    fields: dict[str, Any] = {"answer": type(answer).__name__}
    if isinstance(answer, Granted):
        fields |= {"token": answer.token, "holds": answer.holds}
    elif isinstance(answer, Released):
        fields["holds"] = answer.holds
    elif isinstance(answer, NotHeld):
        fields["why"] = answer.why
    elif isinstance(answer, Broken):
        fields["token"] = answer.holder.token
    return fields
