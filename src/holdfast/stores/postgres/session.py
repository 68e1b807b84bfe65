"""One connection to PostgreSQL, spoken to through psycopg's wrapper of libpq.

psycopg's cursors would take as long as the server does for a lock's few bytes. Here statements are prepared
once, several are sent in one go (libpq's pipeline mode), and waiting is a poll of the socket: it can be
interrupted, lets other threads run, and ends when the server does not answer in time.
"""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import psycopg
from psycopg import pq

from holdfast import errors
from holdfast.core.data import replace
from holdfast.core.requests import WATCHERS, Signal
from holdfast.stores.postgres import failures, variables
from holdfast.stores.postgres.statement import Statement
from holdfast.stores.signals import as_text
from holdfast.stores.sql.rules.columns import Row
from holdfast.stores.sql.transactions.session import Batch

_GOOD = (pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK)
_SYNC, _OK = pq.ExecStatus.PIPELINE_SYNC, pq.ConnStatus.OK

CHANNEL = "holdfast_"  # and the instance
WATCHED = "\n"  # in the place of a key that no lock has: addresses of those who watch
LONGEST_CHANNEL = 63
END = "end"  # of an implicit transaction: see send
PIN = "pin"


# What can be sent: a statement with its values, one to prepare, a script; None: see `_request`.
_Sent = tuple[Statement, list[bytes | None]] | Statement | bytes | None


