"""The limits that this layer keeps; the server's settings have them, with many more."""

from __future__ import annotations

from typing import Protocol


class Limits(Protocol):
    """Sizes are bytes, times are seconds."""

    @property
    def head(self) -> int: ...  # of a request: its first line and its headers
    @property
    def body(self) -> int: ...
    @property
    def head_time(self) -> float: ...  # within which a head, once begun, has to be there
    @property
    def body_time(self) -> float: ...
    @property
    def idle(self) -> float: ...  # how long a connection may be kept between requests
    @property
    def connections(self) -> int: ...
    @property
    def strangers(self) -> int: ...  # connections of one address on which nobody was let in yet
    @property
    def write_time(self) -> float: ...  # without progress, after which a peer that does not read is cut off
    @property
    def slow_reader(self) -> int: ...  # how much may wait for the reader of a stream
