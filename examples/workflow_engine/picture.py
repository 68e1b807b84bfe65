"""Draw who ran what when, from the engine's own tables, as SVG: one lane for each seat in the fleet.

A bar is one engine's go at a workflow, and its parts are the steps that were recorded. A red line is a kill;
the rest of a go that it ended is pale, and a curve leads from there to who took over.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from html import escape
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from database import Database

WIDTH, LEFT, RIGHT, TOP, BOTTOM = 1200, 96, 24, 96, 44
BAR, GAP, LANE = 18, 3, 16  # heights: of a bar, between bars, between lanes
AROUND = 4  # how much higher than its bars a lane is
MOST_PARTS = 4000  # with more steps than that, a bar is drawn in one piece
COLOURS = (
    *("#3f7fc4", "#2f9160", "#a8701b", "#8660bf", "#c05680"),
    *("#1d8d98", "#7d8226", "#b8603f", "#5a6fd0", "#4d8a36"),
)

STYLE = """
.card { fill: #ffffff; stroke: #d0d7de; } .text { fill: #1f2328; } .dim { fill: #59636e; font-size: 12px; }
.grid { stroke: #d8dee4; } .alive { fill: #eef1f4; } .in { fill: #fff; font-size: 11px; font-weight: 600; }
.kill { stroke: #d1242f; stroke-width: 2.5; } .cut { opacity: .3; }
.over { fill: none; stroke: #1f2328; stroke-width: 1.2; stroke-opacity: .65; } .dot { fill: #1f2328; }
.many { stroke-opacity: .2; }
.paused { fill: #bf8700; fill-opacity: .3; } .refused { fill: #9a6700; }
@media (prefers-color-scheme: dark) {
  .card { fill: #0d1117; stroke: #3d444d; } .text { fill: #e6edf3; } .dim { fill: #9aa5b1; }
  .grid { stroke: #2a313a; } .alive { fill: #1c232c; } .kill { stroke: #ff7b72; } .cut { opacity: .42; }
  .over { stroke: #e6edf3; } .dot { fill: #e6edf3; } .paused { fill: #d29922; } .refused { fill: #e3b341; }
}
"""


@dataclass
class Go:
    """One engine's go at a workflow, under one token."""

    workflow: str
    engine: str
    parts: list[tuple[float, float]] = field(default_factory=list)
    cut: float = 0.0  # when its engine was killed or paused in the middle of it
    row: int = 0

    @property
    def began(self) -> float:
        return self.parts[0][0]

    @property
    def recorded(self) -> float:
        return self.parts[-1][1]

    @property
    def ended(self) -> float:
        return max(self.recorded, self.cut)

    @property
    def number(self) -> str:
        return self.workflow.rpartition("-")[2]


@dataclass
class Life:
    """One engine, from its start to its end, and when it was paused."""

    began: float
    ended: float
    killed: bool = False
    pauses: list[tuple[float, float]] = field(default_factory=list)

    def cut_between(self, recorded: float, taken_over: float) -> float:
        """Return when it was killed or paused, first after what it recorded last; else that."""
        moments = [pause for pause, _ in self.pauses] + ([self.ended] if self.killed else [])
        return min((moment for moment in moments if recorded <= moment <= taken_over), default=recorded)


def draw(db: Database) -> str:
    """Return the picture of the run that the tables tell of."""
    with db.transaction():
        steps = db.run(
            "SELECT workflow, token, engine, began_at, ended_at FROM engine_steps ORDER BY ended_at"
        )
        events = db.run("SELECT at, engine, what, workflow FROM engine_events ORDER BY at")
    end = max([at for at, *_ in events] + [row[4] for row in steps])
    start = max(0.0, min(row[3] for row in steps) - 0.02 * (end - steps[0][3]))
    lives = _lives(events, start, end)
    refusals = [(at, engine, workflow) for at, engine, what, workflow in events if what == "refused"]
    return "\n".join(Picture(lives, _goes(steps, lives, refusals), refusals, start, end).lines())


def _lives(events: list[tuple[float, str, str, str]], start: float, end: float) -> dict[str, Life]:
    """Return how each engine fared. Who was killed before it could join has an empty life."""
    lives: dict[str, Life] = {}
    paused: dict[str, float] = {}
    for at, engine, what, _ in events:
        lives.setdefault(engine, Life(max(at, start), end))
        if what == "paused":
            paused[engine] = at
        if what in ("continued", "killed", "drained") and engine in paused:
            lives[engine].pauses.append((paused.pop(engine), at))
        if what in ("killed", "drained"):
            lives[engine].ended, lives[engine].killed = at, what == "killed"
    return lives


def _goes(
    steps: list[tuple[str, int, str, float, float]],
    lives: dict[str, Life],
    refusals: list[tuple[float, str, str]],
) -> dict[str, list[Go]]:
    """Return all goes by workflow, in the order of their tokens."""
    found: dict[tuple[str, int], Go] = {}
    for workflow, token, engine, began, ended in steps:
        found.setdefault((workflow, token), Go(workflow, engine)).parts.append((began, ended))
    goes = defaultdict(list)
    for (workflow, _), go in sorted(found.items()):
        goes[workflow].append(go)
    for several in goes.values():
        for go, following in pairwise(several):
            refused = [at for at, *who in refusals if who == [go.engine, go.workflow] and at >= go.recorded]
            go.cut = min([lives[go.engine].cut_between(go.recorded, following.began), *refused])
    return goes


class Picture:
    """Where everything goes, and then the lines of the file."""

    def __init__(
        self,
        lives: dict[str, Life],
        goes: dict[str, list[Go]],
        refusals: list[tuple[float, str, str]],
        start: float,
        end: float,
    ) -> None:
        self.lives, self.goes, self.refusals = lives, goes, refusals
        self.start, self.seconds = start, max(end - start, 0.1)
        rows = self._place_in_rows()
        self.lanes: dict[str, tuple[float, float]] = {}  # top and height
        self.bottom = float(TOP - LANE)
        for seat in sorted({_seat(engine) for engine in lives}, key=lambda seat: (len(seat), seat)):
            height = rows.get(seat, 1) * (BAR + GAP) - GAP
            self.lanes[seat] = self.bottom + LANE, height
            self.bottom += LANE + height

    def _place_in_rows(self) -> dict[str, int]:
        """Give goes that overlap in one lane different rows; return how many rows each lane has."""
        ends: dict[str, list[float]] = defaultdict(list)
        for go in sorted((go for several in self.goes.values() for go in several), key=lambda go: go.began):
            rows = ends[_seat(go.engine)]
            go.row = next((row for row, ended in enumerate(rows) if ended <= go.began), len(rows))
            rows[go.row : go.row + 1] = [go.ended]
        return {seat: len(rows) for seat, rows in ends.items()}

    def x(self, at: float) -> float:
        return LEFT + (at - self.start) / self.seconds * (WIDTH - LEFT - RIGHT)

    def y(self, go: Go) -> float:
        return self.lanes[_seat(go.engine)][0] + go.row * (BAR + GAP)

    def lines(self) -> Iterator[str]:
        height = self.bottom + BOTTOM
        font = "system-ui, 'Segoe UI', Helvetica, Arial, sans-serif"
        size = f'viewBox="0 0 {WIDTH} {height:.0f}" width="{WIDTH}" height="{height:.0f}"'
        yield f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img"'
        yield f'     font-size="13" font-family="{font}">'
        yield f"<title>{self.headline()}</title>"
        colours = " ".join(f".c{n} {{ fill: {colour}; }}" for n, colour in enumerate(COLOURS))
        yield f"<style>{STYLE}{colours}\n</style>"
        yield f'<rect class="card" x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1:.0f}" rx="8"/>'
        yield f'<text class="text" x="20" y="32" font-size="16" font-weight="600">{self.headline()}</text>'
        yield from self._legend()
        yield from self._axis()
        yield from self._lanes()
        yield from self._bars()
        yield from self._takeovers()
        yield from self._marks()
        yield "</svg>\n"

    def headline(self) -> str:
        killed = sum(life.killed for life in self.lives.values())
        pauses = sum(len(life.pauses) for life in self.lives.values())
        overs = sum(len(several) - 1 for several in self.goes.values())
        return (
            f"{len(self.goes)} workflows on {len(self.lanes)} engines: {killed} killed, {pauses} paused, "
            f"{overs} workflows taken over half done"
        )

    def _legend(self) -> Iterator[str]:
        words = [
            ('<rect class="c0" width="15" height="12" rx="2"/>', "a workflow and its steps"),
            ('<rect class="c0 cut" width="28" height="12" rx="2"/>', "begun, not recorded: done again"),
            ('<path class="kill" d="M14 -3 v18"/>', "killed"),
            (
                '<path class="over" d="M0 10 c14 0 8 -8 24 -8"/><circle class="dot" cx="25" cy="2" r="3"/>',
                "taken over",
            ),
            ('<rect class="paused" width="28" height="12"/>', "paused"),
            ('<path class="refused" d="M14 0 l6 6 l-6 6 l-6 -6 z"/>', "back too late: refused"),
        ]
        x = 20.0
        for shape, meaning in words:
            more = '<rect class="c0" x="16" width="12" height="12" rx="2"/>' if x == 20 else ""
            yield f'<g transform="translate({x:.0f} 52)">{shape}{more}'
            yield f'<text class="dim" x="35" y="10">{meaning}</text></g>'
            x += 58 + 6.2 * len(meaning)

    def _axis(self) -> Iterator[str]:
        step = next((step for step in (1, 2, 5, 10, 20, 60) if self.seconds / step <= 20), 300)
        for second in range(0, int(self.seconds) + 1, step):
            x = f"{self.x(self.start + second):.1f}"
            yield f'<path class="grid" d="M{x} {TOP - 8} V{self.bottom + 8:.0f}"/>'
            y = f"{self.bottom + 26:.0f}"
            yield f'<text class="dim" x="{x}" y="{y}" text-anchor="middle">{second} s</text>'

    def _lanes(self) -> Iterator[str]:
        for seat, (top, height) in self.lanes.items():
            yield f'<text class="text" x="20" y="{top + height / 2 + 5:.1f}">{escape(seat)}</text>'
        for engine, life in self.lives.items():
            yield self._band("alive", engine, life.began, life.ended)
            for began, ended in life.pauses:
                yield self._band("paused", engine, began, ended)

    def _bars(self) -> Iterator[str]:
        in_parts = sum(len(go.parts) for several in self.goes.values() for go in several) <= MOST_PARTS
        for several in self.goes.values():
            for go in several:
                y, colour = self.y(go), int(go.number) % len(COLOURS)
                when = f"{go.began - self.start:.1f} s to {go.ended - self.start:.1f} s"
                yield f"<g><title>{escape(go.workflow)} on {escape(go.engine)}, {when}</title>"
                if go.cut > go.recorded:
                    yield self._bar(f"c{colour} cut", go.recorded, go.cut, y)
                for began, ended in go.parts if in_parts else [(go.began, go.recorded)]:
                    yield self._bar(f"c{colour}", began, ended, y)
                if self.x(go.recorded) - self.x(go.began) > 8 * len(go.number) + 12:
                    place = f'x="{self.x(go.began) + 4:.1f}" y="{y + 13:.1f}"'
                    yield f'<text class="in" {place}>{go.number}</text>'
                yield "</g>"

    def _takeovers(self) -> Iterator[str]:
        kind = "over many" if sum(len(several) - 1 for several in self.goes.values()) > 40 else "over"
        for several in self.goes.values():
            for go, following in pairwise(several):
                x, y = self.x(go.ended), self.y(go) + BAR / 2
                to_x, to_y = self.x(following.began), self.y(following) + BAR / 2
                bend = max((to_x - x) / 2, 12)
                curve = f"{x + bend:.1f} {y:.1f} {to_x - bend:.1f} {to_y:.1f} {to_x:.1f} {to_y:.1f}"
                yield f'<path class="{kind}" d="M{x:.1f} {y:.1f} C{curve}"/>'
                yield f'<circle class="dot" cx="{to_x:.1f}" cy="{to_y:.1f}" r="3"/>'

    def _marks(self) -> Iterator[str]:
        for engine, life in self.lives.items():
            if life.killed:
                top, height = self.lanes[_seat(engine)]
                line = f"M{self.x(life.ended):.1f} {top - 7:.1f} v{height + 14:.1f}"
                yield f'<path class="kill" d="{line}"><title>{escape(engine)} was killed</title></path>'
        for at, engine, workflow in self.refusals:
            x, y = self.x(at), self.lanes[_seat(engine)][0] - 10
            told = f"{escape(engine)} came back too late for {escape(workflow)}"
            shape = f"M{x:.1f} {y:.1f} l6 6 l-6 6 l-6 -6 z"
            yield f'<path class="refused" d="{shape}"><title>{told}</title></path>'

    def _bar(self, kind: str, began: float, ended: float, y: float) -> str:
        size = f'width="{max(self.x(ended) - self.x(began) - 0.8, 0.6):.1f}" height="{BAR}"'
        return f'<rect class="{kind}" x="{self.x(began):.1f}" y="{y:.1f}" {size} rx="2"/>'

    def _band(self, kind: str, engine: str, began: float, ended: float) -> str:
        top, height = self.lanes[_seat(engine)]
        size = f'width="{self.x(ended) - self.x(began):.1f}" height="{height + 2 * AROUND:.1f}"'
        place = f'x="{self.x(began):.1f}" y="{top - AROUND:.1f}"'
        return f'<rect class="{kind}" {place} {size} rx="3"><title>{escape(engine)}</title></rect>'


def _seat(engine: str) -> str:
    return engine.partition(".")[0]
