"""One connection to MySQL or MariaDB, through PyMySQL.

Several statements are sent as one text and their results walked through, so a transaction takes as few round
trips as with PostgreSQL's pipeline. Without RETURNING, a statement that changes rows answers with one row for
each, which has the insert id: ``LAST_INSERT_ID(token)`` brings a token back.
"""

from __future__ import annotations

import math
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
from holdfast.stores.mysql.statement import Statement
from holdfast.stores.sql.rules.columns import Row
from holdfast.stores.sql.transactions.session import Batch

LAZILY = "commit_lazily"  # there is no such thing here: it is not sent
ALL = 1 << 30  # statements of a text have to succeed, however many there are


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
        self._prepares = self._has_blocks
        self._prepared: set[str] = set()
        self._poll = select.poll()
        self._poll.register(connection._sock, select.POLLIN)  # noqa: SLF001  (there is no other way to it)

    def fetch(self, name: str, parameters: dict[str, Any], /) -> list[Row]:
        """Run one statement by itself, in one round trip."""
        statement = self._statements[name]
        if statement.begins:
            self._in_transaction = True
        if self._prepares and statement.is_block:
            try:
                return self._execute(name, statement, parameters)
            except failures.NotPrepared:  # and nothing was done: then as others send it
                self._prepares = False
                self.roll_back()
                self._in_transaction = statement.begins
        texts = statement.filled(parameters, self._connection.escape)
        results = self._run(statement, texts, statement.count)
        self._in_transaction = False
        return statement.answer(results)

    def _run(self, statement: Statement, texts: list[str], must: int) -> list[list[Row]]:
        """Send a statement. One that answers after its commit may have committed when it is interrupted."""
        try:
            return self._trip(texts, must, unknown=True)
        except (failures.Interrupted, failures.TookTooLong) as error:
            if statement.begins and statement.is_block:
                raise errors.OutcomeUnknown(str(error)) from error
            raise

    def _execute(self, name: str, statement: Statement, parameters: dict[str, Any]) -> list[Row]:
        """Run statements as one block, which the server has parsed before: once for each connection."""
        quote = self._connection.escape
        texts = [statement.execution(name, parameters, quote)]
        before = int(name not in self._prepared)
        if before:
            texts.insert(0, statement.preparation(name, quote))
        must = before + statement.answers
        results = self._run(statement, texts, must)
        self._prepared.add(name)
        self._in_transaction = False
        return [row for rows in results[before:must] for row in rows]

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
        lasts = 0.0 if signal.token else signal.expires_in  # who is told no token has nothing to enter by
        payload = {"instance": instance, "expires_in": micros(lasts), **told}
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
