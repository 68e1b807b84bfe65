"""Signals belong to the program's own threads, not to ours.

A signal that the kernel delivers to a background thread does not wake the main thread out of a blocking
call, and so Ctrl-C or SIGTERM would seem to be ignored.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

SUPPORTED = hasattr(signal, "pthread_sigmask")


def block_signals() -> None:
    """Leave all signals to the other threads. For the start of a thread of ours."""
    if SUPPORTED:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())


@contextmanager
def signals_unblocked() -> Iterator[None]:
    """Take signals again while code of the user's runs: a process that it starts inherits what is blocked."""
    if not SUPPORTED:
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_UNBLOCK, signal.valid_signals())
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
