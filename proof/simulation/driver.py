"""The simulation's runner of plans: the third one, beside threads and asyncio."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from holdfast import errors
from holdfast.core import requests
from holdfast.core.driver import Drive
from holdfast.core.plans import Abandoned, Handed, Plan, Wait
from holdfast.core.requests import Acquire, Queued, Request, Signal, Withdraw
from proof.simulation.machine import Machine
from proof.simulation.step import Violation

Done = Callable[[Any, Exception | None], None]  # called with the plan's result, or what it raised


class PlanRun:
    """Runs one plan on a machine: does what it wants, and tells it what came of it."""

    def __init__(
        self, machine: Machine, plan: Plan[Any], done: Callable[[Any, Exception | None], None]
    ) -> None:
        self._machine = machine
        self._drive = Drive(plan)
        self._done = done
        self._turn = 0  # answers and timers of an earlier turn are void
        self._waits = False
        self._mail: list[Signal | Handed] = []
        self._attempt: str | None = None
        self._key = ""
        self._traces = False  # something of it may be left in the store
        self._withdrew = False
        self._over = False

    def start(self) -> None:
        """Take the first step."""
        self._advance(self._drive.tell, None)

    def abandon(self) -> None:
        """Interrupt it, as Ctrl-C does, wherever it is."""
        if not self._over:
            self._machine.world.counts["abandoned"] += 1
            self._machine.world.log(f"{self._machine.name} abandons {self._attempt}")
            self._advance(self._drive.fail, Abandoned())

    def hear(self, signal: Signal | Handed) -> None:
        """Take in a signal, for now or for the next wait."""
        if self._waits:
            self._advance(self._drive.tell, signal)
        else:
            self._mail.append(signal)

    def _advance(self, move: Callable[[Any], bool], value: Any) -> None:
        self._turn += 1
        self._waits = False
        try:
            going = move(value)
        except (errors.HoldfastError, Abandoned) as error:
            self._finish(None, error)
        else:
            if going:
                self._do(self._drive.step)
            else:
                self._finish(self._drive.result, None)

    def _do(self, step: Any) -> None:
        turn = self._turn
        if not isinstance(step, Wait):
            self._withdrew = isinstance(step, Withdraw)
            if isinstance(step, Acquire) and step.attempt != self._attempt:
                if self._attempt is not None:  # it goes on with another one: because this one has ended
                    self._machine.given_up(self._key, self._attempt)
                self._leave()
                self._attempt, self._key = step.attempt, step.key
                self._machine.listeners[step.attempt] = self.hear
            self._machine.ask(step, partial(self._answered, turn, step, self._machine.clock()))
        elif self._mail:
            self._advance(self._drive.tell, self._mail.pop(0))
        else:
            self._waits = True
            if step.until is not None:
                self._machine.at(step.until, self._timed_out, turn)

    def _timed_out(self, turn: int) -> None:
        if turn == self._turn:
            self._advance(self._drive.tell, None)

    def _answered(
        self, turn: int, request: Request[Any], asked: float, answer: Any, error: errors.StoreError | None
    ) -> None:
        if turn != self._turn:
            return
        if isinstance(request, Withdraw):
            self._traces = error is not None
        elif isinstance(error, errors.OutcomeUnknown) or isinstance(answer, Queued):
            self._traces = True
        if error is not None:
            self._advance(self._drive.fail, error)
            return
        if isinstance(request, Acquire) and isinstance(answer, Queued):
            self._machine.wait_for(request.key, request.attempt, asked, answer.at)
        self._advance(self._drive.tell, answer)

    def _finish(self, result: Any, error: Exception | None) -> None:
        self._over = True
        if self._attempt is not None and isinstance(result, requests.Done):
            if not (self._withdrew and self._traces):  # else it is pursued
                self._machine.given_up(self._key, self._attempt)
        elif self._attempt is not None and error is not None:
            if not self._traces:
                self._machine.given_up(self._key, self._attempt)
            elif not self._withdrew:
                raise Violation("undo", f"{self._attempt} was given up with {error!r}, and not withdrawn")
        self._leave()
        self._done(result, error)

    def _leave(self) -> None:
        if self._attempt is not None:
            self._machine.listeners.pop(self._attempt, None)
            self._machine.keeper.leave(self._attempt)