class PostgresSession:
    """A connection that raises only `StoreError`. Not for two threads at once.

    One that is *shared* with others (a pooler's, or another pool's) keeps nothing of ours: each transaction
    sets what it needs, and nothing is prepared.
    """

    def __init__(
        self,
        connection: psycopg.Connection[Any],
        statements: dict[str, Statement],
        *,
        timeout: float,
        shared: bool,
        give_back: Callable[[], None] | None = None,
    ) -> None:
        self._connection = connection
        self._pg = connection.pgconn
        self._statements = statements
        self._timeout = timeout
        self.shared = shared
        # Without an encoding the server would take any bytes, and not find in JSON what it was given.
        self._codec = "ascii" if self.encoding == variables.ASCII else "utf-8"
        self._prepared: set[bytes] = set()
        self._pin = Statement(PIN, variables.setting(self.version, "true"))
        self._give_back = give_back
        self._was_blocking = not self._pg.nonblocking
        self._pg.nonblocking = 1
        self._poll = select.poll()
        self._events = select.POLLIN
        self._poll.register(self._pg.socket, self._events)
        self._warned: str | None = None
        self._handler = self._pg.notice_handler
        self._pg.notice_handler = self._notice

    @property
    def encoding(self) -> str:
        """The encoding of the database."""
        return (self._pg.parameter_status(b"server_encoding") or b"").decode()

    @property
    def version(self) -> int:
        """The server's version, as libpq has it: 150018 is 15.18."""
        return self._pg.server_version

    @property
    def pid(self) -> int:
        """Who we are connected to."""
        return self._pg.backend_pid

    def fetch(self, name: str, parameters: dict[str, Any], /) -> list[Row]:
        """Run one statement by itself, in one round trip."""
        if self.shared:
            return self.send([(name, parameters)], commits=True)[0]
        statement = self._statements[name]
        if statement.name not in self._prepared:
            self._prepare_all([statement])
        values = statement.values(parameters, self._codec)
        return statement.rows(self._trip([(statement, values)], unknown=True)[0])

    def send(self, batch: Batch, /, *, commits: bool = False) -> list[list[Row]]:
        """Run statements one after the other, in one round trip.

        Those before `END` are a transaction of their own without begin and commit.
        """
        if commits and len(batch) == 1 and not self.shared:
            return [self.fetch(*batch[0])]
        must = len(batch)
        for place, (name, _) in enumerate(batch, 1):
            if name in ("commit", END):
                must = place  # what comes after it are hints, which may fail
        places = list(range(len(batch)))
        if self.shared:
            asked = len(batch)
            batch, places = self._begun(batch)
            must = len(batch) if must == asked else places[must - 1] + 1
        todo: list[tuple[Statement, list[bytes | None]] | None] = []
        new = []
        for name, parameters in batch:
            if name == END:
                todo.append(None)
                continue
            statement = self._pin if name == PIN else self._statements[name]
            if not self.shared and statement.name not in self._prepared and statement not in new:
                new.append(statement)
            todo.append((statement, statement.values(parameters, self._codec)))
        if new:
            self._prepare_all(new)
        results = self._trip(todo, unknown=commits, must=must)
        answers = [[] if each is None else each[0].rows(got) for each, got in zip(todo, results, strict=True)]
        return [answers[place] for place in places]

    def _begun(self, batch: Batch) -> tuple[Batch, list[int]]:
        """Return a batch in which every transaction begins, sets what it needs, and ends; and its own places.

        An implicit transaction would have the isolation level that others have set.
        """
        full: Batch = []
        places = []
        is_open = self._pg.transaction_status != pq.TransactionStatus.IDLE
        ends = False  # by us: they did not begin it
        for name, parameters in batch:
            if not is_open:
                full += [("begin", {}), (PIN, {})]
                ends = name != "begin"
                is_open = True
            if name != "begin":
                full.append(("commit", {}) if name == END else (name, parameters))
            if name in ("commit", "rollback", END):
                is_open = ends = False
            places.append(len(full) - 1)
        if ends:
            full.append(("commit", {}))
        return full, places

    def signalling(self, instance: str, signal: Signal, /) -> Batch:
        """Return the statement that wakes a client, or all who watch."""
        if instance == WATCHERS:
            return [("notify_watchers", {"key": WATCHED, "channel": CHANNEL})]
        return [("notify", notification(instance, signal))] if instance else []

    def script(self, text: str) -> list[tuple[bytes | None, ...]]:
        """Run statements without parameters, and return the rows of the last as text."""
        if self.shared:
            text = f"{self._pin.text.decode()}; {text}"
        result = self._trip([text.encode()], unknown=True)[-1]
        return [
            tuple(result.get_value(row, n) for n in range(result.nfields)) for row in range(result.ntuples)
        ]

    def roll_back(self) -> None:
        """End a transaction that failed."""
        if self._pg.status == pq.ConnStatus.OK and self._pg.transaction_status != pq.TransactionStatus.IDLE:
            with suppress(errors.StoreError):
                self.send([("rollback", {})])

    def is_alive(self) -> bool:
        """Tell whether the connection is still there: nothing to read, or only notices."""
        try:
            if self._events != select.POLLIN:
                self._poll.modify(self._pg.socket, select.POLLIN)
                self._events = select.POLLIN
            while self._poll.poll(0):  # a server that ends says why before it closes
                self._pg.consume_input()
            return (
                self._pg.status == pq.ConnStatus.OK
                and self._pg.transaction_status == pq.TransactionStatus.IDLE
                and self._pg.pipeline_status == pq.PipelineStatus.OFF
            )
        except psycopg.Error:
            return False

    def close(self) -> None:
        """Close the connection, or give it back to whom it belongs."""
        if self._give_back is None:
            self._connection.close()
            return
        with suppress(psycopg.Error):
            self._pg.nonblocking = 0 if self._was_blocking else 1
            self._pg.notice_handler = self._handler
            if not self.is_alive():
                self._connection.close()  # their pool replaces it
        self._give_back()

    # One round trip.

    def _prepare_all(self, statements: list[Statement]) -> None:
        self._request(statements, unknown=False)
        self._prepared.update(statement.name for statement in statements)

    def _trip(self, todo: Sequence[_Sent], *, unknown: bool, must: int | None = None) -> list[Any]:
        """Send statements, and return their results in order. The first *must* have to succeed."""
        self._warned = None
        results = self._request(todo, unknown=unknown, must=must)
        if self._warned is not None and unknown:
            # A synchronous commit whose wait was cancelled answers with success and only a warning.
            raise errors.OutcomeUnknown(f"PostgreSQL: {self._warned}")
        return results

    def _request(self, todo: Sequence[_Sent], *, unknown: bool, must: int | None = None) -> list[Any]:
        """Send everything, then wait for everything. A failure that is not the server's ends the line.

        None ends an implicit transaction; its place among the results is None as well.
        """
        pg = self._pg
        piped = len(todo) > 1
        sent = False
        try:
            if piped:
                pg.enter_pipeline_mode()
            for each in todo:
                self._send(each)
                sent = True
            if piped:
                pg.pipeline_sync()
            results = self._receive(todo.count(None) + 1 if piped else 0)
            if piped:
                pg.exit_pipeline_mode()
        except psycopg.Error as error:
            self._break_off()
            raise failures.lost(str(error).strip(), unknown=unknown and sent) from error
        except BaseException:
            self._break_off()
            raise
        if piped and len(results) > len(todo):
            results = _placed(todo, results)
            must = None if must == len(todo) else must
        for result in results[:must]:
            if result is not None and result.status not in _GOOD:
                raise self._failure(result, unknown=unknown)
        return results[: len(todo)] if piped else results

    def _send(self, each: _Sent) -> None:
        """Send a statement with its values, the end of an implicit transaction, or what to prepare or run."""
        if type(each) is tuple:
            statement, values = each
            if self.shared:
                self._pg.send_query_params(statement.text, values)
            else:
                self._pg.send_query_prepared(statement.name, values)
        elif each is None:
            self._pg.pipeline_sync()
        elif isinstance(each, Statement):
            self._pg.send_prepare(each.name, each.text)
        elif isinstance(each, bytes):
            self._pg.send_query(each)

    def _receive(self, syncs: int) -> list[Any]:
        """Return one result for each statement, when all are there: when the last of *syncs* has come."""
        pg = self._pg
        is_busy, get_result = pg.is_busy, pg.get_result
        deadline = time.monotonic() + self._timeout
        results: list[Any] = []
        while pg.flush():
            self._poll_until(deadline, select.POLLIN | select.POLLOUT)
            pg.consume_input()
        while True:
            self._poll_until(deadline, select.POLLIN)
            pg.consume_input()
            while not is_busy():
                result = get_result()
                if result is None:
                    if not syncs:
                        return results
                    continue  # the end of one statement's results
                if result.status == _SYNC:
                    syncs -= 1
                    if not syncs:
                        return results
                    results.append(None)
                    continue
                if pg.status != _OK:
                    raise psycopg.OperationalError(_message(result) or "the server has closed it")
                results.append(result)

    def _poll_until(self, deadline: float, events: int) -> None:
        if events != self._events:
            self._poll.modify(self._pg.socket, events)
            self._events = events
        left = deadline - time.monotonic()
        if left <= 0 or not self._poll.poll(left * 1000):
            raise psycopg.OperationalError(f"no answer within {self._timeout:g} s")

    def _failure(self, result: Any, *, unknown: bool) -> errors.StoreError:
        state = _state(result)
        if state.startswith("57P") and unknown:
            # The server is about to close the line. Whether it has committed before is not for us to guess.
            self._break_off()
            return failures.lost(_message(result), unknown=True)
        if state in failures.NO_SUCH_PREPARED and not self.shared:
            # A pooler gives each transaction another connection, so what we prepared is not there.
            self._break_off()
            raise NotPrepared(_message(result))
        if state == failures.READ_ONLY:
            # It was the primary when we connected, and no longer is: the next connection finds the new one.
            self._break_off()
        return failures.translate(state, _message(result))

    def _break_off(self) -> None:
        """Close the line at once: what it would say next answers nobody's question."""
        with suppress(psycopg.Error):
            self._pg.finish()

    def _notice(self, result: Any) -> None:
        if _state(result) == "01000":
            self._warned = _message(result)


