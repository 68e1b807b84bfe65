"""What the listeners of all servers have in common: whom they tell, and how patient they are."""

from __future__ import annotations

from abc import ABC, abstractmethod

from holdfast.core.requests import Signal
from holdfast.stores.base import Listener

START = 5.0  # how long a request waits for the listener before it goes on without
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 15.0  # before connecting again


class Listening(ABC):
    """How a client of a server is woken. What it is told are hints, and nothing depends on them."""

    _listener: Listener | None = None

    def listen(self, listener: Listener) -> None:
        """Deliver signals to *listener* from now on."""
        self._listener = listener

    def deliver(self, signal: Signal) -> None:
        """Pass a signal on."""
        if self._listener is not None:
            self._listener(signal)

    @abstractmethod
    def hang_up_bell(self) -> None:
        """Make sure that we can be woken, before anybody could want to. Never raises."""

    @abstractmethod
    def after_fork(self, instance: str) -> None:
        """Become the listener of *instance* in a forked child."""

    @abstractmethod
    def close(self) -> None:
        """Stop listening."""
