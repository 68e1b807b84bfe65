"""Engines as real processes, and somebody who kills and pauses them."""

from __future__ import annotations

import argparse
import math
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from engine import note

if TYPE_CHECKING:
    from database import Database

PROGRAM = Path(__file__).with_name("engine.py")
TOLD = ("capacity", "heartbeat", "ttl", "drain", "work", "stumble")


class Seat:
    """A place for an engine. Whoever is killed is replaced: engine-3, then engine-3.2, engine-3.3 …"""

    def __init__(self, number: int, url: str, options: argparse.Namespace) -> None:
        self.paused_until: float | None = None
        self._number = number
        self._lives = 0
        self._command = [sys.executable, str(PROGRAM), url]
        self._command += [f"--{name}={getattr(options, name)}" for name in TOLD]
        self._command += [f"--{options.flaw}"] if options.flaw else []
        self.start()

    def start(self) -> None:
        self._lives += 1
        self.paused_until = None
        self.process = subprocess.Popen([*self._command, f"--name={self.name}"])

    @property
    def name(self) -> str:
        return f"engine-{self._number}" + (f".{self._lives}" if self._lives > 1 else "")

    @property
    def has_stopped(self) -> bool:
        """Tell whether it has stopped itself just now."""
        if self.process.poll() is not None or self.paused_until is not None:
            return False
        return os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WNOHANG) is not None


class Fleet:
    """All engines of a run, and what is done to them."""

    def __init__(self, db: Database, url: str, options: argparse.Namespace) -> None:
        self._seats = [Seat(number + 1, url, options) for number in range(options.engines)]
        self.kills = self.pauses = 0
        self.ended: list[int] = []  # exit codes of engines that ended, though nobody killed them
        self._db = db
        self._options = options

    def until_joined(self, timeout: float) -> None:
        """Wait for all engines, and only then let the trouble begin."""
        deadline = time.monotonic() + timeout
        joined = 0
        while joined < len(self._seats) and time.monotonic() < deadline:
            time.sleep(0.05)
            with self._db.transaction():
                ((joined,),) = self._db.run("SELECT count(*) FROM engine_events WHERE what = 'joined'")
        now = time.monotonic()
        self._next_kill = now + (self._options.kill_every or math.inf)
        self._next_pause = now + (self._options.pause_every or math.inf)

    def trouble(self) -> None:
        """Kill and pause somebody if it is time; replace who has died, and wake who was paused enough."""
        now = time.monotonic()
        if now >= self._next_kill:
            self._next_kill = now + self._options.kill_every
            self._kill(random.choice(self._seats))
        if now >= self._next_pause:
            self._next_pause = now + self._options.pause_every
            if awake := [seat for seat in self._seats if seat.paused_until is None]:
                seat = random.choice(awake)
                seat.process.send_signal(signal.SIGSTOP)
                self._paused(seat, now)
        for seat in self._seats:
            if (code := seat.process.poll()) is not None:
                self.ended.append(code)
                self._replace(seat)
            elif seat.has_stopped:
                self._paused(seat, now)
            elif seat.paused_until is not None and now >= seat.paused_until:
                self._wake(seat)

    def end(self, timeout: float = 30.0) -> None:
        """Drain all engines, as a service manager would."""
        for seat in self._seats:
            if seat.paused_until is not None:
                self._wake(seat)
            seat.process.terminate()
        deadline = time.monotonic() + timeout
        for seat in self._seats:
            while (code := seat.process.poll()) is None and time.monotonic() < deadline:
                if seat.has_stopped:
                    self._wake(seat)
                time.sleep(0.02)
            self._note(seat, "drained")
            if code not in (0, -signal.SIGTERM):  # the latter: it had not begun yet
                self.ended.append(-signal.SIGKILL if code is None else code)

    def close(self) -> None:
        """Leave no process behind."""
        for seat in self._seats:
            seat.process.kill()
            seat.process.wait()

    def _kill(self, seat: Seat) -> None:
        seat.process.kill()
        seat.process.wait()
        self.kills += 1
        self._replace(seat)

    def _replace(self, seat: Seat) -> None:
        self._note(seat, "killed")
        seat.start()

    def _paused(self, seat: Seat, now: float) -> None:
        self.pauses += 1
        seat.paused_until = now + self._options.ttl * 1.5
        self._note(seat, "paused")

    def _wake(self, seat: Seat) -> None:
        seat.paused_until = None
        self._note(seat, "continued")
        seat.process.send_signal(signal.SIGCONT)

    def _note(self, seat: Seat, what: str) -> None:
        with self._db.transaction():
            note(self._db, seat.name, what)
