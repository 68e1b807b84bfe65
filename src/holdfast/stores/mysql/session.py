"""One connection to MySQL or MariaDB, through PyMySQL.

Several statements are sent as one text and their results walked through, so a transaction takes as few round
trips as with PostgreSQL's pipeline. Without RETURNING, a statement that changes rows answers with one row for
each, which has the insert id: ``LAST_INSERT_ID(token)`` brings a token back.
"""

from __future__ import annotations

import re
import select
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from pymysql.err import InterfaceError, MySQLError

from holdfast import errors
from holdfast.core.requests import Signal
from holdfast.log import log
from holdfast.stores.base import micros
from holdfast.stores.mysql import failing
from holdfast.stores.sql.run import Row
from holdfast.stores.sql.session import Batch

LAZILY = "commit_lazily"  # there is no such thing here: it is not sent
ALL = 1 << 30  # statements of a text have to succeed, however many there are

_PARAMETER = re.compile(r":([a-z_]+)")


class Statement:
    """A statement as PyMySQL wants it; it may consist of several, and then one of them has the answer."""

    def __init__(self, text: str) -> None:
        parts = [part.strip() for part in text.split(";\n")]
        commits = "COMMIT" in parts[1:]
        self.count = parts.index("COMMIT") + 1 if commits else len(parts)  # behind it there are only hints
        self.answer = self.count - (2 if commits else 1)
        self.begins = parts[0] == "BEGIN"
        self._names = set(_PARAMETER.findall(text))
        self._text = _PARAMETER.sub(r"%(\1)s", text.replace("%", "%%"))

    def filled(self, parameters: dict[str, Any], quote: Callable[[str], str]) -> str:
        """Return the text with its parameters in it."""
        if not self._names:
            return self._text
        return self._text % {name: _literal(parameters[name], quote) for name in self._names}


