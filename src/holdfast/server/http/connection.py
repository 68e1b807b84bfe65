"""One connection: requests are read, handled and answered one after the other; a stream is its last answer.

There is a task while a request is handled, if it takes one, and none otherwise. Nothing here ever waits for a
peer: whatever it is to do (send a head, send a body, read an answer) has a deadline, and most peers never
come near it.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Coroutine
from contextlib import suppress
from functools import partial
from typing import Any, cast

from holdfast.errors import RequestRefused, StoreError
from holdfast.log import log
from holdfast.server.http import sse
from holdfast.server.http.deadlines import NEVER
from holdfast.server.http.door import Cut, Door
from holdfast.server.http.handshake import LINGER, greet
from holdfast.server.http.message import HTTPRequest, Later, Response, Stream, new_id, problem
from holdfast.server.http.reader import Reader
from holdfast.server.http.responses import CONTINUE, render, render_start

AHEAD = 4096  # bytes of requests to come, after which we stop reading until the present one is answered
SLOWEST = 1024  # bytes a second; reading slower than that does not count as progress
FULL = "the server has as many connections as it may; try again later"


# What a connection is about. Plain numbers: it takes a while to look up the members of an Enum.
READING = 0  # a request, or nothing yet
HANDLING = 1
FLUSHING = 2  # the peer has not taken the answer yet
STREAMING = 3
REFUSED = 4  # told so; whatever still comes is thrown away
CLOSING = 5  # the last bytes are on their way
GREETING = 6  # it has come, and may have to do its handshake
NAMES = ("reading", "handling", "flushing", "streaming", "refused", "closing", "greeting")


class Connection(asyncio.BufferedProtocol):
    """The server's side of a connection."""

    _transport: asyncio.Transport

    def __init__(self, listener: Door, remote: str) -> None:
        self._listener = listener
        self._limits = listener.limits
        self.remote = remote  # the peer's address
        self._handshake: asyncio.Task[None] | None = None  # until there is a transport
        self._state = CLOSING
        self._reader: Reader | None = None
        self._stream: Stream | None = None
        self.task: asyncio.Task[None] | None = None  # that handles a request
        self._later: Later | None = None  # or what answers it without one
        self._ahead = b""
        self._in_body = False
        self._pending = 0  # bytes that waited for the peer when we last looked
        self._stranger = True  # nobody was let in on it
        self._answered = False  # any request of it
        self._certificate: dict[str, Any] | None = None
        self.deadline = NEVER
        self.tick = 0

    def __repr__(self) -> str:
        return f"<Connection from {self.remote}: {NAMES[self._state]}>"

    # From its arrival on.

    def begin(self, sock: socket.socket) -> None:
        """Come in by *sock*, which was accepted just now, if there is a place for us."""
        listener = self._listener
        if listener.admit(self, self.remote):
            self._state = GREETING
        elif listener.tls is None and not listener.overfull:
            self._state = REFUSED  # and told so
        else:  # that would take a handshake, or time that others need
            listener.cut("refused", self.remote, FULL)
            sock.close()
            listener.forget(self)
            return
        self._within(self._limits.head_time)
        self._handshake = greet(self, self.remote, listener, sock)

    def _within(self, seconds: float) -> None:
        """Let the peer be late after so many seconds."""
        self._listener.deadlines.set(self, seconds)

    # What the transport calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._handshake = None
        self._certificate = transport.get_extra_info("peercert") or None
        if self._state == GREETING:
            self._open()
        elif self._state == REFUSED:
            self._refuse(RequestRefused(503, FULL), "refused")
        else:
            self._transport.abort()

    def _open(self) -> None:
        """Read the first request."""
        self._transport.set_write_buffer_limits(high=0)  # tell us whenever the peer does not keep up
        self._reader = Reader(self._limits, self._listener.room)
        self._reader.on_no_room = self._refuse
        self._state = READING
        self._within(self._limits.head_time)

    def get_buffer(self, sizehint: int) -> memoryview:
        # One for all connections: what is read is taken out before anybody else reads.
        return self._listener.buffer

    def buffer_updated(self, nbytes: int) -> None:
        if self._state == READING:
            self._receive(bytes(self._listener.buffer[:nbytes]))
        elif self._state in (HANDLING, FLUSHING):
            self._ahead += self._listener.buffer[:nbytes]
            if len(self._ahead) > AHEAD:
                self._transport.pause_reading()

    def eof_received(self) -> bool:
        # Whoever has nothing more to say is taken for gone: it cannot be told from one that is.
        self._state = CLOSING
        self._leave()
        return False  # close, once everything is written

    def connection_lost(self, error: Exception | None) -> None:
        self._state = CLOSING
        self._listener.deadlines.forget(self)
        self._leave()
        self._read_no_more()
        self._ahead = b""
        self._listener.forget(self)

    def pause_writing(self) -> None:
        self._pending = self._transport.get_write_buffer_size()
        if self._state != REFUSED:
            self._within(self._limits.write_time)
        if self._state != STREAMING:  # those have a limit of their own
            self._listener.unread(self, self._pending)

    def resume_writing(self) -> None:
        self._pending = 0
        self._listener.was_read(self)
        # Not from within: asyncio's transports do not expect to be closed by what they call here.
        self._listener.loop.call_soon(self._resume)

    def _resume(self) -> None:
        if self._pending:
            return  # and there is more to wait for already
        if self._state == FLUSHING:
            self._next()
        elif self._state == STREAMING:
            self.deadline = NEVER
            if self._stream is not None and self._stream.on_room is not None:
                self._stream.on_room()
        elif self._state == HANDLING:
            self.deadline = NEVER
        elif self._state == READING:
            self._within(self._limits.body_time)

    # Requests.

    def _receive(self, data: bytes) -> None:
        reader = self._reader
        assert reader is not None
        fresh = not reader.started
        try:
            rest = reader.feed(data)
        except RequestRefused as error:
            self._refuse(error)
            return
        if reader.complete:
            self._ahead = rest
            self._state = HANDLING
            self._in_body = False
            self.deadline = NEVER
            request = reader.take(self.remote, self._listener.tls is not None, self._certificate)
            if self._stranger:
                request.on_let_in = self._let_in
            handling = self._listener.handler(request)
            if isinstance(handling, Later):
                self._later = handling
                handling.on_answer = partial(self._send, request)
            else:
                run = self._run(request, handling)
                # With a name of its own it need not make one up.
                self.task = asyncio.Task(run, loop=self._listener.loop, name="holdfast-request")
        elif reader.in_body and not self._in_body:
            self._in_body = True
            self._within(self._limits.body_time)
            if reader.wants_continue:
                self._transport.write(CONTINUE)
        elif fresh:
            self._within(self._limits.head_time)

    async def _run(self, request: HTTPRequest, handling: Coroutine[Any, Any, Response | Stream]) -> None:
        try:
            answer = await handling
        except asyncio.CancelledError:
            self.abort()
            raise
        except Exception:  # noqa: BLE001 - whatever it is, the peer gets an answer and the log the reason
            log().exception("request %s: %s %s has failed", request.id, request.method, request.path)
            answer = _failed(request)
        self.task = None
        self._send(request, answer)

    def _send(self, request: HTTPRequest, answer: Response | Stream) -> None:
        """Send what a request is answered."""
        self._later = None
        keep_alive = request.keep_alive and not self._listener.draining
        try:
            if isinstance(answer, Stream):
                data = render_start(answer, request)
            else:
                data = render(answer, request, keep_alive)
        except Exception:  # noqa: BLE001 - as above; most likely a header that cannot be sent
            log().exception("request %s: its answer cannot be sent", request.id)
            if isinstance(answer, Stream):
                answer.drop()
            answer = _failed(request)
            data = render(answer, request, keep_alive)
        if self._state != HANDLING:  # the peer left in the same moment
            if isinstance(answer, Stream):
                answer.drop()
        elif isinstance(answer, Stream):
            self._begin(answer, data, is_head=request.method == "HEAD")
        else:
            if answer.status == 401 and not self._stranger:
                self._stranger = True  # let in once, and not any more
                self._listener.strangers.add(self, self.remote)
            self._answer(data, keep_alive)

    def _let_in(self) -> None:
        self._stranger = False
        self._listener.strangers.drop(self)

    @property
    def is_first(self) -> bool:
        return self._state == HANDLING and not self._answered

    def _answer(self, data: bytes, keep_alive: bool) -> None:
        self._state = FLUSHING
        self._answered = True
        self._transport.write(data)
        if not keep_alive:
            self._close()
        elif not self._pending:
            self._next()

    def _next(self) -> None:
        """Go on with the next request, which may have come already."""
        if self._listener.draining:
            self._close()
            return
        self._state = READING
        ahead, self._ahead = self._ahead, b""
        if len(ahead) > AHEAD:
            self._transport.resume_reading()
        self._within(self._limits.idle)
        if ahead:
            self._receive(ahead)

    def _refuse(self, error: RequestRefused, why: Cut = "unheard") -> None:
        """Answer that we do not go on, and listen no more."""
        self._listener.refused[error.status] = self._listener.refused.get(error.status, 0) + 1
        self._listener.cut(why, self.remote, str(error))
        self._state = REFUSED
        self._read_no_more()
        self._write_problem(error)
        if self._transport.can_write_eof():
            with suppress(OSError):  # it has left already
                self._transport.write_eof()
        self._within(LINGER)

    def _write_problem(self, error: RequestRefused) -> None:
        """Answer something that is no request."""
        no_request = HTTPRequest("", "", secure=self._listener.tls is not None, id=new_id())
        self._transport.write(render(problem(error), no_request, keep_alive=False))

    # Streams.

    def _begin(self, stream: Stream, head: bytes, is_head: bool) -> None:
        early, ended = stream.begin(self)
        self._stream = stream
        self._state = STREAMING
        self._read_no_more()
        if len(self._ahead) > AHEAD:
            self._transport.resume_reading()  # or we would not see the peer leave
        self._ahead = b""
        self._transport.write(head if is_head else head + early)
        if ended or is_head:
            self.end_stream(b"")
        elif self.backlog() > self._limits.slow_reader:
            self._drop_slow()

    def send_stream(self, data: bytes) -> bool:
        if self._state != STREAMING:
            return False
        self._transport.write(data)
        if self._pending and self.backlog() > self._limits.slow_reader:
            self._drop_slow()
            return False
        return True

    def end_stream(self, last: bytes) -> None:
        if self._state == STREAMING:
            self._state = CLOSING
            if last:
                self._transport.write(last)
            self._close()

    def backlog(self) -> int:
        return self._transport.get_write_buffer_size()

    def _drop_slow(self) -> None:
        self._listener.dropped += 1
        self.end_stream(sse.goodbye("slow", sse.SLOW))
        self._leave()

    # The end.

    def on_deadline(self) -> None:
        """The peer is late with whatever it should do."""
        limits = self._limits
        if self._state == READING and not self._pending:
            reader = self._reader
            if reader is None or not reader.started:
                self._close()
                return
            what, seconds = "the request's head", limits.head_time
            if reader.in_body:
                what, seconds = "the body", limits.body_time
            self._refuse(RequestRefused(408, f"{what} was not there within {seconds:g} s"))
            return
        if self._state == GREETING:
            self._listener.cut("handshake", self.remote, f"it was not done within {limits.head_time:g} s")
            self.abort()
            return
        waiting = self._transport.get_write_buffer_size()
        enough = SLOWEST * self._limits.write_time
        if self._state != REFUSED and self._pending - waiting >= enough:
            self._pending = waiting
            self._within(self._limits.write_time)
        elif self._state == STREAMING:
            self._drop_slow()
        elif self._state == REFUSED and not waiting:
            self._close()
        else:
            self._listener.dropped += self._state == FLUSHING
            self.abort()

    def _close(self) -> None:
        """Close once everything is written, which may not take for ever."""
        self._state = CLOSING
        self._within(self._limits.write_time)
        self._transport.close()

    def abort(self) -> None:
        """Close at once."""
        self._state = CLOSING
        if self._handshake is not None:
            self._handshake.cancel()
        else:
            self._transport.abort()

    def make_room(self) -> None:
        """Go, so that somebody else can come: with a word of it, where that takes no time."""
        if self._state == READING and not self._pending and self._listener.tls is None:
            self._write_problem(RequestRefused(503, FULL))
            self._close()
        else:
            self.abort()

    def drain(self) -> None:
        """Close if nothing is under way; otherwise that is for the answer to do."""
        if self._state == GREETING:
            self.abort()
        elif self._state == READING and not (self._reader and self._reader.started):
            self._close()

    def _read_no_more(self) -> None:
        """There is no other request to come: make room."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    def _leave(self) -> None:
        """Tell whoever works for the peer that it is gone."""
        task, self.task = self.task, None
        if task is not None:
            # Not before its first step: what has come in completely is asked for, and whoever gives something
            # back does not have to stay for the answer.
            self._listener.loop.call_soon(task.cancel)
            self._listener.keep(task)
        if self._later is not None:
            self._later.on_answer = None
            self._later = None
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.drop()


def _failed(request: HTTPRequest) -> Response:
    # Nothing of what happened: that is for the log.
    return problem(StoreError(f"the server has failed; its log says more under {request.id}"))
