"""Server-sent events: how they are written, and the one clock that keeps all streams open.

Keys, owners and reasons are whatever somebody chose to write. They only ever stand inside JSON, which is one
line of ASCII whatever is in it, so that nobody can end an event and begin one of his own.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any, Literal

from holdfast.log import log

HEARTBEAT = 15.0  # seconds; proxies close what is silent for a minute
AT_ONCE = 500  # streams that are written to before somebody else has a turn

REVOKED = "your access token is not valid any more"
SLOW = "too much was waiting to be read; come back and go on after the last event"

Reason = Literal["slow", "draining", "revoked", "limit"]

_write = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode


def event(kind: str, data: Any, id: int | None = None) -> bytes:
    """Return an event. Its *kind* is one of our own words."""
    text = f"event: {kind}\ndata: {_write(data)}\n\n"
    return (text if id is None else f"id: {id:d}\n{text}").encode("ascii")


def place(id: int) -> bytes:
    """Return what moves the reader's place and is not an event: after a reconnect it goes on after *id*."""
    return b"id: %d\n\n" % id


def heartbeat() -> bytes:
    """Return a comment: it says nothing but that we are still there."""
    return b":\n\n"


def goodbye(reason: Reason, detail: str, id: int | None = None) -> bytes:
    """Return the last event of a stream that we end."""
    return event("goodbye", {"reason": reason, "detail": detail}, id)


class Heartbeats:
    """One task that beats for all streams: an idle stream costs a few bytes now and then, and no timer."""

    def __init__(self, every: float = HEARTBEAT) -> None:
        self._every = every
        self._members: dict[Callable[[], None], None] = {}
        self._task: asyncio.Task[None] | None = None

    def add(self, beat: Callable[[], None]) -> None:
        """Call *beat* now and then from now on. It says that a stream is alive, and must not wait."""
        self._members[beat] = None
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._tick(), name="holdfast-heartbeats")

    def remove(self, beat: Callable[[], None]) -> None:
        """Let it rest."""
        self._members.pop(beat, None)

    def close(self) -> None:
        """Stop beating."""
        self._members.clear()
        if self._task is not None:
            self._task.cancel()
            self._task = None

    async def _tick(self) -> None:
        while self._members:
            await asyncio.sleep(self._every)
            for count, beat in enumerate(list(self._members), 1):
                if beat in self._members:  # otherwise it has gone while others had their turn
                    try:
                        beat()
                    except Exception:  # noqa: BLE001 - one that fails must not silence the others
                        log().exception("a heartbeat failed")
                if count % AT_ONCE == 0:
                    await asyncio.sleep(0)
        self._task = None
