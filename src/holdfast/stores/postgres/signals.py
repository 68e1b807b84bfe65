"""Wake-ups by LISTEN and NOTIFY: one listening connection per client, however many waiters.

Each client listens on a channel of its own, so a hand-over wakes one process. But it costs the server
something for each one that listens. So the connection is made when something is waited for, and closed when
nobody waits any more: who only holds learns of a break by its next renewal. It is made again when it breaks;
what was missed meanwhile, heartbeats tell.
"""

from __future__ import annotations

import math
import select
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import psycopg
from psycopg import pq

from holdfast.log import log
from holdfast.stores.postgres import variables
from holdfast.stores.postgres.session import channel_of
from holdfast.stores.signals import START, SignalThread

LINGER = 5.0  # how long to listen at least, so that who waits now and then does not connect each time
ECHO = 2.0  # how long our own notification may take; behind a pooler in transaction mode it never comes


class Notifications(SignalThread):
    """Listens for one client, on a connection made by *connect*; without it signals are off.

    *keeps*: whoever is in between keeps sessions apart, so ours can be set up.
    """

    failures = (psycopg.Error, OSError)

    def __init__(
        self,
        connect: Callable[[], psycopg.Connection[Any]] | None,
        instance: str,
        close: Callable[[psycopg.Connection[Any]], None],
        *,
        keeps: bool,
    ) -> None:
        self._connect = connect
        self._can_listen = connect is not None
        self._close = close
        self._keeps = keeps
        self._start(instance)

    def _start(self, instance: str = "") -> None:
        super()._start(instance)
        self._always = False
        self._wanted_until = 0.0  # by time.monotonic()

    def be_reachable(self) -> None:
        """Listen from now on."""
        self._always = True
        super().be_reachable()

    def expect(self, lasts: float, *, begins: bool = True) -> None:
        """Listen for a while, from now on."""
        # Of two who say so at once the shorter wish may count: until the next heartbeat, which comes sooner.
        self._wanted_until = max(self._wanted_until, time.monotonic() + max(lasts, LINGER))
        if not self._ready.is_set() and (ready := self._have_thread()) and begins:
            ready.wait(START)

    def _seconds_left(self) -> float:
        return math.inf if self._always else self._wanted_until - time.monotonic()

    def _may_stop(self, ready: threading.Event) -> bool:
        """Tell whether nobody wants to be woken any more. From then on another thread would have to listen.

        Who begins to wait says so first, and then looks whether we are ready. Here it is the other way round.
        So one of us sees the other, without a mutex for each who waits.
        """
        with self._mutex:
            if self._thread is threading.current_thread():
                ready.clear()
                if self._seconds_left() > 0:
                    ready.set()
                    return False
                self._thread, self.hears = None, False
            return True

    def _listen_beside(self, stopped: socket.socket, ready: threading.Event) -> None:
        assert self._connect is not None
        connection = self._connect()
        try:
            pg = connection.pgconn
            channel = channel_of(self.instance)  # made by us, of letters and digits
            local = variables.is_shared(pg.backend_pid, keeps=self._keeps)
            pins = variables.setting(pg.server_version, local)
            # By itself, so that pg_stat_activity shows who listens: it has the beginning of a text only.
            for text in (pins, f'LISTEN "{channel}"; SELECT pg_backend_pid()'):
                result = pg.exec_(text.encode())
                if result.status != pq.ExecStatus.TUPLES_OK:
                    raise psycopg.OperationalError(result.error_message.decode(errors="replace").strip())
            if int(result.get_value(0, 0) or 0) == pg.backend_pid:
                self.hears = True
                ready.set()
            else:  # somebody else answers than we connected to: a pooler, which may keep sessions or not
                self._echo(channel)
            deadline = time.monotonic() + ECHO
            poll = select.poll()
            poll.register(stopped, select.POLLIN)
            poll.register(pg.socket, select.POLLIN)
            while True:
                while notification := pg.notifies():
                    if notification.extra:
                        self.deliver_text(notification.extra)
                    else:
                        self.hears = True
                        ready.set()
                left = self._seconds_left()
                if not ready.is_set():
                    left = deadline - time.monotonic()
                    if left <= 0:
                        log().warning(
                            "notifications do not arrive: is there a pooler in transaction mode? Name a"
                            " direct address with listen= in the url. Until then waiters learn of a"
                            " hand-over by their heartbeat"
                        )
                        ready.set()
                        return
                elif left <= 0 and self._may_stop(ready):
                    return
                found = poll.poll(None if left == math.inf else max(left, 0.0) * 1000)
                if any(fd == stopped.fileno() for fd, _ in found):
                    return
                pg.consume_input()
        finally:
            with self._mutex:
                if self._thread in (None, threading.current_thread()):  # otherwise it is another's to say
                    self.hears = False
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
