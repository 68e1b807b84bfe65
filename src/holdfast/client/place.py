"""Where in a program a lock was asked for, to be told to people. Noting it costs next to nothing."""

from __future__ import annotations

import sys
from types import CodeType, FrameType
from typing import NamedTuple

# What stands between the code that takes a lock and us.
_BETWEEN = frozenset(("holdfast", "contextlib", "functools", "asyncio", "concurrent", "threading"))


_between: set[object] = set()  # modules of those that we have come across


class Place(NamedTuple):
    """An instruction of a program; None if only libraries were running."""

    code: CodeType | None
    instruction: int

    @property
    def file(self) -> str:
        """The file it is in."""
        return "<unknown>" if self.code is None else self.code.co_filename

    @property
    def line(self) -> int:
        """The number of its line."""
        if self.code is not None:
            for start, end, line in self.code.co_lines():
                if start <= self.instruction < end and line is not None:
                    return line
        return 0

    def __str__(self) -> str:
        if self.code is None:
            return "a thread or task that only takes locks"
        return f"{self.file}:{self.line} in {self.code.co_name}"


def asked_at() -> Place:
    """Return where we are asked from, by code that is not a library's between it and us.

    There may be none: a thread or a greenlet can begin with a method of ours.
    """
    frame: FrameType | None = sys._getframe(2)  # noqa: SLF001 - inspect.stack() reads the source of every frame
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if module not in _between:
            if str(module).partition(".")[0] not in _BETWEEN:
                return Place(frame.f_code, frame.f_lasti)
            _between.add(module)
        frame = frame.f_back
    return Place(None, 0)
