"""Bytes become requests: one at a time, within limits, and with one meaning only.

httptools splits heads and chunks. It parses whatever it is given, without a limit and on into the next
request; so a reader gives it pieces that end where a message may end, and counts them. What could mean
something else to a proxy in front of us is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import httptools

from holdfast.errors import RequestRefused
from holdfast.server.http.message import HTTPRequest, new_id
from holdfast.server.settings import Limits

END = b"\r\n\r\n"  # of a head, and of a chunked body
SMALL_BODY = 16 * 1024
ABSOLUTE = re.compile(r"https?://[^/?]+", re.IGNORECASE)
DIGITS = re.compile(r"[0-9]+")
NO_ROOM = "too many large bodies arrive at the same time; try again in a moment"

# The few names that headers have, ready for use. Never many: anybody can invent more.
_names: dict[bytes, str] = {}


def _learn(name: bytes) -> str:
    known = name.decode("ascii").lower()
    if len(_names) < 256 and len(name) < 64:
        _names[name] = known
    return known


class Room:
    """The memory for large bodies that arrive at the same time, shared by all connections.

    If there is not enough, whoever has had some for longest makes room: nobody knows yet who they are, and
    bodies that never end must not keep out those that are there in a moment.
    """

    __slots__ = ("_takers", "left")

    def __init__(self, size: int) -> None:
        self.left = size
        self._takers: dict[Reader, None] = {}

    def take(self, reader: Reader, size: int) -> bool:
        """Let *reader* have so much more; False if there is no room even without the others."""
        self._takers[reader] = None
        self.left -= size
        while self.left < 0:
            oldest = next(iter(self._takers))
            if oldest is reader:
                return False
            oldest.make_room()
        return True

    def give_back(self, reader: Reader, size: int) -> None:
        """Have back what *reader* had."""
        self.left += size
        self._takers.pop(reader, None)


class Reader:
    """Reads the requests of one connection."""

    def __init__(self, limits: Limits, room: Room) -> None:
        self._limits = limits
        self._room = room
        self._taken = 0  # of the room, by us
        self.on_no_room: Callable[[RequestRefused], None] | None = None  # others need what we have
        self._parser = httptools.HttpRequestParser(self)
        self._refused: RequestRefused | None = None
        self._tail = b""  # of what was given to the parser: an end may come in pieces
        self._length = 0  # what is still to come of a body with a known length
        self._url = b""
        self._headers: dict[str, str] = {}
        self._body: bytes | bytearray = b""
        self._counted = 0  # bytes of the head, then of what frames a chunked body
        self._chunked = False
        self.version = ""
        self.keep_alive = True
        self.started = False  # something of a request is there
        self.in_body = False
        self.complete = False
        self.wants_continue = False

    def feed(self, data: bytes) -> bytes:
        """Read one request from *data*, as far as it goes; return what follows. `RequestRefused` is final."""
        self.started = True
        while data and not self.complete:
            if not self._length:
                piece, data = self._cut(data)
                self._counted += len(piece)
                if self._counted > self._limits.head:
                    self._refuse_large()
            elif len(data) <= self._length:
                piece, data = data, b""
                self._length -= len(piece)
            else:
                piece, data = data[: self._length], data[self._length :]
                self._length = 0
            try:
                self._parser.feed_data(piece)
            except httptools.HttpParserUpgrade:
                # Answered as if it had not asked; but what follows is not HTTP any more for the parser.
                self.keep_alive = False
            except httptools.HttpParserError as error:
                if self._refused is not None:
                    raise self._refused from None
                raise RequestRefused(400, f"this is no HTTP request: {error}") from None
        return data

    def _cut(self, data: bytes) -> tuple[bytes, bytes]:
        """Cut *data* after the next place where a head or a chunked body may end."""
        before = self._tail
        found = (before + data).find(END) if before else data.find(END)
        if found < 0:
            self._tail = (before + data)[-3:]
            return data, b""
        if before:
            self._tail = b""
        cut = found + 4 - len(before)
        return data[:cut], data[cut:]

    def _refuse_large(self) -> None:
        most = self._limits.head
        if self.in_body:
            raise RequestRefused(413, f"chunk extensions and trailers are larger than {most} bytes")
        raise RequestRefused(431, f"the request's head is larger than {most} bytes")

    def take(self, remote: str, secure: bool, peer_certificate: dict[str, Any] | None) -> HTTPRequest:
        """Return the request that is complete, and be ready for the next one."""
        path, _, query = self._url.decode("ascii").partition("?")
        method, body = self._parser.get_method().decode("ascii"), bytes(self._body)
        request = HTTPRequest(method, path, query, self._headers, body, remote, secure, new_id())
        request.peer_certificate, request.version = peer_certificate, self.version
        request.keep_alive = self.keep_alive
        self._headers = {}
        self._url = self._body = b""
        self._counted = 0
        self.started = self.in_body = self.complete = self.wants_continue = self._chunked = False
        if self._taken:
            self._give_back()
        return request

    def close(self) -> None:
        """Forget everything. The parser knows us and we know it: somebody has to let go."""
        self._give_back()
        self.on_no_room = None
        del self._parser

    def make_room(self) -> None:
        """Give back what we have: somebody else needs it."""
        self._give_back()
        if self.on_no_room is not None:
            self.on_no_room(RequestRefused(503, NO_ROOM))

    def _give_back(self) -> None:
        self._room.give_back(self, self._taken)
        self._taken = 0

    # What the parser calls. An error that is raised here reaches `feed` only as "a callback has failed".

    def on_url(self, url: bytes) -> None:
        if self.complete:  # no piece has two requests, unless the parser ends them where we do not
            self._refuse(400, "another request begins where none should")
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.in_body:
            return  # a trailer: whatever it says, it is too late
        known = _names.get(name) or _learn(name)
        text = value.decode("latin-1").rstrip(" \t")
        headers = self._headers
        if known in headers:
            if known == "host":
                self._refuse(400, "there is more than one Host")
            text = f"{headers[known]}, {text}"
        headers[known] = text

    def on_headers_complete(self) -> None:
        self.version = self._parser.get_http_version()
        self.keep_alive = self._parser.should_keep_alive()
        self._counted = 0
        self.in_body = True
        headers = self._headers
        if self.version != "1.1" or "host" not in headers:
            self._check_version()
        if not self._url.startswith(b"/") or b"#" in self._url:
            self._check_target()
        if "content-length" in headers or "transfer-encoding" in headers:
            self._check_framing()
        if "expect" in headers:
            self._check_expect()

    def on_body(self, body: bytes) -> None:
        size = len(self._body) + len(body)
        if size > self._limits.body:
            self._refuse(413, f"the body is larger than {self._limits.body} bytes")
        if size > SMALL_BODY:
            self._taken += len(body)
            if not self._room.take(self, len(body)):
                self._refuse(503, NO_ROOM)
        if not self._body:
            self._body = body
        elif isinstance(self._body, bytearray):
            self._body += body
        else:
            self._body = bytearray(self._body + body)
        self._counted = 0

    def on_message_complete(self) -> None:
        self.complete = True

    def _refuse(self, status: int, detail: str) -> None:
        self._refused = RequestRefused(status, detail)
        raise self._refused

    def _check_version(self) -> None:
        if self.version not in ("1.1", "1.0"):
            self._refuse(505, f"this server speaks HTTP/1.1, not HTTP/{self.version}")
        if self.version == "1.1" and "host" not in self._headers:
            self._refuse(400, "there is no Host")

    def _check_target(self) -> None:
        url = self._url
        method = self._parser.get_method()
        if not url.startswith(b"/"):
            if url == b"*" and method == b"OPTIONS":
                return
            text = url.decode("ascii")
            absolute = ABSOLUTE.match(text)
            if absolute is None or method == b"CONNECT":
                self._refuse(400, "the target is no path of this server")
            else:
                rest = text[absolute.end() :]
                self._url = (rest if rest.startswith("/") else f"/{rest}").encode("ascii")
        if b"#" in url:
            self._refuse(400, "the target has a fragment, which is not for servers")

    def _check_framing(self) -> None:
        length = self._headers.get("content-length")
        encoding = self._headers.get("transfer-encoding")
        if encoding is not None:
            if length is not None or self.version == "1.0" or encoding.lower() != "chunked":
                self._refuse(
                    400, "Transfer-Encoding may only be chunked, without Content-Length, in HTTP/1.1"
                )
            self._chunked = True
        elif length is not None:
            if not DIGITS.fullmatch(length):
                self._refuse(400, "Content-Length is no number")
            self._length = int(length)
            if self._length > self._limits.body:
                self._refuse(
                    413, f"the body has {self._length} bytes; at most {self._limits.body} are allowed"
                )
        if self._parser.should_upgrade() and (self._chunked or self._length):
            self._refuse(400, "this server changes to no other protocol: leave out Upgrade")

    def _check_expect(self) -> None:
        if self._headers["expect"].lower() != "100-continue":
            self._refuse(417, "only 100-continue can be expected")
        self.wants_continue = self.version == "1.1" and (self._chunked or self._length > 0)
