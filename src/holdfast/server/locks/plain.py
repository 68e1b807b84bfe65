"""Acquires and releases that are one question to the store, which is nearly all of them.

What else they can be is in `changes`, as is what both have in common: an acquire that waits in the server,
or that nobody could come back for, and a history that few ask for.
"""

from __future__ import annotations

from typing import Any

from holdfast.core import requests as r
from holdfast.server.call import Call
from holdfast.server.exchange import Plain as Plain
from holdfast.server.http.message import Response
from holdfast.server.locks.changes import LockChanges


class PlainAcquire:
    """Take a lock that is free, or join its queue."""

    def __init__(self, changes: LockChanges) -> None:
        self._changes = changes

    def begin(self, call: Call) -> r.Acquire | None:
        """Return the question, if the caller knows its attempt and does not have the server wait."""
        if call.history is not None or call.given["attempt"] is None or self._changes.waits(call):
            return None
        request = self._changes.asked(call)
        self._changes.asking(call).begin()
        return request

    def finish(self, call: Call, request: r.Acquire, answer: Any) -> Response:
        """Return what the caller is told."""
        return self._changes.acquired(call, request, answer)

    def end(self, call: Call) -> None:
        """Count it no more."""
        self._changes.asking(call).end()


class PlainRelease:
    """Give a lock back."""

    def __init__(self, changes: LockChanges) -> None:
        self._changes = changes

    def begin(self, call: Call) -> r.Release | None:
        """Return the question, unless the caller wants another history than most."""
        return None if call.history is not None else call.request()

    def finish(self, call: Call, request: r.Release, answer: Any) -> Response:
        """Return what the caller is told."""
        return self._changes.ended(call, request, answer)

    def end(self, call: Call) -> None:
        """Do nothing: releases are not counted."""
