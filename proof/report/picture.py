"""The whole run over its minutes: how much was done on top, and below it what was done to it.

Lanes are elements with places in per cent, not one drawing: so words keep their size on every screen.
"""

from __future__ import annotations

from collections.abc import Sequence

from proof.histories.records import Injected
from proof.report.figures import FaultClass, Figures
from proof.report.markup import Markup, element, spot
from proof.report.spelling import clipped, clock, counted, duration

# Lanes of a kind stand together: the first family with a word that is in the name of the fault.
FAMILIES = (
    ("clock", "time", "rate"),
    ("disk", "fsync", "power"),
    ("connection", "network", "partition", "answer", "deaf", "delay", "cut", "line"),
    ("database", "promot", "standby", "primary"),
    ("server",),
    ("client", "process", "fork", "cancel", "interrupt"),
)
TOLD = 160  # characters of what is said of an injection
SHOWN_FIRST = (5, 4, 3, 2, 0, 1)  # clients, lock server, database, network, clocks, disks


def picture(figures: Figures) -> Markup:
    """Return the picture."""
    began, long = figures.began, figures.ended - figures.began
    columns, classes = figures.columns, in_order(figures.classes)
    charts = [
        _chart("ok", "answered «ok»", columns.ok, columns.width),
        _chart("refused", "refused", columns.refused, columns.width),
        _chart("unknown", "unknown", columns.unknown, columns.width),
        _chart("taken", "takeovers by expiry", columns.takeovers, columns.width),
    ]
    lanes = [_lane(each, began, long) for each in classes]
    ticks = _ticks(long)
    return element(
        "figure",
        element(
            "div",
            axis(ticks, "minutes of the run"),
            charts,
            element("div", lanes, _pairs(classes, began, long), class_="lanes"),
            axis(ticks, "minutes of the run"),
            lines(ticks),
            class_="plot",
        ),
        element(
            "p",
            element("span", element("i", class_="key single"), " a fault at work", class_="legend"),
            element("span", element("i", class_="key pair"), " one of two at work together", class_="legend"),
            class_="legends",
        ),
        class_="picture",
        aria_label=(
            f"{duration(long)} of the run: answers and takeovers per second, and when each of "
            f"{counted(len(classes), 'kind')} of faults was at work. The tables have the same in numbers."
        ),
    )


def in_order(classes: Sequence[FaultClass]) -> list[FaultClass]:
    """Return the classes by family, then by name."""

    def place(each: FaultClass) -> tuple[int, str]:
        family = next((n for n, words in enumerate(FAMILIES) if any(w in each.name for w in words)), None)
        return (SHOWN_FIRST.index(family) if family is not None else len(FAMILIES), each.name)

    return sorted(classes, key=place)


def axis(ticks: Sequence[tuple[float, str]], name: str) -> Markup:
    """Return a line of times: where, as a share of the line, and what is written there."""
    return element(
        "div",
        element("span", name, class_="name"),
        element("div", [spot("span", at, None, text) for at, text in ticks], class_="times"),
        class_="row axis",
        aria_hidden="true",
    )


def lines(ticks: Sequence[tuple[float, str]]) -> Markup:
    """Return the lines that go through all lanes."""
    return element("div", [spot("i", at) for at, _ in ticks], class_="grid", aria_hidden="true")


def _ticks(long: float) -> list[tuple[float, str]]:
    step = next((s for s in (1, 2, 5, 10, 15, 30, 60, 120, 300, 600) if long / s <= 12), 1200)
    return [(at / long, clock(at)) for at in range(0, int(long) + 1, step)]


def _chart(name: str, title: str, counts: Sequence[int], width: float) -> Markup:
    """Return steps over time, each chart on a scale of its own: what is rare must be seen too."""
    top = max(counts, default=0)
    path = "M0,100"
    for place, value in enumerate(counts):
        path += f"V{100 - 96 * value / top:.0f}" if top else "V100"
        path += f"H{place + 1}"
    total = sum(counts)
    peak = f"at most {top / width:,.0f} /s" if top >= width else f"{total:,} in all"
    return element(
        "div",
        element("span", element("b", title), element("small", peak), class_="name"),
        element(
            "svg",
            element("path", d=path + "V100Z"),
            viewBox=f"0 0 {max(len(counts), 1)} 100",
            preserveAspectRatio="none",
            role="img",
            aria_label=f"{title}: {total:,} in all, {peak}",
        ),
        class_=f"row chart {name}",
    )


def _lane(each: FaultClass, began: float, long: float) -> Markup:
    bars = [
        spot(
            "i",
            (one.began - began) / long,
            (one.ended - one.began) / long,
            class_="pair" if one.pair else None,
            title=clipped(f"{clock(one.began - began)} {_words(one)}", TOLD),
        )
        for one in each.injected
    ]
    said = f"{counted(len(each.injected), 'time')}, {duration(each.seconds)} in all, {each.pairs} in pairs"
    return element(
        "div",
        element("span", element("b", each.name), element("small", f"{len(each.injected)}×"), class_="name"),
        element("div", bars, class_="bars", role="img", aria_label=f"{each.name}: {said}"),
        class_="row lane",
    )


def _words(one: Injected) -> str:
    """Tell of one injection."""
    said = f"{one.fault}: {one.target}, {duration(one.ended - one.began)}"
    said += f". {one.detail}" if one.detail else ""
    return said + (f" (pair {one.pair})" if one.pair else "")


def _pairs(classes: Sequence[FaultClass], began: float, long: float) -> Markup:
    """Return lines that join two faults which were at work together."""
    places: dict[int, list[tuple[int, Injected]]] = {}
    for row, each in enumerate(classes):
        for one in each.injected:
            if one.pair:
                places.setdefault(one.pair, []).append((row, one))
    joins = []
    for members in places.values():
        rows = [row for row, _ in members]
        since, until = max(one.began for _, one in members), min(one.ended for _, one in members)
        at = ((since + max(since, until)) / 2 - began) / long
        if len(set(rows)) > 1:
            style = f"left:{at * 100:.2f}%;--from:{min(rows)};--rows:{max(rows) - min(rows)}"
            joins.append(element("i", style=style))
    return element("div", joins, class_="joins", aria_hidden="true")
