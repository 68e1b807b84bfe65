"""A few seconds of a few keys: who had them by the tables, who believed so, which updates came through."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from tests.faults.proof.records import Call, History
from tests.faults.proof.reporting.figures import Figures
from tests.faults.proof.reporting.leases import BootTimes, Lease
from tests.faults.proof.reporting.markup import Markup, element, spot
from tests.faults.proof.reporting.moments import Moment, Moments
from tests.faults.proof.reporting.picture import axis, lines
from tests.faults.proof.reporting.spelling import clipped, clock, duration, short

MARKS = {"ok": "✓", "refused": "✕", "unknown": "?", "lost": "⊘"}
UNANSWERED = 0.3  # seconds that a line without an end is long
LINES = 8  # of faults, at most
THINGS = 400  # that are drawn of a kind, at most


def closeups(history: History, figures: Figures) -> list[Markup]:
    """Return the moments that are worth it, each with its words."""
    looked = Moments(history, figures)
    return [_Closeup(history, figures, moment, looked.workers).drawn() for moment in looked.found()]


@dataclass
class _Line:
    """Of faults that do not touch each other."""

    bars: list[Markup]
    free_from: float = 0.0


class _Closeup:
    def __init__(self, history: History, figures: Figures, moment: Moment, workers: dict[str, str]) -> None:
        self.history, self.figures, self.moment, self.workers = history, figures, moment, workers
        self.boot = BootTimes(history)
        self.long = moment.until - moment.since

    def drawn(self) -> Markup:
        moment = self.moment
        ticks = self._ticks()
        rows = [self._faults(), *(self._key(key) for key in moment.keys)]
        plot = element("div", rows, axis(ticks, "minutes"), lines(ticks), class_="plot")
        return element(
            "article",
            element("h3", moment.title),
            [element("p", text) for text in moment.text],
            element(
                "figure",
                element("div", plot, class_="scroll", tabindex="0", role="region", aria_label=moment.title),
                _legend(),
                class_="closeup",
                aria_label=f"{moment.title}. {' '.join(moment.text)}",
            ),
        )

    def _ticks(self) -> list[tuple[float, str]]:
        began, step = self.figures.began, 0.5 if self.long < 5 else 1.0
        first, last = (math.ceil((at - began) / step) for at in (self.moment.since, self.moment.until))
        times = (number * step for number in range(first, last))
        return [(self.place(began + at), clock(at, tenths=step < 1)) for at in times]

    def who(self, owner: str) -> str:
        return self.workers.get(owner, owner)

    def place(self, at: float) -> float:
        return (at - self.moment.since) / self.long

    def bar(self, name: str, since: float, until: float, *inside: str, **more: str | None) -> Markup:
        since, until = max(since, self.moment.since), min(until, self.moment.until)
        return spot(name, self.place(since), (until - since) / self.long, *inside, **more)

    def inside(self, since: float, until: float) -> bool:
        return since < self.moment.until and until > self.moment.since

    def _faults(self) -> Markup:
        """Return the faults, in as few lines as they fit into."""
        stacked: list[_Line] = []
        for one in sorted(self.history.faults, key=lambda one: one.began):
            if not self.inside(one.began, one.ended) or len(stacked) > LINES:
                continue
            name = f"{one.fault}: {one.target}"
            title = clipped(f"{name}. {one.detail}", 300)
            bar = self.bar("span", one.began, one.ended, clipped(name, 100), title=title)
            line = next((each for each in stacked if each.free_from < one.began), None)
            if line is None:
                stacked.append(line := _Line([]))
            line.bars.append(bar)
            line.free_from = one.ended
        label = element("span", element("b", "faults"), class_="name")
        rows = [element("div", line.bars, class_="bars") for line in stacked]
        return element("div", label, element("div", rows, class_="stack"), class_="row lane")

    def _key(self, key: str) -> Markup:
        held = [self._lease(lease) for lease in self._of_key(key)]
        beliefs = [
            self.bar(
                "i",
                trust.since,
                trust.until,
                class_="about" if self.moment.is_about(self.who(trust.owner)) else None,
                title=f"{self.who(trust.owner)} trusted it for {duration(trust.until - trust.since)}",
            )
            for trust in self.history.trusts
            if trust.key == key and self.inside(trust.since, trust.until)
        ]
        stored = set(self.history.resources.get(key, ()))
        updates = [
            self._update(call, lost=call.outcome == "ok" and call.value not in stored)
            for call in self.history.calls
            if call.key == key and call.kind == "update" and self.inside(call.called, _until(call))
        ]
        return element(
            "div",
            element("span", element("b", key), class_="name"),
            element(
                "div",
                element("div", held[:THINGS], class_="held"),
                element("div", beliefs[:THINGS], class_="beliefs"),
                element("div", updates[:THINGS], class_="updates"),
                class_="stack",
            ),
            class_="row key",
        )

    def _of_key(self, key: str) -> Iterable[Lease]:
        for lease in self.figures.leases:
            if lease.key == key and self.inside(self.boot(lease.began), self._end(lease)):
                yield lease

    def _end(self, lease: Lease) -> float:
        # A lease that has run out is over by then, also if nobody asked for a while.
        ended = min(lease.ended, lease.expires_at) if lease.ended else lease.expires_at
        return self.boot(ended)

    def _lease(self, lease: Lease) -> Markup:
        who = self.who(lease.owner)
        classes = ["about"] * self.moment.is_about(who) + ["expired"] * lease.expired
        how = "ran out" if lease.expired else "was given back" if lease.ended else "is the last one"
        since, until = self.boot(lease.began), self._end(lease)
        title = f"{who}, token {lease.token}: {duration(max(until - since, 0.0))}, {how}"
        return self.bar(
            "span", since, until, f"{who} {short(lease.token)}", class_=" ".join(classes) or None, title=title
        )

    def _update(self, call: Call, *, lost: bool) -> Markup:
        outcome = "lost" if lost else call.outcome
        about = " about" * self.moment.is_about(call.worker)
        title = f"update by {call.worker}, token {call.token}: {outcome} {clipped(call.error, 200)}"
        return self.bar(
            "span", call.called, _until(call), MARKS[outcome], class_=outcome + about, title=title
        )


def _until(call: Call) -> float:
    return call.returned if call.returned < math.inf else call.called + UNANSWERED


def _legend() -> Markup:
    def entry(name: str, text: str, *inside: str) -> Markup:
        return element("span", element("i", *inside, class_=f"key {name}"), f" {text}", class_="legend")

    return element(
        "p",
        entry("held", "has it by the tables: who, and the end of the token"),
        entry("held about", "the one this is about"),
        entry("held expired", "its time ran out"),
        entry("belief", "trusts its lease"),
        entry("mark ok", "update stored", MARKS["ok"]),
        entry("mark refused", "update refused", MARKS["refused"]),
        entry("mark unknown", "never answered", MARKS["unknown"]),
        entry("mark lost", "stored, and lost later", MARKS["lost"]),
        class_="legends",
    )
