"""What a server logs: a line for each request, and whatever else happens. Text for people, or JSON lines.

A request is logged by the template of its route, never by its path, and with neither body nor headers: they
have attempts and access tokens in them, which are secrets. Keys are told at the level ``debug`` only.

Lines are written by a thread of their own, because whoever reads them may be slow, and a server that waits
for its log serves nobody. If too many wait to be written, new ones are dropped and counted. Of what anybody
can cause without being let in only some lines are written, and how many there were beside them.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
import time
from collections import deque
from functools import lru_cache
from typing import Any, TextIO

from holdfast.core.plans import Clock
from holdfast.server.settings import LogFormat, LogLevel
from holdfast.signal_mask import block_signals

MOST_WAITING = 10_000  # lines
# Of those that anybody can cause without being let in:
AT_ONCE = 10.0  # lines of one kind
REFILL = 1.0  # and so many more each second
SUMMARY = 10.0  # seconds until it is told how many were left out
_encode = json.JSONEncoder(default=str).encode
LEVELS: dict[str, int] = {"debug": 10, "info": 20, "warning": 30, "error": 40}

_LOOKING = ("GET", "HEAD")  # changes nothing; and machines and dashboards do it every few seconds


class ServerLog:
    """See the module. Methods may be called from any thread, never raise, and never wait."""

    def __init__(
        self,
        format: LogFormat = "text",
        level: LogLevel = "info",
        stream: TextIO | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._level = LEVELS[level]
        self._show = _as_json if format == "json" else _as_text
        self._clock = clock or time.time
        self._sparing = LogLimit(clock or time.monotonic)  # somebody may set the time of day back
        self._writer = _Writer(sys.stderr if stream is None else stream, self)
        self._before: tuple[list[logging.Handler], int, bool] | None = None

    def request(
        self,
        *,
        id: str,
        method: str,
        route: str,
        status: int,
        seconds: float,
        principal: str = "",
        remote: str = "",
        key: str = "",
        error: str = "",
        known: bool = True,
    ) -> None:
        """Log an answered request; *error* is the name of the error that it was answered with, if any.

        Whoever asks was let in if it is *known*. Others may be anybody, and ask as often as they like.
        """
        level = 40 if status >= 500 else 10 if method in _LOOKING and status < 400 else 20
        if level < self._level:
            return
        if not known and status >= 400 and not self._admit(f"requests of callers not let in: {status}"):
            return
        fields: dict[str, Any] = {
            "id": id,
            "method": method,
            "route": route,
            "status": status,
            "ms": round(seconds * 1000, 2),
            "principal": principal,
            "remote": remote,
        }
        if error:
            fields["error"] = error
        if key and self._level <= 10:
            fields["key"] = key
        self._write(level, "request", fields)

    def say(self, message: str, level: LogLevel = "info", **fields: Any) -> None:
        """Log something else."""
        if LEVELS[level] >= self._level:
            self._write(LEVELS[level], message, fields)

    def seldom(self, kind: str, message: str, level: LogLevel = "info", **fields: Any) -> None:
        """Log something else that anybody can cause: some of each *kind*, and how many there were."""
        if LEVELS[level] >= self._level and self._admit(kind):
            self._write(LEVELS[level], message, fields)

    def left_out(self, *, all: bool = False) -> list[str]:
        """Return the lines that tell what was left out: for the writer."""
        return [
            self._show(self._clock(), 30, f"{count} more lines were left out: {kind}", {"left_out": count})
            for kind, count in self._sparing.left_out(all=all)
        ]

    @property
    def has_left_out(self) -> bool:
        """Whether there are such lines, now or soon."""
        return self._sparing.pending

    def _admit(self, kind: str) -> bool:
        before = self._sparing.pending
        admitted = self._sparing.admit(kind)
        if not admitted and not before:
            self._writer.wake()  # it has something to tell, after a while
        return admitted

    def install(self) -> None:
        """Take over what the library logs, until `close`."""
        log = logging.getLogger("holdfast")
        self._before = (log.handlers, log.level, log.propagate)
        log.handlers, log.propagate = [_Handler(self)], False
        log.setLevel(self._level)

    def close(self) -> None:
        """Write what waits to be written, and give the library's log back."""
        if self._before is not None:
            log = logging.getLogger("holdfast")
            log.handlers, level, log.propagate = self._before
            log.setLevel(level)
            self._before = None
        self._writer.close()

    def _write(self, level: int, message: str, fields: dict[str, Any]) -> None:
        try:
            self._writer.put(self._show(self._clock(), level, message, fields))
        except Exception:  # noqa: BLE001  nothing that is logged is worth failing for
            self._writer.dropped += 1


