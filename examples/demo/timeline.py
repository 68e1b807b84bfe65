"""Who held the lock when, as a row of characters for each worker."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from examples.demo.record import Record, Turn
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


def strips(
    record: Record, *, begin: float, end: float, now: float, columns: int, glyphs: Glyphs
) -> dict[str, list[Part]]:
    """Draw the time from *begin* to *end* in so many columns, for each worker. A column has one holder."""
    step = (end - begin) / columns
    spans = [(begin + column * step, begin + (column + 1) * step) for column in range(columns)]
    holders = [_holder(record.turns, a, b, now) for a, b in spans]
    rows: dict[str, list[Part]] = {}
    for worker, style in STYLES.items():
        turns = [turn for turn in record.turns if turn.worker == worker]
        rows[worker] = _joined(
            _held(holder, a, b, style, glyphs)
            if holder is not None and holder.worker == worker
            else _not_held(turns, a, b, now, glyphs)
            for (a, b), holder in zip(spans, holders, strict=True)
        )
    return rows


def _holder(turns: list[Turn], a: float, b: float, now: float) -> Turn | None:
    """Return the turn that had the lock for most of the time from *a* to *b*.

    One that was struck in it goes before: that must be seen. And it has the lock until its lease is over.
    """
    best, most = None, 0.0
    for turn in turns:
        if turn.granted is None:
            continue
        if _struck_in(turn, a, b):
            return turn
        last = turn.ended if turn.how == "left" else turn.lapsed
        held = min(now if last is None else last, b) - max(turn.granted, a)
        if held > most:
            best, most = turn, held
    return best


def _held(turn: Turn, a: float, b: float, style: str, glyphs: Glyphs) -> Part:
    if _struck_in(turn, a, b):
        return glyphs.killed if turn.how == "killed" else glyphs.paused, ALARM
    works = turn.how == "left" or turn.ended is None or turn.ended >= b
    return glyphs.held if works else glyphs.lapsing, style


def _not_held(turns: list[Turn], a: float, b: float, now: float, glyphs: Glyphs) -> Part:
    if any(turn.back is not None and a <= turn.back < b for turn in turns):
        return glyphs.back, ALARM
    if any(turn.asked < b and (now if turn.granted is None else turn.granted) > a for turn in turns):
        return glyphs.waiting, DIM
    return " ", ""


def _struck_in(turn: Turn, a: float, b: float) -> bool:
    return turn.how in ("killed", "paused") and turn.ended is not None and a <= turn.ended < b


def _joined(cells: Iterable[Part]) -> list[Part]:
    """Make neighbours in one style one part: fewer bytes for the terminal."""
    parts: list[Part] = []
    for text, style in cells:
        if parts and parts[-1][1] == style:
            parts[-1] = (parts[-1][0] + text, style)
        else:
            parts.append((text, style))
    return parts
