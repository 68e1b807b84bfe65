"""One process of the demo: ``python -m examples.demo.worker URL COUNTER NAME``.

Reads orders from stdin, one JSON object a line, and tells on stdout what happens to it, with the time of
a clock that all processes of the machine share. Ends with its stdin.

Its critical section is the classic one that needs a lock: read a number, think, write it back plus one.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from holdfast.client.sync.client import Holdfast
from holdfast.client.sync.leases import Lease
from holdfast.core.settings import Settings
from holdfast.errors import LeaseLost

KEY = "demo"
TTL = 2.0

# All events, for the checks. A lock that is handed over waits as long for its winner as a lease lasts.
SETTINGS = Settings(ttl=TTL, claim=TTL, heartbeat=TTL / 2, history="all")


def tell(what: str, **more: object) -> None:
    """Write one line of the record."""
    print(json.dumps({"what": what, "at": time.monotonic(), **more}), flush=True)


def take_turns(locks: Holdfast, counter: Path, name: str, works: list[float]) -> None:
    """Take the lock once for each of *works*, and work that long under it."""
    for seconds in works:
        tell("asking")
        lease = locks.acquire(KEY, owner=name)
        tell("granted", token=lease.token)
        count = int(counter.read_text())
        time.sleep(seconds)
        try:
            lease.check()
        except LeaseLost as loss:
            tell("refused", what_for="check", reason=loss.reason)
            release_late(lease)
            return
        counter.write_text(str(count + 1))
        tell("leaving")  # before the release, for which the next one may be faster than our telling
        lease.release()
        tell("left")


def release_late(lease: Lease) -> None:
    """Try to release a lock that is somebody else's by now."""
    try:
        lease.release()
    except LeaseLost as loss:
        tell("refused", what_for="release", reason=loss.reason)
    else:
        tell("left")


def main(url: str, counter: str, name: str) -> None:
    """Follow orders until there are no more."""
    with Holdfast(url, settings=SETTINGS) as locks:
        locks.inspect(KEY)  # connected: now we are ready
        tell("ready")
        for line in sys.stdin:
            take_turns(locks, Path(counter), name, json.loads(line)["works"])


if __name__ == "__main__":
    main(*sys.argv[1:])
