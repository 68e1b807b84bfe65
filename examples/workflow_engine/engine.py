"""One engine: it joins, claims workflows, runs their steps, and records each together with its effect.

Start as many as you like, on as many machines as you like, on one database:

    python examples/workflow_engine/engine.py postgresql://… --name engine-1

SIGTERM drains it: it takes no more, ends what it can within 10 seconds, and gives the rest back at once.
Whatever else ends it, others go on after the last step that is recorded.
"""

from __future__ import annotations

import argparse
import logging
import os
import queue
import random
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any

from database import Database
from nodes import steps

from holdfast import Assignment, Holdfast, Instance, InstanceLost, Lease, LeaseLost, Settings, StoreError

log = logging.getLogger("engine")


class DoneBefore(Exception):
    """The step is recorded already."""


class Engine:
    """Runs up to *capacity* workflows at a time, each in a thread with a connection of its own."""

    def __init__(self, locks: Holdfast, options: argparse.Namespace) -> None:
        self.locks = locks
        self.options = options
        self.name: str = options.name
        self._instance: Instance | None = None
        self._stopping = threading.Event()
        self._connections: queue.SimpleQueue[Database] = queue.SimpleQueue()

    def serve(self) -> None:
        """Take work until SIGTERM.

        An engine that was paused so long that it counts as dead joins anew, and so does one that could not
        reach the database for a while.
        """
        signal.signal(signal.SIGTERM, self._stop)
        while not self._stopping.is_set():
            try:
                self._serve_once()
            except (InstanceLost, StoreError) as error:
                log.warning("%s", error)
                self._stopping.wait(random.random())

    def _serve_once(self) -> None:
        timing = {"heartbeat": self.options.heartbeat, "ttl": self.options.ttl}
        with (
            self.locks.join(self.name, capacity=self.options.capacity, **timing) as self._instance,
            ThreadPoolExecutor(self.options.capacity) as threads,  # leaving it waits for what is running
        ):
            with self._database() as db, db.transaction():
                note(db, self.name, "joined")
            if not self._stopping.is_set():
                for assignment in self._instance.claims("workflow"):  # never more than our capacity at a time
                    threads.submit(self.run, assignment)

    def _stop(self, *_: object) -> None:
        """Drain, in a thread: a signal comes in the middle of anything, and its handler must not wait."""
        self._stopping.set()
        if self._instance is not None:
            threading.Thread(target=self._drain, args=(self._instance,)).start()

    def _drain(self, instance: Instance) -> None:
        with suppress(InstanceLost):  # then there is nothing that could be given back
            instance.drain(self.options.drain)

    def run(self, assignment: Assignment) -> None:
        """Run what is left of a workflow."""
        try:
            with self._database() as db, assignment:  # an exception fails it: it is tried again later
                for step in self._left(assignment, db):
                    step.run()
                assignment.complete({"engine": self.name})
        except LeaseLost as loss:  # somebody else goes on with it, or has done so already
            log.warning("%s: %s", assignment.key, loss)
            with self._database() as db, db.transaction():
                note(db, self.name, "refused", assignment.key)
        except Exception:
            log.exception("%s", assignment.key)

    def _left(self, assignment: Assignment, db: Database) -> Iterator[Step]:
        with db.transaction():  # after the claim: so whoever had it before us cannot write any more
            rows = db.run("SELECT step FROM engine_steps WHERE workflow = ?", assignment.key)
        recorded = {step for (step,) in rows}
        if self.options.flaw == "unchecked":
            recorded.clear()
        for key, node, iteration in steps(assignment.key, assignment.data):
            if key not in recorded:
                yield Step(self, assignment, db, key, node, iteration)

    @contextmanager
    def _database(self) -> Iterator[Database]:
        try:
            db = self._connections.get_nowait()
        except queue.Empty:
            db = Database(self.options.url)
        try:
            yield db
        except BaseException:  # it may be broken
            db.close()
            raise
        self._connections.put(db)


