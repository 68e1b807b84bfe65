"""Where the demo is played: a temporary store, the processes, the script, a view; then the summary."""

from __future__ import annotations

import os
import queue
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path
from types import TracebackType
from typing import TextIO
from urllib.parse import quote

from examples.demo.cast import Cast
from examples.demo.checks import Evidence, Verdict, judge
from examples.demo.record import Record
from examples.demo.screen import WIDEST, Screen, log_line, render
from examples.demo.script import perform
from examples.demo.timeline import ALARM, STYLES, glyphs_for, strips
from examples.demo.worker import KEY
from holdfast.cli.interrupts import Interrupts
from holdfast.cli.output import BOLD, DIM, GREEN, has_colours, paint, say
from holdfast.client.sync.client import Holdfast
from holdfast.core.requests import LockView

MOST_TIME = 60.0  # then something is very wrong, and the summary says so
TICK = 0.02
PIPE_WIDTH = 80
LONGEST = 100  # line of the summary: in a narrow terminal rather broken than cut
SUCCESS, FAILURE = 0, 1


class Plain:
    """The view for pipes and files: the log, line by line."""

    frame_time = TICK

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._shown = 0

    def __enter__(self) -> Plain:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        pass

    def draw(self, record: Record, view: LockView | None) -> None:
        """Write the lines that are new."""
        for line in record.log[self._shown :]:
            print(render(log_line(line), 200, colours=False), file=self._stream)
            if line.worker is None:
                print(f"{'':11}{record.explanation}", file=self._stream)
        self._stream.flush()
        self._shown = len(record.log)


def play(*, plain: bool) -> int:
    """Play the show, then check what it claims; return the exit code."""
    try:
        evidence = _show(plain=plain)
    except KeyboardInterrupt:
        say("stopped; workers ended, temporary files removed")
        raise
    verdicts = judge(evidence)
    _summarise(evidence.record, verdicts, sys.stdout)
    return SUCCESS if all(verdict.holds for verdict in verdicts) else FAILURE


def _show(*, plain: bool) -> Evidence:
    with Interrupts(), tempfile.TemporaryDirectory(prefix="holdfast-demo-") as folder:
        counter = Path(folder) / "counter"
        counter.write_text("0")
        url = f"sqlite:///{quote(str(Path(folder) / 'locks.db'))}"
        record = Record()
        with Holdfast(url) as locks, closing(Cast(url, counter)) as cast:
            cast.start()
            view = Plain(sys.stdout) if plain or not _can_draw(sys.stdout) else Screen(sys.stdout, cast.pid)
            with view:
                _direct(record, cast, locks, view)
            return Evidence(record, locks.history(KEY, limit=10_000), int(counter.read_text() or 0))


def _can_draw(stream: TextIO) -> bool:
    return stream.isatty() and os.environ.get("TERM", "dumb") != "dumb"


def _direct(record: Record, cast: Cast, locks: Holdfast, view: Plain | Screen) -> None:
    """Follow the script until it ends, or cannot go on."""
    script = perform(record, cast)
    condition = next(script)
    deadline = time.monotonic() + MOST_TIME
    draw_at = 0.0
    while time.monotonic() < deadline and "gone" not in record.states.values():
        try:
            record.hear(*cast.messages.get(timeout=TICK))
            continue  # take in all there is before going on
        except queue.Empty:
            pass
        if condition():
            try:
                condition = next(script)
            except StopIteration:
                break
        if time.monotonic() >= draw_at:
            draw_at = time.monotonic() + view.frame_time
            view.draw(record, locks.inspect(KEY))
    view.draw(record, locks.inspect(KEY))


def _summarise(record: Record, verdicts: list[Verdict], stream: TextIO) -> None:
    colours, glyphs = has_colours(stream), glyphs_for(stream.encoding)
    width = os.get_terminal_size(stream.fileno()).columns if stream.isatty() else 0
    width = min(width or PIPE_WIDTH, WIDEST)

    def write(*parts: tuple[str, str]) -> None:
        print(render(list(parts), max(width, LONGEST), colours=colours), file=stream)

    begin = min((turn.asked for turn in record.turns), default=record.started)
    end = time.monotonic()
    write(("", ""))
    write((" who held the lock when", BOLD), (f"   {end - begin:.1f} s from left to right", DIM))
    rows = strips(record, begin=begin, end=end, now=end, columns=max(width - 8, 10), glyphs=glyphs)
    for name, row in rows.items():
        write((f" {name:<6}", STYLES[name]), *row)
    legend = (
        f"       {glyphs.held} holds   {glyphs.waiting} waits   {glyphs.killed} killed"
        f"   {glyphs.paused} paused   {glyphs.lapsing} lease runs out   {glyphs.back} refused"
    )
    write((legend, DIM))
    write(("", ""))
    for verdict in verdicts:
        mark, style = (glyphs.yes, GREEN) if verdict.holds else (glyphs.no, ALARM)
        write((f" {mark} ", style), (f"{verdict.claim:<33}", ""), (verdict.numbers, DIM))
    failed = sum(not verdict.holds for verdict in verdicts)
    write(("", ""))
    if failed:
        print(paint(f" {failed} of {len(verdicts)} checks failed", ALARM, colours=colours), file=stream)
    else:
        print(f" all {len(verdicts)} checks hold, by what the processes and the store recorded", file=stream)
