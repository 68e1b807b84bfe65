"""One line a measurement: what was measured, beside what, and whether the target was met."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass, field

from bench import before
from bench.reasons import REASONS


@dataclass(frozen=True)
class Line:
    """A result. *ratio* is what the target is about, where there is one."""

    what: str
    value: str
    beside: str = ""
    ratio: float | None = None
    target: float | None = None
    least: bool = True  # the target is a floor; else a ceiling
    unit: str = "×"  # of ratio and target
    means: str = ""  # for the page: what this line tells
    label: str = ""  # for the picture, where *what* alone would not do
    data: dict[str, float] = field(default_factory=dict)  # for the picture: ourselves and peers
    data_title: str = ""

    @property
    def title(self) -> str:
        return self.label or self.what

    @property
    def met(self) -> bool | None:
        if self.target is None or self.ratio is None:
            return None
        return self.ratio >= self.target if self.least else self.ratio <= self.target

    @property
    def ratio_text(self) -> str:
        return "" if self.ratio is None else _number(self.ratio, self.unit)

    @property
    def target_text(self) -> str:
        if self.target is None:
            return ""
        return ("≥ " if self.least else "≤ ") + _number(self.target, self.unit)

    @property
    def verdict(self) -> str:
        if self.met is None:
            return ""
        if self.met:
            return "met"
        assert self.ratio is not None
        assert self.target is not None
        missing = f"not met, by {abs(self.ratio / self.target - 1) * 100:.0f} %"
        return f"{missing}: {REASONS[self.title]}" if self.title in REASONS else missing

    @property
    def told_ratio(self) -> float | None:
        """Tell the ratio to something else; None where it is the figure itself, in its own unit."""
        return round(self.ratio, 4) if self.ratio is not None and self.unit == "×" else None

    @property
    def before(self) -> str:
        """Tell what it was before, of the lines of which that is kept."""
        found = before.measured(self.title)
        if found is None:
            return ""
        measured, ratio = found
        return measured if ratio is None else f"{measured}, {_number(ratio, self.unit)}"

    @property
    def cells(self) -> tuple[str, ...]:
        return (
            self.what,
            self.value,
            self.beside,
            self.ratio_text,
            self.before,
            self.target_text,
            self.verdict,
        )


HEAD = ("what", "measured", "beside", "ratio", "before", "target", "verdict")


def table(lines: Iterable[Line]) -> list[tuple[str, ...]]:
    """Return the head and a row for each line, without columns that have nothing in them."""
    rows = [line.cells for line in lines]
    kept = [column for column in range(len(HEAD)) if any(row[column] for row in rows)]
    return [tuple(row[column] for column in kept) for row in (HEAD, *rows)]


def show(title: str, lines: Iterable[Line]) -> None:
    """Print the lines of one section as a table."""
    rows = table(lines)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    text = [
        "  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    sys.stdout.write("\n".join([f"\n{title}", *text]) + "\n")
    sys.stdout.flush()


def count(value: float) -> str:
    """Write a number as people read it: 1,234 or 12.3."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def per_second(value: float) -> str:
    return f"{count(value)} /s"


def microseconds(seconds: float) -> str:
    return f"{count(seconds * 1e6)} µs" if seconds < 0.01 else milliseconds(seconds)


def milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:,.0f} ms" if seconds >= 0.1 else f"{seconds * 1e3:.3g} ms"


def _number(value: float, unit: str) -> str:
    text = f"{value:,.0f}" if value >= 100 else f"{value:.3g}" if value >= 10 else f"{value:.2f}"
    return f"{text}{unit}" if unit == "×" else f"{text} {unit}".rstrip()
