"""Answers become bytes. No header can be smuggled into one, whatever a handler puts there."""

from __future__ import annotations

import re
import time
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus

from holdfast.server.http.message import EVENTS, Headers, HTTPRequest, Response, Stream

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
VALUE = re.compile(r"[\t -~\x80-\xff]*")
HSTS = "Strict-Transport-Security: max-age=31536000\r\n"
UNBUFFERED = "X-Accel-Buffering: no\r\n"  # nginx would keep what is sent until it has 4 KiB of it
OURS = {"date", "content-length", "content-type", "connection", "transfer-encoding", "holdfast-request-id"}
OURS |= {"x-content-type-options", "strict-transport-security", "x-accel-buffering"}

_REASONS = {status.value: status.phrase for status in HTTPStatus}


def render(response: Response, request: HTTPRequest, keep_alive: bool) -> bytes:
    """Return *response* to *request* as it is sent; `ValueError` if a header of it cannot be."""
    bodiless = response.status in (204, 304)
    head = _start(response.status, response.content_type, response.headers) + (
        f"{_date()}{_who_asked(request)}{_connection(request, keep_alive)}"
        + ("\r\n" if bodiless else f"Content-Length: {len(response.body)}\r\n\r\n")
    )
    if bodiless or request.method == "HEAD":
        return head.encode("latin-1")
    return head.encode("latin-1") + response.body


def render_start(stream: Stream, request: HTTPRequest) -> bytes:
    """Return the head of *stream*, which ends with its connection."""
    head = f"{_start(200, EVENTS, stream.headers)}{_date()}{_who_asked(request)}"
    return f"{head}{UNBUFFERED}Connection: close\r\n\r\n".encode("latin-1")


def _who_asked(request: HTTPRequest) -> str:
    return f"Holdfast-Request-Id: {request.id}\r\n{HSTS if request.secure else ''}"


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
    lines.append("X-Content-Type-Options: nosniff")
    return "\r\n".join([*lines, ""])


def _line(name: str, value: str) -> str:
    if not TOKEN.fullmatch(name) or not VALUE.fullmatch(value):
        raise ValueError(f"{name!r}: {value!r:.80} cannot be a header")
    return f"{name}: {value}"


def _date() -> str:
    return _date_at(int(time.time()))


@lru_cache(maxsize=2)  # a second has many answers
def _date_at(now: int) -> str:
    return f"Date: {formatdate(now, usegmt=True)}\r\n"
