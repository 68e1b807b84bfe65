"""What the end of a ``with`` block is told, as types: every ``__exit__`` and ``__aexit__`` takes these."""

from types import TracebackType

Kind = type[BaseException] | None
Error = BaseException | None
Traceback = TracebackType | None
