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
from types import FrameType

from holdfast import errors, identity

_GENERATOR = 0x20 | 0x200  # inspect.CO_GENERATOR, CO_ASYNC_GENERATOR: inspect is slow to import
_ENTERING = ("__enter__", "__aenter__")
_LIBRARY = vars(contextlib)
_CACHES = 64  # bytes: more than an instruction can have of them

_count = itertools.count(1)  # `next` of it is atomic: threads need no mutex


class _Link(weakref.ref["_Scope"]):
    """What a context has of a scope that was opened in it. A scope that nobody has any more is over."""

    __slots__ = ("outer",)
    outer: _Link | None  # the one around it

    @property
    def scope(self) -> _Scope | None:
        """The scope, if it is open since it was opened here."""
        scope = self()
        return scope if scope is not None and scope.is_open and scope.link is self else None


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
    calls: dict[FrameType, list[tuple[_Call, str]]] = {}
    while link is not None and around is None:
        scope = link.scope
        if isinstance(scope, OwnerScope):
            around = scope.owner
        elif isinstance(scope, Block) and scope.task is task:
            for call in scope.calls:
                calls.setdefault(call.frame, []).append((call, scope.owner))
        link = link.outer
    frame = sys._getframe(1) if calls else None  # noqa: SLF001
    called: FrameType | None = None
    while frame is not None:
        for call, owner in calls.get(frame, ()):
            if call.goes_on(called):
                return owner
        called, frame = frame, frame.f_back
    return around


def _pruned(link: _Link | None) -> _Link | None:
    """Return the innermost link of an open scope, and let go of those around it that are not open any more.

    They were left in another context, or before what is inside of them.
    """
    first = link = _open(link)
    while link is not None:
        outer = _open(link.outer)
        link.outer, link = outer, outer
    return first


def _open(link: _Link | None) -> _Link | None:
    while link is not None and link.scope is None:
        link = link.outer
    return link


class _Scope:
    """Code that is one owner."""

    __slots__ = ("__weakref__", "_forks", "link", "owner")

    def __init__(self, owner: str) -> None:
        self.owner = owner
        self._forks = identity.forks
        self.link: _Link | None = None  # None: it is not open

    @property
    def is_open(self) -> bool:
        """Whether it was entered and not left, in this process."""
        return self.link is not None and self._forks == identity.forks

    def open(self) -> None:
        """Begin, in the context that we are in."""
        link = _Link(self)
        link.outer = _pruned(_innermost.get())
        self.link = link
        _innermost.set(link)

    def leave(self) -> None:
        """End, in whichever thread or task that is."""
        link, self.link = self.link, None
        if link is not None and _innermost.get() is link:
            _innermost.set(link.outer)


class Block(_Scope):
    """The inside of a ``with`` block: begun by its ``__enter__``, and left by its ``__exit__``.

    *depth*: how far down the stack that ``__enter__`` is; 1 is the function that makes the block.
    """

    __slots__ = ("calls", "task")

    def __init__(self, owner: str, depth: int = 1) -> None:
        _Scope.__init__(self, owner)  # `super` takes as long as all the rest of it
        self.task = identity.current_task()
        self.calls = _calls(sys._getframe(depth))  # noqa: SLF001
        self.open()

    def leave(self) -> None:
        """End, and let go of the task and its calls: they refer to whatever their functions have."""
        _Scope.leave(self)
        self.task, self.calls = None, ()


class _Call:
    """A call that a block was entered by, and its place in the code."""

    __slots__ = ("_entered_at", "_stack", "frame")

    def __init__(self, frame: FrameType, stack: object = None) -> None:
        self.frame = frame
        self._entered_at = frame.f_lasti
        self._stack = None if stack is None else weakref.ref(stack)  # what of `contextlib`'s has entered it

    def goes_on(self, called: FrameType | None) -> bool:
        """Tell whether the function has gone on to the body of the block, where it has *called* something.

        A loop that entered the block by calling `__enter__`, as the thread of a pool does, calls strangers
        from the same place. The body of a block is at another place; or what enters blocks for the function
        enters the next one.
        """
        if not _same(self.frame, self._entered_at):
            return True
        return self._stack is not None and called is not None and _library(called) is self._stack()


def _same(frame: FrameType, place: int) -> bool:
    """Tell whether a function is at a *place* in its code.

    A call is at the beginning or at the end of its instruction, depending on what it calls: between them are
    caches, which are 0.
    """
    low, high = sorted((frame.f_lasti, place))
    return low == high or (high - low < _CACHES and not any(frame.f_code.co_code[low + 2 : high + 2 : 2]))


def _library(frame: FrameType) -> object:
    """Return whose method runs if it is one of `contextlib`: an `ExitStack`, for one."""
    return frame.f_locals.get("self") if frame.f_globals is _LIBRARY else None


def _calls(entering: FrameType) -> tuple[_Call, ...]:
    """Return the calls that a block is entered by.

    That is the function in which the ``with`` statement stands. If it is a generator, its caller counts,
    too: that is how functions with ``@contextmanager`` work. An ``__enter__``, and whatever `contextlib` has,
    enter a block for their callers.
    """
    calls = []
    stack: object = None
    frame = entering.f_back
    while frame is not None:
        code = frame.f_code
        if code.co_flags & _GENERATOR:
            calls.append(_Call(frame, stack))
            stack = None
        elif frame.f_globals is _LIBRARY:
            if code.co_name not in _ENTERING:
                stack = _library(frame)  # that enters more for its caller, perhaps in a loop
        elif code.co_name not in _ENTERING:
            calls.append(_Call(frame, stack))
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
        return self.link is not None and (self._named or self._forks == identity.forks)

    def __enter__(self) -> str:
        if self.link is not None:
            raise errors.SettingsError(f"{self!r} was entered before and not left; call owner() again")
        self.open()
        return self.owner

    def __exit__(self, *_: object) -> None:
        self.leave()

    def __repr__(self) -> str:
        return f"<OwnerScope {self.owner!r}{'' if self.link is None else ', open'}>"


def owner(name: str | None = None) -> AbstractContextManager[str]:
    """Make everything in a ``with`` block one owner: ``with holdfast.owner("request-17"):``.

    Whichever threads and tasks it runs in, if they have inherited the context: child tasks,
    `asyncio.to_thread`, the thread pools of web frameworks. What one of them holds, the others enter again,
    at the same time, too. Without a *name* it is an owner that nobody else is. With one, everybody who uses
    that name is the same owner, also in other processes.
    """
    return OwnerScope(name)
