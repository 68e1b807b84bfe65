"""Event streams (server-sent events), read as they come in."""

from __future__ import annotations

from holdfast.core.data import data
from holdfast.stores.http.message import Garbled

MOST_BUFFERED = 1024 * 1024


@data
class ServerSent:
    """One event of a stream."""

    event: str
    data: str
    id: str


class EventReader:
    """Takes events out of the bytes of a stream. Lines end with LF or CRLF; nobody sends a bare CR."""

    def __init__(self) -> None:
        self._buffer = b""
        self._event = ""
        self._data: list[str] = []
        self._size = 0
        self.last_id = ""

    def feed(self, received: bytes) -> list[ServerSent]:
        """Return the events that are complete with *received*."""
        *lines, self._buffer = (self._buffer + received).split(b"\n")
        taken = [self._take(line.removesuffix(b"\r").decode("utf-8", "replace")) for line in lines]
        if len(self._buffer) + self._size > MOST_BUFFERED:
            raise Garbled("an event without an end")
        return [event for event in taken if event is not None]

    def _take(self, line: str) -> ServerSent | None:
        if not line:
            event, data = self._event or "message", "\n".join(self._data)
            is_one = bool(self._data)
            self._event, self._data, self._size = "", [], 0
            return ServerSent(event, data, self.last_id) if is_one else None
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            self._data.append(value)
            self._size += len(value) + 1
        elif name == "event":
            self._event = value
        elif name == "id" and "\0" not in value:
            self.last_id = value
        return None
