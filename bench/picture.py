"""Draw the results: distance from the targets, and a contended lock beside its peers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from bench.report import Line

MET, MISSED, OTHER = "#2a7f62", "#c8553d", "#8a94a6"
INK, PAPER, GRID = "#1f2933", "#fbfaf7", "#d9d6cf"


def draw(file: Path, lines: list[Line]) -> None:
    """Write the picture. It has a background of its own, so that it can be read on any page."""
    mpl.rcParams.update(
        {
            "svg.hashsalt": "holdfast",
            "font.family": "sans-serif",
            "text.color": INK,
            "axes.labelcolor": INK,
            "xtick.color": INK,
            "ytick.color": INK,
        }
    )
    scored = [line for line in lines if line.target]
    compared = [line for line in lines if line.data]
    bars = [len(line.data) for line in compared]
    height = max(0.26 * len(scored), 0.3 * (sum(bars) + 2 * len(bars))) + 1.2
    figure = Figure(figsize=(12, height), facecolor=PAPER, layout="constrained")
    columns = figure.subfigures(1, 2, width_ratios=(3, 2))
    _targets(columns[0].subplots(), scored)
    if compared:
        places = columns[1].subplots(len(compared), 1, squeeze=False, height_ratios=[n + 1 for n in bars])
        for axes, line in zip(places[:, 0], compared, strict=True):
            _peers(axes, line)
    figure.savefig(file, facecolor=PAPER, metadata={"Date": None, "Creator": None})


def _targets(axes: Any, lines: list[Line]) -> None:
    lines = lines[::-1]
    better = [
        line.ratio / line.target if line.least else line.target / max(line.ratio, 1e-9) for line in lines
    ]
    better = [min(max(value, 0.1), 50.0) for value in better]
    axes.barh(
        [line.title for line in lines],
        [value - 1 for value in better],
        left=1,
        color=[MET if line.met else MISSED for line in lines],
    )
    axes.set_xscale("log")
    axes.set_xlim(0.008, 300)
    axes.set_ylim(-0.7, len(lines) - 0.3)
    axes.set_xticks([0.1, 0.5, 1, 2, 5, 10, 50], ["÷10", "÷2", "target", "×2", "×5", "×10", "×50"])
    axes.minorticks_off()
    axes.axvline(1, color=INK, linewidth=1)
    for place, (line, value) in enumerate(zip(lines, better, strict=True)):
        left = value < 1
        axes.annotate(
            f"{line.ratio_text} ({line.target_text})",
            (value, place),
            xytext=(-4 if left else 4, 0),
            textcoords="offset points",
            ha="right" if left else "left",
            va="center",
            fontsize=7.5,
        )
    axes.set_title("better than the target (right) or not yet (left)", fontsize=10, loc="left")
    _plain(axes)


def _peers(axes: Any, line: Line) -> None:
    names = list(line.data)[::-1]
    values = [line.data[name] for name in names]
    axes.barh(names, values, color=[MET if name == "holdfast" else OTHER for name in names])
    axes.set_xscale("log")
    axes.minorticks_off()
    axes.set_xticks([])
    axes.set_xlim(min(values) / 4, max(values) * 6)
    for place, value in enumerate(values):
        text = f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
        axes.annotate(
            text, (value, place), xytext=(4, 0), textcoords="offset points", va="center", fontsize=8
        )
    axes.set_title(line.data_title, fontsize=10, loc="left")
    _plain(axes)


def _plain(axes: Any) -> None:
    axes.set_facecolor(PAPER)
    axes.grid(axis="x", color=GRID, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.tick_params(length=0, labelsize=8)
    for side in axes.spines.values():
        side.set_visible(False)
