"""A paused holder, three resources: only the token raised before the first read loses nothing.

A takes the lock, reads, and is paused past the end of its lease. B takes over and reads. A wakes up and
writes, then B writes. Both add 1. What was acknowledged must be in the sum.

Run it: python examples/fenced_resource.py
"""

import logging
import sqlite3
import tempfile
import time
from contextlib import suppress

from holdfast import Holdfast, Lease, LeaseLost

logging.getLogger("holdfast").setLevel(logging.ERROR)


class Resource:
    """A number in a database of its own. It remembers the highest token it was shown."""

    def __init__(self, path: str, mode: str) -> None:
        self.mode = mode
        self.db = sqlite3.connect(path, isolation_level=None)
        self.db.execute("CREATE TABLE account (id INTEGER PRIMARY KEY, value INTEGER, fence INTEGER)")
        self.db.execute("INSERT INTO account VALUES (1, 0, 0)")

    def read(self, token: int) -> int:
        if self.mode == "raised before the first read":
            raise_it = "UPDATE account SET fence = :token WHERE id = 1 AND fence <= :token"
            if self.db.execute(raise_it, {"token": token}).rowcount == 0:
                raise PermissionError(f"token {token} is too old")
        return int(self.db.execute("SELECT value FROM account WHERE id = 1").fetchone()[0])

    def write(self, token: int, value: int) -> bool:
        """Return whether the write was accepted, which is what the writer believes from then on."""
        statement = "UPDATE account SET value = :value, fence = :token WHERE id = 1"
        if self.mode != "no fence":
            statement += " AND fence <= :token"
        return self.db.execute(statement, {"token": token, "value": value}).rowcount == 1


def race(locks: Holdfast, resource: Resource) -> tuple[int, int]:
    """Let A and B add 1 each; return (acknowledged, in the sum)."""
    acknowledged = 0
    a: Lease = locks.acquire("account:1", owner="A", ttl=0.2, renew=False)
    seen_by_a = resource.read(a.token)
    a.check()  # A even makes sure that it still holds the lock …
    time.sleep(0.3)  # … and is paused right after: garbage collection, a suspended machine, a slow disk
    b = locks.acquire("account:1", owner="B", timeout=1)
    seen_by_b = resource.read(b.token)
    acknowledged += resource.write(a.token, seen_by_a + 1)
    acknowledged += resource.write(b.token, seen_by_b + 1)
    with suppress(LeaseLost):
        a.release()  # says that the lease was lost; for the write that is too late
    b.release()
    return acknowledged, resource.read(b.token)


def main() -> None:
    lost = {}
    with tempfile.TemporaryDirectory() as folder, Holdfast(f"sqlite:///{folder}/locks.db") as locks:
        for number, mode in enumerate(("no fence", "checked on writes only", "raised before the first read")):
            resource = Resource(f"{folder}/resource-{number}.db", mode)
            acknowledged, total = race(locks, resource)
            resource.db.close()
            lost[mode] = acknowledged - total
            print(f"{mode:30} acknowledged {acknowledged}, in the sum {total}, lost {lost[mode]}")
    assert list(lost.values()) == [1, 1, 0]


if __name__ == "__main__":
    main()
