"""What a process sees of its own wall clock, which a fault may set: it tells, and the fault reads that.

libfaketime looks at its file now and then, so a fault could be over before anybody has noticed it.
"""

from __future__ import annotations

import time
from pathlib import Path

from holdfast.clock import boot_time

NOTICEABLE = 0.05  # seconds by which a clock is wrong, and not only read late
SEEN = ".seen"  # how the name of the file ends in which a process tells what it sees


def tell_clock(file: Path) -> None:
    """Note what the clock of this process shows, beside the one that no fault changes."""
    with file.with_suffix(SEEN).open("a") as seen:
        seen.write(f"{boot_time()!r} {_ahead()!r}\n")


def seen_wrong(file: Path, *, since: float) -> float | None:
    """Return when a process first saw its clock go wrong, by what it told of it; None: never."""
    right, seen = _ahead(), file.with_suffix(SEEN)
    for line in seen.read_text().splitlines() if seen.exists() else ():
        at, ahead = map(float, line.split())
        if at >= since and abs(ahead - right) > NOTICEABLE:
            return at
    return None


def _ahead() -> float:
    """Return by how much the wall clock is ahead of the boot-time clock, read at nearly the same time."""
    looks = []
    for _ in range(5):
        before, wall, after = boot_time(), time.time(), boot_time()
        looks.append((after - before, wall - before))
    return min(looks)[1]
