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
from types import CodeType, FrameType
from typing import Any, Protocol, TypeVar

from holdfast import identity
from holdfast.clock import boot_time

F = TypeVar("F", bound=Any)

# How long a dying process may take to give its leases back. They end with their ttl anyway.
GRACE = 2.0
A_MOMENT = 0.002  # for the main thread to finish what it is doing


class Leaving(Protocol):
    """A client, as far as this module is concerned: see `Engine`."""

    def in_books(self) -> bool: ...
    def leave(self) -> None: ...
    def before_fork(self) -> None: ...
    def after_fork_in_parent(self) -> None: ...
    def after_fork(self) -> None: ...


_clients: weakref.WeakSet[Leaving] = weakref.WeakSet()
_installed = False
_forking = threading.Lock()  # from before a fork until after it
_forking_thread: int | None = None
_resting: list[Leaving] = []
told_to_end: int | None = None  # the signal that came at a bad moment
_told_at: float | None = None  # when it came first
_ending = False

_busy: set[CodeType] = set()
_idle: set[CodeType] = set()


def busy(function: F) -> F:
    """Mark a function in which something is half done: SIGTERM waits until the main thread has left it."""
    _busy.add(function.__code__)
    return function


def idle(function: F) -> F:
    """Mark a function that merely waits, although others that called it are busy."""
    _idle.add(function.__code__)
    return function


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
    in_main_thread = threading.current_thread() is threading.main_thread()
    if in_main_thread and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _on_sigterm)


def unregister(client: Leaving) -> None:
    """Forget a client that was closed."""
    _clients.discard(client)


def _on_sigterm(number: int, frame: FrameType | None) -> None:
    global told_to_end, _told_at
    _told_at = _told_at or boot_time()
    if _is_busy(frame) and boot_time() < _told_at + GRACE:
        # The thread that we have interrupted may hold a mutex that releasing needs, or a lease that nobody
        # knows of yet. Let it finish; then it comes to `end_if_told`, or else we come again.
        told_to_end = number
        again = threading.Timer(A_MOMENT, os.kill, (os.getpid(), number))
        again.daemon = True
        again.start()
    else:
        _end(number)


def end_if_told() -> None:
    """End now, if SIGTERM came at a bad moment. Called by the clients when there is nothing half done."""
    if told_to_end is not None and threading.current_thread() is threading.main_thread():
        _end(told_to_end)


def _end(number: int) -> None:
    global _ending
    if _ending:
        return  # the signal came once more, while we are at it
    _ending = True
    try:
        # In another thread, because it must not take longer than a dying process has.
        helper = threading.Thread(target=_leave, daemon=True)
        helper.start()
        helper.join(GRACE)
    finally:  # whatever happens: whoever sent it wants us to end
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)


def _is_busy(frame: FrameType | None) -> bool:
    """Tell whether the interrupted code is in the middle of a request, not waiting nor in a body.

    If it is changing what a client keeps, it has the mutex that releasing needs. So has another thread that
    does so: then it is over in a moment.
    """
    while frame is not None and frame.f_code not in _idle:
        if frame.f_code in _busy:
            return True
        frame = frame.f_back
    return any(client.in_books() for client in _all_clients())


def _leave() -> None:
    for client in _all_clients():
        client.leave()


def _all_clients() -> list[Leaving]:
    while True:
        try:
            return list(_clients)
        except RuntimeError:  # another thread has just made a client
            continue


def _before_fork() -> None:
    global _forking_thread
    _forking.acquire()
    _forking_thread = threading.get_ident()
    _resting.extend(_all_clients())
    interrupt = None
    for client in _resting:
        try:
            client.before_fork()
        except BaseException as error:  # noqa: BLE001 - the others have to come to rest as well
            interrupt = error
    if interrupt is not None:
        raise interrupt


def _after_fork_in_parent() -> None:
    global _forking_thread
    if _forking_thread != threading.get_ident():
        return  # an interrupt kept us from preparing for this fork
    try:
        for client in _resting:
            client.after_fork_in_parent()
    finally:
        _resting.clear()
        _forking_thread = None
        _forking.release()


def _after_fork() -> None:
    global _forking, _forking_thread, _told_at, told_to_end, _ending
    _forking = threading.Lock()
    _forking_thread = _told_at = told_to_end = None
    _ending = False
    _resting.clear()
    identity.after_fork()
    for client in _all_clients():
        client.after_fork()
    if util := sys.modules.get("multiprocessing.util"):
        # A child of multiprocessing forgets its parent's finalizers before it runs these.
        util.register_after_fork(_leave_multiprocessing, lambda function: function())


def _leave_multiprocessing() -> None:
    """Leave well from a forked child of multiprocessing, too: it ends without running `atexit`."""
    if util := sys.modules.get("multiprocessing.util"):
        util.Finalize(None, _leave, exitpriority=0)
