"""Two add 1 to an account, and one of them is paused past its lease: an update is lost, unless it is fenced.

A takes the lock, reads, and is paused. B takes over, adds 1 and commits. A wakes up and adds 1 to what it had
read before, in good faith. With `lease.fence(connection)` as the first statement of each transaction A hears
of it instead, and tries again under a new lease. The account is in the same database as the locks.

Run it: python examples/fenced_transaction.py [postgresql://… | mysql://… | sqlite:///…]
"""

import logging
import sqlite3
import sys
import tempfile
import time
from contextlib import closing
from typing import Any
from urllib.parse import unquote, urlsplit

from holdfast import Holdfast, Lease, LeaseLost

logging.getLogger("holdfast").setLevel(logging.ERROR)


def connect(url: str) -> Any:
    """Open a connection of a driver's, as an application would."""
    parts = urlsplit(url)
    if parts.scheme == "sqlite":
        return sqlite3.connect(unquote(parts.path[1:]))
    if parts.scheme == "postgresql":
        import psycopg

        return psycopg.connect(url)
    import pymysql

    return pymysql.connect(
        host=parts.hostname or "localhost",
        port=parts.port or 3306,
        user=parts.username,
        password=unquote(parts.password or ""),
        database=parts.path[1:],
    )


def run(connection: Any, statement: str) -> int:
    cursor = connection.cursor()
    cursor.execute(statement)
    return int(cursor.fetchone()[0]) if cursor.description else 0


def add_one(connection: Any, lease: Lease, *, fenced: bool, paused_for: float = 0.0) -> None:
    """Read, think, write, commit."""
    if fenced:
        lease.fence(connection)  # LeaseLost, or nobody else gets the lock before we commit
    balance = run(connection, "SELECT balance FROM holdfast_example")
    time.sleep(paused_for)  # garbage collection, a suspended machine, a slow disk
    run(connection, f"UPDATE holdfast_example SET balance = {balance + 1}")
    connection.commit()


def race(url: str, *, fenced: bool) -> int:
    """Let A and B add 1 each; return the balance, which should be 2."""
    with closing(connect(url)) as a_db, closing(connect(url)) as b_db, Holdfast(url) as locks:
        run(a_db, "DROP TABLE IF EXISTS holdfast_example")
        run(a_db, "CREATE TABLE holdfast_example (balance INTEGER)")
        run(a_db, "INSERT INTO holdfast_example VALUES (0)")
        a_db.commit()

        a = locks.acquire("account:7", owner="A", ttl=0.3, renew=False)
        a.check()  # A even makes sure that it holds the lock …
        stale = None if fenced else run(a_db, "SELECT balance FROM holdfast_example")
        a_db.rollback()
        time.sleep(0.4)  # … and is paused right after that
        b = locks.acquire("account:7", owner="B", timeout=5)
        add_one(b_db, b, fenced=fenced)
        b.release()
        try:
            if fenced:
                add_one(a_db, a, fenced=True)
            else:
                run(a_db, f"UPDATE holdfast_example SET balance = {(stale or 0) + 1}")
                a_db.commit()
        except LeaseLost as loss:
            a_db.rollback()
            print(f"  A is told: {loss}")
            with locks.hold("account:7", owner="A") as again:
                add_one(a_db, again, fenced=True)
        balance = run(b_db, "SELECT balance FROM holdfast_example")
        b_db.rollback()
        run(b_db, "DROP TABLE holdfast_example")
        b_db.commit()
    return balance


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        url = sys.argv[1] if len(sys.argv) > 1 else f"sqlite:///{folder}/app.db"
        unfenced = race(url, fenced=False)
        print(f"without a fence: two added 1 each, the balance is {unfenced}")
        fenced = race(url, fenced=True)
        print(f"with a fence:    two added 1 each, the balance is {fenced}")
    assert (unfenced, fenced) == (1, 2)


if __name__ == "__main__":
    main()
