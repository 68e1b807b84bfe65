"""What a handler of requests sees: a request in, and an answer or an open-ended stream out."""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from random import getrandbits
from typing import Any, Protocol

from holdfast import errors
from holdfast.core import wire
from holdfast.core.data import data
from holdfast.log import log

Headers = tuple[tuple[str, str], ...]

PROBLEM = "application/problem+json"
EVENTS = "text/event-stream"


def new_id() -> str:
    """Return an id for a request: for logs, and no secret."""
    return f"{getrandbits(48):012x}"


@dataclass(eq=False, repr=False)
class HTTPRequest:
    """A request that was received completely."""

    method: str
    path: str  # still percent-encoded, without the query
    query: str = ""
    headers: dict[str, str] = field(default_factory=dict)  # names in lower case, duplicates joined by ", "
    body: bytes = b""
    remote: str = ""  # the peer's address
    secure: bool = False
    id: str = ""  # short and random: for logs and for the answer
    peer_certificate: dict[str, Any] | None = None  # of a client that had to show one
    version: str = "1.1"
    keep_alive: bool = True
    on_let_in: Callable[[], None] | None = None

    def let_in(self) -> None:
        """For the handler: whoever asks may ask, so its connection does not make room for strangers."""
        if self.on_let_in is not None:
            self.on_let_in()

    def __repr__(self) -> str:
        # Without headers, body and query: there are secrets in them.
        return f"<HTTPRequest {self.id} {self.method} {self.path} from {self.remote}>"


@data
class Response:
    """An answer: sent as a whole, with its length."""

    status: int
    body: bytes = b""
    content_type: str = "application/json"
    headers: Headers = ()


class Sink(Protocol):
    """Where a stream's bytes go once its connection has started it."""

    def send_stream(self, data: bytes) -> bool: ...
    def end_stream(self, last: bytes) -> None: ...
    def backlog(self) -> int: ...


class Stream:
    """An open-ended answer, such as one of server-sent events. Whoever has it may send at any time.

    Nobody ever waits for a peer: what it does not read is queued, and one that lets too much pile up is told
    goodbye and dropped. `on_gone` is called exactly once for a stream that a handler has returned, however it
    ends; `on_room` whenever everything sent so far is on its way, after it was not.
    """

    __slots__ = ("_early", "_ended", "_sink", "gone", "headers", "on_gone", "on_room")

    def __init__(self, headers: Headers = ()) -> None:
        self.headers = headers
        self.gone = False
        self.on_gone: Callable[[], object] | None = None
        self.on_room: Callable[[], None] | None = None
        self._sink: Sink | None = None
        self._early = bytearray()  # what was sent before the connection began
        self._ended = False

    def send(self, data: bytes) -> bool:
        """Queue *data*; return whether the stream is still there. Send whole events only."""
        if self.gone or self._ended:
            return False
        if self._sink is not None:
            return self._sink.send_stream(data)
        self._early += data
        return True

    def end(self, last: bytes = b"") -> None:
        """Send *last*, then close; a peer that does not read it within some seconds is cut off."""
        if not self.gone and not self._ended:
            self._ended = True
            if self._sink is None:
                self._early += last
            else:
                self._sink.end_stream(last)

    @property
    def backlog(self) -> int:
        """How many bytes the peer's side has not taken yet. Who has much to send waits for `on_room`."""
        return len(self._early) if self._sink is None else self._sink.backlog()

    def begin(self, sink: Sink) -> tuple[bytes, bool]:
        """For the connection: send to *sink* from now on. Return what it has so far; also, if that is all."""
        early, self._early = bytes(self._early), bytearray()
        self._sink = sink
        return early, self._ended

    def drop(self) -> None:
        """For the connection: the peer has left, or was dropped."""
        if self.gone:
            return
        self.gone = True
        self._sink = self.on_room = None
        self._early.clear()
        callback, self.on_gone = self.on_gone, None
        if callback is not None:
            try:
                callback()
            except Exception:  # noqa: BLE001 - it must not cost the connection its own tidying up
                log().exception("a stream's on_gone has failed")


class Later:
    """An answer that comes by itself, without a task that waits for it; never before a handler returns it."""

    __slots__ = ("on_answer",)

    def __init__(self) -> None:
        self.on_answer: Callable[[Response], None] | None = None

    def answer(self, response: Response) -> None:
        """Send it, if the peer is still there."""
        callback, self.on_answer = self.on_answer, None
        if callback is not None:
            try:
                callback(response)
            except Exception:  # noqa: BLE001 - others are answered in the same step
                log().exception("an answer could not be sent")


Handler = Callable[[HTTPRequest], Coroutine[Any, Any, Response | Stream] | Later]


def problem(error: errors.HoldfastError) -> Response:
    """Return *error* as an answer."""
    body = json.dumps(wire.error_to_json(error), separators=(",", ":"), ensure_ascii=False).encode()
    return Response(errors.http_status(error), body, PROBLEM)
