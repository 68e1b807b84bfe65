"""Who held the lock when, as a row of characters for each worker."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.cli.demo.record import Record, Turn
from holdfast.cli.output import DIM, RED

STYLES = {"ada": "36", "ben": "33", "cleo": "35", "dan": "32", "eve": "94"}
ALARM = f"1;{RED}"

Part = tuple[str, str]  # text, style


@dataclass(frozen=True, slots=True)
class Glyphs:
    """The characters to draw with."""

    held: str = "█"
    lapsing: str = "░"
    waiting: str = "·"
    killed: str = "✗"
    paused: str = "‖"
    back: str = "!"
    yes: str = "✓"
    no: str = "✗"
    rule: str = "─"
    arrow: str = "→"


ASCII = Glyphs("#", "-", ".", "x", "|", "!", "ok", "FAILED", "-", ">")


def glyphs_for(encoding: str | None) -> Glyphs:
    """Return the characters that a stream of this encoding can show."""
    try:
        "█░·✗‖✓─→".encode(encoding or "ascii")
    except (UnicodeError, LookupError):
        return ASCII
    return Glyphs()


def strip(
    record: Record, worker: str, *, begin: float, end: float, now: float, columns: int, glyphs: Glyphs
) -> list[Part]:
    """Draw the time from *begin* to *end* in so many columns."""
    turns = [turn for turn in record.turns if turn.worker == worker and turn.asked < end]
    step = (end - begin) / columns
    cells = [
        _cell(turns, begin + column * step, begin + (column + 1) * step, now, STYLES[worker], glyphs)
        for column in range(columns)
    ]
    parts: list[Part] = []
    for text, style in cells:  # neighbours in one style are one part: fewer bytes for the terminal
        if parts and parts[-1][1] == style:
            parts[-1] = (parts[-1][0] + text, style)
        else:
            parts.append((text, style))
    return parts


def _cell(turns: list[Turn], a: float, b: float, now: float, style: str, glyphs: Glyphs) -> Part:
    best: Part = (" ", "")
    for turn in turns:
        if turn.back is not None and a <= turn.back < b:
            return glyphs.back, ALARM
        if turn.how in ("killed", "paused") and turn.ended is not None and a <= turn.ended < b:
            return glyphs.killed if turn.how == "killed" else glyphs.paused, ALARM
        if turn.granted is not None and turn.granted < b and _or(turn.ended, now) > a:
            best = (glyphs.held, style)
        elif (
            best[0] != glyphs.held
            and turn.how in ("killed", "paused")
            and _or(turn.ended, now) < b
            and _or(turn.lapsed, now) > a
        ):
            best = (glyphs.lapsing, style)
        elif best[0] == " " and turn.asked < b and _or(turn.granted, now) > a:
            best = (glyphs.waiting, DIM)
    return best


def _or(moment: float | None, now: float) -> float:
    return now if moment is None else moment
