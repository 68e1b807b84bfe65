"""What happened in the demo, as the processes told it. The screen shows it and the checks judge it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any, Literal

from examples.demo.cast import NAMES

WorkerState = Literal["starting", "idle", "waiting", "holding", "killed", "paused", "refused", "gone"]


@dataclass(slots=True)
class Turn:
    """One turn of a worker, from asking to the end. Times are of the machine's monotonic clock."""

    worker: str
    asked: float
    granted: float | None = None
    token: int | None = None
    ended: float | None = None  # left, killed or paused: from here on it does not work under the lock
    how: Literal["left", "killed", "paused"] | None = None
    back: float | None = None  # a paused one woke up, and was refused
    lapsed: float | None = None  # when somebody else got the lock that was not released


@dataclass(slots=True)
class Line:
    """One line of the log."""

    at: float
    worker: str | None
    text: str


@dataclass(slots=True)
class Record:
    """Everything that happened so far."""

    planned: int = 0
    turns: list[Turn] = field(default_factory=list)
    log: list[Line] = field(default_factory=list)
    act: int = 0
    title: str = ""
    explanation: str = ""
    started: float = field(default_factory=time.monotonic)
    states: dict[str, WorkerState] = field(default_factory=lambda: dict.fromkeys(NAMES, "starting"))
    refusals: list[tuple[str, str, str]] = field(default_factory=list)  # worker, what for, reason

    def begin_act(self, title: str, explanation: str) -> None:
        """Start the next act."""
        self.act += 1
        self.title, self.explanation = title, explanation
        self.say(None, f"act {self.act}: {title}")

    def say(self, worker: str | None, text: str, at: float | None = None) -> None:
        """Add a line to the log."""
        self.log.append(Line((time.monotonic() if at is None else at) - self.started, worker, text))

    def hear(self, worker: str, message: dict[str, Any]) -> None:
        """Take in what a worker tells."""
        at: float = message["at"]
        match message["what"]:
            case "ready":
                self.states[worker] = "idle"
            case "asking":
                self.turns.append(Turn(worker, at))
                self.states[worker] = "waiting"
            case "granted":
                self._granted(self.last(worker), at, message["token"])
            case "leaving":
                turn = self.last(worker)
                turn.ended, turn.how = at, "left"
            case "left":
                self.states[worker] = "idle"
            case "refused":
                self._refused(worker, at, message["what_for"], message["reason"])
            case "gone" if self.states[worker] != "killed":
                self.states[worker] = "gone"
                self.say(worker, "has ended, and should not have", at)

    def struck(self, worker: str, how: Literal["killed", "paused"], at: float) -> None:
        """Note that a holder was killed or paused."""
        turn = self.last(worker)
        turn.ended, turn.how = at, how
        self.states[worker] = how
        self.say(worker, "killed with SIGKILL" if how == "killed" else "paused with SIGSTOP", at)

    def last(self, worker: str) -> Turn:
        """Return the current or latest turn of a worker."""
        return next(turn for turn in reversed(self.turns) if turn.worker == worker)

    def granted(self) -> list[Turn]:
        """Return all turns that were granted, in the order of their granting."""
        return sorted(
            (turn for turn in self.turns if turn.granted is not None), key=lambda turn: turn.granted or 0.0
        )

    def completed(self) -> list[Turn]:
        """Return all turns that were worked through under the lock, in order."""
        return [turn for turn in self.granted() if turn.how == "left"]

    def successor(self, turn: Turn) -> Turn | None:
        """Return the turn that was granted after *turn*."""
        return next((t for t in self.granted() if (t.granted or 0.0) > (turn.granted or 0.0)), None)

    def _granted(self, turn: Turn, at: float, token: int) -> None:
        for before in self.turns:
            if before.how in ("killed", "paused") and before.lapsed is None:
                before.lapsed = at
        turn.granted, turn.token = at, token
        self.states[turn.worker] = "holding"
        self.say(turn.worker, f"granted, token {token}, after {at - turn.asked:.2f} s", at)

    def _refused(self, worker: str, at: float, what_for: str, reason: str) -> None:
        turn = self.last(worker)
        turn.back = turn.back or at
        self.states[worker] = "refused"
        self.refusals.append((worker, what_for, reason))
        self.say(worker, f"{what_for}() is refused: LeaseLost, {reason}", at)
