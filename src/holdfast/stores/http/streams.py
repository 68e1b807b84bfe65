"""Wake-ups by an event stream of the server's: one connection per client, however many waiters.

The server says at the beginning where it can be told what we are to hear: that address goes into every
request of ours. The stream is opened when something is waited for or held, and again when it breaks or the
server says goodbye; then the address is another, and whatever was missed meanwhile is asked for.
"""

from __future__ import annotations

import json
import random
import select
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, get_args

from holdfast import errors
from holdfast.core.requests import Signal, SignalKind
from holdfast.log import log
from holdfast.masking import block_signals
from holdfast.stores.http.connections import Connection, Unsent
from holdfast.stores.http.events import EventReader
from holdfast.stores.http.message import Chunked, Garbled, Head
from holdfast.stores.listening import FIRST_PAUSE, LONGEST_PAUSE, START, Listening

SILENCE = 40.0  # the server says something every 15 s, if only that it is there
_KINDS = get_args(SignalKind)


class Goodbye(Exception):
    """The server has ended the stream, for a reason."""


class SignalStream(Listening):
    """Listens for one client on a stream made by *begin*; calls *missed* for what it may not have heard."""

    def __init__(
        self, begin: Callable[[], tuple[Connection, Head, bytes]], missed: Callable[[], list[Signal]]
    ) -> None:
        self._begin = begin
        self._missed = missed
        self._start()

    def _start(self) -> None:
        self.address = ""  # where the server that has our stream can be told what we are to hear
        self._mutex = threading.Lock()
        self._thread: threading.Thread | None = None
        self._ready = threading.Event()
        self._stop: socket.socket | None = None
        self._line: Connection | None = None
        self._hearing = threading.Lock()  # while something is read and delivered

    def hang_up_bell(self) -> None:
        """Have the stream opened, and wait a while for its address."""
        if self._ready.is_set() or self._listener is None:
            return
        with self._mutex:
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
        self._ready.wait(START)

    def settle(self) -> None:
        """Wait until all that has come in is delivered. For tests, which count signals."""
        while (line := self._line) is not None and threading.current_thread() is not self._thread:
            with self._hearing:
                if line is not self._line or not line.is_readable():
                    return
            time.sleep(0)  # the thread that reads needs its turn

    def after_fork(self, instance: str) -> None:
        """Forget the parent's stream in a forked child."""
        for inherited in (self._stop, self._line):
            if inherited is not None:
                inherited.close()
        self._start()

    def close(self) -> None:
        """Stop listening."""
        with self._mutex:
            thread, self._thread = self._thread, None
            stop, self._stop = self._stop, None
            self._ready = threading.Event()
            self.address = ""
        if stop is not None:
            stop.close()  # its other end becomes readable
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout=1.0)

    def _run(self, stop: socket.socket, ready: threading.Event) -> None:
        block_signals()
        pause = FIRST_PAUSE
        with stop:
            while True:
                began = time.monotonic()
                try:
                    self._listen_once(stop, ready)
                    return
                except Goodbye as reason:
                    log().info("the server ended the stream of signals, opening another: %s", reason)
                except (errors.HoldfastError, OSError, Garbled, Unsent) as error:
                    log().warning("listening for signals failed, trying again: %s", error)
                ready.set()  # nobody waits for us twice: without signals, heartbeats do
                if time.monotonic() - began > LONGEST_PAUSE:
                    pause = FIRST_PAUSE
                if select.select([stop], [], [], pause * (0.5 + random.random() / 2))[0]:
                    return
                pause = min(pause * 2, LONGEST_PAUSE)

    def _listen_once(self, stop: socket.socket, ready: threading.Event) -> None:
        """Listen until told to stop."""
        line, head, first = self._begin()
        try:
            self._line = line
            stream = _Stream(head)
            poll = select.poll()
            poll.register(stop, select.POLLIN)
            poll.register(line, select.POLLIN)
            self._hear(stream, first, ready)
            while True:
                with self._hearing:
                    while (received := line.receive()) is not None:
                        if not received:
                            raise ConnectionResetError("the server closed the stream")
                        self._hear(stream, received, ready)
                found = poll.poll(SILENCE * 1000)
                if any(number == stop.fileno() for number, _ in found):
                    return
                if not found:
                    raise TimeoutError(f"nothing was heard for {SILENCE:g} s")
        finally:
            if self._line is line:
                self._line = None
                self.address = ""
            line.close()

    def _hear(self, stream: _Stream, received: bytes, ready: threading.Event) -> None:
        for event, data in stream.feed(received):
            if event == "hello":
                self.address = str(data.get("address", ""))
                ready.set()
                for signal in self._missed():
                    self.deliver(signal)
            elif event == "signal" and data.get("kind") in _KINDS:
                with suppress(KeyError, TypeError, ValueError):  # a newer server's idea of a signal
                    self.deliver(
                        Signal(data["kind"], data["key"], data["attempt"], float(data.get("expires_in", 0.0)))
                    )
            elif event == "goodbye":
                raise Goodbye(data.get("detail") or data.get("reason") or "no reason was given")


class _Stream:
    """The events of one stream, with their data as JSON."""

    def __init__(self, head: Head) -> None:
        self._chunked = Chunked() if head.is_chunked else None
        self._reader = EventReader()

    def feed(self, received: bytes) -> list[tuple[str, dict[str, Any]]]:
        body = self._chunked.feed(received) if self._chunked else received
        found = []
        for event in self._reader.feed(body):
            with suppress(ValueError, RecursionError):
                data = json.loads(event.data)
                if isinstance(data, dict):
                    found.append((event.event, data))
        return found
