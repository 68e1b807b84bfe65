"""Ways to wait for one's turn to write to the file, to try out before one is chosen.

They are put in place of the store's own way inside a worker process; `bench.queueing` compares them. What
they replace is internal to the store, so that only the comparison on request depends on it.
"""

from __future__ import annotations

import fcntl
import os
import queue
import random
import sqlite3
import struct
import threading
import time
from typing import Any

from holdfast import errors
from holdfast.stores.sqlite import database
from holdfast.stores.sqlite.database import Database

_real_open = Database.open


def install(name: str) -> None:
    """Make the store of this process wait as *name* says."""
    if name == "as is":
        return
    if name.startswith("spin "):  # "spin 3 0.1 1": try so often at once, then as "retry"
        _spin(int(name.split()[1]))
        name = "retry " + " ".join(name.split()[2:])
    if name.startswith("grow "):  # "grow 0.05 10 1": pauses of 0.05 ms for 10 ms, then growing to 1 ms
        _grow(*(float(part) / 1e3 for part in name.split()[1:4]))
        return
    if name.startswith("retry "):  # "retry 0.1 1": first and longest pause, in ms
        first, most = (float(part) / 1e3 for part in name.split()[1:3])
        database.TURN, database.MOST_TURN = first, most
        return
    {
        "busy_timeout": _busy_timeout,
        "gate": _gate,
        "gate, try": _gate_try,
        "gate, polled": _gate_polled,
        "gate, helped": _gate_helped,
        "gate when busy": _gate_when_busy,
        "gate when busy, spin": _gate_when_busy_spin,
        "wait for the writer": _wait_for_the_writer,
        "gate + writer": _gate_and_writer,
    }[name]()


def _spin(times: int) -> None:
    """Give way to others and try again a few times before sleeping."""
    real_in_turn = Database._in_turn

    def in_turn(self: Database, call: Any) -> Any:
        if call != self._prepare:
            for _ in range(times):
                os.sched_yield()
                try:
                    return call()
                except sqlite3.Error as error:
                    if not database._is_busy(error):
                        raise self._translate(error) from error
        return real_in_turn(self, call)

    Database._in_turn = in_turn


def _grow(first: float, calm: float, most: float) -> None:
    """Try often while it is likely to be our turn soon, and seldom when somebody keeps the file long."""

    def in_turn(self: Database, call: Any) -> Any:
        started = time.monotonic()
        pause = first
        while True:
            try:
                return call()
            except sqlite3.Error as error:
                waited = time.monotonic() - started
                if not database._is_busy(error) or waited >= self._busy_timeout:
                    raise self._translate(error) from error
            if waited > calm:
                pause = min(pause * 1.5, most)
            time.sleep(pause * (0.5 + random.random()))

    Database._in_turn = in_turn


def _busy_timeout() -> None:
    def open_(self: Database) -> None:
        _real_open(self)
        self._connection.execute("PRAGMA busy_timeout = 5000")

    Database.open = open_


