"""The engine in each process of the live demo: it joins, and works through workflows with the others.

One of all is elected to schedule: it offers workflows, in bursts. Whoever completes one offers a mail about
it. Now and then a step fails, and the workflow is tried again by somebody; or it fails for good.
"""

from __future__ import annotations

import random
import threading
import time

from holdfast import __version__
from holdfast.client.sync.client import Holdfast
from holdfast.client.sync.elections import Election
from holdfast.client.sync.instances import Assignment, Instance
from holdfast.core.settings import Settings
from holdfast.errors import HoldfastError

CAPACITY = 4
BURST_EVERY = 8.0  # seconds
BURST = (12, 24)
MAX_TRIES = 3
STEPS = ("fetch", "check", "render", "store")
CUSTOMERS = ("acme", "globex", "initech", "umbrella")


class StepFailed(Exception):
    """What goes wrong in a workflow."""


class Engine:
    """Takes part in the cluster for as long as it is not stopped."""

    def __init__(self, url: str, name: str, settings: Settings) -> None:
        self._url = url
        self._name = name
        self._settings = settings
        self._instance: Instance | None = None
        self._election: Election | None = None
        self._over = threading.Event()
        self._threads = [
            threading.Thread(target=target, daemon=True) for target in (self._take_part, self._schedule)
        ]
        for thread in self._threads:
            thread.start()

    def stop(self, timeout: float) -> None:
        """Take no more work, finish what can be finished, and leave; if we are the leader, resign."""
        self._over.set()
        if self._election is not None:
            self._election.stop()
        if self._instance is not None:
            self._instance.drain(timeout)
            self._instance.leave()

    def _take_part(self) -> None:
        with Holdfast(self._url, settings=self._settings) as locks:
            while not self._over.is_set():
                try:
                    with locks.join(
                        f"engine-{self._name}", capacity=CAPACITY, heartbeat=1.5, ttl=6.0, version=__version__
                    ) as self._instance:
                        crew = [
                            threading.Thread(target=_toil, args=(locks, self._instance), daemon=True)
                            for _ in range(CAPACITY)
                        ]
                        for thread in crew:
                            thread.start()
                        for thread in crew:
                            thread.join()
                except HoldfastError:  # a server that is being restarted; or we were taken for dead
                    self._over.wait(random.uniform(0.5, 2.0))

    def _schedule(self) -> None:
        with Holdfast(self._url, settings=self._settings) as locks:
            self._election = locks.elect("leader:scheduler", name=f"{self._name}/scheduler")
            for term in self._election:
                with term:
                    while not term.lost.wait(BURST_EVERY * random.uniform(0.5, 1.2)):
                        _offer_workflows(locks)


def _offer_workflows(locks: Holdfast) -> None:
    now = time.strftime("%H%M%S")
    count = random.randint(*BURST)
    works = {
        f"workflow:{now}-{number:02}": {"customer": random.choice(CUSTOMERS), "steps": STEPS}
        for number in range(count)
    }
    locks.offer(works, max_tries=MAX_TRIES)


def _toil(locks: Holdfast, instance: Instance) -> None:
    """Do what comes, whatever becomes of it, until the instance leaves or is lost."""
    try:
        for work in instance.claims("mail", "workflow"):
            try:
                with work:
                    _do(locks, work)
            except (StepFailed, HoldfastError):
                continue
    except HoldfastError:
        return


def _do(locks: Holdfast, work: Assignment) -> None:
    kind, _, name = work.key.partition(":")
    if kind == "mail":
        time.sleep(random.uniform(0.3, 1.2))
        return
    if random.random() < 0.02:
        work.fail(f"{work.data['customer']} has no template: somebody has to make one")  # for good
        return
    for step in work.data["steps"]:
        if work.lost.wait(random.uniform(0.5, 1.8)):
            work.check()
        if random.random() < 0.03:
            raise StepFailed(f"{step}: {random.choice(('no route to host', 'disk full', 'out of memory'))}")
    locks.offer([(f"mail:{name}", {"to": f"ops@{work.data['customer']}.example"})])
    work.complete({"pages": random.randint(1, 40)})
