"""Whose a lock is when nobody says: the code inside a block is one owner, and no other code is.

*Inside* means called from the block: the function that the ``with`` statement stands in is still running,
below us on the stack of this thread or task, in the same context (`contextvars`). Code that merely runs in
the same thread later, as in the threads of a pool, is not inside, although the block may still be open
because another thread is to leave it. Neither are child tasks, nor copies of the context that run elsewhere.

`owner` opens a scope that travels: everything inside is one owner, whichever threads and tasks it runs in.

Decision 0039 has the reasons.
"""

from __future__ import annotations

import contextlib
import itertools
import sys
import weakref
from contextlib import AbstractContextManager
from contextvars import ContextVar
from types import FrameType, TracebackType

from holdfast import errors, identity

_GENERATOR = 0x20 | 0x200  # inspect.CO_GENERATOR, CO_ASYNC_GENERATOR: inspect is slow to import
_ENTERING = ("__enter__", "__aenter__")
_LIBRARY = vars(contextlib)
_ANYWHERE = -1  # a place in the code that there is not

_count = itertools.count(1)  # `next` of it is atomic: threads need no mutex


class _Link(weakref.ref["_Scope"]):
    """What a context has of a scope that was opened in it. A scope that nobody has any more is over."""

    __slots__ = ("outer",)
    outer: _Link | None  # the one around it


_innermost: ContextVar[_Link | None] = ContextVar("holdfast_owner", default=None)


def current() -> str:
    """Return the owner that the calling code is: that of the scope it is inside of, otherwise a new one."""
    link = _innermost.get()
    return (link and _inside(link)) or f"{identity.name()}.{next(_count)}"


def same_origin(one: str, other: str) -> bool:
    """Tell whether two owners that `current` made up are of the same thread or task."""
    return one.rpartition(".")[0] == other.rpartition(".")[0] != ""


def _inside(link: _Link | None) -> str | None:
    """Return the owner of the innermost scope that the calling code is inside of, if there is one."""
    task = identity.current_task()
    around: str | None = None
    calls: dict[FrameType, list[tuple[int, str]]] = {}
    while link is not None and around is None:
        scope = link()
        if isinstance(scope, OwnerScope) and scope.is_open:
            around = scope.owner
        elif isinstance(scope, Block) and scope.is_open and scope.task is task:
            for call, entered_at in scope.calls:
                calls.setdefault(call, []).append((entered_at, scope.owner))
        link = link.outer
    frame = sys._getframe(1) if calls else None  # noqa: SLF001
    while frame is not None:
        for entered_at, owner in calls.get(frame, ()):
            # A loop that entered the block by calling `__enter__`, as the thread of a pool does, calls
            # strangers from the same place. The body of a block is at another place.
            if frame.f_lasti != entered_at:
                return owner
        frame = frame.f_back
    return around


class _Scope:
    """Code that is one owner."""

    __slots__ = ("__weakref__", "_forks", "_link", "owner")

    def __init__(self, owner: str) -> None:
        self.owner = owner
        self._forks = identity.forks
        self._link: _Link | None = None  # None: it is not open

    @property
    def is_open(self) -> bool:
        """Whether it was entered and not left, in this process."""
        return self._link is not None and self._forks == identity.forks

    def open(self) -> None:
        """Begin, in the context that we are in."""
        outer = _innermost.get()
        while outer is not None and ((scope := outer()) is None or not scope.is_open):
            outer = outer.outer  # that one was left in another context
        self._link = link = _Link(self)
        link.outer = outer
        _innermost.set(link)

    def leave(self) -> None:
        """End, in whichever thread or task that is."""
        link, self._link = self._link, None
        if link is not None and _innermost.get() is link:
            _innermost.set(link.outer)


class Block(_Scope):
    """The inside of a ``with`` block: begun by its ``__enter__``, and left by its ``__exit__``."""

    __slots__ = ("calls", "task")

    def __init__(self, owner: str, entering: FrameType) -> None:
        super().__init__(owner)
        self.task = identity.current_task()
        self.calls = _calls(entering)
        self.open()

    def leave(self) -> None:
        """End, and let go of the task and its calls: they refer to whatever their functions have."""
        super().leave()
        self.task, self.calls = None, ()


def _calls(entering: FrameType) -> tuple[tuple[FrameType, int], ...]:
    """Return the calls that a block is entered by, each with its place in the code.

    That is the function in which the ``with`` statement stands. If it is a generator, its caller counts,
    too: that is how functions with ``@contextmanager`` work. An ``__enter__``, and whatever `contextlib` has,
    enter a block for their callers.
    """
    calls = []
    stacked = False
    frame = entering.f_back
    while frame is not None:
        code = frame.f_code
        if code.co_flags & _GENERATOR:
            calls.append((frame, frame.f_lasti))
        elif frame.f_globals is _LIBRARY:
            stacked = stacked or code.co_name not in _ENTERING  # an ExitStack, perhaps in a loop
        elif code.co_name not in _ENTERING:
            calls.append((frame, _ANYWHERE if stacked else frame.f_lasti))
            break
        frame = frame.f_back
    return tuple(calls)


class OwnerScope(_Scope):
    """What `owner` returns."""

    __slots__ = ("_named",)

    def __init__(self, name: str | None) -> None:
        self._named = name is not None
        if name is None:
            super().__init__(identity.new_owner(identity.program()))
        else:
            super().__init__(identity.check_name(name, "owner"))

    @property
    def is_open(self) -> bool:
        """Whether it was entered and not left. A forked child is the same owner only if that has a name."""
        return self._link is not None and (self._named or self._forks == identity.forks)

    def __enter__(self) -> str:
        if self._link is not None:
            raise errors.SettingsError(f"{self!r} was entered before and not left; call owner() again")
        self.open()
        return self.owner

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.leave()

    def __repr__(self) -> str:
        return f"<OwnerScope {self.owner!r}{'' if self._link is None else ', open'}>"


def owner(name: str | None = None) -> AbstractContextManager[str]:
    """Make everything in a ``with`` block one owner: ``with holdfast.owner("request-17"):``.

    Whichever threads and tasks it runs in, if they have inherited the context: child tasks,
    `asyncio.to_thread`, the thread pools of web frameworks. What one of them holds, the others enter again,
    at the same time, too. Without a *name* it is an owner that nobody else is. With one, everybody who uses
    that name is the same owner, also in other processes.
    """
    return OwnerScope(name)
