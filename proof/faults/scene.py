"""What faults act on: the stage and the fleet, who of them is struck already, and how they get up again."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from holdfast.clock import boot_time
from proof.faults.acknowledged import Acknowledged
from proof.faults.base import DATABASE_NETWORK
from proof.faults.namespaces import Cable
from proof.histories.records import CALLS, Injected, Violation
from tests.servers import Proxy

if TYPE_CHECKING:
    from proof.stage.stage import Stage
    from proof.traffic.fleet import Fleet, Process

PATIENCE = 40.0  # seconds until something that was healed must be well


class NotHealthy(AssertionError):
    """Something did not get up again after a fault."""


class NobodyLeft(Exception):
    """All clients that a fault could strike are struck by another one, or were just killed."""


class Scene:
    """A stage, a fleet, and who is struck now."""

    def __init__(self, stage: Stage, fleet: Fleet) -> None:
        self.stage = stage
        self.fleet = fleet
        self.acknowledged = Acknowledged(stage.folder / CALLS)
        self.injected: list[Injected] = []  # all that was done so far
        self.violations: list[Violation] = []  # what a fault itself has seen
        self.cable: Cable | None = None  # of the one client that lives in a network of its own
        self.apart = ""  # the name of that one
        self._struck: set[str] = set()  # names of clients
        self._mutex = threading.Lock()

    def lives_apart(self, process: Process) -> bool:
        return process.name == self.apart

    @contextmanager
    def client(
        self, dice: random.Random, suits: Callable[[Scene, Process], bool] = lambda *_: True
    ) -> Iterator[Process]:
        """Choose a worker that lives and suits, and that no other fault is aimed at till the block ends.

        By its place in the fleet, so that the same dice choose the same, however often it was replaced.
        """
        with self._mutex:
            order = list(range(len(self.fleet.workers)))
            dice.shuffle(order)
            workers = [self.fleet.workers[place] for place in order]
            free = (each for each in workers if each.name not in self._struck and each.alive)
            chosen = next((each for each in free if suits(self, each)), None)
            if chosen is None:
                raise NobodyLeft(f"to strike, of {[each.name for each in workers]}")
            self._struck.add(chosen.name)
        try:
            yield chosen
        finally:
            with self._mutex:
                self._struck.discard(chosen.name)

    def check_clients(self) -> None:
        """Raise if one has ended by itself: it has a complaint, and the fleet will tell which."""
        with self._mutex:
            ended = [each.name for each in self.fleet.workers if not each.alive and not each.killed]
        if ended:
            raise NotHealthy(f"{', '.join(ended)} ended, and no fault has killed it")

    def replace(self, process: Process) -> Process:
        """Start another worker in the place of one that was killed."""
        with self._mutex:
            return self.fleet.replace(process)

    def exchange(self, process: Process, why: str) -> Process:
        """Kill a worker, and start another in its place at once."""
        began = boot_time()
        process.kill()
        new = self.replace(process)
        self.injected.append(Injected("kill client", process.name, began, boot_time(), detail=why))
        return new

    def network(self, place: str) -> Proxy:
        """Return the proxy at *place*."""
        if place != DATABASE_NETWORK:
            return self.stage.http_proxy
        assert self.stage.proxy is not None
        return self.stage.proxy

    def start_lock_server(self) -> None:
        """Start it, and again as long as it finds no database: that may be struck too, and heal later."""
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                return self.stage.lock_server.start()
            except AssertionError:  # it has ended, or is not ready
                with suppress(AssertionError):
                    self.stage.lock_server.kill()
                if time.monotonic() > deadline:
                    raise

    def revive(self) -> None:
        """Start what has ended of the database, or is about to, and return when it answers and commits."""
        try:
            self.stage.revive_database()
        except Exception as error:  # of any of three drivers
            raise NotHealthy(f"{self.stage.database or 'the file'} does not get up: {error}") from error

    def wait_for_an_answer(self, seconds: float) -> None:
        """Return when the database has answered, or has not for so long: whoever struck it heals it."""
        deadline = time.monotonic() + seconds
        while not self.database_answers() and time.monotonic() < deadline:
            time.sleep(0.05)

    def wait_until_healthy(self) -> None:
        """Start what has ended, and wait until the database answers and the lock server is ready."""
        self.revive()
        self.stage.revive()
        deadline = time.monotonic() + PATIENCE
        while not (self.database_answers() and self.stage.lock_server.is_ready()):
            if time.monotonic() > deadline:
                raise NotHealthy(f"{self.stage.database or 'the file'} or the lock server does not answer")
            time.sleep(0.05)

    def database_answers(self) -> bool:
        """Ask it for the time."""
        try:
            self.stage.store_clock()
        except Exception:  # of any of three drivers
            return False
        return True
