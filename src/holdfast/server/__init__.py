"""The lock server: the same locks over HTTP, with live events and a dashboard. ``holdfast serve`` runs it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.server.settings import Limits, ServerSettings

if TYPE_CHECKING:
    from holdfast.server.main import Server

__all__ = ["Limits", "Server", "ServerSettings"]


def __getattr__(name: str) -> Any:
    if name == "Server":  # only who runs one needs what it needs
        from holdfast.server.main import Server

        return Server
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
