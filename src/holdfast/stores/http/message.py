"""HTTP/1.1 as far as a client needs it: the head of an answer, and where its body ends.

`http.client` reads heads with the parser for mail, which takes longer than everything else about a request:
see docs/decisions/0023-http-store.md.
"""

from __future__ import annotations

from holdfast.core.data import data

MOST_HEAD = 64 * 1024
MOST_BODY = 16 * 1024 * 1024
_MOST_LINE = 1024  # of a chunk's size, with whatever a proxy adds
END = b"\r\n\r\n"


class Garbled(Exception):
    """What came is not HTTP, or more of it than anybody should send."""


@data
class Head:
    """The head of an answer."""

    status: int
    headers: dict[bytes, bytes]  # by their names in lower case
    keeps: bool  # the connection can be used again

    def text(self, name: bytes) -> str:
        """Return a header, to be shown."""
        return self.headers.get(name, b"").decode("latin-1")

    @property
    def is_chunked(self) -> bool:
        """Tell whether the body comes in pieces that say how long they are."""
        coding = self.headers.get(b"transfer-encoding")
        if coding is None:
            return False
        if coding.lower() != b"chunked":
            raise Garbled(f"a body in the transfer encoding {coding[:40]!r}")
        return True

    @property
    def length(self) -> int | None:
        """How long the body is; None: until the connection ends."""
        if self.status in (204, 304):
            return 0
        length = self.headers.get(b"content-length")
        if length is None:
            return None
        if not length.isdigit() or len(length) > 15 or int(length) > MOST_BODY:
            raise Garbled(f"a body of {length[:40].decode('latin-1')} bytes")
        return int(length)


@data
class Reply:
    """A whole answer."""

    head: Head
    body: bytes


def parse_head(text: bytes) -> Head:
    """Return the head whose lines *text* has, without the empty one at its end."""
    first, *lines = text.split(b"\r\n")
    if not (first.startswith(b"HTTP/1.") and first[8:9] == b" " and first[9:12].isdigit()):
        raise Garbled(f"{first[:80]!r}")
    headers: dict[bytes, bytes] = {}
    for line in lines:
        name, colon, value = line.partition(b":")
        if not colon:
            raise Garbled(f"{line[:80]!r} as a header")
        name = name.lower()
        if name in headers and name in (b"content-length", b"transfer-encoding"):
            raise Garbled(f"{name.decode('latin-1')} twice")  # whose word counts, others may see otherwise
        headers[name] = value.strip()
    options = headers.get(b"connection", b"").lower()
    keeps = b"close" not in options if first[7:8] == b"1" else b"keep-alive" in options
    return Head(int(first[9:12]), headers, keeps)


class Chunked:
    """Takes a body out of its chunks, however the network cuts them."""

    def __init__(self) -> None:
        self._buffer = b""
        self._left = 0  # of the chunk that we are in, with the line end after it
        self._in_trailer = False
        self.is_over = False

    def feed(self, received: bytes) -> bytes:
        """Return what of the body is new in *received*."""
        buffer = self._buffer + received
        found: list[bytes] = []
        while buffer and not self.is_over:
            if self._left:
                piece, buffer = buffer[: self._left], buffer[self._left :]
                # The last two bytes of a chunk are its line end.
                body = max(self._left - 2, 0)
                found.append(piece[:body])
                self._left -= len(piece)
                continue
            line, end, rest = buffer.partition(b"\r\n")
            if len(line) > _MOST_LINE:
                raise Garbled("a chunk that does not say how long it is")
            if not end:
                break
            buffer = rest
            if self._in_trailer:
                self.is_over = not line
            else:
                self._begin(line)
        self._buffer = buffer
        return b"".join(found)

    def _begin(self, line: bytes) -> None:
        size = line.partition(b";")[0].strip()
        try:
            length = int(size, 16) if size[:1].isalnum() and len(size) <= 8 else -1
        except ValueError:
            length = -1
        if length < 0:
            raise Garbled(f"a chunk of {size[:20]!r} bytes")
        if length:
            self._left = length + 2
        else:
            self._in_trailer = True
