"""How things are written for people: messages, tables, durations, colours."""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, TextIO

from holdfast.core.data import as_dict, data
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


def can_show(signs: str) -> bool:
    """Tell whether what is printed can have these characters in it."""
    try:
        signs.encode(sys.stdout.encoding or "ascii")
    except (UnicodeError, LookupError):
        return False
    return True


def paint(text: str, style: str, *, colours: bool | None = None) -> str:
    """Return *text* in a style, if there are *colours*: by default if stdout may be coloured."""
    if colours is None:
        colours = has_colours(sys.stdout)
    return f"\x1b[{style}m{text}\x1b[0m" if colours and style and text else text


def print_line(name: str, text: object) -> None:
    """Print one line of what is shown of a thing: the name of a property, and what it is."""
    print(f"  {paint(f'{name:<9}', DIM)} {text}".rstrip())


def tell(args: argparse.Namespace, found: dict[str, Any], text: str) -> None:
    """Print what a command has done or found: as one JSON object with ``--json``, otherwise in words."""
    print(json.dumps(found) if args.json else text)


def print_json(items: Iterable[Any]) -> None:
    """Print one JSON object a line, of dictionaries or of our own data."""
    for item in items:
        print(json.dumps(as_dict(item)))


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
    columns = [(wide, number in right) for number, wide in enumerate(widths)]
    return [
        [pad(cut(cell, wide), wide, right=at) for cell, (wide, at) in zip(row, columns, strict=True)]
        for row in rows
    ]


def print_rows(rows: Sequence[Sequence[str]], *, numbered: bool = False) -> None:
    """Print a table as wide as it is; indented if it is *numbered*, which means by its first column."""
    right = frozenset({0} if numbered else ())
    for row in table(rows, right=right, shrink={}, width=None) if rows else ():
        print(" " * 5 * numbered + "  ".join(row).rstrip())


@data
class Layout:
    """What the columns of a table are called, and what becomes of them where there is no room."""

    header: tuple[str, ...]
    right: frozenset[str]  # these are of numbers
    shrink: Mapping[str, int]  # may be cut down to this
    drop: tuple[str, ...]  # are left out, in this order


def fitted(layout: Layout, rows: Sequence[Sequence[str]], width: int | None) -> list[list[str]]:
    """Return header and rows with as many columns as fit, at least those that are never dropped."""
    columns = dict(zip(layout.header, zip(layout.header, *rows, strict=True), strict=True))
    shrink = layout.shrink
    for name in layout.drop:
        needed = [min(max(map(width_of, cells)), shrink.get(of, 1000)) for of, cells in columns.items()]
        if width is None or sum(needed) + GAP * (len(needed) - 1) <= width:
            break
        del columns[name]
    else:
        shrink = {layout.header[0]: 1}
    names = list(columns)
    return table(
        list(zip(*columns.values(), strict=True)),
        right=frozenset(names.index(name) for name in layout.right if name in columns),
        shrink={names.index(name): least for name, least in shrink.items() if name in columns},
        width=width,
    )


def print_table(layout: Layout, rows: Sequence[Sequence[str]], styles: Sequence[str], painted: int) -> None:
    """Print a table as wide as the terminal; of each row the column *painted* is in its style."""
    width = os.get_terminal_size(sys.stdout.fileno()).columns if sys.stdout.isatty() else 0
    head, *body = fitted(layout, rows, width or None)
    print(paint("  ".join(head).rstrip(), DIM))
    for style, row in zip(styles, body, strict=True):
        row[painted] = paint(row[painted], style)
        print("  ".join(row).rstrip())


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
