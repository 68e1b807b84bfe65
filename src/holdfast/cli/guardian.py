"""The guardian of a command: should ``holdfast run`` die or hang, it stops the command in its place.

A process of its own at the other end of a pipe, which the kernel closes however ``run`` dies. It is told
again and again until when the lease is trusted, and acts by itself when that is not moved in time. It is
started as a plain file, without the package, so that it is there in a few milliseconds.
"""

from __future__ import annotations

import math
import os
import select
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import suppress

PAUSE = 0.02
AT_ONCE = 0.05  # how long before the end SIGKILL is sent: for being scheduled, and for dying
DONE = b"done"

# The clock of holdfast.clock: it also counts the time a machine is suspended.
CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def now() -> float:
    """Return the time that the end of trust is told in."""
    return time.clock_gettime(CLOCK)


def signal_group(group: int, number: int) -> None:
    """Send a signal to every process of a group that is still there."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def group_exists(group: int) -> bool:
    """Tell whether any process of a group is left that can still do something."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    # Dead ones count until somebody reaps them, for ever in a container without an init that does. Where
    # there is no /proc, that is good enough.
    states = [state for _, state, _, of in processes() if of == group]
    return not states or any(state not in "ZX" for state in states)


def processes() -> Iterator[tuple[int, str, int, int]]:
    """Return the processes of this machine: number, state, parent and group. None where there is no /proc."""
    try:
        names = os.listdir("/proc")
    except OSError:
        return
    for name in filter(str.isdigit, names):
        with suppress(OSError, ValueError), open(f"/proc/{name}/stat", "rb") as file:  # noqa: PTH123
            state, parent, group = file.read().rpartition(b")")[2].split()[:3]
            yield int(name), state.decode(), int(parent), int(group)


def ask_to_stop(group: int) -> None:
    """Send SIGTERM, and SIGCONT: a stopped process would not hear the first."""
    signal_group(group, signal.SIGTERM)
    signal_group(group, signal.SIGCONT)


def stop(group: int, grace: float) -> None:
    """Have a group stopped within *grace* seconds, one way or the other."""
    end = now() + grace
    if grace > 0:
        ask_to_stop(group)
        while group_exists(group) and now() < end:
            time.sleep(PAUSE)
    signal_group(group, signal.SIGKILL)


def watch(fd: int) -> None:
    """Read lines ``GROUP GRACE UNTIL`` until the word is `DONE`, the pipe ends, or the trust does.

    ``run`` begins to stop the command when *grace* is left until *until*. When half of that is left and
    nothing was heard, it will not do so any more.
    """
    group, grace, until = 0, 0.0, math.inf
    rest = b""
    while True:
        left = until - grace / 2 - now()
        if left <= 0:
            break
        if not select.select([fd], [], [], min(left, 1.0))[0]:
            continue
        text = os.read(fd, 65536)
        if not text:
            break
        *lines, rest = (rest + text).split(b"\n")
        if DONE in lines:
            return
        if lines:
            words = lines[-1].split()
            group, grace, until = int(words[0]), float(words[1]), float(words[2])
    if group:
        stop(group, min(grace, until - AT_ONCE - now()))


def main() -> None:
    """Watch stdin; whatever else it is told, only the pipe says when it is over."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    watch(sys.stdin.fileno())


if __name__ == "__main__":
    main()