class Step:
    """One node of one workflow, or one iteration of it: what a node's function is given."""

    def __init__(
        self, engine: Engine, assignment: Assignment, db: Database, key: str, node: Any, iteration: int | None
    ) -> None:
        self.key = key  # node:17:charge, node:17:pack:2
        self.iteration = iteration
        self.order = assignment.data
        self.locks = engine.locks
        self._engine = engine
        self._assignment = assignment
        self._db = db
        self._node = node
        self._began_at = 0.0

    def run(self) -> None:
        self._began_at = time.time()
        try:
            self._node(self)
        except DoneBefore:
            log.warning("%s was done before", self.key)

    def work(self) -> None:
        """Take the time that real work takes."""
        self._assignment.check()  # saves useless work. It is the fence that makes it safe
        time.sleep(self._engine.options.work * random.uniform(0.5, 1.5))

    @contextmanager
    def effect(self, *leases: Lease) -> Iterator[Database]:
        """Begin the transaction in which the step has its effect, and record the step in it.

        The fence comes first. It raises `LeaseLost`, or nobody else is given this workflow before we commit.
        What else the effect relies on, *leases*, is fenced as well.
        """
        options = self._engine.options
        workflow = self._assignment.key
        with self._db.transaction() as db:
            if options.flaw != "unfenced":
                self._assignment.fence(db.connection)
                for lease in leases:
                    lease.fence(db.connection)
            if options.flaw != "unchecked" and db.run(
                "SELECT 1 FROM engine_steps WHERE workflow = ? AND step = ?", workflow, self.key
            ):
                raise DoneBefore
            if random.random() < options.stumble:
                signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)  # the worst moment to be paused
            yield db
            db.run(
                "INSERT INTO engine_steps VALUES (?, ?, ?, ?, ?, ?)",
                *(workflow, self.key, self._assignment.token),
                *(self._engine.name, self._began_at, time.time()),
            )


def note(db: Database, engine: str, what: str, workflow: str = "") -> None:
    """Write down what happened to an engine."""
    db.run("INSERT INTO engine_events VALUES (?, ?, ?, ?)", time.time(), engine, what, workflow)


def timing(ttl: float) -> Settings:
    """Return settings with which nobody waits for the dead for much longer than *ttl*.

    Also not for those who were killed while they waited for a printer: their place in its queue ends with
    *patience*, and a printer that was handed to one of them is taken back after *claim*.
    """
    return Settings(ttl=ttl, heartbeat=ttl / 8, claim=ttl / 4, patience=ttl / 2)


def arguments() -> argparse.ArgumentParser:
    """Return what an engine can be told, which is also what the command that starts engines can be told."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--capacity", type=int, default=2, help="workflows at a time, for each engine")
    parser.add_argument("--heartbeat", type=float, default=1.0, help="seconds between signs of life")
    parser.add_argument("--ttl", type=float, default=3.0, help="seconds until others take over")
    parser.add_argument("--drain", type=float, default=10.0, help="seconds for what is running, at SIGTERM")
    parser.add_argument("--work", type=float, default=0.3, help="seconds that a step takes")
    flaws = parser.add_argument_group("to see what goes wrong without")
    flaws.add_argument("--unfenced", dest="flaw", action="store_const", const="unfenced", help="no fence")
    flaws.add_argument("--unchecked", dest="flaw", action="store_const", const="unchecked", help="no journal")
    flaws.add_argument("--stumble", type=float, default=0.0, help="how likely an effect is paused half way")
    return parser


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, parents=[arguments()])
    parser.add_argument("url")
    parser.add_argument("--name", default=f"engine-{os.getpid()}")
    options = parser.parse_args()
    logging.basicConfig(format=f"{options.name}: %(message)s", level=logging.ERROR)
    with Holdfast(options.url, settings=timing(options.ttl)) as locks:
        Engine(locks, options).serve()


if __name__ == "__main__":
    main()
