"""A crowd of other clients on the same database, who have nothing to do with a contest beside them."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from multiprocessing.connection import Connection

from bench.processes import meanwhile
from holdfast import Holdfast

CLIENTS = 100


@contextmanager
def crowd(url: str, *, waiting: bool) -> Iterator[None]:
    """Have a hundred clients meanwhile who have used the store before, or who wait for another lock."""
    with meanwhile(_gather, url, waiting):
        time.sleep(0.5)  # they have settled
        yield


def _gather(line: Connection, url: str, waiting: bool) -> None:
    with ExitStack() as open_:
        clients = [open_.enter_context(Holdfast(url)) for _ in range(CLIENTS)]
        key = f"crowd-{time.monotonic_ns()}"
        for number, client in enumerate(clients):
            with client.hold(f"{key}-{number}"):
                pass
        if waiting:
            holder = open_.enter_context(Holdfast(url))
            open_.enter_context(holder.hold(key, ttl=600.0))
            for client in clients:
                threading.Thread(target=client.acquire, args=(key,), daemon=True).start()
            while not (view := holder.inspect(key)) or view.waiting < CLIENTS:
                time.sleep(0.05)
        line.send(None)
        threading.Event().wait()  # until we are killed
