"""Wake-ups by KILL QUERY: one listening connection per client waits in the server until somebody ends that.

It holds a named lock of the server's for its life, by which others find it. The first of all listeners
sleeps, and the others wait for a lock that it has: ending many sleeps at once has stopped servers for
seconds. What was handed to this client it reads from the locks; other signals are rows that it deletes. The
connection is made when something is waited for or held, and made again when it breaks; what was missed
meanwhile, heartbeats tell.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import cast

from holdfast import errors
from holdfast.core.requests import Signal, SignalKind, addressed
from holdfast.log import log
from holdfast.signal_mask import block_signals
from holdfast.stores.mysql.failures import Interrupted
from holdfast.stores.mysql.session import MySQLSession
from holdfast.stores.signals import FIRST_PAUSE, LONGEST_PAUSE, START, Signals
from holdfast.stores.sql.transactions.session import Conflict

SLEEP = 20  # seconds, at most: an answer now and then shows that the line is not broken
TURN = 2  # seconds to wait for a connection of ours that broke and that the server has not missed yet
ASIDE = 0.1  # seconds, at most, to be out of somebody's way

Grant = tuple[str, int]  # key and token


class Doorbell(Signals):
    """Listens for one client, on a connection made by *connect*; without it signals are off.

    *hang_up* has the server end the connection of an instance: it would notice only after seconds by itself.
    """

    def __init__(
        self, connect: Callable[[], MySQLSession] | None, instance: str, hang_up: Callable[[str], None]
    ) -> None:
        self._connect = connect
        self._hang_up = hang_up
        self._start(instance)

    def _start(self, instance: str) -> None:
        self.instance = instance
        self._mutex = threading.Lock()
        self._thread: threading.Thread | None = None
        self._ready = threading.Event()
        self._stop = threading.Event()
        self._line: MySQLSession | None = None

    def be_reachable(self) -> None:
        """Have the listener running, and listening."""
        if self._ready.is_set() or self._connect is None or self._listener is None:
            return
        with self._mutex:
            ready = self._ready
            if self._thread is None:
                # Known only once it runs: an interrupt in between leaves nobody that could be waited for.
                thread = threading.Thread(
                    target=self._run, args=(self._stop, self._ready), name="holdfast-listener", daemon=True
                )
                try:
                    thread.start()
                except RuntimeError:  # no more threads, or the interpreter is ending
                    return
                self._thread = thread
        ready.wait(START)

    def after_fork(self, instance: str) -> None:
        """Forget the parent's listener in a forked child. Its line is closed here without a word."""
        self._start(instance)

    def close(self) -> None:
        """Stop listening."""
        with self._mutex:
            thread, self._thread = self._thread, None
            stop, self._stop = self._stop, threading.Event()
            ready, self._ready = self._ready, threading.Event()
            stop.set()
            ready.set()  # whoever waits for it need not wait any longer
            if self._line is not None:
                self._line.interrupt()
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout=1.0)

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
            except Exception as error:  # noqa: BLE001 - also a handler's: nobody else listens
                if stop.is_set():
                    return
                unexpected = None if isinstance(error, errors.StoreError) else error
                log().warning("listening for signals failed, trying again: %s", error, exc_info=unexpected)
            ready.set()  # nobody waits for us twice: without signals, heartbeats do
            if time.monotonic() - began > LONGEST_PAUSE:
                pause = FIRST_PAUSE
            # All clients of a server lose it at the same moment, and shall not come back at one.
            stop.wait(pause * (0.5 + random.random() / 2))
            pause = min(pause * 2, LONGEST_PAUSE)

    def _listen_once(self, stop: threading.Event, ready: threading.Event) -> None:
        """Listen until told to stop."""
        assert self._connect is not None
        instance = self.instance
        session = self._connect()
        listening = False
        try:
            with self._mutex:
                if stop.is_set():
                    return
                self._line = session
            self._take_name(session)
            listening = True
            first = False  # of all listeners of this server
            told: set[Grant] = set()
            while not stop.is_set():
                try:
                    told = self._hear(session, told)
                    ready.set()
                    seen = sum(token for _, token in told)
                    asked = {"instance": instance, "seen": seen, "seconds": SLEEP}
                    if first:
                        session.fetch("sleep", asked)
                    else:
                        first = session.fetch("wait", asked) == [(1,)]
                except Interrupted:
                    continue  # by a signal
                except Conflict:  # with somebody who changes the tables
                    stop.wait(random.uniform(0, ASIDE))
        finally:
            with self._mutex:
                self._line = None
            session.break_off()
            if listening and stop.is_set():
                self._hang_up(instance)

    def _take_name(self, session: MySQLSession) -> None:
        """Take the named lock by which others find us."""
        asked = {"instance": self.instance, "timeout": TURN}
        if session.fetch("listen", asked) == [(1,)]:
            return
        # Only a connection of ours can have it, and that one is lost to us. If its line died without a word,
        # the server may keep it for minutes.
        with suppress(errors.StoreError):
            session.fetch("hang_up", asked)
        if session.fetch("listen", asked) != [(1,)]:
            raise errors.StoreUnavailable("MySQL: another connection listens for this client already")

    def _hear(self, session: MySQLSession, told: set[Grant]) -> set[Grant]:
        """Deliver what is new, and return all grants that wait for being claimed."""
        asked = {"instance": self.instance}
        handed, rows = session.send([("handed", asked), ("signals", asked)])
        for key, attempt, token, address in handed:
            if (key, token) not in told:
                self.deliver(addressed(address, Signal("granted", key, attempt))[1])
        for number, kind, key, attempt, expires_in, to in rows:
            self.deliver(Signal(cast("SignalKind", kind), key, attempt, expires_in / 1e6, to))
            with suppress(Interrupted, Conflict):  # then it is told again
                session.fetch("delete_signal", {"id": number})
        return {(key, token) for key, _, token, _ in handed}
