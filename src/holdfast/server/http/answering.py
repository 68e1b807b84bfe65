"""Answers become bytes. No header can be smuggled into one, whatever a handler puts there."""

from __future__ import annotations

import re
import time
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus

from holdfast.server.http.message import Headers, HTTPRequest, Response, Stream

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
VALUE = re.compile(r"[\t -~\x80-\xff]*")
OURS = {"date", "content-length", "content-type", "connection", "transfer-encoding", "holdfast-request-id"}

_REASONS = {status.value: status.phrase for status in HTTPStatus}


def render(response: Response, request: HTTPRequest, keep_alive: bool) -> bytes:
    """Return *response* to *request* as it is sent; `ValueError` if a header of it cannot be."""
    bodiless = response.status in (204, 304)
    head = _start(response.status, response.content_type, response.headers) + (
        f"{_date()}Holdfast-Request-Id: {request.id}\r\n{_connection(request, keep_alive)}"
        + ("\r\n" if bodiless else f"Content-Length: {len(response.body)}\r\n\r\n")
    )
    if bodiless or request.method == "HEAD":
        return head.encode("latin-1")
    return head.encode("latin-1") + response.body


def render_start(stream: Stream, request: HTTPRequest) -> bytes:
    """Return the head of *stream*, which ends with its connection."""
    head = f"{_start(200, stream.content_type, stream.headers)}{_date()}Holdfast-Request-Id: {request.id}\r\n"
    return f"{head}Connection: close\r\n\r\n".encode("latin-1")


def _connection(request: HTTPRequest, keep_alive: bool) -> str:
    if not keep_alive:
        return "Connection: close\r\n"
    return "" if request.version == "1.1" else "Connection: keep-alive\r\n"


@lru_cache(maxsize=512)
def _start(status: int, content_type: str, headers: Headers) -> str:
    """Return everything that is the same for all answers of a kind. There are few kinds."""
    if not 200 <= status <= 599:
        raise ValueError(f"{status} is no status of an answer")
    lines = [f"HTTP/1.1 {status} {_REASONS.get(status, 'Unknown')}"]
    if status not in (204, 304):
        lines.append(_line("Content-Type", content_type))
    for name, value in headers:
        if name.lower() in OURS:
            raise ValueError(f"header {name} is not for handlers to set")
        lines.append(_line(name, value))
    if all(name.lower() != "cache-control" for name, _ in headers):
        lines.append("Cache-Control: no-store")
    return "\r\n".join([*lines, ""])


def _line(name: str, value: str) -> str:
    if not TOKEN.fullmatch(name) or not VALUE.fullmatch(value):
        raise ValueError(f"{name!r}: {value!r:.80} cannot be a header")
    return f"{name}: {value}"


class _Dated:
    second = 0
    line = ""


def _date() -> str:
    now = int(time.time())
    if now != _Dated.second:
        _Dated.line, _Dated.second = f"Date: {formatdate(now, usegmt=True)}\r\n", now
    return _Dated.line
