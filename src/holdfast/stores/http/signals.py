"""Wake-ups by an event stream of the server's: one connection per client, however many waiters.

The server says at the beginning where it can be told what we are to hear: that address goes into every
request of ours. The stream is opened when something is waited for or held, and again when it breaks or the
server says goodbye; then the address is another, and whatever was missed meanwhile is asked for.
"""

from __future__ import annotations

import json
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
from holdfast.stores.http.connections import Connection, Unsent
from holdfast.stores.http.events import EventReader, ServerSent
from holdfast.stores.http.message import Chunked, Garbled, Reply
from holdfast.stores.signals import SignalThread

SILENCE = 40.0  # the server says something every 15 s, if only that it is there
_KINDS = get_args(SignalKind)


class Goodbye(Exception):
    """The server has ended the stream, for a reason."""


class SignalStream(SignalThread):
    """Listens for one client on a stream made by *begin*; calls *missed* for what it may not have heard."""

    failures = (Goodbye, errors.HoldfastError, OSError, Garbled, Unsent)

    def __init__(
        self, begin: Callable[[], tuple[Connection, Reply]], missed: Callable[[], list[Signal]]
    ) -> None:
        self._begin = begin
        self._missed = missed
        self._start()

    def _start(self, instance: str = "") -> None:
        super()._start(instance)
        self.address = ""  # where the server that has our stream can be told what we are to hear
        self._line: Connection | None = None
        self._hearing = threading.Lock()  # while something is read and delivered

    def settle(self) -> None:
        """Wait until all that has come in is delivered. For tests, which count signals."""
        while (line := self._line) is not None and threading.current_thread() is not self._thread:
            with self._hearing:
                if line is not self._line or not line.is_readable():
                    return
            time.sleep(0)  # the thread that reads needs its turn

    def after_fork(self, instance: str) -> None:
        """Forget the parent's stream in a forked child."""
        if self._line is not None:
            self._line.close()
        super().after_fork(instance)

    def close(self) -> None:
        """Stop listening."""
        super().close()
        self.address = ""

    def _tell(self, error: Exception) -> None:
        if isinstance(error, Goodbye):
            log().info("the server ended the stream of signals, opening another: %s", error)
        else:
            super()._tell(error)

    def _listen_beside(self, stopped: socket.socket, ready: threading.Event) -> None:
        line, reply = self._begin()
        try:
            self._line = line
            self._chunked = Chunked() if reply.head.is_chunked else None
            self._reader = EventReader()
            poll = select.poll()
            poll.register(stopped, select.POLLIN)
            poll.register(line, select.POLLIN)
            self._hear(reply.body, ready)
            while True:
                with self._hearing:
                    while (received := line.receive()) is not None:
                        if not received:
                            raise ConnectionResetError("the server closed the stream")
                        self._hear(received, ready)
                found = poll.poll(SILENCE * 1000)
                if any(number == stopped.fileno() for number, _ in found):
                    return
                if not found:
                    raise TimeoutError(f"nothing was heard for {SILENCE:g} s")
        finally:
            if self._line is line:
                self._line = None
                self.address = ""
            line.close()

    def _hear(self, received: bytes, ready: threading.Event) -> None:
        body = self._chunked.feed(received) if self._chunked else received
        for event, data in map(_read, self._reader.feed(body)):
            if event == "hello":
                self.address = str(data.get("address", ""))
                ready.set()
                for signal in self._missed():
                    self.deliver(signal)
            elif event == "signal" and data.get("kind") in _KINDS:
                with suppress(KeyError, TypeError, ValueError):  # a newer server's idea of a signal
                    named = data["kind"], data["key"], data["attempt"]
                    left, at = float(data.get("expires_in", 0.0)), float(data.get("at", 0.0))
                    self.deliver(Signal(*named, left, token=int(data.get("token", 0)), at=at))
            elif event == "goodbye":
                raise Goodbye(data.get("detail") or data.get("reason") or "no reason was given")


def _read(event: ServerSent) -> tuple[str, dict[str, Any]]:
    """Return what an event is called, and its data; no name for one whose data is no JSON object."""
    with suppress(ValueError, RecursionError):
        data = json.loads(event.data)
        if isinstance(data, dict):
            return event.event, data
    return "", {}
