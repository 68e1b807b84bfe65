"""One connection to MySQL or MariaDB, through PyMySQL.

Several statements are sent as one text and their results walked through, so a transaction takes as few round
trips as with PostgreSQL's pipeline. Without RETURNING, a statement that changes rows answers with one row for
each, which has the insert id: ``LAST_INSERT_ID(token)`` brings a token back.
"""

from __future__ import annotations

import json
import math
import re
import select
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from pymysql.err import InterfaceError, MySQLError

from holdfast import errors
from holdfast.core.requests import WATCHERS, Signal
from holdfast.stores.base import micros
from holdfast.stores.mysql import failures
from holdfast.stores.sql.rules.columns import Row
from holdfast.stores.sql.transactions.session import Batch

LAZILY = "commit_lazily"  # there is no such thing here: it is not sent
ALL = 1 << 30  # statements of a text have to succeed, however many there are

_PARAMETER = re.compile(r":([a-z_]+)")
_GIVEN_OR_CLOCK = re.compile(
    r"coalesce\(:now, (CAST\(UNIX_TIMESTAMP\((?:SYSDATE|NOW)\(6\)\) \* 1000000 AS SIGNED\))\)"
)
_EACH = re.compile(r":each_[a-z]+")
_ROW = re.compile(r"\([^()]*:each_key[^()]*\)")
_NAME = re.compile(r"%\((\w+)\)s")


class Statement:
    """A statement as PyMySQL wants it; it may consist of several, and then one of them has the answer.

    One with the parameter ``:each_type`` is run once for each of the ``types``, and all have the answer.
    A row with ``:each_key`` and ``:each_attempt`` is written once for each of the ``rows``, which are pairs.
    """

    def __init__(self, text: str) -> None:
        self._row = ""
        if row := _ROW.search(text):
            self._row = _PARAMETER.sub(r"%(\1)s", _EACH.sub("%%s", row[0]))
            text = text.replace(row[0], ":rows")
        parts = [part.strip() for part in text.split(";\n")]
        commits = "COMMIT" in parts[1:]
        self.count = parts.index("COMMIT") + 1 if commits else len(parts)  # after it there are only hints
        self.begins = parts[0] == "BEGIN"
        self._answer = self.count - (2 if commits else 1)
        self._names = set(_PARAMETER.findall(text))
        self._is_for_each = "each_type" in self._names
        self._parts = _formatted(parts)
        # In production no time is given. To read that it is not takes the server longer than its clock.
        self._clocked = _formatted([_GIVEN_OR_CLOCK.sub(r"\1", part) for part in parts])

    def filled(self, parameters: dict[str, Any], quote: Callable[[str], str]) -> list[str]:
        """Return the texts with their parameters in them."""
        if not self._names:
            return self._parts
        if self._is_for_each:
            each = [{**parameters, "each_type": type} for type in json.loads(parameters["types"])]
            return [text for given in each for text in self._filled(given, quote)]
        if self._row:
            return self._filled_with_rows(parameters, quote)
        return self._filled(parameters, quote)

    def _filled(self, parameters: dict[str, Any], quote: Callable[[str], str]) -> list[str]:
        literals = {name: _literal(parameters[name], quote) for name in self._names}
        parts = self._parts if literals.get("now", "NULL") != "NULL" else self._clocked
        return [part % literals for part in parts]

    def _filled_with_rows(self, parameters: dict[str, Any], quote: Callable[[str], str]) -> list[str]:
        names = _NAME.findall(self._row)
        row = self._row % {name: _literal(parameters[name], quote).replace("%", "%%") for name in names}
        rows = ", ".join([row % (quote(key), quote(attempt)) for key, attempt in parameters["rows"]])
        return [part % {"rows": rows} for part in self._parts]

    def answer(self, results: list[list[Row]]) -> list[Row]:
        """Return the rows that are the answer, of what the texts gave."""
        if self._is_for_each:
            return [row for rows in results for row in rows]
        return results[self._answer]


