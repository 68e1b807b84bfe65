"""Leaving well: what happens to leases when the process forks, ends, or is told to end.

- the interpreter ends: every client gives back what it holds
- SIGTERM, and nobody else handles it: the same, then the signal does what it always did
- fork: stores come to rest before it, and the child owns nothing
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
import weakref
from typing import Protocol

from holdfast import identity

# How long a dying process may take to give its leases back. They end with their ttl anyway.
GRACE = 2.0
A_MOMENT = 0.002


class Leaving(Protocol):
    """A client, as far as this module is concerned."""

    def leave(self) -> None:
        """Give back all leases and tickets, and close, as well as that can be done. Never raises."""

    def before_fork(self) -> None:
        """Leave nothing half done, and nothing open that a child must not inherit."""

    def after_fork_in_parent(self) -> None:
        """Go on."""

    def after_fork(self) -> None:
        """Become a client of this process that owns nothing."""


_clients: weakref.WeakSet[Leaving] = weakref.WeakSet()
_installed = False
_forking = threading.Lock()  # from before a fork until after it
_resting: list[Leaving] = []
_told_at: float | None = None  # when SIGTERM came first


def register(client: Leaving) -> None:
    """See to it that *client* leaves well."""
    global _installed
    _clients.add(client)
    if not _installed:
        _installed = True
        atexit.register(_leave)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(
                before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork
            )
        _leave_multiprocessing()
    _handle_sigterm()


def unregister(client: Leaving) -> None:
    """Forget a client that was closed."""
    _clients.discard(client)


def _handle_sigterm() -> None:
    in_main_thread = threading.current_thread() is threading.main_thread()
    if in_main_thread and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _on_sigterm)


def _on_sigterm(number: int, frame: object) -> None:  # noqa: ARG001
    # The main thread may have been interrupted inside a store, with its mutex held: releasing from here
    # could wait for ourselves. Another thread can try, for as long as a dying process has.
    try:
        helper = threading.Thread(target=_leave, daemon=True)
        helper.start()
        helper.join(GRACE)
    finally:  # whatever happens: whoever sent it wants us to end
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)


def _leave() -> None:
    for client in list(_clients):
        client.leave()


def _before_fork() -> None:
    _forking.acquire()
    _resting.extend(_clients)
    for client in _resting:
        client.before_fork()


def _after_fork_in_parent() -> None:
    for client in _resting:
        client.after_fork_in_parent()
    _resting.clear()
    _forking.release()


def _after_fork() -> None:
    global _forking
    _forking = threading.Lock()
    _resting.clear()
    identity.after_fork()
    for client in list(_clients):
        client.after_fork()
    if util := sys.modules.get("multiprocessing.util"):
        # A child of multiprocessing forgets its parent's finalizers before it runs these.
        util.register_after_fork(_leave_multiprocessing, lambda function: function())


def _leave_multiprocessing() -> None:
    """Leave well from a forked child of multiprocessing, too: it ends without running `atexit`."""
    if util := sys.modules.get("multiprocessing.util"):
        util.Finalize(None, _leave, exitpriority=0)
