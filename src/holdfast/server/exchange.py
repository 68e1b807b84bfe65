"""A request on its way through the server: what is known of it, and how it is answered without a task.

To make a task and a future for a request, and to wake them, is worth it where something is to be waited for.
What is one question to the store needs neither: the store's answer is the next thing that happens to it.
"""

from __future__ import annotations

import time
from typing import Any, Protocol

from holdfast.core.requests import Request
from holdfast.server.backend import Backend
from holdfast.server.call import Call
from holdfast.server.http.message import HTTPRequest, Later, Response

UNKNOWN = "(none)"  # the route of what has none


class Visit:
    """What is known of a request so far, for whoever counts and logs it."""

    __slots__ = ("began", "failed", "known", "named", "path", "request", "who")

    def __init__(self, request: HTTPRequest) -> None:
        self.request = request
        self.began = time.perf_counter()
        self.path = UNKNOWN
        self.named = self.who = self.failed = ""
        self.known = False  # who asks was let in


class Desk(Protocol):
    """Who has sent the request on its way, and has the last word on its answer."""

    def explain(self, visit: Visit, error: Exception) -> Response: ...
    def conclude(self, visit: Visit, response: Response) -> Response: ...


class Plain(Protocol):
    """What is one question to the store."""

    def begin(self, call: Call) -> Request[Any] | None:
        """Return the question, checked and counted; None if there is more to it, and nothing was done."""

    def finish(self, call: Call, request: Any, answer: Any) -> Response:
        """Return what the caller is told."""

    def end(self, call: Call) -> None:
        """Count it no more, whatever came of it."""


class Exchange(Later):
    """One question to the store, and its answer. It goes on when whoever asks has gone."""

    __slots__ = ("_call", "_desk", "_plain", "_request", "_visit")

    def __init__(
        self, desk: Desk, backend: Backend, visit: Visit, call: Call, plain: Plain, request: Request[Any]
    ) -> None:
        self.on_answer = None
        self._desk = desk
        self._visit = visit
        self._call = call
        self._plain = plain
        self._request = request
        try:
            backend.submit(request, self)
        except BaseException:
            plain.end(call)
            raise

    # What the store's lane calls: see `queues.Waiting`.

    def cancelled(self) -> bool:
        return False

    def done(self) -> bool:
        return False

    def set_result(self, answer: Any) -> None:
        try:
            response = self._plain.finish(self._call, self._request, answer)
        except Exception as error:  # noqa: BLE001 - see `App.explain`
            self.set_exception(error)
        else:
            self._end(response)

    def set_exception(self, error: Exception) -> None:
        self._end(self._desk.explain(self._visit, error))

    def _end(self, response: Response) -> None:
        self._plain.end(self._call)
        self.answer(self._desk.conclude(self._visit, response))
