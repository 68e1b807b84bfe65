"""Wake-ups by KILL QUERY: one listening connection per client waits in the server until somebody ends that.

It holds a named lock of the server's for its life, by which others find it. What it waits for is a lock as
well: that of the first of all listeners. The first one has a second connection, and waits for a lock of that
one's. No listener sleeps if it can help it: ending a sleep can stop all who do so for seconds. What was
handed to this client it reads from the locks; other signals are rows that it deletes. The connection is made
when something is waited for or held, and made again when it breaks; what was missed meanwhile, heartbeats
tell.
"""

from __future__ import annotations

import math
import random
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, cast

from holdfast import errors
from holdfast.core.data import replace
from holdfast.core.requests import Signal, SignalKind, addressed
from holdfast.log import log
from holdfast.signal_mask import block_signals
from holdfast.stores.mysql.failures import Interrupted
from holdfast.stores.mysql.session import MySQLSession
from holdfast.stores.signals import SignalThread
from holdfast.stores.sql.transactions.session import Conflict

REST = 20  # seconds to wait, at most: an answer now and then shows that the line is not broken
SHORT_REST = 0.5  # seconds to sleep, at most, while there may soon be something better to wait for
TURN = 2  # seconds to wait for a connection of ours that broke and that the server has not missed yet
ASIDE = 0.1  # seconds, at most, to be out of somebody's way
MOMENT = 0.5  # seconds that closing waits for a connection that is being made
ROOM = 0.9  # of the connections that there may be: the second one leaves the others to who needs them

FIRST = "holdfast first"  # what listeners wait for, and the first of them has

HANDED = 4  # numbers of what was handed to us; of a signal there are fewer

Grant = tuple[str, str]  # key and token


