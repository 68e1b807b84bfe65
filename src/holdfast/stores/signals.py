"""What the listeners of all servers have in common: whom they tell, and how patient they are."""

from __future__ import annotations

import random
import select
import socket
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable

from holdfast.core.requests import Signal
from holdfast.log import log
from holdfast.signal_mask import block_signals
from holdfast.stores.base import Listener

START = 5.0  # how long a request waits for the listener before it goes on without
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 15.0  # before connecting again


class Signals(ABC):
    """How a client of a server is woken. What it is told are hints, and nothing depends on them."""

    _listener: Listener | None = None
    instance: str = ""  # who listens

    def listen(self, listener: Listener) -> None:
        """Deliver signals to *listener* from now on."""
        self._listener = listener

    def deliver(self, signal: Signal) -> None:
        """Pass a signal on."""
        if self._listener is not None:
            self._listener(signal)

    def tell(self, signals: Iterable[tuple[str, Signal]]) -> None:
        """Pass on those signals that are for our own client."""
        for instance, signal in signals:
            if instance == self.instance:
                self.deliver(signal)

    @abstractmethod
    def be_reachable(self) -> None:
        """Make sure that we can be woken, before anybody could want to. Never raises."""

    @abstractmethod
    def after_fork(self, instance: str) -> None:
        """Become the listener of *instance* in a forked child."""

    @abstractmethod
    def close(self) -> None:
        """Stop listening."""


class SignalThread(Signals):
    """A listener that waits for a socket, in a thread of its own, and for another that tells it to stop."""

    failures: tuple[type[Exception], ...]  # after which it tries again

    def _start(self) -> None:
        self._mutex = threading.Lock()
        self._thread: threading.Thread | None = None
        self._ready = threading.Event()
        self._stop: socket.socket | None = None

    def be_reachable(self) -> None:
        """Have the listener running, and listening."""
        if self._ready.is_set() or self._listener is None or not self._can_listen():
            return
        with self._mutex:
            ready = self._ready
            if self._thread is None:
                # Known only once it runs: an interrupt in between leaves nobody that could be waited for. Of
                # two that run, the one whose socket nobody has any more ends.
                ours, theirs = socket.socketpair()
                thread = threading.Thread(
                    target=self._run, args=(theirs, self._ready), name="holdfast-listener", daemon=True
                )
                try:
                    thread.start()
                except RuntimeError:  # no more threads, or the interpreter is ending
                    ours.close()
                    theirs.close()
                    return
                self._thread, self._stop = thread, ours
        ready.wait(START)

    def close(self) -> None:
        """Stop listening."""
        with self._mutex:
            thread, self._thread = self._thread, None
            stop, self._stop = self._stop, None
            ready, self._ready = self._ready, threading.Event()
        ready.set()  # whoever waits for it need not wait any longer
        if stop is not None:
            stop.close()  # its other end becomes readable
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout=1.0)

    def _can_listen(self) -> bool:
        """Tell whether there is anything to listen to."""
        return True

    @abstractmethod
    def _listen_once(self, stop: socket.socket, ready: threading.Event) -> None:
        """Listen until *stop* is readable; say so when we are *ready*."""

    def _tell(self, error: Exception) -> None:
        """Tell of a failure, after which we try again."""
        log().warning("listening for signals failed, trying again: %s", error)

    def _run(self, stop: socket.socket, ready: threading.Event) -> None:
        block_signals()
        pause = FIRST_PAUSE
        with stop:
            while True:
                began = time.monotonic()
                try:
                    self._listen_once(stop, ready)
                    return
                except self.failures as error:
                    self._tell(error)
                except Exception:  # noqa: BLE001 - of a handler that we told: the others still want to be told
                    log().exception("listening for signals failed, trying again")
                ready.set()  # nobody waits for us twice: without signals, heartbeats do
                if time.monotonic() - began > LONGEST_PAUSE:
                    pause = FIRST_PAUSE
                # All clients of a server lose it at the same moment, and shall not come back at one.
                if select.select([stop], [], [], pause * (0.5 + random.random() / 2))[0]:
                    return
                pause = min(pause * 2, LONGEST_PAUSE)
