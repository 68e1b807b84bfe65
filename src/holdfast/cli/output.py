"""How things are written for people: messages, tables, durations, colours."""

from __future__ import annotations

import logging
import os
import sys
import unicodedata
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TextIO

from holdfast.core.events import Event
from holdfast.core.requests import Holder, LockView
from holdfast.errors import LeaseLost

BOLD, DIM, RED, GREEN, YELLOW = "1", "2", "31", "32", "33"

_STEERING = frozenset(("Cc", "Cf", "Cs", "Zl", "Zp"))  # categories of characters that print nothing
GAP = 2  # between columns
HOLDERS_SHOWN = 100  # a view has no more


def say(message: object) -> None:
    """Tell the person something that is not the command's output."""
    print(f"holdfast: {clean(str(message))}", file=sys.stderr, flush=True)


def clean(text: str) -> str:
    """Make visible what prints nothing: control characters, those that turn the direction around, and so on.

    Whatever somebody else chose may hold some, and so steer the terminal, or look like something else.
    """
    if text.isprintable():
        return text
    return "".join(repr(c)[1:-1] if unicodedata.category(c) in _STEERING else c for c in text)


def has_colours(stream: TextIO) -> bool:
    """Tell whether *stream* may be coloured."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def paint(text: str, style: str, *, colours: bool) -> str:
    """Return *text* in a style, if there are any."""
    return f"\x1b[{style}m{text}\x1b[0m" if colours and style and text else text


def width_of(text: str) -> int:
    """Return how many columns *text* takes in a terminal."""
    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text
    )


def cut(text: str, width: int) -> str:
    """Return *text* in at most *width* columns, with an ellipsis if something is missing."""
    if width_of(text) <= width:
        return text
    while text and width_of(text) > width - 1:
        text = text[:-1]
    return f"{text}…"


def pad(text: str, width: int, *, right: bool = False) -> str:
    """Fill *text* up to *width* columns."""
    filling = " " * (width - width_of(text))
    return filling + text if right else text + filling


def table(
    rows: Sequence[Sequence[str]], *, right: frozenset[int], shrink: Mapping[int, int], width: int | None
) -> list[list[str]]:
    """Return the cells of *rows* filled to the width of their columns, *right* ones to the left.

    With a *width* the widest of the *shrink* columns give way until the table fits, each down to the width
    that it has there.
    """
    widths = [max(map(width_of, column)) for column in zip(*rows, strict=True)]
    while width is not None and sum(widths) + GAP * (len(widths) - 1) > width:
        able = [column for column, least in shrink.items() if widths[column] > least]
        if not able:
            break
        widths[max(able, key=lambda column: widths[column])] -= 1
    return [
        [
            pad(cut(cell, widths[column]), widths[column], right=column in right)
            for column, cell in enumerate(row)
        ]
        for row in rows
    ]


def count(number: int, noun: str) -> str:
    """Return ``1 lock`` or ``2 locks``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def duration_text(seconds: float) -> str:
    """Return a duration as a person would say it: ``0.4 s``, ``3m05s``, ``2h03m``, ``4d02h``."""
    if seconds < 100:
        return f"{seconds:.1f} s"
    whole = int(seconds)
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    if whole < 86400:
        return f"{whole // 3600}h{whole // 60 % 60:02d}m"
    return f"{whole // 86400}d{whole // 3600 % 24:02d}h"


def moment_text(at: float) -> str:
    """Return a time of the store's clock in the local time zone."""
    return datetime.fromtimestamp(at).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def holders_of(view: LockView) -> tuple[Holder, ...]:
    """Return all who have a lock, as far as they are told."""
    return view.holders or (() if view.holder is None else (view.holder,))


def event_text(event: Event) -> str:
    """Return what is to be said of an event beside what happened to whom."""
    text = f"token {event.token}" if event.token else ""
    if event.by:
        text += f"{', ' if text else ''}by {clean(event.by)}"
    if event.reason:
        text += f"{': ' if text else ''}{clean(event.reason)}"
    return text


class SaidAlready(Exception):
    """Something went wrong, and the person at the terminal was told so."""


class _Reporter(logging.Handler):
    """Shows what the library logs: once, however often it happens in a row. Losses the commands tell."""

    _last = ""

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        lost = isinstance(record.args, tuple) and any(
            isinstance(arg, LeaseLost | SaidAlready) for arg in record.args
        )
        if not lost and text != self._last:
            self._last = text
            say(text)


def report_log() -> None:
    """Show the library's warnings in our form."""
    log = logging.getLogger("holdfast")
    log.handlers = [_Reporter(logging.WARNING)]
    log.propagate = False
