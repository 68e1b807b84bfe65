"""The live view of the demo: one frame is a list of lines, written over the last one in place."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import TextIO

from examples.demo.cast import NAMES
from examples.demo.record import Line, Record
from examples.demo.script import ACTS
from examples.demo.timeline import ALARM, STYLES, Glyphs, Part, glyphs_for, strips
from examples.demo.worker import TTL
from holdfast.cli.output import BOLD, DIM, cut, has_colours, pad, paint, width_of
from holdfast.core.requests import LockView

# The other screen, no cursor, no wrapping of long lines; and all of it back.
ENTER = "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[2J"
LEAVE = "\x1b[?7h\x1b[?25h\x1b[?1049l"
HOME, END_OF_LINE, END_OF_SCREEN = "\x1b[H", "\x1b[K", "\x1b[J"

WINDOW = 6.0  # seconds that the timeline shows
WIDEST = 132
BAR = 12
FRAME_TIME = 0.1

STATE_STYLES = {
    "holding": BOLD,
    "killed": ALARM,
    "paused": ALARM,
    "refused": ALARM,
    "waiting": DIM,
    "idle": DIM,
}


class Screen:
    """Draws frames on a terminal, which is as before once it is left."""

    frame_time = FRAME_TIME

    def __init__(self, stream: TextIO, pid_of: Callable[[str], int]) -> None:
        self._stream = stream
        self._pid_of = pid_of
        self._colours = has_colours(stream)
        self._glyphs = glyphs_for(stream.encoding)
        self._settings: list[int | list[bytes | int]] | None = None

    def __enter__(self) -> Screen:
        self._quiet_keyboard()
        self._write(ENTER)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._write(LEAVE)
        if self._settings is not None:
            import termios

            # What was typed meanwhile was not meant for the shell.
            termios.tcsetattr(sys.stdin.fileno(), termios.TCSAFLUSH, self._settings)

    def draw(self, record: Record, view: LockView | None) -> None:
        """Draw what happened up to now."""
        width, height = os.get_terminal_size(self._stream.fileno())
        pids = {name: self._pid_of(name) for name in NAMES}
        lines = frame(
            record,
            view,
            pids,
            now=time.monotonic(),
            width=min(width, WIDEST),
            height=height,
            glyphs=self._glyphs,
        )
        # Each line is cleared before it is written: after, the cursor may still be on the last column.
        text = "\r\n".join(END_OF_LINE + render(line, width, colours=self._colours) for line in lines)
        self._write(f"{HOME}{text}{END_OF_SCREEN if len(lines) < height else ''}")

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()

    def _quiet_keyboard(self) -> None:
        """Keep keys that are pressed from appearing in the picture. Ctrl-C works as ever."""
        if not sys.stdin.isatty():
            return
        import termios

        fd = sys.stdin.fileno()
        self._settings = termios.tcgetattr(fd)
        quiet = termios.tcgetattr(fd)
        quiet[3] &= ~(termios.ECHO | termios.ICANON)
        termios.tcsetattr(fd, termios.TCSANOW, quiet)


def frame(
    record: Record,
    view: LockView | None,
    pids: dict[str, int],
    *,
    now: float,
    width: int,
    height: int,
    glyphs: Glyphs,
) -> list[list[Part]]:
    """Compose one picture: at most *height* lines."""
    lines = [
        *_heading(record, now, width, glyphs),
        [],
        _holder(view, glyphs),
        _queue(view, glyphs),
        [],
        *_workers(record, pids, now, width, glyphs),
        [],
        _counters(record, glyphs),
        [],
    ]
    room = height - len(lines)
    if room > 0:
        lines += [log_line(line) for line in record.log[-room:]]
    return lines[:height]


def log_line(line: Line) -> list[Part]:
    """Return one line of the log."""
    time_part = (f" {line.at:6.2f} s  ", DIM)
    if line.worker is None:
        return [time_part, (line.text, BOLD)]
    return [time_part, (f"{line.worker:<6}", STYLES[line.worker]), (line.text, "")]


def render(line: list[Part], width: int, *, colours: bool) -> str:
    """Return a line as text of at most *width* columns."""
    text, left = "", width
    for part, style in line:
        if left <= 0:
            break
        shown = cut(part, left)
        text += paint(shown, style, colours=colours)
        left -= width_of(shown)
    return text


def _heading(record: Record, now: float, width: int, glyphs: Glyphs) -> list[list[Part]]:
    title = " holdfast  "
    about = f"{len(NAMES)} processes, 1 lock, 1 SQLite file"
    elapsed = f"{now - record.started:5.1f} s  Ctrl-C ends it "
    gap = max(width - len(title) - len(about) - len(elapsed), 1)
    act = f" act {record.act} of {ACTS}  " if record.act else " the processes start"
    return [
        [(title, BOLD), (about, ""), (" " * gap, ""), (elapsed, DIM)],
        [(glyphs.rule * width, DIM)],
        [(act, f"{BOLD};7" if record.act else ""), ("  ", ""), (record.title, BOLD)],
        [(f" {record.explanation}", "")],
    ]


def _holder(view: LockView | None, glyphs: Glyphs) -> list[Part]:
    label: Part = (" held by  ", DIM)
    if view is None or view.holder is None:
        return [label, ("nobody", DIM)]
    name = view.holder.owner
    filled = round(BAR * min(view.expires_in / TTL, 1.0))
    return [
        label,
        (f"{name:<6}", f"{BOLD};{STYLES.get(name, '')}"),
        ("token ", DIM),
        (f"{view.token}", ""),
        ("   lease ", DIM),
        (glyphs.held * filled, STYLES.get(name, "")),
        (glyphs.waiting * (BAR - filled), DIM),
        (f" {view.expires_in:.1f} s", ALARM if view.expires_in < TTL / 4 else ""),
    ]


def _queue(view: LockView | None, glyphs: Glyphs) -> list[Part]:
    parts: list[Part] = [(" queue    ", DIM)]
    waiters = view.waiters if view is not None else ()
    for place, waiter in enumerate(waiters):
        if place:
            parts.append((f" {glyphs.arrow} ", DIM))
        parts.append((waiter.owner, STYLES.get(waiter.owner, "")))
    return parts if waiters else [*parts, ("empty", DIM)]


def _workers(
    record: Record, pids: dict[str, int], now: float, width: int, glyphs: Glyphs
) -> list[list[Part]]:
    columns = max(width - 27, 10)
    step = WINDOW / columns
    end = (now // step + 1) * step  # in whole columns, or the picture would flicker as it moves
    rows = strips(record, begin=end - WINDOW, end=end, now=now, columns=columns, glyphs=glyphs)
    lines: list[list[Part]] = []
    for name in NAMES:
        state = record.states[name]
        lines.append(
            [
                (f" {name:<5}", f"{BOLD};{STYLES[name]}"),
                (pad(f"{pids[name]}", 8, right=True), DIM),
                (f"  {state:<9}", STATE_STYLES.get(state, "")),
                *rows[name],
            ]
        )
    begin = f"{WINDOW:g} s ago"
    lines.append([(" " * 25 + begin + "now".rjust(columns - len(begin)), DIM)])
    return lines


def _counters(record: Record, glyphs: Glyphs) -> list[Part]:
    done, granted = len(record.completed()), len(record.granted())
    filled = round(BAR * granted / max(record.planned, 1))
    lapsed = sum(turn.lapsed is not None for turn in record.turns)
    return [
        (" granted  ", DIM),
        (glyphs.held * filled, ""),
        (glyphs.waiting * (BAR - filled), DIM),
        (f" {granted} of {record.planned}", ""),
        ("   completed ", DIM),
        (f"{done}", ""),
        ("   taken over ", DIM),
        (f"{lapsed}", ""),
        ("   refused ", DIM),
        (f"{len(record.refusals)}", ""),
    ]