class MySQLSession:
    """A connection that raises only `StoreError`. Not for two threads at once.

    *connection* is PyMySQL's, and allows several statements in one text.
    """

    def __init__(
        self, connection: Any, statements: dict[str, Statement], refused: Callable[[], None]
    ) -> None:
        self._connection = connection
        self._statements = statements
        self._refused = refused
        self._in_transaction = False
        self.valid_until = math.inf  # by our clock
        self._has_blocks = "mariadb" in connection.get_server_info().lower()
        self._poll = select.poll()
        self._poll.register(connection._sock, select.POLLIN)  # noqa: SLF001  (there is no other way to it)

    def fetch(self, name: str, parameters: dict[str, Any], /) -> list[Row]:
        """Run one statement by itself, in one round trip."""
        statement = self._statements[name]
        if statement.begins:
            self._in_transaction = True
        texts = statement.filled(parameters, self._connection.escape)
        results = self._trip(texts, statement.count, unknown=True)
        self._in_transaction = False
        return statement.answer(results)

    def send(self, batch: Batch, /, *, commits: bool = False) -> list[list[Row]]:
        """Run statements one after the other, in one round trip. Those after a commit are hints."""
        quote = self._connection.escape
        texts: list[str] = []
        ends: list[int] = []  # of each statement's texts
        must = 0
        for name, parameters in batch:
            if name != LAZILY:
                texts += self._statements[name].filled(parameters, quote)
            ends.append(len(texts))
            if name == "commit":
                must = must or len(texts)
        if batch[0][0] == "begin":
            self._in_transaction = True
        results = self._trip(texts, must or len(texts), unknown=commits)
        if must or batch[-1][0] == "rollback":
            self._in_transaction = False
        answers: list[list[Row]] = []
        start = 0
        for (name, _), end in zip(batch, ends, strict=True):
            if end > len(results):
                break  # a hint that failed, and those after it
            answers.append([] if name == LAZILY else self._statements[name].answer(results[start:end]))
            start = end
        return answers

    def first(self, batch: Batch, /) -> list[Row]:
        """Run statements that commit by themselves, in one round trip; return the rows of the first with any.

        What it did is done, whatever becomes of those after it.
        """
        texts = self._texts(batch)
        results: list[list[Row]] = []
        try:
            self._trip(texts, len(texts), unknown=True, results=results)
        except errors.StoreError:
            if not any(results):
                raise
        return next(filter(None, results), [])

    def _texts(self, batch: Batch) -> list[str]:
        quote = self._connection.escape
        return [text for name, given in batch for text in self._statements[name].filled(given, quote)]

    def write(self, batch: Batch, /) -> None:
        """Run statements whose answers nobody reads, and commit, in one round trip.

        On MariaDB they are one statement, with one answer: each costs the client as much as to ask.
        """
        texts = [*self._texts(batch), "COMMIT"]
        if self._has_blocks:
            texts = ["\n".join(["BEGIN NOT ATOMIC", *(f"{text};" for text in texts), "END"])]
        self._trip(texts, len(texts), unknown=True)
        self._in_transaction = False

    def signalling(self, instance: str, signal: Signal, /) -> Batch:
        """Return the statements that wake a client. What is in a lock's own row it finds by itself."""
        if not instance or instance == WATCHERS:  # who watches looks often here
            return []
        told = {"kind": signal.kind, "key": signal.key, "attempt": signal.attempt, "to": signal.to}
        payload = {"instance": instance, "expires_in": micros(signal.expires_in), **told}
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
            and time.monotonic() < self.valid_until
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

    def _trip(
        self, texts: list[str], must: int, *, unknown: bool, results: list[list[Row]] | None = None
    ) -> list[list[Row]]:
        """Send statements, and return their results in order. The first *must* have to succeed.

        A failure that is not the server's ends the line. Those before it are in *results*, if that is given.
        """
        results = [] if results is None else results
        try:
            self._walk(";\n".join(texts), results)
        except MySQLError as error:
            if not self._connection.open:
                if len(results) >= must:
                    return results  # it broke after the commit, and with it only hints are lost
                closed_before = isinstance(error, InterfaceError)
                raise failures.lost(str(error), unknown=unknown and not closed_before) from error
            number, message = failures.told(error)
            if len(results) >= must:
                self._go_on_hinting(number, texts[len(results) + 1 :])
                return results
            if number in failures.CLOSING or number in failures.READ_ONLY:
                self.break_off()  # or else the pool would go on with a server that is of no use
            if number in failures.CLOSING and unknown:
                raise failures.lost(message, unknown=True) from error
            raise failures.translate(number, message) from error
        except BaseException:
            self.break_off()
            raise
        return results

    def _walk(self, text: str, results: list[list[Row]]) -> None:
        """Send a text, and add to *results* what comes back. A cursor would copy each of them."""
        connection = self._connection
        connection.query(text)
        while True:
            result = connection._result  # noqa: SLF001
            if result.description is not None:
                results.append([tuple(map(_plain, row)) for row in result.rows])
            else:
                results.append([(result.insert_id,)] * result.affected_rows)
            if not result.has_next:
                return
            connection.next_result()

    def _go_on_hinting(self, number: int, rest: list[str]) -> None:
        """Go on after a hint that failed: with it the server has skipped all that follow."""
        while True:
            if number == failures.NOT_OWNER:
                self._refused()
            if not rest or not self._connection.open:
                return
            results: list[list[Row]] = []
            try:
                self._walk(";\n".join(rest), results)
                return
            except MySQLError as error:
                number, _ = failures.told(error)
                rest = rest[len(results) + 1 :]
            except BaseException:
                self.break_off()
                raise


def _formatted(parts: list[str]) -> list[str]:
    return [_PARAMETER.sub(r"%(\1)s", part.replace("%", "%%")) for part in parts]


def _literal(value: Any, quote: Callable[[str], str]) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, int):
        return str(int(value))
    if isinstance(value, list):  # for IN and FIELD
        return ", ".join([quote(each) for each in value])
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