class MySQLSession:
    """A connection that raises only `StoreError`. Not for two threads at once.

    *connection* is PyMySQL's, and allows several statements in one text.
    """

    def __init__(
        self, connection: Any, statements: dict[str, Statement], refused: Callable[[], None]
    ) -> None:
        self._connection = connection
        self._cursor = connection.cursor()
        self._statements = statements
        self._refused = refused
        self._in_transaction = False
        self._poll = select.poll()
        self._poll.register(connection._sock, select.POLLIN)  # noqa: SLF001  (there is no other way to it)

    def fetch(self, name: str, parameters: dict[str, Any], /) -> list[Row]:
        """Run one statement by itself, in one round trip."""
        statement = self._statements[name]
        if statement.begins:
            self._in_transaction = True
        text = statement.filled(parameters, self._connection.escape)
        results = self._trip([text], statement.count, unknown=True)
        self._in_transaction = False
        return results[statement.answer]

    def send(self, batch: Batch, /, *, commits: bool = False) -> list[list[Row]]:
        """Run statements one after the other, in one round trip. Those behind a commit are hints."""
        quote = self._connection.escape
        sent = [(name, parameters) for name, parameters in batch if name != LAZILY]
        names = [name for name, _ in sent]
        must = names.index("commit") + 1 if "commit" in names else len(names)
        if names[0] == "begin":
            self._in_transaction = True
        texts = [self._statements[name].filled(parameters, quote) for name, parameters in sent]
        results = self._trip(texts, must, unknown=commits)
        if names[must - 1] in ("commit", "rollback"):
            self._in_transaction = False
        for place, (name, _) in enumerate(batch):
            if name == LAZILY:
                results.insert(place, [])
        return results

    def signalling(self, instance: str, signal: Signal, /) -> Batch:
        """Return the statements that wake a client. What is in a lock's own row it finds by itself."""
        payload = {
            "instance": instance,
            "to": signal.to,
            "kind": signal.kind,
            "key": signal.key,
            "attempt": signal.attempt,
            "expires_in": micros(signal.expires_in),
        }
        if not instance:
            return []
        name = "signal_granted" if signal.kind == "granted" else "signal"
        return [(name, payload), ("wake", {"instance": instance})]

    def script(self, text: str) -> list[Row]:
        """Run statements without parameters, and return the rows of the last."""
        return self._trip([text], ALL, unknown=True)[-1]

    def roll_back(self) -> None:
        """End a transaction that failed."""
        if self._in_transaction and self._connection.open:
            with suppress(errors.StoreError):
                self.send([("rollback", {})])

    def is_alive(self) -> bool:
        """Tell whether the connection is still there, with nothing to read."""
        return bool(
            self._connection.open
            and not self._in_transaction
            and (not self._poll.poll(0) or _only_tickets(self._connection._sock))  # noqa: SLF001
        )

    def close(self) -> None:
        """Say goodbye, and close the connection."""
        if self._connection.open:
            self._connection.close()

    def break_off(self) -> None:
        """Close the line at once: what it would say next answers nobody's question."""
        self._connection._force_close()  # noqa: SLF001  (what is public says goodbye in the middle of a word)

    def interrupt(self) -> None:
        """Have another thread's request on this connection fail now."""
        line: socket.socket | None = self._connection._sock  # noqa: SLF001
        if line is not None:
            with suppress(OSError):
                line.shutdown(socket.SHUT_RDWR)

    # One round trip.

    def _trip(self, texts: list[str], must: int, *, unknown: bool) -> list[list[Row]]:
        """Send statements, and return their results in order. The first *must* have to succeed.

        A failure that is not the server's ends the line.
        """
        results: list[list[Row]] = []
        try:
            self._walk(";\n".join(texts), results)
        except MySQLError as error:
            if not self._connection.open:
                if len(results) >= must:
                    return results  # it broke behind the commit, and with it only hints are lost
                closed_before = isinstance(error, InterfaceError)
                raise failing.lost(str(error), unknown=unknown and not closed_before) from error
            number, message = failing.told(error)
            if len(results) >= must:
                self._go_on_hinting(number, texts[len(results) + 1 :])
                return results
            if number in failing.CLOSING or number in failing.READ_ONLY:
                self.break_off()  # or else the pool would go on with a server that is of no use
            if number in failing.CLOSING and unknown:
                raise failing.lost(message, unknown=True) from error
            raise failing.translate(number, message) from error
        except BaseException:
            self.break_off()
            raise
        return results

    def _walk(self, text: str, results: list[list[Row]]) -> None:
        cursor = self._cursor
        cursor.execute(text)
        while True:
            if cursor.description is None:
                results.append([(cursor.lastrowid,)] * cursor.rowcount)
            else:
                results.append([tuple(map(_plain, row)) for row in cursor.fetchall()])
            if not cursor.nextset():
                return

    def _go_on_hinting(self, number: int, rest: list[str]) -> None:
        """Go on behind a hint that failed: with it the server has skipped all that follow."""
        while True:
            if number == failing.NOT_OWNER:
                self._refused()
            if not rest or not self._connection.open:
                return
            results: list[list[Row]] = []
            try:
                self._walk(";\n".join(rest), results)
                return
            except MySQLError as error:
                number, _ = failing.told(error)
                rest = rest[len(results) + 1 :]
            except BaseException:
                self.break_off()
                raise


def log_refused() -> None:
    """Say that somebody could not be woken."""
    log().warning(
        "a waiter could not be woken: it uses another account of the database, and that takes the privilege"
        " CONNECTION ADMIN (CONNECTION_ADMIN on MySQL). Till then such waiters learn of a hand-over by their"
        " heartbeat"
    )


def _literal(value: Any, quote: Callable[[str], str]) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, int):
        return str(int(value))
    return quote(value)


def _plain(value: Any) -> Any:
    return value.decode() if isinstance(value, bytes) else value


def _only_tickets(line: Any) -> bool:
    """Tell whether what can be read is only TLS talking to itself: servers send session tickets late."""
    if not hasattr(line, "pending"):
        return False
    timeout = line.gettimeout()
    line.settimeout(0)
    try:
        line.recv(1)
    except BlockingIOError:
        return True
    except OSError as error:
        return type(error).__name__ == "SSLWantReadError"
    finally:
        line.settimeout(timeout)
    return False