class Awaited:
    """What a listener waits for: a lock that somebody has for its life, so that only a KILL ends the wait.

    That is the lock of the first of all listeners. Who has that one itself waits for a lock of a second
    connection. A thread makes that one: it may take long, or fail in any way, and until then the listener
    sleeps, and hears what there is to hear.
    """

    def __init__(self, connect: Callable[[], MySQLSession]) -> None:
        self.lock = FIRST  # its name; none: there is nothing to wait for
        self._connect = connect
        self._mutex = threading.Lock()
        self._second: MySQLSession | None = None
        self._thread: threading.Thread | None = None
        self._closed = False
        self._look_at = -math.inf

    def look(self, session: MySQLSession, free: str) -> None:
        """See to it that there is a lock to wait for. *free*: the one that nobody had any more, if so.

        The second connection is used now and then: the server ends idle ones. And it is let go of where
        connections are scarce.
        """
        if free and free == self.lock:
            self.lock = ""
            self._drop()
        if self.lock == FIRST or self._is_busy() or time.monotonic() < self._look_at:
            return
        try:
            has_room = _has_room(session, more=self._second is None)
        except (Interrupted, Conflict):
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, each listener would end by it in turn
            log().debug("MySQL: it cannot be told whether there is room for a connection: %s", error)
            has_room = False
        self._look_at = time.monotonic() + REST
        if not has_room:
            self._drop()
            return
        self._thread = threading.Thread(target=self._have_second, name="holdfast-awaited", daemon=True)
        with suppress(RuntimeError):  # no more threads, or the interpreter is ending
            self._thread.start()

    def wait(self) -> dict[str, Any]:
        """Return what to wait for next, and for how many seconds: not many while there may soon be a lock."""
        is_busy = self._is_busy()  # first: after that there is no lock that we have not seen
        lock = self.lock
        return {"awaited": lock, "seconds": SHORT_REST if is_busy and not lock else REST}

    def _is_busy(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def _have_second(self) -> None:
        block_signals()
        try:
            second = self._second or self._connect()
            with self._mutex:
                self._second = second
            if self._closed:
                self._drop()
                return
            if named := second.fetch("be_awaited", {}):
                ((self.lock,),) = named
        except Exception as error:  # noqa: BLE001 - a pool of the caller's may raise anything
            log().debug("MySQL: no second connection for the listener: %s", error)
            self._look_at = time.monotonic() + REST  # from now on: to fail may take long
            self._drop()

    def _drop(self) -> None:
        with self._mutex:
            second, self._second = self._second, None
        if second is not None:
            second.interrupt()  # a forked child may have the line as well
            second.break_off()

    def close(self) -> None:
        """Let go of the second connection. One that is being made is waited for, unless that takes long."""
        self._closed = True
        self._drop()
        if self._thread is not None and self._is_busy():
            self._thread.join(MOMENT)


def _has_room(session: MySQLSession, *, more: bool) -> bool:
    """Tell whether the server and our account have connections to spare, if there is one *more*."""
    ((_, connected),) = session.script("SHOW GLOBAL STATUS LIKE 'Threads_connected'")
    ((most, most_of_us, of_us),) = session.fetch("limits", {})
    return int(connected) + more <= ROOM * most and (not most_of_us or of_us + more <= ROOM * most_of_us)


class Doorbell(SignalThread):
    """Listens for one client, on a connection made by *connect*; without it signals are off.

    *hang_up* has the server end the connection of an instance: by itself it would notice only after seconds.
    """

    failures = (Exception,)

    def __init__(
        self, connect: Callable[[], MySQLSession] | None, instance: str, hang_up: Callable[[str, int], None]
    ) -> None:
        self._connect = connect
        self._can_listen = connect is not None
        self._hang_up = hang_up
        self._start(instance)

    def _start(self, instance: str = "") -> None:
        super()._start(instance)
        self._line: MySQLSession | None = None  # after a fork, the parent's is closed here without a word

    def _interrupt(self) -> None:
        if self._line is not None:
            self._line.interrupt()

    def _tell(self, error: Exception) -> None:
        unexpected = None if isinstance(error, errors.StoreError) else error
        log().warning("listening for signals failed, trying again: %s", error, exc_info=unexpected)

    def _listen_once(self, stop: threading.Event, ready: threading.Event) -> None:
        """Listen until told to stop."""
        assert self._connect is not None
        instance = self.instance
        session = self._connect()
        awaited = Awaited(self._connect)
        connection = 0
        try:
            with self._mutex:
                if stop.is_set():
                    return
                self._line = session
            connection = self._take_name(session)
            told: set[Grant] = set()
            wait: dict[str, Any] = {"awaited": awaited.lock, "seconds": 0}  # at first: we are ready soon
            while not stop.is_set():
                try:
                    tokens = ",".join([token for _, token in told])
                    (waited,), *heard = session.fetch("hear", {"instance": instance, "told": tokens, **wait})
                    told = self._tell_new(session, told, [text.split("\n") for (text,) in heard])
                    ready.set()
                    awaited.look(session, wait["awaited"] if waited == 1 else "")
                    wait = awaited.wait()
                except Interrupted:
                    continue  # by a signal
                except Conflict:  # with somebody who changes the tables
                    stop.wait(random.uniform(0, ASIDE))
        finally:
            with self._mutex:
                if self._line is session:  # otherwise we were told to stop long ago, and another one listens
                    self._line = None
            session.break_off()
            awaited.close()
            if connection and stop.is_set():
                self._hang_up(instance, connection)

    def _take_name(self, session: MySQLSession) -> int:
        """Take the named lock by which others find us. Return the number of our connection."""
        asked = {"instance": self.instance, "timeout": TURN, "connection": 0}
        for is_hung_up in (False, True):
            ((taken, connection),) = session.fetch("listen", asked)
            if taken == 1:
                return int(connection)
            if not is_hung_up:
                # Only a connection of ours can have it, and that one is lost to us. If its line died without
                # a word, the server may keep it for minutes.
                with suppress(errors.StoreError):
                    session.fetch("hang_up", asked)
        raise errors.StoreUnavailable("MySQL: another connection listens for this client already")

    def _tell_new(self, session: MySQLSession, told: set[Grant], heard: list[list[str]]) -> set[Grant]:
        """Deliver what is new, and return all grants that wait for being claimed."""
        grants = set()
        for kind, key, attempt, to, *numbers in heard:
            if len(numbers) == HANDED:
                token, at, lasts, is_proved = numbers
                grants.add((key, token))
                if (key, token) not in told:
                    signal = Signal("granted", key, attempt)
                    if is_proved == "1":
                        enters = {"token": int(token), "at": int(at) / 1e6, "expires_in": int(lasts) / 1e6}
                        signal = replace(signal, **enters)
                    self.deliver(addressed(to, signal)[1])
                continue
            expires_in, number, entry = map(int, numbers)
            told_of = Signal(cast("SignalKind", kind), key, attempt, expires_in / 1e6, to, entry, entry / 1e6)
            if kind == "granted" and not entry:  # there is nothing to enter by
                told_of = replace(told_of, expires_in=0.0)
            self.deliver(told_of)
            with suppress(Interrupted, Conflict):  # then it is told again
                session.fetch("delete_signal", {"id": number})
        return grants
