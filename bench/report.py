"""One line a measurement: what was measured, beside what, and whether the target was met."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass, field


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
        missing = abs(self.ratio / self.target - 1) * 100
        return f"not met, by {missing:.0f} %"

    @property
    def cells(self) -> tuple[str, ...]:
        return (self.what, self.value, self.beside, self.ratio_text, self.target_text, self.verdict)


HEAD = ("what", "measured", "beside", "ratio", "target", "verdict")


def show(title: str, lines: Iterable[Line]) -> None:
    """Print the lines of one section as a table."""
    rows = [HEAD, *(line.cells for line in lines)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEAD))]
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
