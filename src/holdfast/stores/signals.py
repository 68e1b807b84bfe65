"""What the listeners of all servers have in common: whom they tell, and how patient they are."""

from __future__ import annotations

import random
import socket
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable
from contextlib import suppress
from typing import cast

from holdfast.core.requests import Signal, SignalKind
from holdfast.log import log
from holdfast.signal_mask import block_signals
from holdfast.stores.base import Listener, micros

START = 5.0  # how long a request waits for the listener before it goes on without
WATCHED = 10.0  # seconds to listen after a look at the feed: the next one comes before
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 15.0  # before connecting again


def as_text(signal: Signal) -> str:
    """Return a signal as `Signals.deliver_text` reads it.

    What can be entered by a grant stands with its kind: so older clients take it for a hint to ask.
    """
    kind = f"{signal.kind} {signal.token} {micros(signal.at)}" if signal.token else signal.kind
    return f"{kind}\n{signal.key}\n{signal.attempt}\n{signal.expires_in}\n{signal.to}"


class Signals(ABC):
    """How a client of a server is woken. What it is told are hints, and nothing depends on them."""

    _listener: Listener | None = None
    instance: str = ""  # who listens
    hears = False  # what is said to us arrives

    def listen(self, listener: Listener) -> None:
        """Deliver signals to *listener* from now on."""
        self._listener = listener

    def deliver(self, signal: Signal) -> None:
        """Pass a signal on."""
        if self._listener is not None:
            self._listener(signal)

    def deliver_text(self, text: bytes) -> None:
        """Pass on a signal that came as a text. Anybody may send one: what is none must not end a thread."""
        with suppress(ValueError):
            said, key, attempt, expires_in, to = text.decode().split("\n")
            kind, *grant = said.split(" ")
            token, at = map(int, grant or (0, 0))
            named = cast("SignalKind", kind), key, attempt
            self.deliver(Signal(*named, float(expires_in), to, token, at / 1e6))

    def tell(self, signals: Iterable[tuple[str, Signal]]) -> None:
        """Pass on those signals that are for our own client."""
        for instance, signal in signals:
            if instance == self.instance:
                self.deliver(signal)

    def reaches(self, address: str) -> bool:
        """Tell whether what is said to *address* may arrive. Of others we do not know."""
        if address.partition("/")[0] != self.instance:
            return True
        self.expect(WATCHED)
        return self.hears

    @abstractmethod
    def be_reachable(self) -> None:
        """Make sure that we can be woken, before anybody could want to. Never raises."""

    def expect(self, lasts: float, *, begins: bool = True) -> None:
        """Be reachable for *lasts* seconds from now at least: somebody of ours waits, or *begins* to wait.

        Most listen once and for all. Who waits already is not held up.
        """
        if begins:
            self.be_reachable()

    @abstractmethod
    def after_fork(self, instance: str) -> None:
        """Become the listener of *instance* in a forked child."""

    @abstractmethod
    def close(self) -> None:
        """Stop listening."""


class SignalThread(Signals):
    """A listener in a thread of its own, which tries again whenever it fails."""

    failures: tuple[type[Exception], ...]  # that are to be expected
    _can_listen = True  # there is something to listen to

    def _start(self, instance: str = "") -> None:
        self.instance = instance
        self._mutex = threading.Lock()
        self._thread: threading.Thread | None = None
        self._ready = threading.Event()
        self._stop = threading.Event()
        self._waker: socket.socket | None = None

    def be_reachable(self) -> None:
        """Have the listener running, and listening."""
        if not self._ready.is_set() and (ready := self._have_thread()):
            ready.wait(START)

    def _have_thread(self) -> threading.Event | None:
        """Have the listener running; return what tells that it is listening, if it will."""
        if self._listener is None or not self._can_listen:
            return None
        with self._mutex:
            if self._thread is None:
                # Known only once it runs: an interrupt in between leaves nobody that could be waited for.
                thread = threading.Thread(
                    target=self._run, args=(self._stop, self._ready), name="holdfast-listener", daemon=True
                )
                try:
                    thread.start()
                except RuntimeError:  # no more threads, or the interpreter is ending
                    return None
                self._thread = thread
            return self._ready

    def after_fork(self, instance: str) -> None:
        """Forget the parent's listener in a forked child."""
        if self._waker is not None:
            self._waker.close()
        self._start(instance)

    def close(self) -> None:
        """Stop listening."""
        with self._mutex:
            thread, self._thread = self._thread, None
            stop, self._stop = self._stop, threading.Event()
            ready, self._ready = self._ready, threading.Event()
            stop.set()
            ready.set()  # whoever waits for it need not wait any longer
            self._interrupt()
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout=1.0)

    def _listen_once(self, stop: threading.Event, ready: threading.Event) -> None:
        """Listen until told to stop; say so when we are *ready*."""
        ours, theirs = socket.socketpair()
        with ours, theirs:
            with self._mutex:
                if stop.is_set():
                    ours.close()
                else:
                    self._waker = ours
            self._listen_beside(theirs, ready)

    def _listen_beside(self, stopped: socket.socket, ready: threading.Event) -> None:
        """Listen, and beside that wait for a socket that is readable once we are told to stop."""
        raise NotImplementedError

    def _interrupt(self) -> None:
        """Have the thread see that it is to stop, whatever it waits for."""
        if self._waker is not None:
            self._waker.close()  # its other end becomes readable

    def _tell(self, error: Exception) -> None:
        """Tell of a failure, after which we try again."""
        log().warning("listening for signals failed, trying again: %s", error)

    def _run(self, stop: threading.Event, ready: threading.Event) -> None:
        block_signals()
        with self._mutex:
            if self._thread is not threading.current_thread():
                return  # closed; or whoever started us was interrupted, and starts another one later
        pause = FIRST_PAUSE
        while not stop.is_set():
            began = time.monotonic()
            try:
                self._listen_once(stop, ready)
                return
            except Exception as error:  # noqa: BLE001 - also of a handler that we told: others want to be told
                if stop.is_set():
                    return
                if isinstance(error, self.failures):
                    self._tell(error)
                else:
                    log().exception("listening for signals failed, trying again")
            ready.set()  # nobody waits for us twice: without signals, heartbeats do
            if time.monotonic() - began > LONGEST_PAUSE:
                pause = FIRST_PAUSE
            # All clients of a server lose it at the same moment, and shall not come back at one.
            stop.wait(pause * (0.5 + random.random() / 2))
            pause = min(pause * 2, LONGEST_PAUSE)
