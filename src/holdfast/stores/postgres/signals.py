"""Wake-ups by LISTEN and NOTIFY: one listening connection per client, however many waiters.

Each client listens on a channel of its own, so a hand-over wakes one process. The connection is made when
something is waited for or held, and made again when it breaks; what was missed meanwhile, heartbeats tell.
"""

from __future__ import annotations

import select
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, cast

import psycopg
from psycopg import pq

from holdfast.core.requests import Signal, SignalKind
from holdfast.log import log
from holdfast.masking import block_signals
from holdfast.stores.listening import FIRST_PAUSE, LONGEST_PAUSE, START, Listening
from holdfast.stores.postgres.session import channel_of

ECHO = 2.0  # how long our own notification may take; behind a pooler in transaction mode it never comes


class Notifications(Listening):
    """Listens for one client, on a connection made by *connect*; without it signals are off."""

    def __init__(
        self,
        connect: Callable[[], psycopg.Connection[Any]] | None,
        instance: str,
        close: Callable[[psycopg.Connection[Any]], None],
    ) -> None:
        self._connect = connect
        self._close = close
        self._start(instance)

    def _start(self, instance: str) -> None:
        self._instance = instance
        self._mutex = threading.Lock()
        self._thread: threading.Thread | None = None
        self._ready = threading.Event()
        self._stop: socket.socket | None = None

    def hang_up_bell(self) -> None:
        """Have the listener running, and listening."""
        if self._ready.is_set() or self._connect is None or self._listener is None:
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

    def after_fork(self, instance: str) -> None:
        """Forget the parent's listener in a forked child."""
        if self._stop is not None:
            self._stop.close()
        self._start(instance)

    def close(self) -> None:
        """Stop listening."""
        with self._mutex:
            thread, self._thread = self._thread, None
            stop, self._stop = self._stop, None
            self._ready = threading.Event()
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
                except (psycopg.Error, OSError) as error:
                    log().warning("listening for signals failed, trying again: %s", error)
                ready.set()  # nobody waits for us twice: without signals, heartbeats do
                if time.monotonic() - began > LONGEST_PAUSE:
                    pause = FIRST_PAUSE
                if _is_readable(stop, pause):
                    return
                pause = min(pause * 2, LONGEST_PAUSE)

    def _listen_once(self, stop: socket.socket, ready: threading.Event) -> None:
        """Listen until told to stop."""
        assert self._connect is not None
        connection = self._connect()
        try:
            pg = connection.pgconn
            channel = channel_of(self._instance)  # made by us, of letters and digits
            result = pg.exec_(f'LISTEN "{channel}"; SELECT pg_backend_pid()'.encode())
            if result.status != pq.ExecStatus.TUPLES_OK:
                raise psycopg.OperationalError(result.error_message.decode(errors="replace").strip())
            if int(result.get_value(0, 0) or 0) == pg.backend_pid:
                ready.set()
            else:  # somebody else answers than we connected to: a pooler, which may keep sessions or not
                self._echo(channel)
            deadline = time.monotonic() + ECHO
            poll = select.poll()
            poll.register(stop, select.POLLIN)
            poll.register(pg.socket, select.POLLIN)
            while True:
                while notification := pg.notifies():
                    if notification.extra:
                        self._hear(notification.extra)
                    else:
                        ready.set()
                left = None
                if not ready.is_set():
                    left = (deadline - time.monotonic()) * 1000
                    if left <= 0:
                        self._give_up()
                        ready.set()
                        return
                if any(fd == stop.fileno() for fd, _ in poll.poll(left)):
                    return
                pg.consume_input()
        finally:
            with suppress(psycopg.Error):
                self._close(connection)

    def _echo(self, channel: str) -> None:
        """Notify ourselves, from another session: in the one that listens it would always arrive."""
        connection = self._connect()  # type: ignore[misc]
        try:
            connection.pgconn.exec_(f"SELECT pg_notify('{channel}', '')".encode())
        finally:
            with suppress(psycopg.Error):
                self._close(connection)

    def _give_up(self) -> None:
        log().warning(
            "notifications do not arrive: is there a pooler in transaction mode? Name a direct address with"
            " listen= in the url. Until then waiters learn of a hand-over by their heartbeat"
        )

    def _hear(self, payload: bytes) -> None:
        with suppress(ValueError):  # anybody may notify; it must not end the thread
            kind, key, attempt, expires_in, to = payload.decode().split("\n")
            self.deliver(Signal(cast("SignalKind", kind), key, attempt, float(expires_in), to))


def _is_readable(stop: socket.socket, timeout: float) -> bool:
    return bool(select.select([stop], [], [], timeout)[0])
