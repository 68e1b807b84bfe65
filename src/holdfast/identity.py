"""Who we are: this process and client, and what a thread or task is called.

Names have a random part and are never made of thread idents, pids or host names alone: those are used again,
and a new thread would re-enter a dead one's lease.
"""

from __future__ import annotations

import itertools
import os
import sys
import threading
import weakref
from typing import Any

from holdfast.core.keys import FORBIDDEN as UNPRINTABLE
from holdfast.core.requests import Client
from holdfast.errors import SettingsError

forks = 0  # that made this process what it is: who remembers another number is the process that forked us

_threads = threading.local()
_tasks: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()


def new_client() -> Client:
    """Return a new client id for this process."""
    import socket  # slow to import, and only needed once

    return Client(instance=os.urandom(8).hex(), host=socket.gethostname(), pid=os.getpid())


class Attempts:
    """Makes the ids of a client's attempts. Whoever knows one can release what it holds: they are secrets.

    One random number for all of them, and a count: asking the kernel for each would take as long as all
    the rest of a grant in memory. The ids are told to nobody but the store.
    """

    def __init__(self) -> None:
        self._secret = os.urandom(16).hex()
        self._count = itertools.count(1)  # `next` of it is atomic: threads need no mutex

    def new(self) -> str:
        """Return an id that nobody ever had."""
        return f"{self._secret}-{next(self._count)}"

    def made(self, attempt: str) -> bool:
        """Tell whether an id is one of ours, and not of the process that forked us."""
        return attempt.startswith(self._secret)


def current_task() -> Any:
    """Return the asyncio task that runs us, or None."""
    # Whoever runs in a task has imported asyncio; everybody else need not pay for it.
    asyncio = sys.modules.get("asyncio")
    if asyncio is None:
        return None
    try:
        return None if asyncio._get_running_loop() is None else asyncio.current_task()  # noqa: SLF001
    except AttributeError:  # another thread is just importing asyncio
        return None


def name() -> str:
    """Return what the current task is called, otherwise the current thread: a readable name of its own."""
    if (task := current_task()) is not None:
        known = _tasks.get(task)
        if known is None:
            known = _tasks[task] = new_owner(task.get_name())
        return known
    try:
        return _threads.name  # type: ignore[no-any-return]
    except AttributeError:
        thread = threading.current_thread()
        _threads.name = new_owner(program() if thread is threading.main_thread() else thread.name)
        return _threads.name  # type: ignore[no-any-return]


def check_name(name: object, what: str, *, longest: int = 255) -> str:
    """Return *name* if others can be told it as the *what*: text that is not too long and can be printed."""
    if not isinstance(name, str) or not 1 <= len(name) <= longest:
        raise SettingsError(f"{what} is {name!r}; it must be a string of 1 to {longest} characters")
    if UNPRINTABLE.search(name):
        raise SettingsError(f"{what} {name!r} has a character that cannot be printed")
    return name


def after_fork() -> None:
    """Make everybody somebody else in a forked child: what the parent owns is not ours."""
    global _threads, forks
    forks += 1
    _threads = threading.local()
    _tasks.clear()


def program() -> str:
    """Return what the program is called: that tells people more than that its main thread is one."""
    path = sys.argv[0] if sys.argv else ""
    name = os.path.split(path.removesuffix("/__main__.py").removesuffix(".py"))[1]
    return "python" if name in ("", "-c", "-m") else name


def new_owner(name: str) -> str:
    """Return a readable id that nobody ever had."""
    return f"{UNPRINTABLE.sub('', name)[:40]}-{os.urandom(6).hex()}"
