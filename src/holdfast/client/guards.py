"""How a function is guarded: what `Holdfast.guarded` was told, the same for threads and tasks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from holdfast.client.options import HoldOptions, check_options
from holdfast.core import keys
from holdfast.core.data import data
from holdfast.errors import SettingsError

OnBusy = Literal["wait", "skip", "raise"]


class GuardOptions(HoldOptions, total=False):
    """How the lock of a function may be named and taken. See `Holdfast.guarded`."""

    key_from: Callable[..., str] | None


@data
class Guard:
    """How a function is guarded, checked when it is decorated."""

    key: str | None
    key_from: Callable[..., str] | None
    on_busy: OnBusy
    options: HoldOptions

    def __post_init__(self) -> None:
        if self.on_busy not in ("wait", "skip", "raise"):
            raise SettingsError(f"on_busy is {self.on_busy!r}; it must be 'wait', 'skip' or 'raise'")
        if self.key is not None and self.key_from is not None:
            raise SettingsError("give either a key or key_from, not both")
        if self.key is not None:
            keys.validate(self.key)
        check_options(self.options)
        if self.on_busy != "wait":
            if self.options.get("timeout"):
                raise SettingsError(f"timeout= is for on_busy='wait', not for {self.on_busy!r}")
            self.options["timeout"] = 0

    @staticmethod
    def check_bare(function: Callable[..., Any]) -> None:
        """Tell ``@guarded`` without parentheses from a key function that was given as the key."""
        if getattr(function, "__name__", "") == "<lambda>":
            raise SettingsError("a key that is computed from the arguments is given as key_from=")

    def key_of(self, function: Callable[..., Any], args: Any, kwargs: Any) -> str:
        """Return the key for one call."""
        if self.key_from is not None:
            return self.key_from(*args, **kwargs)
        return self.key or f"{function.__module__}.{function.__qualname__}"