def _fd(self: Any) -> int:
    fd = getattr(self, "_gate_fd", None)
    if fd is None:
        fd = self._gate_fd = os.open(f"{self.path}-gate", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    return fd


def _enter(self: Any) -> None:
    fcntl.flock(_fd(self), fcntl.LOCK_EX)


def _enter_try(self: Any) -> None:
    try:
        fcntl.flock(_fd(self), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        fcntl.flock(_fd(self), fcntl.LOCK_EX)


def _gate(enter: Any = _enter) -> None:
    """Every request goes through the gate."""
    real_fetch, real_transact = Database.fetch, Database.transact

    def fetch(self: Database, statement: str, parameters: dict[str, Any]) -> Any:
        enter(self)
        try:
            return real_fetch(self, statement, parameters)
        finally:
            fcntl.flock(self._gate_fd, fcntl.LOCK_UN)

    def transact(self: Database, work: Any) -> Any:
        enter(self)
        try:
            return real_transact(self, work)
        finally:
            fcntl.flock(self._gate_fd, fcntl.LOCK_UN)

    Database.fetch, Database.transact = fetch, transact


def _gate_try() -> None:
    _gate(_enter_try)


def _enter_polled(self: Any) -> None:
    """Take the gate if it is free within the busy timeout: a blocking flock() could wait for ever."""
    deadline = time.monotonic() + self._busy_timeout
    fd = _fd(self)
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                raise errors.StoreUnavailable(f"{self.path}: another process keeps it locked") from None
            time.sleep(0.00005)
        else:
            return


def _gate_polled() -> None:
    _gate(_enter_polled)


class _Helper:
    """A thread that waits at the gate for us, so that we need not wait longer than we want to."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._asked: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._entered: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._mutex = threading.Lock()
        self._wanted = self._waiting = False
        threading.Thread(target=self._run, daemon=True).start()

    def enter(self, timeout: float) -> bool:
        with self._mutex:
            if self._waiting:  # still there for somebody who gave up
                return False
            self._wanted = self._waiting = True
        self._asked.put(None)
        try:
            self._entered.get(timeout=timeout)
        except queue.Empty:
            with self._mutex:
                entered, self._wanted = not self._waiting, False
            return entered
        return True

    def _run(self) -> None:
        while True:
            self._asked.get()
            fcntl.flock(self._fd, fcntl.LOCK_EX)
            with self._mutex:
                self._waiting = False
                if not self._wanted:
                    fcntl.flock(self._fd, fcntl.LOCK_UN)
                    continue
            self._entered.put(None)


def _enter_helped(self: Any) -> None:
    try:
        fcntl.flock(_fd(self), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        helper = getattr(self, "_helper", None)
        if helper is None:
            helper = self._helper = _Helper(_fd(self))
        if not helper.enter(self._busy_timeout):
            raise errors.StoreUnavailable(f"{self.path}: another process keeps it locked") from None


def _gate_helped() -> None:
    _gate(_enter_helped)


def _gate_when_busy(pause: float = 0.00005) -> None:
    """Whoever found the file busy queues at the gate; the first there tries again and again."""

    def in_turn(self: Database, call: Any) -> Any:
        deadline = time.monotonic() + self._busy_timeout
        _enter(self)
        try:
            while True:
                try:
                    return call()
                except sqlite3.Error as error:
                    if not database._is_busy(error) or time.monotonic() >= deadline:
                        raise self._translate(error) from error
                time.sleep(pause)
        finally:
            fcntl.flock(self._gate_fd, fcntl.LOCK_UN)

    Database._in_turn = in_turn


def _gate_when_busy_spin() -> None:
    _gate_when_busy(0.0)


# SQLite's writer holds byte 120 of the -shm file (WAL_WRITE_LOCK). A lock of our own on that byte, taken
# through an open file description that is never closed, is granted by the kernel when the writer is done.
_F_OFD_SETLKW = 38
_WRITER = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 120, 1, 0)
_FREE = struct.pack("hhqqi4x", fcntl.F_UNLCK, os.SEEK_SET, 120, 1, 0)


def _shm(self: Any) -> int:
    fd = getattr(self, "_shm_fd", None)
    if fd is None:
        fd = self._shm_fd = os.open(f"{self.path}-shm", os.O_RDWR | os.O_CLOEXEC)
    return fd


def _wait_for_the_writer(gate: bool = False) -> None:
    real_in_turn = Database._in_turn

    def in_turn(self: Database, call: Any) -> Any:
        if call == self._prepare:
            return real_in_turn(self, call)
        deadline = time.monotonic() + self._busy_timeout
        fd = _shm(self)
        if gate:
            _enter(self)
        try:
            while True:
                fcntl.fcntl(fd, _F_OFD_SETLKW, _WRITER)
                fcntl.fcntl(fd, _F_OFD_SETLKW, _FREE)
                try:
                    return call()
                except sqlite3.Error as error:
                    if not database._is_busy(error) or time.monotonic() >= deadline:
                        raise self._translate(error) from error
        finally:
            if gate:
                fcntl.flock(self._gate_fd, fcntl.LOCK_UN)

    Database._in_turn = in_turn


def _gate_and_writer() -> None:
    _wait_for_the_writer(gate=True)
