"""One process of the live demo: ``python -m examples.demo.traffic URL NAME``.

Does what a worker of some fleet might do: builds, reports, reads and rewrites an index, uses one of few GPUs,
wants a model that somebody has to pull, and works through workflows. Ends with its stdin, so also when
whoever started it is killed.
"""

from __future__ import annotations

import os
import random
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from examples.demo.engine import Engine
from holdfast.client.sync.client import Holdfast
from holdfast.core.settings import Settings
from holdfast.errors import HoldfastError

GOODBYE = 2.5  # seconds for what is being done, when it is told to end
PULLED_EVERY = 25.0  # seconds: then all want the next model, at about the same time
MODELS = ("llama-8b", "mistral-7b", "qwen-14b", "phi-4")

# All events, so that there is something to see; and short leases, so that a crash is soon over.
SETTINGS = Settings(ttl=6.0, claim=3.0, heartbeat=1.0, history="all")

Job = Callable[[Holdfast, str], None]


def build(locks: Holdfast, name: str) -> None:
    """Build one of a few projects; they are wanted by several at once."""
    project = random.choice(("web", "web", "api", "docs"))
    with locks.hold(f"build:{project}", owner=f"{name}/builder", timeout=30):
        work(0.5, 3.0)
    work(0.5, 3.0)


def report(locks: Holdfast, name: str) -> None:
    """Write a report, unless somebody does it already."""
    lease = locks.try_acquire(f"report:{random.choice(('daily', 'weekly'))}", owner=f"{name}/reporter")
    if lease is not None:
        with lease:
            work(2.0, 6.0)
    work(3.0, 9.0)


def index(locks: Holdfast, name: str) -> None:
    """Read the index, with others; now and then rewrite it, alone."""
    if random.random() < 0.15:
        with locks.hold("index:search", owner=f"{name}/writer", timeout=30):
            work(1.0, 2.0)
    else:
        with locks.hold("index:search", owner=f"{name}/reader", mode="shared", timeout=30):
            work(0.5, 2.5)
    work(0.5, 4.0)


def compute(locks: Holdfast, name: str) -> None:
    """Use one of two GPUs."""
    with locks.semaphore("resource:gpu:a100", permits=2, owner=f"{name}/trainer", timeout=60):
        work(2.0, 5.0)
    work(1.0, 5.0)


def pull(locks: Holdfast, name: str) -> None:
    """Want a model: one of all pulls it, the others wait and are told."""
    now = time.time()
    round = int(now // PULLED_EVERY)
    model = f"pull:{MODELS[round % len(MODELS)]}"
    if now % PULLED_EVERY > PULLED_EVERY / 3:
        time.sleep(PULLED_EVERY - now % PULLED_EVERY)
        return

    def download() -> str:
        work(4.0, 6.0)
        return f"/models/{round}"

    locks.run_once(model, download, owner=f"{name}/puller", timeout=30)
    time.sleep(PULLED_EVERY / 3)


def work(least: float, most: float) -> None:
    """Do something that takes a while."""
    time.sleep(random.uniform(least, most))


def repeat(job: Job, url: str, name: str) -> None:
    """Do a job again and again, whatever comes: timeouts, breaks, a server that is being restarted."""
    with Holdfast(url, settings=SETTINGS) as locks:
        while True:
            try:
                job(locks, name)
            except HoldfastError:
                work(0.5, 2.0)


def main(url: str, name: str) -> None:
    """Do all jobs at once, until stdin ends."""
    for job in (build, report, index, compute, pull):
        threading.Thread(target=repeat, args=(job, url, name), daemon=True).start()
    engine = Engine(url, name, SETTINGS)
    sys.stdin.read()
    with suppress(HoldfastError):
        engine.stop(GOODBYE)
    os._exit(0)  # whatever the others are about: the store forgets it with its lease


if __name__ == "__main__":
    main(*sys.argv[1:])