def _placed(todo: Sequence[_Sent], results: list[Any]) -> list[Any]:
    """Put each result in its place, where the commit of an implicit transaction has failed by itself.

    That is one result more, after those of the statements. It is what came of the END; of the last one,
    which nobody asked for, it stands after all others.
    """
    left = iter(results)
    placed = []
    for each in todo:
        result = next(left)
        placed.append(result)
        if each is None and result is not None:
            next(left)  # that it has ended
    return [*placed, *left]


def channel_of(instance: str) -> str:
    """Return the channel that a client listens on."""
    return f"{CHANNEL}{instance}"[:LONGEST_CHANNEL]


def notification(instance: str, signal: Signal) -> dict[str, str]:
    """Return a signal as a notification: its channel, and what it says; and that without a token."""
    hint = replace(signal, expires_in=0.0, token=0, at=0.0) if signal.token else signal
    return {"channel": channel_of(instance), "payload": as_text(signal), "hint": as_text(hint)}


class NotPrepared(errors.StoreUnavailable):
    """Prepared statements do not work on this line."""


def _state(result: Any) -> str:
    field: bytes | None = result.error_field(pq.DiagnosticField.SQLSTATE)
    return field.decode() if field else ""


def _message(result: Any) -> str:
    text: bytes = result.error_message
    return text.decode(errors="replace").strip()
