"""Reaping as process 1 of a container: what loses its parent there becomes ours, and nobody else reaps it.

Only that. How our own processes ended belongs to whoever waits for them, so they are started here, and left
alone until they are forgotten.
"""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from holdfast.cli.guardian import processes
from holdfast.signal_mask import block_signals

INIT = 1
PAUSE = 0.5  # seconds: how long a dead process may stay

_mutex = threading.Lock()  # a process that we start may be dead before we know its number
_ours: set[int] = set()


def start(command: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
    """Start a process that somebody will wait for."""
    with _mutex:
        process = subprocess.Popen(command, **options)  # noqa: S603
        _ours.add(process.pid)
    return process


def forget(pid: int) -> None:
    """Take note that a process of ours was waited for: its number may be used again."""
    with _mutex:
        _ours.discard(pid)


def reap() -> None:
    """Reap all dead children that nobody waits for."""
    with _mutex:
        dead = [pid for pid, state, parent, _ in processes() if state == "Z" and parent == os.getpid()]
        for pid in dead:
            if pid not in _ours:
                with suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)


def reap_orphans() -> None:
    """Reap from now on, if we are process 1."""
    if os.getpid() == INIT:
        threading.Thread(target=_go_on_reaping, name="holdfast-reaper", daemon=True).start()


def _go_on_reaping() -> None:
    block_signals()
    while True:
        reap()
        time.sleep(PAUSE)
