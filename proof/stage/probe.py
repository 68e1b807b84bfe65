"""Looks at a stage's database from outside: its clock, and whether it answers. Not through the proxy."""

from __future__ import annotations

import select
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import closing
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from holdfast.clock import boot_time
from proof.histories.audit import CLOCKS
from proof.histories.records import Clock
from tests.servers import PostgresServer

if TYPE_CHECKING:
    from proof.stage.stage import Stage

LOOK = 2.0  # seconds that an answer may take
PATIENCE = 40.0  # and a server that recovers from its crash
CLOSE = 0.005  # seconds for the question and the answer: then the clock was read well enough
TRIES = 5


class Looking:
    """Asks the database of a stage what time it is. Any thread may; one is answered at a time."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._mutex = threading.Lock()

    def clock(self) -> Clock:
        """Return what the database's clock says, and ours in the middle of the question and the answer."""
        with self._mutex, closing(connect(self._stage.direct_url())) as connection:
            best = (float("inf"), Clock(0.0, 0))
            for _ in range(TRIES):
                asked = boot_time()
                store = self._ask(connection)
                took = boot_time() - asked
                if took < best[0]:
                    best = took, Clock(asked + took / 2, store)
                if took < CLOSE:
                    break
            return best[1]

    def commit(self) -> None:
        """Commit something, as clients want to. Raise if that is not possible, or takes too long.

        A PostgreSQL whose standby is away answers what it is asked, and waits for ever with each commit.
        What is committed is a message in its log that nobody reads: no table of the proof is touched.
        """
        if isinstance(self._stage.database, PostgresServer):
            with closing(connect(self._stage.direct_url())) as connection:
                _ask_postgres(connection.pgconn, "SELECT pg_logical_emit_message(true, 'proof', '') - '0/0'")

    def wait_for_answers(self, help: Callable[[], None]) -> None:
        """Return when the database answers and commits, and raise what it says if it never does.

        Before each question, *help* it: a server that was hit may still be on its way down.
        """
        deadline = time.monotonic() + PATIENCE
        while True:
            help()
            try:
                self.clock()
                self.commit()
                return
            except Exception:
                if time.monotonic() > deadline:
                    raise
            time.sleep(0.05)

    def _ask(self, connection: Any) -> int:
        if isinstance(connection, sqlite3.Connection):  # it goes by our clock, which is the right one
            ((now,),) = connection.execute(f"SELECT {CLOCKS['sqlite']}").fetchall()
            return int(now + self._stage.clock_offset * 1e6)
        if hasattr(connection, "pgconn"):
            return _ask_postgres(connection.pgconn, f"SELECT {CLOCKS['postgresql']}")
        with connection.cursor() as cursor:
            cursor.execute(f"SELECT {CLOCKS['mysql']}")
            return int(cursor.fetchone()[0])


def connect(url: str) -> Any:
    """Connect to *url* with autocommit, and with little patience."""
    parts = urlsplit(url)
    if parts.scheme == "sqlite":
        path = unquote(url.partition("?")[0].removeprefix("sqlite:///"))
        return sqlite3.connect(path, isolation_level=None)
    if parts.scheme == "postgresql":
        import psycopg

        return psycopg.connect(url, autocommit=True, connect_timeout=int(LOOK))
    import pymysql

    return pymysql.connect(
        host=parts.hostname,
        port=parts.port or 3306,
        user=parts.username,
        database=parts.path[1:],
        autocommit=True,
        ssl_disabled=True,
        connect_timeout=int(LOOK),
        read_timeout=int(LOOK),
    )


def execute(url: str, statements: Iterable[str]) -> None:
    """Run *statements* one after the other."""
    with closing(connect(url)) as connection, closing(connection.cursor()) as cursor:
        for statement in statements:
            cursor.execute(statement)


def _ask_postgres(line: Any, question: str) -> int:
    """Ask without waiting for ever: psycopg would, for a server that is stopped."""
    line.send_query(question.encode())
    deadline = time.monotonic() + LOOK
    while line.is_busy():
        if not select.select([line.socket], [], [], max(0.0, deadline - time.monotonic()))[0]:
            raise TimeoutError("PostgreSQL does not answer")
        line.consume_input()
    result = line.get_result()
    value = result.get_value(0, 0) if result is not None and result.ntuples else None
    while line.get_result() is not None:
        pass
    if value is None:
        raise ConnectionError(f"PostgreSQL answers {result.error_message if result else 'nothing'!r}")
    return int(value)
