"""How numbers, times and names are written."""

from __future__ import annotations

from datetime import UTC, datetime


def number(value: float) -> str:
    """Return 1234567 as "1,234,567", and 0.25 as "0.25"."""
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.4g}"


def counted(value: int, one: str, many: str = "") -> str:
    """Return "1 fault", "2 faults"."""
    return f"{value:,} {one if value == 1 else many or one + 's'}"


def duration(seconds: float) -> str:
    """Return seconds as a person would: 0.42 ms, 13 ms, 1.3 s, 2 min 5 s."""
    if seconds < 0.0095:
        return f"{seconds * 1000:.2g} ms"
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 99.5:
        return f"{seconds:.1f} s"
    return f"{int(seconds + 0.5) // 60} min {int(seconds + 0.5) % 60} s"


def clock(seconds: float, *, tenths: bool = False) -> str:
    """Return a time of the run, from its beginning: 1:07, or 1:07.5."""
    seconds = max(seconds, 0.0)
    if tenths:
        all_tenths = round(seconds * 10)
        return f"{all_tenths // 600}:{all_tenths // 10 % 60:02}.{all_tenths % 10}"
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"


def share(part: int, whole: int) -> str:
    """Return how much it is of the whole, never as 0 % what is not nothing."""
    if not part or not whole:
        return "0 %"
    percent = 100 * part / whole
    return "< 0.1 %" if percent < 0.1 else f"{percent:.1f} %" if percent < 10 else f"{percent:.0f} %"


def date(seconds: float) -> str:
    """Return a time since the epoch as a date."""
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M} UTC"


def clipped(text: str, length: int) -> str:
    """Return text that is no longer than that."""
    return text if len(text) <= length else f"{text[: length - 1]}…"
