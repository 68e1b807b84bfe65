"""Which way of waiting for the writer is best? On request only: it patches the store's internals."""

from __future__ import annotations

import random
from statistics import median

from bench import handover, writers
from bench.report import Line

TITLE = "Queueing for the writer: prototypes"
WAYS = (
    "as is",
    "retry 0.05 0.05",
    "retry 0.1 0.1",
    "gate",
    "gate, helped",
    "gate, polled",
    "gate when busy",
    "busy_timeout",
)


def run(quick: bool) -> list[Line]:
    """Let all ways compete in every contest, in an order that changes from round to round."""
    seconds = 0.5 if quick else 1.0
    jobs = [(way, contest) for way in WAYS for contest in ("normal", "full", "one key")]
    seen: dict[tuple[str, str], list[tuple[float, float, float]]] = {job: [] for job in jobs}
    for _ in range(2 if quick else 8):
        random.shuffle(jobs)
        for way, contest in jobs:
            if contest == "one key":
                taken = handover.in_file(handover.holdfast_worker, seconds, way)
                seen[way, contest].append((taken.cross, taken.share, taken.worst))
            else:
                done = writers.contest(writers.holdfast_worker, seconds, contest, way)
                seen[way, contest].append((done.total, done.share, done.worst))
    lines = []
    for contest, words in (
        ("normal", "4 writers, normal"),
        ("full", "4 writers, full"),
        ("one key", "8 processes, one key"),
    ):
        base = median(rate for rate, _, _ in seen["as is", contest])
        for way in WAYS:
            rate, share, worst = (median(column) for column in zip(*seen[way, contest], strict=True))
            lines.append(
                Line(
                    f"{words}: {way}",
                    f"{rate:,.0f} /s",
                    f"max/min {share:.2f}, worst {worst * 1e3:.1f} ms",
                    rate / base,
                )
            )
    return lines
