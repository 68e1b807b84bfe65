"""One connection to a lock server: a request goes out, an answer comes in, and it is known what is certain.

Nothing is ever sent twice here. An error says whether the server can have seen the request.
"""

from __future__ import annotations

import select
import socket
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from holdfast import errors
from holdfast.stores.http.message import END, MOST_BODY, MOST_HEAD, Chunked, Garbled, Head, Reply, parse_head
from holdfast.stores.http.options import HTTPOptions

if TYPE_CHECKING:
    from holdfast.stores.http.tls import TLS

RECEIVE = 64 * 1024
# Servers and balancers close connections that rest, often after a minute. Whoever asks in that very moment
# does not learn whether it was heard: so we are the first to go.
LONGEST_REST = 30.0
_ALERT = b"\x15\x03"  # how a TLS server complains about what it does not understand


class ConnectionEnded(ConnectionError):
    """The server closed the connection."""


class Unsent(Exception):
    """The connection was dead before the request was on its way."""


class Connection:
    """Used by one thread at a time, for one request after the other."""

    def __init__(self, options: HTTPOptions, tls: TLS | None) -> None:
        self.options = options
        self.is_new = True
        self._secure = tls is not None
        self._socket = _connect(options, tls)
        self._readable = select.poll()
        self._readable.register(self._socket, select.POLLIN)
        self._used = time.monotonic()
        self._deadline = 0.0

    def fileno(self) -> int:
        """Return the socket's number, to wait for it."""
        return self._socket.fileno()

    def is_alive(self) -> bool:
        """Tell, without a round trip, whether it can be used: what can be read before we ask is its end."""
        return time.monotonic() - self._used < LONGEST_REST and not self.is_readable()

    def is_readable(self) -> bool:
        """Tell whether there is something to read, if only the end."""
        return bool(self._readable.poll(0))

    def close(self) -> None:
        """Close it. In a forked child that leaves the parent's as it is."""
        with suppress(OSError):
            self._socket.close()

    def ask(self, message: bytes, *, stream: bool = False) -> Reply:
        """Send a request, and return the answer to it; of a *stream* what is there already of its body."""
        self._send(message)
        try:
            head, rest = self._read_head()
            if stream and head.status == 200:
                self._socket.setblocking(False)
                return Reply(head, rest)
            return Reply(head, self._read_body(head, rest))
        except Garbled as error:
            raise errors.StoreMisconfigured(f"{self.options} is no lock server; it sent {error}") from None
        except OSError as error:
            raise self._unanswered(error) from error
        finally:
            self.is_new = False
            self._used = time.monotonic()

    def receive(self) -> bytes | None:
        """Return what has come in of a stream; empty if it has ended, None if there is nothing."""
        try:
            return self._socket.recv(RECEIVE)
        except BlockingIOError:
            return None
        except OSError as error:
            if type(error).__name__ in ("SSLWantReadError", "SSLWantWriteError"):
                return None
            raise

    def _send(self, message: bytes) -> None:
        self._deadline = 0.0
        try:
            sent = self._socket.send(message)
        except OSError as error:  # also over TLS: a request of which a part is missing is not done
            raise Unsent(f"{self.options}: the connection was lost ({_reason(error)})") from error
        if sent < len(message):
            try:
                self._socket.sendall(message[sent:])
            except OSError as error:
                raise self._unanswered(error) from error

    def _read_head(self) -> tuple[Head, bytes]:
        data = self._receive()
        while True:
            while (end := data.find(END)) < 0:
                if len(data) > MOST_HEAD:
                    raise Garbled("a head without an end")
                if not data.startswith(b"HTTP/1."[: len(data)]):
                    raise Garbled("TLS, as over https://" if data[:2] == _ALERT else f"{data[:80]!r}")
                data += self._receive()
            head = parse_head(data[:end])
            data = data[end + len(END) :]
            if head.status >= 200:
                return head, data
            if not data:  # only a note on the way to the answer
                data = self._receive()

    def _read_body(self, head: Head, rest: bytes) -> bytes:
        chunked = Chunked() if head.is_chunked else None
        length = None if chunked else head.length
        if length is not None and len(rest) == length:  # nearly always
            return rest
        body = bytearray(chunked.feed(rest) if chunked else rest)
        while not (chunked.is_over if chunked else length is not None and len(body) >= length):
            try:
                piece = self._receive()
            except ConnectionEnded:
                if chunked or length is not None:
                    raise
                break
            body += chunked.feed(piece) if chunked else piece
            if len(body) > MOST_BODY:
                raise Garbled(f"a body of more than {MOST_BODY} bytes")
        if length is not None and len(body) > length:
            raise Garbled(f"{len(body) - length} bytes behind the answer")
        return bytes(body)

    def _receive(self) -> bytes:
        """Return what comes next, before the time for the whole answer is over."""
        if not self._deadline:  # the first piece, and most often the only one
            self._deadline = time.monotonic() + self.options.timeout
            received = self._socket.recv(RECEIVE)
        else:
            left = self._deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError("timed out")
            self._socket.settimeout(left)
            try:
                received = self._socket.recv(RECEIVE)
            finally:
                self._socket.settimeout(self.options.timeout)
        if not received:
            raise ConnectionEnded("the server closed it")
        return received

    def _unanswered(self, error: OSError) -> errors.StoreError:
        if self._secure and self.is_new:
            from holdfast.stores.http.tls import refused

            if refusal := refused(error, self.options):
                return refusal
        if isinstance(error, TimeoutError):
            return errors.OutcomeUnknown(f"{self.options} did not answer within {self.options.timeout:g} s")
        return errors.OutcomeUnknown(
            f"{self.options}: the connection was lost before the answer was there ({_reason(error)})"
        )


def _connect(options: HTTPOptions, tls: TLS | None) -> socket.socket:
    hint = "" if options.port_given else f"; the url names no port, and so it is {options.port}"
    try:
        made = socket.create_connection((options.host, options.port), options.connect_timeout)
    except OSError as error:
        raise errors.StoreUnavailable(f"cannot connect to {options}: {_reason(error)}{hint}") from error
    try:
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if tls is not None:
            try:
                made = tls.wrap(made)
            except OSError as error:
                raise errors.StoreUnavailable(f"no TLS connection to {options}: {_reason(error)}") from error
        made.settimeout(options.timeout)
    except BaseException:
        made.close()
        raise
    return made


def _reason(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return "timed out"
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
