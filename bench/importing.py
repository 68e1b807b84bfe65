"""What `import holdfast` adds to starting Python."""

from __future__ import annotations

import subprocess
import sys
import time
from statistics import median

from bench.report import Line, milliseconds

TITLE = "Import"


def run(quick: bool) -> list[Line]:
    plain, ours = [], []
    for _ in range(10 if quick else 30):
        plain.append(_start("pass"))
        ours.append(_start("import holdfast"))
    bare = median(plain)
    added = median(ours) - bare
    offenders = ", ".join(f"{name} {took * 1e3:.1f}" for name, took in slowest(5))
    return [
        Line(
            "import holdfast",
            milliseconds(added),
            f"bare Python {milliseconds(bare)}",
            added * 1e3,
            45.0,
            least=False,
            unit="ms",
            means="The median start with the import less the median start without.",
        ),
        Line(
            "… of it, ms",
            "",
            offenders,
            means="The modules whose own code takes longest, by `-X importtime`, which is slower itself.",
        ),
    ]


def _start(code: str) -> float:
    started = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True)
    return time.perf_counter() - started


def slowest(count: int) -> list[tuple[str, float]]:
    """Return the modules that take longest by themselves, of those that bare Python does not import."""
    before = {name for name, _ in _times("pass")}
    times = [(name, took) for name, took in _times("import holdfast") if name not in before]
    return sorted(times, key=lambda each: -each[1])[:count]


def _times(code: str) -> list[tuple[str, float]]:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", code], check=True, capture_output=True, text=True
    )
    times = []
    for line in done.stderr.splitlines():
        own, _, name = line.removeprefix("import time:").split("|")
        if own.strip().isdigit():
            times.append((name.strip(), int(own) / 1e6))
    return times