class LogLimit:
    """Decides which lines are written. Kinds are our own words, and few."""

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._mutex = threading.Lock()
        self._left: dict[str, tuple[float, float]] = {}  # how many more, at what time
        self._left_out: dict[str, tuple[int, float]] = {}  # how many were not, since when

    @property
    def pending(self) -> bool:
        """Whether there is something to be told later."""
        return bool(self._left_out)

    def admit(self, kind: str) -> bool:
        """Tell whether one more line of this *kind* is written; otherwise it is counted."""
        with self._mutex:
            now = self._clock()
            left, then = self._left.get(kind, (AT_ONCE, now))
            left = min(AT_ONCE, left + max(0.0, now - then) * REFILL)
            admitted = left >= 1
            self._left[kind] = left - admitted, now
            if not admitted:
                count, since = self._left_out.get(kind, (0, now))
                self._left_out[kind] = count + 1, since
            return admitted

    def left_out(self, *, all: bool = False) -> list[tuple[str, int]]:
        """Return how many of what were left out, once for each; only after a while, unless *all* is set."""
        with self._mutex:
            now = self._clock()
            due = [
                (kind, count)
                for kind, (count, since) in self._left_out.items()
                if all or not 0 <= now - since < SUMMARY
            ]
            for kind, _ in due:
                del self._left_out[kind]
            return due


class _Handler(logging.Handler):
    """Brings the library's own records into the same form."""

    def __init__(self, log: ServerLog) -> None:
        super().__init__()
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        fields: dict[str, Any] = {}
        if record.exc_info:
            fields["trace"] = logging.Formatter().formatException(record.exc_info)
        self._log._write(record.levelno, record.getMessage(), fields)  # noqa: SLF001  part of it


class _Writer:
    """Writes lines in the background."""

    def __init__(self, stream: TextIO, log: ServerLog) -> None:
        self.dropped = 0
        self._log = log
        self._stream = stream
        self._lines: deque[str] = deque()
        self._some = threading.Event()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="holdfast-log", daemon=True)
        self._thread.start()

    def put(self, line: str) -> None:
        if len(self._lines) >= MOST_WAITING:
            self.dropped += 1
            return
        self._lines.append(line)
        self.wake()

    def wake(self) -> None:
        if not self._some.is_set():
            self._some.set()

    def close(self) -> None:
        self._closed = True
        self._some.set()
        self._thread.join(timeout=2.0)  # a reader that does not read must not keep us

    def _run(self) -> None:
        block_signals()
        while not (self._closed and not self._lines and not self._log.has_left_out):
            self._some.wait(SUMMARY if self._log.has_left_out else None)
            self._some.clear()
            lines = [self._lines.popleft() for _ in range(len(self._lines))]
            lines += self._log.left_out(all=self._closed)
            if self.dropped:
                lines.append(f"… {self.dropped} lines were dropped: nobody read them in time\n")
                self.dropped = 0
            try:
                self._stream.write("".join(lines))
                self._stream.flush()
            except (OSError, ValueError):  # closed, or a full disk: there is nowhere to say it
                continue


def _as_text(now: float, level: int, message: str, fields: dict[str, Any]) -> str:
    moment = f"{_local(int(now))}.{int(now * 1000) % 1000:03d}"
    if message == "request":
        message = (
            f"{fields['status']} {fields['method']} {fields['route']}  {fields['ms']:.1f} ms"
            f"  {fields['principal'] or '-'}  {fields['remote'] or '-'}  {fields['id']}"
        )
        fields = {name: fields[name] for name in ("error", "key") if name in fields}
    trace = fields.pop("trace", "")
    more = "".join(f"  {name}={value}" for name, value in fields.items())
    text = f"{moment} {_name(level):<7} {_clean(message + more)}\n"
    return text + "".join(f"    {_clean(line)}\n" for line in trace.splitlines())


def _as_json(now: float, level: int, message: str, fields: dict[str, Any]) -> str:
    moment = f"{_utc(int(now))}.{int(now * 1000) % 1000:03d}Z"
    return f"{_encode({'time': moment, 'level': _name(level), 'message': message, **fields})}\n"


@lru_cache(maxsize=2)  # a second has many lines
def _local(now: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(now))


@lru_cache(maxsize=2)
def _utc(now: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now))


@lru_cache(maxsize=100)
def _name(level: int) -> str:
    return next((name for name, least in reversed(LEVELS.items()) if level >= least), "debug")


def _clean(text: str) -> str:
    """Make control characters visible: what others have sent must not steer a terminal, nor make lines."""
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
