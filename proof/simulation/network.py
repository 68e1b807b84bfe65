"""The way between clients and the store, and the store's end of it: requests, answers and signals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from holdfast import errors
from holdfast.core.cluster import Beat, Claim, Claimed, Finish, Finished, Heartbeat, Join, Leave
from holdfast.core.data import replace
from holdfast.core.family import dump
from holdfast.core.requests import (
    Acquire,
    Break,
    Downgrade,
    Granted,
    Release,
    Renew,
    Request,
    Resize,
    Signal,
    Sweep,
    Withdraw,
)
from holdfast.stores.base import micros
from proof.simulation.invariants import Checker
from proof.simulation.observed import NOTHING, ObservedStore, State
from proof.simulation.profile import LATEST, REQUEST_TIMEOUT, SLOWEST, Profile
from proof.simulation.step import EPOCH, Step, Violation
from proof.simulation.world import World

Reply = Callable[[Any, errors.StoreError | None], None]

LOOK_AROUND = 25  # after so many requests all keys are compared with what they should still be
ECHOES = 0.05  # how many requests are executed twice in a row, to see that it does not matter


class Receiver(Protocol):
    """A client as the network sees it: unreachable while it is paused, and for ever when it is dead."""

    def receive(self, call: Callable[..., None], *args: Any) -> None: ...

    def hear(self, signal: Signal) -> None: ...


class Network:
    """Carries requests to the store and lets the dice decide what becomes of them."""

    def __init__(
        self,
        world: World,
        profile: Profile,
        store: ObservedStore,
        checker: Checker,
        keys: list[str],
    ) -> None:
        self.receivers: dict[str, Receiver] = {}  # by instance
        self.states = dict.fromkeys(keys, NOTHING)
        self._world = world
        self._profile = profile
        self._store = store
        self._checker = checker
        self._executed = 0
        self._observers: list[Callable[[str], None]] = []
        self._fates: tuple[tuple[float, Callable[..., None]], ...] = (
            (profile.lost, self._lose),
            (profile.answer_lost, self._lose_answer),
            (profile.late, self._be_late),
            (profile.repeated, self._repeat),
            (profile.unavailable, self._refuse),
            (profile.slow, self._be_slow),
        )

    def watch(self, observer: Callable[[str], None]) -> None:
        """Call *observer* with each key that a request was executed on."""
        self._observers.append(observer)

    def send(self, sender: Receiver, request: Request[Any], reply: Reply) -> None:
        """Send a request. *reply* is called with what the client gets to know of it."""
        roll = self._world.dice.random()
        if not self._world.calm:
            for rate, fate in self._fates:
                if roll < rate:
                    fate(sender, request, reply)
                    return
                roll -= rate
        there, back = self._delay(), self._delay()
        self._world.later(there, self._arrive, sender, request, reply, back)

    def _delay(self) -> float:
        roll = self._world.dice.random()
        return SLOWEST * roll * roll * roll * roll + 0.001

    def _arrive(self, sender: Receiver, request: Request[Any], reply: Reply, back: float) -> None:
        answer = self.execute(request)
        self._world.later(back, sender.receive, reply, answer, None)

    # Fates.

    def _lose(self, sender: Receiver, request: Request[Any], reply: Reply) -> None:
        self._note("requests lost", request)
        self._give_up(sender, reply)

    def _lose_answer(self, sender: Receiver, request: Request[Any], reply: Reply) -> None:
        self._note("answers lost", request)
        self._world.later(self._delay(), self._execute_copy, request)
        self._give_up(sender, reply)

    def _be_late(self, sender: Receiver, request: Request[Any], reply: Reply) -> None:
        self._note("requests late", request)
        late = self._world.dice.uniform(REQUEST_TIMEOUT, LATEST)
        self._world.later(late, self._execute_copy, request)
        self._give_up(sender, reply)

    def _repeat(self, sender: Receiver, request: Request[Any], reply: Reply) -> None:
        self._note("requests repeated", request)
        there = self._delay()
        self._world.later(there, self._arrive, sender, request, reply, self._delay())
        again = self._world.dice.choice((0.0, 0.5, REQUEST_TIMEOUT, LATEST))
        self._world.later(there + self._world.dice.uniform(0.0, again), self._execute_copy, request)

    def _refuse(self, sender: Receiver, request: Request[Any], reply: Reply) -> None:
        self._note("requests refused", request)
        refusal = errors.StoreUnavailable("refused")
        self._world.later(2 * self._delay(), sender.receive, reply, None, refusal)

    def _be_slow(self, sender: Receiver, request: Request[Any], reply: Reply) -> None:
        self._note("answers slow", request)
        back = self._world.dice.uniform(0.5, REQUEST_TIMEOUT * 0.9)
        self._world.later(self._delay(), self._arrive, sender, request, reply, back)

    def _give_up(self, sender: Receiver, reply: Reply) -> None:
        unknown = errors.OutcomeUnknown("no answer")
        self._world.later(REQUEST_TIMEOUT, sender.receive, reply, None, unknown)

    def _execute_copy(self, request: Request[Any]) -> None:
        self.execute(request)

    def _note(self, fate: str, request: Request[Any]) -> None:
        self._world.counts[fate] += 1
        self._world.log(f"       {fate}: {brief(request)}")

    # The store's end.

    def execute(self, request: Request[Any]) -> Any:
        """Let the store execute a request now, check what it did, and send its signals."""
        world = self._world
        world.counts["requests"] += 1
        answer = self._execute_and_check(request)
        if isinstance(request, Acquire | Release | Withdraw | Downgrade) and world.dice.random() < ECHOES:
            between = self.states[request.key]
            again = self._execute_and_check(request)
            world.counts["echoes"] += 1
            self._checker.repeated(request, answer, again, between, self.states[request.key])
        self._executed += 1
        if self._executed % LOOK_AROUND == 0:
            self._look_around()
        return answer

    def _execute_and_check(self, request: Any) -> Any:
        world = self._world
        now = EPOCH + world.now
        try:
            answer = self._store.execute(replace(request, now=now))
        except Exception as error:
            raise Violation("answers", f"{request} raised {error!r}") from error
        world.log(f"{brief(request)} = {brief_answer(answer)}")
        post = self._store.caught()
        # A circle that was closed here may have been ended elsewhere.
        elsewhere = {signal.key for _, signal in post if signal.kind != "work"}
        for key in sorted(elsewhere.union(self._touched(request))):
            before, after = self.states[key], self._store.state(key)
            self.states[key] = after
            signals = [
                (instance, signal) for instance, signal in post if signal.key == key and signal.kind != "work"
            ]
            self._checker.step(Step(key, request, answer, micros(now), before, after, signals))
            for observer in self._observers:
                observer(key)
        if post:
            # Different keys, and several holds of one lease, have no order between them.
            for instance, signal in sorted(post, key=_order):
                self._signal(instance, signal)
        return answer

    def _touched(self, request: Request[Any]) -> list[str]:
        if isinstance(request, Renew):
            return sorted({lease.key for lease in request.leases} | {t.key for t in request.tickets})
        if isinstance(request, Sweep):
            return list(self.states)
        return [request.key]  # type: ignore[attr-defined]

    def _look_around(self) -> None:
        for key, known in self.states.items():
            state = self._store.state(key)
            if state != known:
                raise Violation("4 scope", f"{key} changed without a request: {known} to {state}")

    def _signal(self, instance: str, signal: Signal) -> None:
        world, profile = self._world, self._profile
        delay = self._delay()
        if not world.calm:
            if world.dice.random() < profile.signal_lost:
                world.counts["signals lost"] += 1
                return
            if world.dice.random() < profile.signal_late:
                world.counts["signals late"] += 1
                delay = world.dice.uniform(1.0, 10.0)
            if world.dice.random() < profile.signal_repeated:
                world.counts["signals repeated"] += 1
                world.later(world.dice.uniform(0.0, 5.0), self._deliver, instance, signal)
        world.later(delay, self._deliver, instance, signal)

    def _deliver(self, instance: str, signal: Signal) -> None:
        if receiver := self.receivers.get(instance):
            receiver.receive(receiver.hear, signal)

    def state(self, key: str) -> State:
        """Return the state of a key after the last request."""
        return self.states[key]


def _order(posted: tuple[str, Signal]) -> tuple[str, str, str]:
    _, signal = posted
    return signal.key, signal.kind, signal.attempt


def brief(request: Request[Any]) -> str:
    """Say in a few words what is asked."""
    if isinstance(request, Acquire):
        wait = "wait" if request.wait else "try"
        how = f"{wait} ttl={request.ttl:g} {dump(request.terms) or ''}"
        return f"{request.attempt} acquire {request.key} {how} owner={request.owner}"
    if isinstance(request, Release):
        outcome = "" if request.outcome is None else " succeeded" if request.outcome.succeeded else " failed"
        retire = " retire" * request.retire
        return f"{request.attempt} release {request.key} {request.token % 10**9}{outcome}{retire}"
    if isinstance(request, Downgrade):
        return f"{request.attempt} downgrade {request.key} {request.token % 10**9}"
    if isinstance(request, Resize):
        return f"{request.by} resize {request.key} {request.permits}"
    if isinstance(request, Withdraw):
        return f"{request.attempt} withdraw {request.key}"
    if isinstance(request, Renew):
        leases = [f"{lease.key}/{lease.attempt}" for lease in request.leases]
        return f"renew {' '.join(leases)} refresh {' '.join(f'{t.key}/{t.attempt}' for t in request.tickets)}"
    if isinstance(request, Break):
        return f"{request.by} break {request.key}"
    if isinstance(request, Claim):
        return f"{request.id} claim {request.number} as {request.attempt}, up to {request.limit}"
    if isinstance(request, Finish):
        return f"{request.attempt} finish {request.key} {request.token % 10**9} {request.ending}"
    if isinstance(request, Join | Heartbeat | Leave):
        return f"{request.id} {type(request).__name__.lower()}"
    return type(request).__name__.lower()


def brief_answer(answer: Any) -> str:
    """Say in a few words what was answered."""
    name = type(answer).__name__
    if isinstance(answer, Granted):
        return f"{name} {answer.token % 10**9} for {answer.expires_in:.3f}"
    if name == "Renewed":
        leases = " ".join(lease.outcome for lease in answer.leases)
        return f"{leases} | {' '.join(ticket.outcome for ticket in answer.tickets)}"
    if name == "Swept":
        return name
    if isinstance(answer, Claimed):
        return (
            f"{' '.join(f'{w.key}/{w.attempt}' for w in answer.works) or 'nothing'}, again {answer.again_in}"
        )
    if isinstance(answer, Beat | Finished):
        return f"{name} {answer.state}"
    detail = getattr(answer, "position", None) or getattr(answer, "why", None) or getattr(answer, "next", "")
    return f"{name} {detail or ''}"
