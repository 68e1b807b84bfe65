"""Signals that end a command: each can interrupt what is going on, or wait until somebody looks."""

from __future__ import annotations

import signal
from collections.abc import Callable
from contextlib import suppress
from types import FrameType

ENDING = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))


class Interrupted(KeyboardInterrupt):
    """One of the ending signals arrived."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


class Interrupts:
    """While entered, the first ending signal raises `Interrupted`, until `deliver_to` says otherwise.

    What the process was started to ignore (nohup) it goes on ignoring.
    """

    def __init__(self) -> None:
        self._deliver: Callable[[int], None] | None = None
        self._before: dict[int, Callable[[int, FrameType | None], object] | int | None] = {}

    def deliver_to(self, deliver: Callable[[int], None]) -> None:
        """Call *deliver* with each signal from now on, instead of raising."""
        self._deliver = deliver

    def __enter__(self) -> Interrupts:
        for number in ENDING:
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            with suppress(TypeError):  # None: it was not set from Python
                signal.signal(number, handler)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self._deliver is not None:
            self._deliver(number)
            return
        self._deliver = lambda _: None  # a second one must not interrupt the cleaning up
        raise Interrupted(number)
